"""A folder, or a prefix in a bucket, as Spark's tasks read and write it."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.access.paths import leads_out
from penstock.components.shared.s3 import Access, answered, store
from penstock.errors import PenstockError


@dataclass(frozen=True)
class Place:
    """A folder, or a prefix in a bucket; it travels to the tasks."""

    root: str
    access: Access | None = None

    def _below(self, name: str) -> Path:
        """The file of a name that a table or a manifest may have given: never one outside of the folder."""
        found = Path(self.root, name)
        if leads_out(name) or not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(self.root)):
            reason = "it does not lie in the folder of its table"
            raise PenstockError.of("PATH_NOT_ALLOWED", where="a table", path=name, reason=reason, allowed=self.root)
        return found

    def open(self, name: str) -> Out:
        if self.access is None:
            target = self._below(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            return Out(LocalFile(target))
        import obstore

        return Out(obstore.open_writer(store(self.access), name, max_concurrency=4), self.access)

    def read(self, name: str) -> bytes:
        """All of a file; raises FileNotFoundError if it is not there."""
        if self.access is None:
            return self._below(name).read_bytes()
        import obstore

        with answered(self.access):
            return bytes(obstore.get(store(self.access), name).bytes())

    def seekable(self, name: str, size: int) -> IO[bytes] | Parts:
        """A file of which parts are read."""
        return self._below(name).open("rb") if self.access is None else Parts(self.access, name, size)


class LocalFile:
    """A new file that is on the disk when it has been closed; its name is when its folder has been synced."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self.write = self._file.write

    def close(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


class Out:
    """A file on its way; it knows its length."""

    def __init__(self, sink: Any, found: Access | None = None) -> None:
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
