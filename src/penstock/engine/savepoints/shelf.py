"""Savepoints in an object store: the same files under the same names, below an address such as s3://bucket/folder.

NAME/savepoint.json    written last: without it there is no savepoint
NAME/unfinished.json   there while files are put or removed, so that what someone who died has left can be told
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.components.shared.s3 import BUCKET, S3, S3Failed, access, answered, is_s3, store
from penstock.components.shared.storage import S3Storage
from penstock.engine.savepoints.places import in_order, manifest_read
from penstock.engine.savepoints.trees import Progress, quiet, refuse_without_space
from penstock.engine.savepoints.verify import Content, Damage, damaged, judge
from penstock.errors import PenstockError
from penstock.reports.savepoints import MANIFEST, SavedFile, Savepoint, refuse_bad_name, to_json

_UNFINISHED = "unfinished.json"
_AT_ONCE = 8
"""Most files are small, and each takes an answer."""


def is_remote(word: str) -> bool:
    """Whether a word is the address of a savepoint in an object store."""
    return is_s3(word)


@dataclass(frozen=True)
class Stored:
    """A savepoint and its address; without a savepoint if that cannot be read."""

    place: str
    savepoint: Savepoint | None
    error: PenstockError | None = None

    @property
    def name(self) -> str:
        return self.place.rsplit("/", 1)[-1]


def shelf_of(address: str) -> tuple[Shelf, str]:
    """Where a savepoint with this address lies, and its name."""
    parent, _, name = address.rstrip("/").rpartition("/")
    refuse_bad_name(name)
    return Shelf(parent), name


class Shelf:
    """A place for savepoints in an object store; it is reached as the environment says."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        if not BUCKET.match(self.address):
            advice = "Write s3://bucket/folder/NAME; a bucket has lower-case letters, digits, dots and dashes."
            raise PenstockError.of("USAGE", reason=f"{address} does not name a bucket", advice=advice)
        self._access = access(self.address, S3())
        self._storage = S3Storage(self._access)

    # --- what is there ------------------------------------------------------------------------------------

    def found(self) -> list[Stored]:
        """The savepoints that lie here, the oldest first; those that cannot be read at the end."""
        with self._told(self.address):
            return in_order([one for name in self._storage.names("") if (one := self._found(name)) is not None])

    def _found(self, name: str) -> Stored | None:
        try:
            return Stored(self._at(name), self.read(name))
        except PenstockError as error:
            if error.code in ("SAVEPOINT_UNKNOWN", "SAVEPOINT_STORE"):
                return None
            return Stored(self._at(name), None, error)

    def read(self, name: str) -> Savepoint:
        """What a savepoint says of itself; raises if there is none, if it is damaged, or made by something newer."""
        with self._told(name):
            text = self._storage.read(f"{name}/{MANIFEST}")
        if text is None:
            raise PenstockError.of("SAVEPOINT_UNKNOWN", name=name, path=self.address)
        return manifest_read(text, self._at(name))

    def refuse_taken(self, name: str) -> None:
        """Raises SAVEPOINT_EXISTS if there is something by this name but what someone who died has left."""
        with self._told(name):
            whole, unfinished = (self._storage.read(f"{name}/{note}") is not None for note in (MANIFEST, _UNFINISHED))
            if whole or (self._objects(name) and not unfinished):
                raise PenstockError.of("SAVEPOINT_EXISTS", name=name, path=self._at(name))

    # --- putting and removing -----------------------------------------------------------------------------

    def put(self, name: str, folder: Path, savepoint: Savepoint, progress: Progress = quiet) -> None:
        """Copies a savepoint from a folder; what the last one here has too is copied within the store."""
        self.refuse_taken(name)
        with self._told(name):
            self._clear(name)
            if not self._storage.create(f"{name}/{_UNFINISHED}", "{}\n"):
                raise PenstockError.of("SAVEPOINT_EXISTS", name=name, path=self._at(name))
            try:
                self._put_files(name, folder, savepoint, progress)
                self._storage.write(f"{name}/{MANIFEST}", to_json(savepoint))
            except BaseException:
                with suppress(S3Failed):
                    self._clear(name)
                raise
            self._storage.delete([f"{name}/{_UNFINISHED}"])

    def remove(self, name: str) -> None:
        """Takes a savepoint away: it is gone at once, its files after it."""
        with self._told(name):
            if all(self._storage.read(f"{name}/{note}") is None for note in (MANIFEST, _UNFINISHED)):
                raise PenstockError.of("SAVEPOINT_UNKNOWN", name=name, path=self.address)
            self._storage.write(f"{name}/{_UNFINISHED}", "{}\n")
            self._clear(name)

    def _clear(self, name: str) -> None:
        """Removes what belongs to a savepoint that is unfinished; first its manifest, last that it is."""
        self._storage.delete([f"{name}/{MANIFEST}"] if self._storage.read(f"{name}/{MANIFEST}") is not None else [])
        self._storage.delete([path for path in self._objects(name) if path != f"{name}/{_UNFINISHED}"])
        if self._storage.read(f"{name}/{_UNFINISHED}") is not None:
            self._storage.delete([f"{name}/{_UNFINISHED}"])

    def _put_files(self, name: str, folder: Path, savepoint: Savepoint, progress: Progress) -> None:
        known = self._known(savepoint.lineage)

        def put(file: SavedFile) -> None:
            target = f"{name}/{file.path}"
            if not self._copied(known.get((file.sha256, file.bytes)), target):
                self._upload(folder / file.path, target)

        _each(savepoint.files, put, progress)
        there = self._objects(name)
        for file in savepoint.files:
            if there.get(f"{name}/{file.path}") != file.bytes:
                reason = f"{file.path} has not arrived at {self._at(name)}"
                raise PenstockError.of("SAVEPOINT_FAILED", reason=reason)

    def _known(self, lineage: str) -> dict[tuple[str, int], str]:
        """The files of the newest savepoint here that is of the same pipeline, by what is in them."""
        alike = [
            (one.name, one.savepoint) for one in self.found() if one.savepoint and one.savepoint.lineage == lineage
        ]
        if not alike:
            return {}
        other, newest = alike[-1]
        return {(file.sha256, file.bytes): f"{other}/{file.path}" for file in newest.files}

    def _copied(self, origin: str | None, target: str) -> bool:
        import obstore

        if origin is None:
            return False
        try:
            with answered(self._access):
                obstore.copy(store(self._access), origin, target)
        except FileNotFoundError:
            # Someone has removed that savepoint meanwhile.
            return False
        return True

    def _upload(self, file: Path, target: str) -> None:
        import obstore

        with answered(self._access):
            obstore.put(store(self._access), target, file)

    # --- getting ------------------------------------------------------------------------------------------

    def verify(self, name: str, savepoint: Savepoint, progress: Progress = quiet) -> list[Damage]:
        """Reads all of a savepoint; what is wrong with it."""
        return judge(savepoint.files, self._read_all(name, savepoint, None, progress))

    def fetch(self, name: str, savepoint: Savepoint, folder: Path, progress: Progress = quiet) -> None:
        """Copies a savepoint into a folder; raises SAVEPOINT_DAMAGED if it is not what it was."""
        refuse_without_space(folder, savepoint.bytes)
        damages = judge(savepoint.files, self._read_all(name, savepoint, folder, progress))
        if damages:
            raise PenstockError(damaged(self._at(name), one) for one in damages)
        (folder / MANIFEST).write_text(to_json(savepoint), "utf-8")

    def _read_all(self, name: str, savepoint: Savepoint, folder: Path | None, progress: Progress) -> dict[str, Content]:
        found: dict[str, Content] = {}

        def read(file: SavedFile) -> None:
            with suppress(FileNotFoundError), answered(self._access):
                found[file.path] = self._read_file(
                    f"{name}/{file.path}", None if folder is None else folder / file.path
                )
                if folder is not None:
                    os.utime(folder / file.path, ns=(file.modified_ns, file.modified_ns))

        with self._told(name):
            _each(savepoint.files, read, progress)
        return found

    def _read_file(self, origin: str, target: Path | None) -> Content:
        import obstore

        digest, size = hashlib.sha256(), 0
        pieces = obstore.get(store(self._access), origin).stream()
        with _written(target) as write:
            for piece in pieces:
                content = bytes(piece)
                digest.update(content)
                size += len(content)
                write(content)
        return Content(size, digest.hexdigest())

    # --- below --------------------------------------------------------------------------------------------

    def _objects(self, name: str) -> Mapping[str, int]:
        """All that lies below a name, hidden or not, with its bytes."""
        import obstore

        with answered(self._access):
            pages = obstore.list(store(self._access), f"{name}/", chunk_size=1000)
            return {item["path"]: item["size"] for page in pages for item in page}

    def _at(self, name: str) -> str:
        return f"{self.address}/{name}"

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Troubles of the store in words."""
        try:
            yield
        except S3Failed as failed:
            place = self.address if name == self.address else self._at(name)
            raise PenstockError.of("SAVEPOINT_STORE", path=place, reason=failed.reason) from failed


def _each(files: Iterable[SavedFile], work: Callable[[SavedFile], None], progress: Progress) -> None:
    """Does the same with all files, some at once; the first failure is raised."""
    wanted = list(files)
    total, done, lock = sum(file.bytes for file in wanted), 0, threading.Lock()

    def one(file: SavedFile) -> None:
        nonlocal done
        work(file)
        with lock:
            done += file.bytes
            progress(done, total)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = [pool.submit(one, file) for file in wanted]
        try:
            for item in running:
                item.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextmanager
def _written(target: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Takes pieces of a file; without a target they go nowhere."""
    if target is None:
        yield len
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        yield out.write
