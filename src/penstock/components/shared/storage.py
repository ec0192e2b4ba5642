"""Small files on whatever a path names: read, list, and write whole or not at all.

Local paths go through the operating system, `s3a://` through a client of Penstock's own, and everything else through
the Hadoop file system Spark has for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.components.shared.s3 import S3, Access, access, answered, is_s3, store, tell
from penstock.durable import create_durably, make_folders, sync_files, sync_folder, write_durably

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoredFile:
    """A file below a root, with its path relative to it."""

    path: str
    bytes: int
    modified: float = 0.0
    """When it was last written, in seconds since 1970."""


class Storage(Protocol):
    """A root folder and what can be done below it; all names are relative to it."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None:
        """Puts the text there so that a reader sees the old content or the new one, never a part."""

    def create(self, name: str, text: str) -> bool:
        """The same, but only if nothing is there; whether nothing was."""

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""

    def files(self, folder: str) -> Iterator[StoredFile]:
        """All files below a folder but hidden ones."""

    def delete(self, names: Iterable[str]) -> None:
        """Removes files; one that is not there is fine."""


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
        make_folders(target.parent)
        write_durably(target, text)

    def create(self, name: str, text: str) -> bool:
        target = self.root / name
        make_folders(target.parent)
        return create_durably(target, text)

    def names(self, folder: str) -> list[str]:
        place = self.root / folder
        if not place.is_dir():
            return []
        return sorted(entry.name for entry in place.iterdir() if not entry.name.startswith("."))

    def files(self, folder: str) -> Iterator[StoredFile]:
        place = self.root / folder
        for entry in sorted(place.rglob("*")) if place.is_dir() else []:
            if entry.is_file() and not _is_hidden(entry.relative_to(place).parts):
                found = entry.stat()
                yield StoredFile(entry.relative_to(self.root).as_posix(), found.st_size, found.st_mtime)

    def sync(self, names: Iterable[str]) -> None:
        """Returns when files are on the disk, with their checksums and the folders that lead to them."""
        files = [self.root / name for name in names]
        checksums = [file.with_name(f".{file.name}.crc") for file in files]
        sync_files([*files, *(file for file in checksums if file.exists())], self.root)

    def sync_folder(self, name: str) -> None:
        """Returns when the names in a folder are on the disk, if it is there."""
        if (self.root / name).is_dir():
            sync_folder(self.root / name)

    def delete(self, names: Iterable[str]) -> None:
        """Their checksums go with them, and folders that become empty."""
        for name in names:
            place = self.root / name
            place.unlink(missing_ok=True)
            place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
            with suppress(OSError):
                for folder in place.parents:
                    if folder == self.root:
                        break
                    folder.rmdir()


def _is_hidden(parts: Iterable[str]) -> bool:
    """As Spark sees it: folders of partitions are shown, whatever they begin with."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


class S3Storage:
    """One request for each small file; nothing is ever renamed, which here would be a copy."""

    def __init__(self, found: Access) -> None:
        self.access = found
        self._store = store(found)

    def probe(self) -> None:
        """Asks for something once, to see at once whether the bucket is there and may be used."""
        import obstore

        with suppress(FileNotFoundError), answered(self.access):
            obstore.get(store(self.access, hasty=True), "_penstock")

    def read(self, name: str) -> str | None:
        import obstore

        try:
            with answered(self.access):
                return bytes(obstore.get(self._store, name).bytes()).decode()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        import obstore

        with answered(self.access):
            obstore.put(self._store, name, text.encode(), use_multipart=False)

    def create(self, name: str, text: str) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with answered(self.access):
                obstore.put(self._store, name, text.encode(), mode="create")
        except AlreadyExistsError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        import obstore

        with answered(self.access):
            found = obstore.list_with_delimiter(self._store, folder)
        paths = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)

    def files(self, folder: str) -> Iterator[StoredFile]:
        import obstore

        with answered(self.access):
            for page in obstore.list(self._store, folder or None, chunk_size=1000):
                for item in page:
                    if not _is_hidden(item["path"].removeprefix(folder).split("/")):
                        yield StoredFile(item["path"], item["size"], item["last_modified"].timestamp())

    def delete(self, names: Iterable[str]) -> None:
        import obstore

        wanted = list(names)
        if wanted:
            with answered(self.access):
                obstore.delete(self._store, wanted)


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
        self._put(name, text, overwrite=True)

    def create(self, name: str, text: str) -> bool:
        if self._system.exists(self._at(name)):
            return False
        self._put(name, text, overwrite=False)
        return True

    def _put(self, name: str, text: str, *, overwrite: bool) -> None:
        path = self._at(name)
        self._system.mkdirs(path.getParent())
        stream = self._manager.createAtomic(path, overwrite)
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
        root = self._system.makeQualified(self._root).toString().rstrip("/") + "/"
        listing = self._system.listFiles(path, True)
        while listing.hasNext():
            status = listing.next()
            name = status.getPath().toString().removeprefix(root)
            if not _is_hidden(name.removeprefix(folder).split("/")):
                yield StoredFile(name, status.getLen(), status.getModificationTime() / 1000)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._system.delete(self._at(name), False)


def storage(root: str, spark: SparkSession, s3: S3 | None = None) -> Storage:
    """What a path names; Spark is told how to reach it too. Raises S3Failed if it cannot be reached."""
    if "://" not in root:
        return LocalStorage(Path(root))
    if is_s3(root):
        found = access(root, s3 or S3(), spark)
        tell(spark, found)
        objects = S3Storage(found)
        objects.probe()
        return objects
    return HadoopStorage(root, spark)
