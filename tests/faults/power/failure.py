"""What a power failure leaves of a folder, worked out from a record of all that was done to it.

The model is what POSIX promises and no more: a file keeps what was in it when it was last synced, a folder the names
that were in it when it was last synced. Of what came after that, any part may be there or not.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_HEAD = struct.Struct("=cqqqqIII")

Luck = Literal["none", "names", "contents", "all", "some"]
"""What survives of that which was not synced: nothing, the names of files but not what is in them, what is in them but
not their names, everything, or some of it by chance."""


@dataclass(frozen=True)
class Record:
    kind: str
    began: int
    ended: int
    inode: int
    offset: int
    path: str
    other: str
    data: bytes


def read_records(log: Path) -> list[Record]:
    """The records in the order of the calls."""
    content, place, found = log.read_bytes(), 0, []
    while place < len(content):
        kind, began, ended, inode, offset, one, two, size = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        texts = content[place : place + one + two + size]
        place += len(texts)
        path, other = texts[:one].decode(), texts[one : one + two].decode()
        found.append(Record(kind.decode(), began, ended, inode, offset, path, other, texts[one + two :]))
    return found


@dataclass(eq=False)
class File:
    synced: bytes = b""
    waiting: list[Record] = field(default_factory=list)
    """What was done to it and is not synced."""
    modified_ns: int | None = None

    def content(self, kept: int) -> bytes:
        """With the first few of the changes that wait."""
        found = bytearray(self.synced)
        for record in self.waiting[:kept]:
            if record.kind == "T":
                del found[record.offset :]
                found.extend(bytes(record.offset - len(found)))
            else:
                found.extend(bytes(max(record.offset - len(found), 0)))
                found[record.offset : record.offset + len(record.data)] = record.data
        return bytes(found)

    def sync(self, record: Record) -> None:
        done = [change for change in self.waiting if change.ended <= record.began]
        if done:
            self.synced, self.waiting = self.content(len(done)), self.waiting[len(done) :]


@dataclass(eq=False)
class Change:
    """Names of a folder that change in one step."""

    ended: int
    names: dict[str, File | Folder | None]


@dataclass(eq=False)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    waiting: list[Change] = field(default_factory=list)

    def change(self, ended: int, **names: File | Folder | None) -> None:
        change = Change(ended, names)
        self.waiting.append(change)
        _apply(self.names, change)

    def sync(self, record: Record) -> None:
        for change in [change for change in self.waiting if change.ended <= record.began]:
            _apply(self.synced, change)
            self.waiting.remove(change)


def _apply(names: dict[str, File | Folder], change: Change) -> None:
    for name, item in change.names.items():
        if item is None:
            names.pop(name, None)
        else:
            names[name] = item


class Disk:
    """A folder as it was at first, to which records are applied one by one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = _read(root)
        self._by_inode: dict[int, File | Folder] = {}
        """What was made since; the number of a file that is gone may be given to another."""

    def apply(self, record: Record) -> None:
        if record.kind in "WTS":
            item = self._by_inode.get(record.inode) or self._found(record.path)
        if record.kind == "C":
            self._by_inode[record.inode] = file = File()
            self._change(record, record.path, file)
        elif record.kind == "M":
            self._by_inode[record.inode] = folder = Folder()
            self._change(record, record.path, folder)
        elif record.kind in "WT":
            assert isinstance(item, File), record
            item.waiting.append(record)
        elif record.kind == "S":
            item.sync(record)
        elif record.kind == "L":
            self._change(record, record.other, self._found(record.path))
        elif record.kind == "R":
            self._rename(record)
        else:
            self._change(record, record.path, None)

    def _parts(self, path: str) -> list[str]:
        return [part for part in path.removeprefix(str(self.root)).split("/") if part]

    def _found(self, path: str) -> File | Folder:
        item: File | Folder = self.top
        for part in self._parts(path):
            assert isinstance(item, Folder), path
            item = item.names[part]
        return item

    def _folder(self, path: str) -> tuple[Folder, str]:
        above, name = os.path.split(path)
        folder = self._found(above)
        assert isinstance(folder, Folder)
        return folder, name

    def _change(self, record: Record, path: str, item: File | Folder | None) -> None:
        folder, name = self._folder(path)
        folder.change(record.ended, **{name: item})

    def _rename(self, record: Record) -> None:
        assert record.path, f"{record.other} comes from outside"
        item = self._found(record.path)
        before, old = self._folder(record.path)
        if not record.other:
            before.change(record.ended, **{old: None})
            return
        after, new = self._folder(record.other)
        if before is after:
            before.change(record.ended, **{old: None, new: item})
        else:
            after.change(record.ended, **{new: item})
            before.change(record.ended, **{old: None})

    def survive(self, target: Path, luck: Luck, seed: int = 0) -> None:
        """Writes what is left after a power failure now."""
        _Survival(luck, random.Random(seed)).write(self.top, target)

    def write_all(self, target: Path) -> None:
        """Writes what is there without a failure."""
        self.survive(target, "all")


def _read(path: Path) -> Folder:
    """A folder as it is, all of it on the disk."""
    found = Folder()
    for entry in path.iterdir():
        found.names[entry.name] = (
            _read(entry) if entry.is_dir() else File(entry.read_bytes(), modified_ns=entry.stat().st_mtime_ns)
        )
    found.synced = dict(found.names)
    return found


class _Survival:
    def __init__(self, luck: Luck, chance: random.Random) -> None:
        self.luck = luck
        self.chance = chance
        self._written: dict[File, Path] = {}

    def write(self, folder: Folder, target: Path) -> None:
        target.mkdir(parents=True)
        for name, item in self._names(folder).items():
            if isinstance(item, Folder):
                self.write(item, target / name)
            elif item in self._written:
                os.link(self._written[item], target / name)
            else:
                self._write_file(item, target / name)

    def _names(self, folder: Folder) -> dict[str, File | Folder]:
        if self.luck in ("names", "all"):
            return folder.names
        if self.luck != "some":
            return folder.synced
        found = dict(folder.synced)
        # Changes of one name come in their order; those of other names know nothing of it.
        stopped: set[str] = set()
        for change in folder.waiting:
            if stopped.isdisjoint(change.names) and self.chance.random() < 0.7:
                _apply(found, change)
            else:
                stopped |= change.names.keys()
        return found

    def _write_file(self, file: File, path: Path) -> None:
        kept = {"none": 0, "names": 0, "some": self.chance.randint(0, len(file.waiting))}.get(
            self.luck, len(file.waiting)
        )
        path.write_bytes(file.content(kept))
        if file.modified_ns is not None:
            os.utime(path, ns=(file.modified_ns, file.modified_ns))
        self._written[file] = path


def moments(records: list[Record], seed: int, count: int) -> Iterator[int]:
    """Moments at which to fail: after some of the records, more of them right after names have changed."""
    chance = random.Random(seed)
    near = [place for place, record in enumerate(records, 1) if record.kind in "LR" or record.path.endswith("/begun")]
    chosen = {*chance.sample(near, min(count // 2, len(near))), *chance.sample(range(1, len(records) + 1), count // 2)}
    yield from sorted(chosen)
