"""State of stateful steps as files of columnar chunks, and one small index for each batch that names them.

checkpoint/chunks/BATCH-EPOCH/NAME.chunks   chunks as Arrow streams, one after the other, synced before they are named
checkpoint/chunks/index/BATCH-EPOCH         what the state consists of after a batch: places and checksums of chunks

A batch begins from the index of the batch before it and ends with its own, which is on the disk before a sink gets a
row. A batch that is run again begins from the same index and takes the watermark that its first try had noted, so it
gives the same rows; its own files and index take the place of those of the first try. Files and indexes carry the epoch
of the run that wrote them, so a run that was overtaken and wakes up late changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.durable import make_folders, sync_folder, write_durably
from penstock.engine.state.chunks import decode
from penstock.errors import PenstockError

FOLDER = "chunks"
"""The folder of chunk files in the checkpoint, beside what Spark keeps there; it goes wherever the checkpoint goes."""
INDEX = "index"
_SUFFIX = ".chunks"
_MAGIC = b"PSTATE1\n"
_VERSION = 1
_KEPT_BATCHES = 10
"""Of how many batches the state can be returned to without a savepoint."""
_MOST_FILES = 64
_LEAST_LIVE = 0.5
_MOVED_BYTES = 8 << 20
"""How much is moved out of files that hold little, after each batch."""


class ChunkPlace(NamedTuple):
    """Where a chunk is: the file below the folder of chunks, the part of it, and the checksum of these bytes."""

    file: str
    offset: int
    length: int
    checksum: int


@dataclass
class BucketState:
    """What the state of one bucket of a step consists of."""

    chunks: dict[int, ChunkPlace] = field(default_factory=dict)
    wake: int | None = None
    """The least watermark of the step at which it has something to do without rows."""

    def copy(self) -> BucketState:
        return BucketState(dict(self.chunks), self.wake)


@dataclass
class StateIndex:
    """What the state consists of after a batch; -1 is before the first one."""

    batch: int = -1
    watermark: int = 0
    """The watermark after the batch in milliseconds, 0 if there is none yet."""
    steps: dict[str, dict[int, BucketState]] = field(default_factory=dict)
    """By step and bucket."""

    def places(self) -> Iterator[ChunkPlace]:
        for buckets in self.steps.values():
            for bucket in buckets.values():
                yield from bucket.chunks.values()

    def files(self) -> set[str]:
        return {place.file for place in self.places()}

    def bytes_of(self, step: str) -> int:
        """How much a step keeps."""
        return sum(place.length for state in self.steps.get(step, {}).values() for place in state.chunks.values())

    def due(self, step: str, watermark: int) -> list[int]:
        """The buckets of a step that have something to do at this watermark of theirs."""
        found = self.steps.get(step, {})
        return [number for number, state in found.items() if state.wake is not None and state.wake <= watermark]

    def encoded(self) -> bytes:
        steps, files = list(self.steps), sorted(self.files())
        place_of = {name: number for number, name in enumerate(files)}
        rows = [
            (number, bucket, chunk, place_of[place.file], place.offset, place.length, place.checksum)
            for number, step in enumerate(steps)
            for bucket, state in self.steps[step].items()
            for chunk, place in state.chunks.items()
        ]
        wakes = [
            (number, bucket, state.wake)
            for number, step in enumerate(steps)
            for bucket, state in self.steps[step].items()
            if state.wake is not None
        ]
        head = json.dumps(
            {
                "version": _VERSION,
                "batch": self.batch,
                "watermark": self.watermark,
                "steps": steps,
                "files": files,
                "chunks": len(rows),
                "wakes": len(wakes),
            }
        ).encode()
        body = b"".join(
            (
                len(head).to_bytes(8, "little"),
                head,
                np.array(rows, np.int64).tobytes(),
                np.array(wakes, np.int64).tobytes(),
            )
        )
        return b"".join((_MAGIC, zlib.crc32(body).to_bytes(4, "little"), body))

    @staticmethod
    def decoded(data: bytes, path: Path) -> StateIndex:
        """Raises STATE_UNREADABLE, naming the file, if it is damaged or from a newer Penstock."""
        if data[: len(_MAGIC)] != _MAGIC or len(data) < len(_MAGIC) + 12:
            raise _unreadable(path, "it is not an index of state")
        checksum, body = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4], "little"), data[len(_MAGIC) + 4 :]
        if zlib.crc32(body) != checksum:
            raise _unreadable(path, "its checksum is wrong")
        size = int.from_bytes(body[:8], "little")
        head = json.loads(body[8 : 8 + size])
        if head["version"] > _VERSION:
            raise _unreadable(path, "it was written by a newer Penstock")
        numbers = np.frombuffer(body[8 + size :], np.int64)
        rows = numbers[: 7 * head["chunks"]].reshape(-1, 7).tolist()
        wakes = numbers[7 * head["chunks"] :].reshape(-1, 3).tolist()
        found = StateIndex(head["batch"], head["watermark"], {step: {} for step in head["steps"]})
        for step, bucket, chunk, file, offset, length, crc in rows:
            state = found.steps[head["steps"][step]].setdefault(bucket, BucketState())
            state.chunks[chunk] = ChunkPlace(head["files"][file], offset, length, crc)
        for step, bucket, wake in wakes:
            found.steps[head["steps"][step]].setdefault(bucket, BucketState()).wake = wake
        return found


class ChunkWriter:
    """Writes the chunks that one task changes in a batch into one file; nothing is written if none is."""

    def __init__(self, folder: Path, batch: int, epoch: int) -> None:
        self.folder = folder
        self.name = f"{batch}-{epoch}/{uuid.uuid4().hex}{_SUFFIX}"
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> ChunkPlace:
        place = ChunkPlace(self.name, self._size, len(data), zlib.crc32(data))
        self._parts.append(data)
        self._size += len(data)
        return place

    def close(self) -> None:
        """Returns when the file is on the disk."""
        if not self._parts:
            return
        path = self.folder / self.name
        make_folders(path.parent)
        with path.open("xb") as file:
            file.writelines(self._parts)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
        self._parts.clear()


def read_bytes(folder: Path, place: ChunkPlace) -> bytes:
    """The bytes of a chunk; raises STATE_UNREADABLE, naming the file, if they are not those that were written."""
    path = folder / place.file
    try:
        with path.open("rb") as file:
            file.seek(place.offset)
            data = file.read(place.length)
    except FileNotFoundError:
        raise _unreadable(path, "it is missing, and the state consists of it") from None
    if len(data) != place.length:
        raise _unreadable(path, "it is cut short")
    if zlib.crc32(data) != place.checksum:
        raise _unreadable(path, f"the checksum of the chunk at byte {place.offset} is wrong")
    return data


def read_chunk(folder: Path, place: ChunkPlace) -> pa.Table:
    return decode(read_bytes(folder, place))


def in_chunks(checkpoint: Path) -> bool:
    """Whether the state of a pipeline is in chunk files."""
    return (checkpoint / FOLDER).is_dir()


def index_file(folder: Path, batch: int) -> Path | None:
    """The index of a batch by the newest run that wrote one; `folder` is the folder of chunk files."""
    found = sorted((int(path.name.split("-")[1]), path) for path in (folder / INDEX).glob(f"{batch}-*"))
    return found[-1][1] if found else None


def newest_epoch(folder: Path) -> int:
    """The newest run that wrote an index."""
    names = (path.name.split("-") for path in (folder / INDEX).iterdir() if not path.name.startswith("."))
    return max((int(epoch) for _, epoch in names), default=0)


def read_index(folder: Path, batch: int) -> StateIndex:
    """The state after a batch; raises STATE_UNREADABLE if it is not there or damaged."""
    path = index_file(folder, batch)
    if path is None:
        raise _unreadable(folder / INDEX / f"{batch}-*", f"it is missing, and batch {batch} was committed")
    try:
        return StateIndex.decoded(path.read_bytes(), path)
    except FileNotFoundError:
        raise _unreadable(path, "it is missing") from None


def put_index(folder: Path, index: StateIndex, epoch: int) -> None:
    """Returns when the index is on the disk; the files that it names are already."""
    make_folders(folder / INDEX)
    write_durably(folder / INDEX / f"{index.batch}-{epoch}", index.encoded())


def _unreadable(path: Path, reason: str) -> PenstockError:
    return PenstockError.of("STATE_UNREADABLE", path=path, reason=reason)


class ChunkStore:
    """The chunk files of one pipeline. Only the run that owns the state folder writes an index."""

    def __init__(self, checkpoint: Path, epoch: int) -> None:
        self.folder = checkpoint / FOLDER
        self.epoch = epoch
        self._indexes = self.folder / INDEX
        self._kept: dict[int, set[str]] = {}
        """The files that the state consisted of after each batch that can be returned to."""
        self._sizes: dict[str, int] = {}

    # --- reading ------------------------------------------------------------------------------------------

    def open(self, committed: int) -> StateIndex:
        """The state after the last committed batch. What no batch that is kept consists of is removed."""
        make_folders(self._indexes)
        # What was restored may come from a pipeline that has had more runs than this one.
        self.epoch = max(self.epoch, newest_epoch(self.folder) + 1)
        found = self.index(committed) if committed >= 0 else StateIndex()
        numbers = self._numbers()
        for number in numbers:
            if number > committed + 1 or number <= committed - _KEPT_BATCHES:
                self._remove_index(number)
            elif number <= committed:
                self._kept[number] = self.index(number).files()
        # A first try of the batch that comes next keeps its index, for its watermark, but not its files.
        self._sweep(set().union(*self._kept.values()) if self._kept else set())
        return found

    def index(self, batch: int) -> StateIndex:
        """The state after a batch; raises STATE_UNREADABLE if it is not there or damaged."""
        return read_index(self.folder, batch)

    def first_try(self, batch: int) -> StateIndex | None:
        """What an earlier try of a batch had noted, if it came that far."""
        return read_index(self.folder, batch) if index_file(self.folder, batch) is not None else None

    def _written(self) -> list[tuple[int, int]]:
        """Batch and epoch of each index."""
        names = (path.name.split("-") for path in self._indexes.iterdir() if not path.name.startswith("."))
        return sorted((int(batch), int(epoch)) for batch, epoch in names)

    def _numbers(self) -> list[int]:
        return sorted({batch for batch, _ in self._written()})

    # --- writing ------------------------------------------------------------------------------------------

    def writer(self, batch: int) -> ChunkWriter:
        return ChunkWriter(self.folder, batch, self.epoch)

    def commit(self, index: StateIndex) -> None:
        """Returns when the index is on the disk; the files it names are already."""
        put_index(self.folder, index, self.epoch)
        self._kept[index.batch] = index.files()

    def clean(self, batch: int, *, sweep: bool = False) -> None:
        """Removes what no batch that is kept consists of, once a batch has its index; `sweep` looks for strays too."""
        for old in [number for number in self._kept if number <= batch - _KEPT_BATCHES]:
            gone = self._kept.pop(old)
            self._remove_index(old)
            for name in gone - set().union(*self._kept.values()):
                self._remove_file(name)
        if sweep:
            self._sweep(set().union(*self._kept.values()), only=batch)

    def move_out(self, index: StateIndex, writer: ChunkWriter) -> int:
        """Moves chunks out of files that hold little else that counts, into a file that is being written; the bytes."""
        live: dict[str, int] = {}
        for place in index.places():
            live[place.file] = live.get(place.file, 0) + place.length
        vacated = self._to_be_vacated({name: size for name, size in live.items() if name != writer.name})
        if not vacated:
            return 0
        moved = 0
        for buckets in index.steps.values():
            for bucket, state in list(buckets.items()):
                if any(place.file in vacated for place in state.chunks.values()):
                    # The index of the batch before may hold the same object.
                    buckets[bucket] = state = state.copy()
                    for number, place in state.chunks.items():
                        if place.file in vacated:
                            state.chunks[number] = writer.add(read_bytes(self.folder, place))
                            moved += place.length
        return moved

    def _to_be_vacated(self, live: Mapping[str, int]) -> set[str]:
        """The files from which little enough has to be moved: those that count least first."""
        share = {name: size / max(self._size(name), 1) for name, size in live.items()}
        too_many = max(len(live) - _MOST_FILES, 0)
        found: set[str] = set()
        bytes_left = _MOVED_BYTES
        for name in sorted(live, key=lambda name: (share[name], live[name])):
            if (share[name] >= _LEAST_LIVE and len(found) >= too_many) or live[name] > bytes_left:
                break
            found.add(name)
            bytes_left -= live[name]
        return found

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            with suppress(FileNotFoundError):
                self._sizes[name] = (self.folder / name).stat().st_size
        return self._sizes.get(name, 0)

    # --- removing -----------------------------------------------------------------------------------------

    def _remove_index(self, batch: int) -> None:
        for path in self._indexes.glob(f"{batch}-*"):
            path.unlink(missing_ok=True)

    def _remove_file(self, name: str) -> None:
        path = self.folder / name
        self._sizes.pop(name, None)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()

    def _sweep(self, needed: Iterable[str], only: int | None = None) -> None:
        """Removes files that nothing names: of tasks that failed, and of batches that were never finished."""
        wanted = set(needed)
        folders = [self.folder / f"{only}-{self.epoch}"] if only is not None else list(self.folder.iterdir())
        for folder in folders:
            if folder.name == INDEX or not folder.is_dir():
                continue
            left = False
            for file in folder.iterdir():
                if f"{folder.name}/{file.name}" in wanted:
                    left = True
                else:
                    file.unlink(missing_ok=True)
            if not left:
                shutil.rmtree(folder, ignore_errors=True)


def advanced(before: StateIndex, batch: int, watermark: int, changed: Mapping[str, Mapping[int, BucketState]],
             steps: Sequence[str]) -> StateIndex:  # fmt: skip
    """The index after a batch: what has changed, and the rest as it was; steps that are gone keep nothing."""
    found: dict[str, dict[int, BucketState]] = {}
    for step in steps:
        buckets = dict(before.steps.get(step, {}))
        for number, state in changed.get(step, {}).items():
            if state.chunks or state.wake is not None:
                buckets[number] = state
            else:
                buckets.pop(number, None)
        found[step] = buckets
    return StateIndex(batch, watermark, found)
