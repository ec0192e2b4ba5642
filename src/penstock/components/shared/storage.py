"""Small files on whatever file system a path names: read, list, and write whole or not at all.

Local paths go through the operating system, everything else through the Hadoop file system Spark has for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoredFile:
    """A file below a root, with its path relative to it."""

    path: str
    bytes: int


class Storage(Protocol):
    """A root folder and what can be done below it; all names are relative to it."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None:
        """Puts the text there so that a reader sees the old content or the new one, never a part."""

    def names(self, folder: str) -> list[str]: ...

    def files(self, folder: str) -> Iterator[StoredFile]: ...

    def delete(self, name: str) -> None: ...


def storage(root: str, spark: SparkSession) -> Storage:
    if "://" not in root:
        return LocalStorage(Path(root))
    return HadoopStorage(root, spark)


class LocalStorage:
    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str) -> str | None:
        try:
            return (self.root / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with hidden.open("w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            hidden.replace(target)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise

    def names(self, folder: str) -> list[str]:
        place = self.root / folder
        if not place.is_dir():
            return []
        return sorted(entry.name for entry in place.iterdir() if not entry.name.startswith("."))

    def files(self, folder: str) -> Iterator[StoredFile]:
        place = self.root / folder
        for entry in sorted(place.rglob("*")) if place.is_dir() else []:
            if entry.is_file() and not entry.name.startswith((".", "_")):
                yield StoredFile(entry.relative_to(self.root).as_posix(), entry.stat().st_size)

    def delete(self, name: str) -> None:
        place = self.root / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class HadoopStorage:
    """Through the JVM: Spark's checkpoint file manager writes atomically on every file system it supports."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = self._path(root)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._system = self._root.getFileSystem(configuration)
        manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        self._manager = manager.create(self._root, configuration)
        self._io = jvm.org.apache.commons.io.IOUtils

    def _at(self, name: str) -> Any:
        return self._path(self._root, name) if name else self._root

    def read(self, name: str) -> str | None:
        path = self._at(name)
        if not self._system.exists(path):
            return None
        stream = self._system.open(path)
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        path = self._at(name)
        self._system.mkdirs(path.getParent())
        stream = self._manager.createAtomic(path, True)
        try:
            stream.write(bytearray(text, "utf-8"))
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def names(self, folder: str) -> list[str]:
        path = self._at(folder)
        if not self._system.exists(path):
            return []
        found = [status.getPath().getName() for status in self._system.listStatus(path)]
        return sorted(name for name in found if not name.startswith("."))

    def files(self, folder: str) -> Iterator[StoredFile]:
        path = self._at(folder)
        if not self._system.exists(path):
            return
        prefix = self._system.makeQualified(self._root).toString().rstrip("/") + "/"
        listing = self._system.listFiles(path, True)
        while listing.hasNext():
            status = listing.next()
            if not status.getPath().getName().startswith((".", "_")):
                yield StoredFile(status.getPath().toString().removeprefix(prefix), status.getLen())

    def delete(self, name: str) -> None:
        self._system.delete(self._at(name), True)
