"""What LATEST, DEDUPE and TOP_N mean, in plain Python: dictionaries and loops, a row at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

Row = dict[str, Any]
Key = tuple[Any, ...]
NEVER = -(1 << 62)


@dataclass
class Clock:
    """The watermark as Spark moves it: after each batch, by the newest time seen, in whole milliseconds."""

    delay: int
    newest: int | None = None
    before: int = NEVER
    now: int = NEVER

    def move(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.newest = row["_time"] if self.newest is None else max(self.newest, row["_time"])
        self.before = self.now
        if self.newest is not None:
            self.now = max(self.now, self.newest // 1000 * 1000 - self.delay)

    def jump(self, far: int) -> None:
        self.now = max(self.now, far)


def rising(value: Any) -> tuple[Any, ...]:
    """Sorts values upwards, null below all and NaN above all numbers."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)


@dataclass
class LatestOracle:
    clock: Clock
    keys: Sequence[str]
    order: Sequence[str]
    kept: Sequence[str]
    given: Sequence[str]
    forget: int | None
    rows: dict[Key, Row] = field(default_factory=dict)
    cleared: dict[Key, Row] = field(default_factory=dict)
    now: int = NEVER
    late: list[Row] = field(default_factory=list)

    def batch(self, rows: Sequence[Row]) -> list[Row]:
        touched: dict[Key, Row | None] = {}
        for row in rows:
            if self.forget is not None and row["_time"] < self.clock.before - self.forget:
                self.late.append(row)
                continue
            key = tuple(row[name] for name in self.keys)
            touched.setdefault(key, self.rows.get(key))
            if key not in self.rows or self._rank(row) > self._rank(self.rows[key]):
                self.rows[key] = row
        out = [self.rows[key] for key, was in touched.items() if was is None or self._differs(self.rows[key], was)]
        self.cleared |= self.rows
        if self.forget is not None:
            self.rows = {k: row for k, row in self.rows.items() if row["_time"] + self.forget >= self.clock.now}
        self.now = self.clock.now
        self.clock.move(rows)
        return [{name: row[name] for name in self.given} for row in out]

    def rows_not_cleared(self, slack: int) -> dict[Key, Row]:
        """What may still be in the state when forgotten rows are cleared out up to this much later."""
        forget = 1 << 62 if self.forget is None else self.forget + slack
        return {key: row for key, row in self.cleared.items() if row["_time"] + forget >= self.now}

    def _rank(self, row: Row) -> list[Any]:
        return [rising(row[name]) for name in (*self.order, "_time", *self.kept)]

    def _differs(self, one: Row, other: Row) -> bool:
        return any(one[name] != other[name] for name in self.kept)


@dataclass
class DedupeOracle:
    """`exact`: all timely rows, sorted, then thinned out at once; else batch after batch."""

    clock: Clock
    keys: Sequence[str]
    passed: Sequence[str]
    within: int
    timely: list[Row] = field(default_factory=list)
    kept: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    late: list[Row] = field(default_factory=list)

    def exact(self) -> list[Row]:
        last: dict[Key, int] = {}
        out = []
        for row in sorted(self.timely, key=self._rank):
            key = tuple(row[name] for name in self.keys)
            if key not in last or row["_time"] > last[key] + self.within:
                last[key] = row["_time"]
                out.append(row)
        return [{name: row[name] for name in self.passed} for row in out]

    def batch(self, rows: Sequence[Row]) -> list[Row]:
        """Gives what leaves at once, first come, first kept."""
        self.late += [row for row in rows if row["_time"] <= self.clock.before]
        came = [row for row in rows if row["_time"] > self.clock.before]
        self.timely += came
        out = []
        for row in sorted(came, key=self._rank):
            times = self.kept[tuple(row[name] for name in self.keys)]
            if all(abs(row["_time"] - time) > self.within for time in times):
                times.append(row["_time"])
                out.append(row)
        self.clock.move(rows)
        return [{name: row[name] for name in self.passed} for row in out]

    def _rank(self, row: Row) -> list[Any]:
        nulls_last = [(row[name] is None, rising(row[name])) for name in self.passed]
        return [row["_time"], *nulls_last]


@dataclass
class TopNOracle:
    clock: Clock
    keys: Sequence[str]
    passed: Sequence[str]
    n: int
    order: Sequence[tuple[str, bool]]
    size: int
    allowed: int
    rows: dict[tuple[int, Key], list[Row]] = field(default_factory=lambda: defaultdict(list))
    given: dict[tuple[int, Key], list[Row]] = field(default_factory=dict)
    late: list[Row] = field(default_factory=list)
    main: list[Row] = field(default_factory=list)
    corrections: list[Row] = field(default_factory=list)

    def batch(self, rows: Sequence[Row]) -> None:
        for row in rows:
            start = row["_time"] // self.size * self.size
            if start + self.size <= self.clock.before - self.allowed:
                self.late.append(row)
            else:
                self.rows[start, tuple(row[name] for name in self.keys)].append(row)
        for (start, key), members in self.rows.items():
            if start + self.size > self.clock.now:
                continue
            best = self._best(members)
            if start + self.size > self.clock.before:
                self.main += self._listed(start, best)
            elif self._entered(self.given.get((start, key), []), best):
                self.corrections += self._listed(start, best)
            self.given[start, key] = best
        self.clock.move(rows)

    def _entered(self, old: Sequence[Row], new: Sequence[Row]) -> bool:
        """Whether another row is in the list, be it that the columns given do not show it."""
        names = [*self.passed, *(name for name, _ in self.order)]
        return [[row[name] for name in names] for row in old] != [[row[name] for name in names] for row in new]

    def _best(self, members: Sequence[Row]) -> list[Row]:
        best = sorted(members, key=lambda row: [(row[name] is None, rising(row[name])) for name in self.passed])
        for name, descending in reversed(self.order):
            there = [row for row in best if row[name] is not None]
            ranks = {id(row): rising(row[name]) for row in there}
            there.sort(key=lambda row: ranks[id(row)], reverse=descending)
            best = there + [row for row in best if row[name] is None]
        return best[: self.n]

    def _listed(self, start: int, best: Sequence[Row]) -> list[Row]:
        epoch = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
        window = {
            "window_start": epoch + timedelta(microseconds=start),
            "window_end": epoch + timedelta(microseconds=start + self.size),
        }
        return [
            {**{name: row[name] for name in self.passed}, **window, "rank": rank} for rank, row in enumerate(best, 1)
        ]


def multiset(rows: Sequence[Row]) -> list[str]:
    """Rows in an order of their own, for comparing whole outputs."""
    return sorted(repr(sorted(row.items(), key=lambda item: item[0])) for row in rows)
