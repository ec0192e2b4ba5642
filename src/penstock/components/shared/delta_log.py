"""The log of a Delta table as a stream: which files each version adds, and how far a reader is in them.

A position is the row that is read next: of a version, of one of its files. A reader that wants all rows begins with
those files that the table had at some version, its snapshot, and goes on with what later versions add.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from penstock.access.paths import leads_out

LOG = "_delta_log"


class Unreadable(Exception):
    """Why a table cannot be read as a stream."""


@dataclass(frozen=True)
class DataFile:
    """A file that a table has."""

    path: str
    """Relative to the table."""
    bytes: int
    rows: int | None
    """How many it holds, if the log says so."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of the partition columns; texts as the log has them, or what they stand for."""


@dataclass(frozen=True)
class Commit:
    """What one version adds."""

    files: tuple[DataFile, ...] = ()
    changes: bool = False
    """Whether it also takes rows away."""


def commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def parse(text: str) -> Commit:
    """A version as its file in the log describes it. Files that were only rewritten are not new."""
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    changes = any(action.get("remove", {}).get("dataChange", False) for action in actions)
    return Commit(tuple(_added(action) for action in added), changes)


def _added(action: Mapping[str, Any]) -> DataFile:
    if action.get("deletionVector") is not None:
        raise Unreadable("its files have rows that are marked as deleted (deletion vectors)")
    stats = json.loads(action.get("stats") or "{}")
    return DataFile(relative(action["path"]), action["size"], stats.get("numRecords"), action["partitionValues"])


def is_foreign(text: str, ours: Collection[str]) -> bool:
    """Whether a version changes rows or the table itself and does not name one of our applications."""
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    if any(action.get("txn", {}).get("appId") in ours for action in actions):
        return False
    changes = [action.get(kind, {}).get("dataChange", False) for action in actions for kind in ("add", "remove")]
    return any(changes) or any("metaData" in action or "protocol" in action for action in actions)


def relative(path: str) -> str:
    """The path of a file as the log writes it, decoded."""
    found = unquote(path)
    if leads_out(path) or leads_out(found):
        raise Unreadable("it has files outside its folder")
    return found


# --- positions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    version: int
    index: int = 0
    row: int = 0
    snapshot: bool = False
    """Whether the files are those the table had at the version, not those the version added."""

    def next_version(self) -> Position:
        return Position(self.version + 1)


@dataclass(frozen=True)
class Stretch:
    """Rows of one file, up to, not including, `stop`."""

    file: DataFile
    first: int
    stop: int


FilesAt = Callable[[Position], Sequence[DataFile] | None]
"""The files of the version of a position, each with its number of rows; None if there is no such version yet."""


def advanced(start: Position, files_at: FilesAt, most: int | None) -> Position:
    """Where a batch of at most so many rows ends."""
    place, left = start, most
    while (files := files_at(place)) is not None:
        for file in files[place.index :]:
            assert file.rows is not None
            waiting = file.rows - place.row
            if left is not None and waiting > left:
                return replace(place, row=place.row + left)
            left = None if left is None else left - waiting
            place = replace(place, index=place.index + 1, row=0)
        place = place.next_version()
    return place


def between(start: Position, end: Position, files_at: FilesAt) -> Iterator[Stretch]:
    """What lies between two positions."""
    place = start
    while (place.version, not place.snapshot) <= (end.version, not end.snapshot):
        files = files_at(place)
        last = (place.version, place.snapshot) == (end.version, end.snapshot)
        for index, file in enumerate(files or ()):
            assert file.rows is not None
            first = file.rows if index < place.index else place.row if index == place.index else 0
            stop = file.rows if not last or index < end.index else end.row if index == end.index else 0
            if stop > first:
                yield Stretch(file, first, stop)
        place = place.next_version()


def cut(stretch: Stretch, rows: int) -> Iterator[Stretch]:
    """A stretch in pieces of at most so many rows."""
    for first in range(stretch.first, stretch.stop, rows):
        yield replace(stretch, first=first, stop=min(first + rows, stretch.stop))
