"""A savepoint as values: what it holds, of which batch, and how that stands in its `savepoint.json`.

Nothing in it names a place of the machine it was taken on, so that its folder can be moved and copied.

savepoints/NAME/        one savepoint
savepoints/.NAME.tmp    one that is being made, or removed
savepoints/requests/    what a running pipeline is asked for
savepoints/pins/        what sinks must keep for savepoints, wherever those lie
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.reports.codec import plain, read
from penstock.reports.version import Version

FORMAT = 1
"""The version of what a savepoint looks like; one with a higher number is not read."""
MANIFEST = "savepoint.json"
SAVEPOINTS, REQUESTS, PINS = "savepoints", "requests", "pins"
"""The folder of a pipeline's savepoints in its state folder, and what else lies there."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHECKSUM = "checksum"


@dataclass(frozen=True, order=True)
class SavedFile:
    """A file of a savepoint, by its path in the folder."""

    path: str
    bytes: int
    sha256: str
    modified_ns: int
    """When it was last changed: some sources read files in this order."""


@dataclass(frozen=True)
class SavedOperator:
    """State of one operator of the query."""

    id: int
    kind: str
    """What Spark calls it."""
    step: str | None
    """The step whose state it is, if that is known."""
    bytes: int


@dataclass(frozen=True)
class SavedSink:
    """A sink, and what it held: enough for it to return there."""

    name: str
    component: str
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Totals:
    """The ledger up to the batch, added up: by source, step and sink."""

    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_dead: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    corrections: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Savepoint:
    """All that a pipeline was after a batch."""

    name: str
    created_at: dt.datetime
    pipeline: str
    lineage: str
    epoch: int
    batch: int
    """The last batch that is in it."""
    fingerprint: str
    """Of the pipeline as it was declared."""
    document: Mapping[str, Any]
    """The pipeline as it was declared, in the shape of a pipeline file."""
    penstock: str
    spark: str
    format: int = FORMAT
    note: str = ""
    automatic: bool = False
    """Whether the pipeline took it by itself, and may remove it by itself."""
    query_id: str | None = None
    unfinished: bool = False
    """Whether a further batch had been begun, of which some sinks may have stored their part: it comes again as is."""
    watermark: int = 0
    """Of event time, in milliseconds."""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """The position in each source, as Spark has it."""
    partitions: int | None = None
    buckets: int | None = None
    operators: tuple[SavedOperator, ...] = ()
    version: Version | None = None
    """What its state knows of the pipeline; None if it was taken by a Penstock that did not note that."""
    sinks: tuple[SavedSink, ...] = ()
    totals: Totals = field(default_factory=Totals)
    files: tuple[SavedFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def steps(self) -> dict[str, str]:
        """Steps by the number of the operator that keeps their state, as far as it is known."""
        return {str(operator.id): operator.step for operator in self.operators if operator.step is not None}

    @property
    def state_bytes(self) -> int:
        return sum(operator.bytes for operator in self.operators)

    def state_of(self) -> dict[str, int]:
        """Bytes of state by step; what belongs to no step that is known goes by Spark's number."""
        found: dict[str, int] = {}
        for operator in self.operators:
            name = operator.step or f"operator {operator.id}"
            found[name] = found.get(name, 0) + operator.bytes
        return found


def to_json(savepoint: Savepoint) -> str:
    """The text of `savepoint.json`, with a checksum of itself."""
    content = plain(savepoint)
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1) + "\n"


def from_json(text: str) -> Savepoint:
    """The savepoint that a text tells of; raises ValueError if the text was changed or cut short."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("it is not a mapping")
    checksum = content.pop(_CHECKSUM, None)
    if checksum != _checksum(content):
        raise ValueError("its checksum differs")
    found = read(Savepoint, text)
    outside = [file.path for file in found.files if not _is_inside(file.path)]
    if outside:
        raise ValueError(f"it names a file outside of it: {outside[0]}")
    return found


def _is_inside(path: str) -> bool:
    """Whether a path stays in the folder that it is relative to."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") for part in parts) and "\0" not in path


def format_of(text: str) -> int | None:
    """The format that a text says it has, whatever else it holds; None if it says nothing."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    number = found.get("format") if isinstance(found, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_name(name: str) -> bool:
    """A savepoint is a folder: its name is one part of a path, and not hidden."""
    return bool(_NAME.fullmatch(name)) and name not in (REQUESTS, PINS)


def refuse_bad_name(name: str) -> None:
    if not is_name(name):
        raise PenstockError.of("SAVEPOINT_NAME", name=name)


def names_in(folder: Path) -> list[str]:
    """The names of the savepoints in a folder; there need not be one."""
    try:
        return sorted(item.name for item in folder.iterdir() if is_name(item.name) and item.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
