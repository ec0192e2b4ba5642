"""Compares what two versions of a pipeline have stored, row by row; plain values, no Spark and no sinks.

Rows with the same key belong together: those that are the same are equal, and of the others as many as can be are taken
for two versions of one row. What is left is missing on the other side. Without a key, rows are the same or missing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

Value = str | None
Row = tuple[Value, ...]
"""The values of a row as texts, in the order of the columns."""
SAMPLES = 5


@dataclass(frozen=True)
class Sample:
    """Rows that are not the same; None for the side that has none."""

    old: Mapping[str, Value] | None
    new: Mapping[str, Value] | None


@dataclass(frozen=True)
class Compared:
    equal: int = 0
    different: int = 0
    only_old: int = 0
    only_new: int = 0
    samples: tuple[Sample, ...] = ()

    @property
    def verdict(self) -> Literal["equal", "differs"]:
        return "differs" if self.different or self.only_old or self.only_new else "equal"


def compare(
    old: Iterable[Row], new: Iterable[Row], columns: Sequence[str], key: Sequence[str] = (), samples: int = SAMPLES
) -> Compared:
    """Compares rows with the same columns. `key` names columns that tell which rows belong together."""
    places = [columns.index(name) for name in key] or list(range(len(columns)))
    left, right = Counter(old), Counter(new)
    equal = sum((left & right).values())
    rest_old, rest_new = _by_key(left - right, places), _by_key(right - left, places)
    different = only_old = only_new = 0
    shown: list[Sample] = []
    for found in sorted({*rest_old, *rest_new}, key=_sortable):
        here, there = rest_old.get(found, []), rest_new.get(found, [])
        both = min(len(here), len(there))
        different, only_old, only_new = different + both, only_old + len(here) - both, only_new + len(there) - both
        for place in range(min(max(len(here), len(there)), samples - len(shown))):
            pair = [_named(rows[place], columns) if place < len(rows) else None for rows in (here, there)]
            shown.append(Sample(*pair))
    return Compared(equal, different, only_old, only_new, tuple(shown))


def _by_key(rows: Counter[Row], places: Sequence[int]) -> dict[Row, list[Row]]:
    found: dict[Row, list[Row]] = {}
    for row in sorted(rows.elements(), key=_sortable):
        found.setdefault(tuple(row[place] for place in places), []).append(row)
    return found


def _sortable(row: Row) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in row)


def _named(row: Row, columns: Sequence[str]) -> dict[str, Value]:
    return dict(zip(columns, row, strict=True))


@dataclass(frozen=True)
class Change:
    """A row that a sink with a key got in a batch."""

    batch: int
    row: Row
    version: Any = None
    deletes: bool = False


def newest(changes: Iterable[Change], places: Sequence[int]) -> list[Row]:
    """What a sink with a key would hold: of each key the newest row by version, and of equally new ones the last.

    `places` are those of the key in a row. A row without a version is older than all that have one.
    """
    held: dict[Row, Change] = {}
    for change in sorted(changes, key=lambda change: change.batch):
        key = tuple(change.row[place] for place in places)
        before = held.get(key)
        if before is None or not _older(change.version, before.version):
            held[key] = change
    return [change.row for change in held.values() if not change.deletes]


def _older(version: Any, than: Any) -> bool:
    if version is None or than is None:
        return version is None and than is not None
    return bool(version < than)


def text_of(value: Any) -> Value:
    """A value as a text that is the same wherever it was read: numbers by what they are, times in UTC."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case Decimal():
            return _number(value)
        case float():
            return _number(Decimal(repr(value))) if value == value and abs(value) != float("inf") else repr(value)
        case dt.datetime():
            moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
            return moment.isoformat(" ", "microseconds")
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case list() | tuple() | dict():
            return json.dumps(value, sort_keys=True, default=text_of)
        case _:
            return str(value)


def _number(value: Decimal) -> str:
    """Without zeros at the end that say nothing."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def columns_alike(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """The columns that both have, in the order of the new, and those that only the old and only the new have."""
    return (
        [name for name in new if name in old],
        [name for name in old if name not in new],
        [name for name in new if name not in old],
    )
