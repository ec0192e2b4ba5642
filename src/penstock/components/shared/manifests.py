"""Which batches a folder of files holds: one manifest a batch, and one for many batches once they have been merged.

A manifest names data files relative to the folder. One that covers others stands in for them, and they are hidden from
the moment it is there; so a reader who lists the manifests sees each batch once, whenever it looks. Which manifests are
merged follows from their names alone, so two runs that were to merge at the same time would do the same.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.access.paths import leads_out
from penstock.errors import PenstockError

FOLDER = "_penstock/batches"
_OWN = re.compile(r"(?:shard=[0-9a-f]{2}/)?batch=(\d+)/epoch=(\d+)/")
_NAME = re.compile(r"(\d{12})(?:-(\d{12})\.(\d+))?\.json")


@dataclass(frozen=True, order=True)
class Span:
    """The batches of one manifest; its level says how often they have been merged."""

    first: int
    last: int
    level: int = 0

    @property
    def name(self) -> str:
        return f"{self.last:012d}.json" if self.level == 0 else f"{self.first:012d}-{self.last:012d}.{self.level}.json"

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.name}"

    @classmethod
    def of(cls, path: str) -> Span | None:
        """What a manifest is for, by its name; None for another file."""
        match = _NAME.fullmatch(path.rsplit("/", 1)[-1])
        if match is None:
            return None
        first, last, level = match.groups()
        return cls(int(first), int(first)) if last is None else cls(int(first), int(last), int(level))

    def covers(self, other: Span) -> bool:
        return self.level > other.level and self.first <= other.first and other.last <= self.last


def spans(names: Iterable[str]) -> list[Span]:
    """What the manifests in the folder are for."""
    return sorted(span for span in map(Span.of, names) if span is not None)


class Cover:
    """Finds the manifest that stands in for a stretch of batches."""

    def __init__(self, found: Iterable[Span]) -> None:
        self._levels: dict[int, list[Span]] = {}
        for span in sorted(found):
            self._levels.setdefault(span.level, []).append(span)

    def of(self, wanted: Span) -> Span | None:
        """The one of the highest level that covers another, or holds it at its own level; none if none does."""
        for level in sorted(self._levels, reverse=True):
            same = self._levels[level]
            place = bisect_right(same, wanted.first, key=lambda span: span.first) - 1
            if place >= 0 and (same[place] == wanted or same[place].covers(wanted)):
                return same[place]
        return None


def visible(found: Iterable[Span]) -> list[Span]:
    """The manifests that count, in the order of their batches."""
    known = list(found)
    cover = Cover(known)
    return sorted(span for span in known if cover.of(span) == span)


def due(found: Iterable[Span], many: int) -> list[Span]:
    """The manifests to merge next: the oldest `many` of a level, once there are as many; none if there are not."""
    shown = visible(found)
    for level in sorted({span.level for span in shown}):
        start = next(place for place, span in enumerate(shown) if span.level == level)
        group = shown[start : start + many]
        if len(group) == many and all(span.level == level for span in group):
            return group
    return []


def merged(group: Sequence[Span]) -> Span:
    return Span(group[0].first, group[-1].last, group[0].level + 1)


@dataclass(frozen=True)
class File:
    path: str
    bytes: int

    @property
    def format(self) -> str:
        return self.path.rsplit(".", 1)[-1]

    @property
    def folder(self) -> str:
        """The part of the path that tells the values of partition columns."""
        own = _OWN.match(self.path)
        return self.path[own.end() if own else 0 :].rpartition("/")[0]


class WrittenFor(NamedTuple):
    batch: int
    epoch: int


def written_for(path: str) -> WrittenFor | None:
    """The batch and the epoch in whose folder a file lies; None for a file that is not the sink's."""
    found = _OWN.match(path)
    return WrittenFor(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class Manifest:
    span: Span
    pipeline: str
    lineage: str
    epoch: int
    format: str
    schema: dict[str, Any]
    """The columns, in Spark's own words."""
    files: tuple[File, ...]
    timeline: int = 0
    """How often the folder had gone back to a savepoint when it was written."""

    def to_json(self) -> str:
        """One line, so that Spark reads a folder of manifests as a table."""
        return json.dumps(
            {
                "pipeline": self.pipeline,
                "lineage": self.lineage,
                "epoch": self.epoch,
                "batch": self.span.last,
                "first": self.span.first,
                "level": self.span.level,
                "timeline": self.timeline,
                "format": self.format,
                "schema": self.schema,
                "files": [{"path": file.path, "bytes": file.bytes} for file in self.files],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        found = json.loads(text)
        return cls(
            Span(found.get("first", found["batch"]), found["batch"], found.get("level", 0)),
            found["pipeline"],
            found["lineage"],
            found["epoch"],
            found["format"],
            found["schema"],
            tuple(File(_below(file["path"]), file["bytes"]) for file in found["files"]),
            found.get("timeline", 0),
        )


def _below(path: str) -> str:
    """A path that lies in the folder of the manifest: whoever can write one there cannot name files elsewhere."""
    if leads_out(path):
        reason = "it does not lie in the folder of its table"
        raise PenstockError.of("PATH_NOT_ALLOWED", where="a manifest", path=path, reason=reason, allowed="its folder")
    return path


def to_rewrite(manifests: Sequence[Manifest], large: int) -> list[File]:
    """The small files that become larger ones: those that share their partition with another small one.

    None if the columns have changed in between: files with other columns stay as they are.
    """
    if any((item.schema, item.format) != (manifests[0].schema, manifests[0].format) for item in manifests):
        return []
    small = [file for item in manifests for file in item.files if file.bytes < large // 2]
    counts: dict[str, int] = {}
    for file in small:
        counts[file.folder] = counts.get(file.folder, 0) + 1
    return [file for file in small if counts[file.folder] > 1]


def packed(files: Iterable[File], large: int) -> Iterator[tuple[str, list[File]]]:
    """Files of one partition in groups that fill a file, each with the folder of the partition."""
    by_folder: dict[str, list[File]] = {}
    for file in files:
        by_folder.setdefault(file.folder, []).append(file)
    for folder, some in by_folder.items():
        group: list[File] = []
        for file in some:
            if group and sum(item.bytes for item in group) + file.bytes > large:
                yield folder, group
                group = []
            group.append(file)
        yield folder, group
