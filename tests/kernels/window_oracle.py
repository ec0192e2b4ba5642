"""What windows, sessions and aggregates should give, in plain Python: lists, loops and dictionaries, row by row."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from tests.kernels.driving import Driver, Row

from penstock.kernels import runs, spans
from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import TIME
from penstock.kernels.session import Session
from penstock.kernels.window import Window

Key = tuple[Any, ...]


def after(value: Any) -> tuple[bool, Any]:
    """Sorts NaN above all else."""
    missing = isinstance(value, float) and math.isnan(value)
    return (missing, 0 if missing else value)


def same_number(value: Any) -> Any:
    """Something that is equal for equal values, NaN too."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def aggregated(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    """The value of an aggregate over rows."""
    if aggregate.column is None:
        return len(rows)
    found = [(row[TIME], row[aggregate.column]) for row in rows if row[aggregate.column] is not None]
    values = [value for _, value in found]
    return _FUNCTIONS[aggregate.function](values, found, aggregate.option)


def _sum(values: list[Any], *_: Any) -> Any:
    if not values:
        return None
    if isinstance(values[0], float):
        return _float_sum(values)
    return sum(values[1:], values[0])


def _float_sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return float(sum(values))


def _avg(values: list[Any], *_: Any) -> float | None:
    if not values:
        return None
    total = _float_sum(values) if isinstance(values[0], float) else sum(values)
    return float(total) / len(values) if isinstance(total, float) else float(Fraction(total) / len(values))


def _stddev(values: list[Any], *_: Any) -> float | None:
    if len(values) < 2:
        return None
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return math.sqrt(sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1))


def _percentile(values: list[Any], _: Any, fraction: float) -> float | None:
    if not values:
        return None
    ordered = sorted((float(value) for value in values), key=after)
    position = (len(ordered) - 1) * fraction
    lower, upper = math.floor(position), math.ceil(position)
    low, high = ordered[lower], ordered[upper]
    return low if lower == upper or low == high else (upper - position) * low + (position - lower) * high


def _top(values: list[Any], _: Any, most: float) -> list[dict[str, Any]]:
    counts = Counter(same_number(value) for value in values)
    by_name = {same_number(value): value for value in values}
    ranked = sorted(counts, key=lambda name: (-counts[name], after(by_name[name])))
    return [{"value": by_name[name], "count": counts[name]} for name in ranked[: int(most)]]


def _by_time(found: list[tuple[int, Any]]) -> list[Any]:
    return [value for _, value in sorted(found, key=lambda pair: (pair[0], after(pair[1])))]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": lambda values, *_: len(values),
    "sum": _sum,
    "avg": _avg,
    "min": lambda values, *_: min(values, key=after, default=None),
    "max": lambda values, *_: max(values, key=after, default=None),
    "stddev": _stddev,
    "first": lambda _, found, __: next(iter(_by_time(found)), None),
    "last": lambda _, found, __: next(reversed(_by_time(found)), None),
    "count_distinct": lambda values, *_: len({same_number(value) for value in values}),
    "percentile": _percentile,
    "top_k": _top,
    "collect": lambda _, found, __: _by_time(found),
}


def instant(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)


@dataclass
class WindowOracle:
    """Gets the same batches as the driver, and says for each what comes out."""

    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    size: int
    slide: int
    emit: str = "close"
    allowed: int = 0
    retained: int = 0
    rows: dict[tuple[int, Key], list[Row]] = field(default_factory=dict)
    """The rows of each window, by its start, and key."""
    missed: list[tuple[Key, int]] = field(default_factory=list)

    def batch(self, rows: Sequence[Row], before: int, watermark: int) -> tuple[list[Row], list[Row]]:
        """Main rows and corrections of a batch, judged by the watermark before, closed by its own."""
        touched: dict[tuple[int, Key], None] = {}
        for row in rows:
            self._take(row, before, touched)
        corrected = [place for place in touched if place[0] + self.size <= before]
        if self.emit == "update":
            main = [place for place in touched if place[0] + self.size > before]
        else:
            main = [place for place in self.rows if before < place[0] + self.size <= watermark]
        return [self.result(place) for place in main], [self.result(place) for place in corrected]

    def _take(self, row: Row, before: int, touched: dict[tuple[int, Key], None]) -> None:
        key = tuple(row[name] for name in self.keys)
        late = 0
        for start in self.starts(row[TIME]):
            kept = max(self.allowed, self.retained) if row.get("_replayed") else self.allowed
            if start + self.size <= before - kept:
                late += 1
                continue
            self.rows.setdefault((start, key), []).append(row)
            touched[start, key] = None
        if late:
            self.missed.append((key, late))

    def starts(self, time: int) -> list[int]:
        """The starts of the windows that a time is in."""
        start = time - time % self.slide
        found = []
        while start + self.size > time:
            found.append(start)
            start -= self.slide
        return found

    def result(self, place: tuple[int, Key]) -> Row:
        start, key = place
        return {
            **dict(zip(self.keys, key, strict=True)),
            "window_start": instant(start),
            "window_end": instant(start + self.size),
            **{item.name: aggregated(item, self.rows[place]) for item in self.aggregates},
        }


@dataclass
class SessionOracle:
    """Keeps the open sessions of each key as lists of rows."""

    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    gap: int
    open: dict[Key, list[list[Row]]] = field(default_factory=dict)
    missed: list[tuple[Key, int]] = field(default_factory=list)

    def batch(self, rows: Sequence[Row], before: int, watermark: int) -> tuple[list[Row], list[Row]]:
        for row in rows:
            key = tuple(row[name] for name in self.keys)
            if row[TIME] + self.gap <= before:
                self.missed.append((key, 1))
            else:
                self.open.setdefault(key, []).append([row])
        closed = []
        for key in self.open:
            self.open[key] = self._joined(self.open[key])
            closed += [self._result(key, one) for one in self.open[key] if self._end(one) <= watermark]
            self.open[key] = [one for one in self.open[key] if self._end(one) > watermark]
        return closed, []

    def _joined(self, sessions: list[list[Row]]) -> list[list[Row]]:
        joined: list[list[Row]] = []
        for session in sorted(sessions, key=self._start):
            if joined and self._start(session) <= self._end(joined[-1]):
                joined[-1] = joined[-1] + session
            else:
                joined.append(session)
        return joined

    def _start(self, session: list[Row]) -> int:
        return min(int(row[TIME]) for row in session)

    def _end(self, session: list[Row]) -> int:
        return max(int(row[TIME]) for row in session) + self.gap

    def _result(self, key: Key, session: list[Row]) -> Row:
        return {
            **dict(zip(self.keys, key, strict=True)),
            "window_start": instant(self._start(session)),
            "window_end": instant(self._end(session)),
            **{item.name: aggregated(item, session) for item in self.aggregates},
        }


def driver(kernel: Window | Session, *, max_delay: int = 0, buckets: int = 3, seed: int = 0) -> Driver:
    """A driver for a kernel with one input."""
    return Driver(kernel, [kernel.input], [kernel.keys], max_delay=max_delay, buckets=buckets, seed=seed)


def comparable(rows: Iterable[Row], digits: int = 9) -> list[str]:
    """Rows as texts, sorted, floats rounded: sums of floats are not the same to the last digit."""
    return sorted(repr({name: _rounded(value, digits) for name, value in row.items()}) for row in rows)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return f"{value + 0.0:.{digits}g}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return [_rounded(one, digits) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one, digits) for name, one in value.items()}
    return value


@contextmanager
def small_limits(draw: random.Random) -> Iterator[None]:
    """State is cut, and results are made in parts, as happens with many rows only."""
    with (
        patch.object(runs, "_ENOUGH", draw.choice([2, 5, 4096])),
        patch.object(spans, "_PIECE", draw.choice([3, 10, 1 << 20])),
    ):
        yield


def drive(oracle: WindowOracle | SessionOracle, run: Driver, batches: Sequence[Sequence[Row]], far: int) -> None:
    """Gives both the same batches, and compares what comes out of each batch, and what came too late."""
    for rows in batches:
        expected = oracle.batch(rows, run.before, run.watermark)
        corrected = len(run.corrections)
        run.batch(rows)
        _compare(run, corrected, *expected)
    expected = oracle.batch([], run.before, max(run.watermark, far))
    corrected = len(run.corrections)
    run.finish(far)
    _compare(run, corrected, *expected)
    key = [(tuple(row[name] for name in oracle.keys), missed) for _, row, missed in run.missed]
    assert sorted(map(repr, key)) == sorted(map(repr, oracle.missed))


def _compare(run: Driver, corrected: int, main: list[Row], corrections: list[Row]) -> None:
    assert comparable(run.by_batch[-1]) == comparable(main)
    assert comparable(run.corrections[corrected:]) == comparable(corrections)


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "name": (pa.string(), ["a", "b", "", "é", None]),
    "number": (pa.int64(), [1, 2, -3, None]),
    "day": (pa.date32(), [date(2026, 1, 1), date(1969, 1, 1), None]),
    "at": (pa.timestamp("us", tz="UTC"), [instant(0), instant(-5), None]),
    "price": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-1.50"), None]),
    "flag": (pa.bool_(), [True, False, None]),
}
"""Columns for keys, with their values."""

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, 2, -7, 1 << 40, None]),
    "small": (pa.int16(), [0, 5, -300, None]),
    "float": (pa.float64(), [0.5, -1.25, 0.1, 1e6, 3.0, None]),
    "wild": (pa.float64(), [1.0, math.nan, math.inf, -math.inf, None]),
    "dec": (pa.decimal128(12, 3), [Decimal("1.125"), Decimal("-2.000"), Decimal("1000000.001"), None]),
    "big": (pa.decimal128(30, 4), [Decimal("98765432109876543210.1234"), Decimal("-1.0000"), None]),
    "text": (pa.string(), ["x", "yy", "", "ß", None]),
    "date": (pa.date32(), [date(2026, 1, 1), date(1960, 5, 5), None]),
    "when": (pa.timestamp("us", tz="UTC"), [instant(7), instant(-7), instant(10**12), None]),
    "yes": (pa.bool_(), [True, False, None]),
}
"""Columns for arguments, with their values."""

_NUMERIC = ("int", "small", "float", "dec", "big")
_ANY = ("int", "small", "float", "wild", "dec", "big", "text", "date", "when", "yes")


def choices() -> list[Aggregate]:
    """Every function over every column it may take."""
    found = [Aggregate("rows", "count")]
    for function in ("sum", "avg", "stddev", "percentile"):
        columns = (*_NUMERIC, "wild") if function in ("sum", "percentile") else _NUMERIC
        for column in columns:
            options: Sequence[float | None] = (0.0, 0.3, 0.5, 1.0) if function == "percentile" else (None,)
            found += [Aggregate(f"{function} {column} {option}", function, column, option) for option in options]
    for function in ("count", "min", "max", "first", "last", "count_distinct", "collect", "top_k"):
        for column in _ANY:
            options = (1.0, 2.0) if function == "top_k" else (None,)
            found += [Aggregate(f"{function} {column} {option}", function, column, option) for option in options]
    return found


def draw_batches(
    draw: random.Random, unit: int, delay: int, reach: int, fields: Mapping[str, Sequence[Any]]
) -> list[list[Row]]:
    """Batches of rows, in and out of order, many of them around the watermark they are judged by, up to `reach` behind.

    `fields` are the columns and their values; the first value is the most frequent.
    """
    batches: list[list[Row]] = []
    newest: list[int] = []
    now, back = draw.choice([0, 0, -20, 1000]), draw.choice([2, 10, 40])
    for _ in range(draw.choice([1, 4, 5, 6, 7])):
        judged = newest[-2] - delay if len(newest) > 1 else None
        now += draw.choice([0, 4, 12])
        rows: list[Row] = []
        for _ in range(draw.choice([0, 1, 3, 6, 9])):
            now += draw.choice([0, 0, 1, 2, 5]) if draw.random() < 0.95 else 40
            if judged is not None and draw.random() < 0.35:
                time = judged - draw.randint(-unit, reach)
            else:
                time = (now - draw.choice([0, 1, draw.randint(0, back)])) * unit + draw.randint(0, unit - 1)
            row: Row = {TIME: draw.choice([time, time, time - time % unit])}
            for name, values in fields.items():
                row[name] = values[0] if draw.random() < 0.4 else draw.choice(values)
            rows.append(row)
        newest.append(max([*(row[TIME] for row in rows), *newest], default=now * unit))
        batches.append(rows)
    return batches
