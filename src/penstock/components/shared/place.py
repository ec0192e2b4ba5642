"""A folder, or a prefix in a bucket, as Spark's tasks read and write it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.components.shared.s3 import Access, answered, store


@dataclass(frozen=True)
class Place:
    """A folder, or a prefix in a bucket; it travels to the tasks."""

    root: str
    access: Access | None = None

    def open(self, name: str) -> Out:
        if self.access is None:
            target = Path(self.root, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            return Out(target.open("xb"))
        import obstore

        return Out(obstore.open_writer(store(self.access), name, max_concurrency=4), self.access)

    def read(self, name: str) -> bytes:
        """All of a file; raises FileNotFoundError if it is not there."""
        if self.access is None:
            return Path(self.root, name).read_bytes()
        import obstore

        with answered(self.access):
            return bytes(obstore.get(store(self.access), name).bytes())

    def seekable(self, name: str, size: int) -> IO[bytes] | Parts:
        """A file of which parts are read."""
        return Path(self.root, name).open("rb") if self.access is None else Parts(self.access, name, size)


class Out:
    """A file on its way; it knows its length."""

    def __init__(self, sink: IO[bytes] | Any, found: Access | None = None) -> None:
        self._sink = sink
        self._found = found
        self.closed = False
        self.bytes = 0

    def write(self, content: Any) -> int:
        size = len(memoryview(content).cast("B"))
        self._run(lambda: self._sink.write(content))
        self.bytes += size
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Parquet asks for it after each part; a file counts as a whole."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._run(self._sink.close)

    def _run(self, action: Any) -> None:
        if self._found is None:
            action()
            return
        with answered(self._found):
            action()


class Parts(io.RawIOBase):
    """An object of which only those bytes are asked for that are needed."""

    def __init__(self, found: Access, name: str, size: int) -> None:
        self._found, self._name, self._size = found, name, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        import obstore

        left = max(self._size - self._at, 0)
        length = left if size < 0 else min(size, left)
        if not length:
            return b""
        with answered(self._found):
            found = bytes(obstore.get_range(store(self._found), self._name, start=self._at, length=length))
        self._at += len(found)
        return found
