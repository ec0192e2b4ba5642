"""What rolling aggregates should be, said plainly: for every row a loop over all rows of its key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import NO_WATERMARK, TIME

Row = dict[str, Any]


class Watermarks:
    """Rows that are late by the watermark of the batch before, and the watermark of each batch."""

    def __init__(self, batches: Sequence[Sequence[Row]], max_delay: int, far: int) -> None:
        self.timely: list[list[Row]] = []
        self.late: list[Row] = []
        self.by_batch: list[int] = []
        before, watermark, newest = NO_WATERMARK, NO_WATERMARK, None
        for batch in batches:
            self.timely.append([row for row in batch if row[TIME] > before])
            self.late += [row for row in batch if row[TIME] <= before]
            self.by_batch.append(watermark)
            times = [row[TIME] for row in batch] + ([] if newest is None else [newest])
            before = watermark
            if times:
                newest = max(times)
                watermark = max(watermark, newest // 1000 * 1000 - max_delay)
        self.timely.append([])
        self.by_batch.append(max(watermark, far))


def settled(
    marks: Watermarks, keys: Sequence[str], aggregates: Sequence[Aggregate], over: int, passed: Sequence[str]
) -> list[list[Row]]:
    """What leaves in each batch if rows wait for the watermark: answers over all timely rows there ever are."""
    everything = [row for batch in marks.timely for row in batch]
    out: list[list[Row]] = []
    reached = NO_WATERMARK
    for watermark in marks.by_batch:
        due = [row for row in everything if reached < row[TIME] <= watermark]
        out.append([enriched(row, everything, keys, aggregates, over, passed) for row in due])
        reached = max(reached, watermark)
    return out


def at_once(
    marks: Watermarks, keys: Sequence[str], aggregates: Sequence[Aggregate], over: int, passed: Sequence[str]
) -> list[list[Row]]:
    """What leaves in each batch if rows do not wait: answers over all timely rows up to this batch."""
    seen: list[Row] = []
    out: list[list[Row]] = []
    for batch in marks.timely:
        seen += batch
        out.append([enriched(row, seen, keys, aggregates, over, passed) for row in batch])
    return out


def enriched(
    row: Row,
    rows: Sequence[Row],
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    over: int,
    passed: Sequence[str],
) -> Row:
    around = [
        other
        for other in rows
        if row[TIME] - over < other[TIME] <= row[TIME] and all(other[key] == row[key] for key in keys)
    ]
    return {**{name: row[name] for name in passed}, **{each.name: value(each, around) for each in aggregates}}


def value(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    if aggregate.column is None:
        return len(rows)
    pairs = [(row[TIME], row[aggregate.column]) for row in rows if row[aggregate.column] is not None]
    values = [found for _, found in pairs]
    if aggregate.function == "count":
        return len(values)
    if aggregate.function == "count_distinct":
        return len({"nan" if found != found else found for found in values})
    if not values:
        return None
    ordered = sorted(values, key=_rank)
    match aggregate.function:
        case "min":
            return ordered[0]
        case "max":
            return ordered[-1]
        case "first":
            return min(pairs, key=lambda pair: (pair[0], _rank(pair[1])))[1]
        case "last":
            return max(pairs, key=lambda pair: (pair[0], _rank(pair[1])))[1]
        case "sum":
            return total(values)
        case "avg":
            return float(total(values)) / len(values)
        case "stddev":
            return deviation([float(found) for found in values])
    raise AssertionError(aggregate)


def _rank(found: Any) -> tuple[bool, Any]:
    """NaN is the greatest number."""
    return (True, 0) if found != found else (False, found)


def total(values: Sequence[Any]) -> Any:
    if isinstance(values[0], int):
        return sum(values)
    if isinstance(values[0], Decimal):
        exact = Context(prec=80)
        result = Decimal(0)
        for found in values:
            result = exact.add(result, found)
        return result
    wild = [found for found in values if not math.isfinite(found)]
    return sum(wild) if wild else math.fsum(values)


def deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    if any(abs(found) > 1e154 for found in values):
        return math.inf
    exact = [Fraction(found) for found in values]
    mean = sum(exact) / len(exact)
    return math.sqrt(sum((found - mean) ** 2 for found in exact) / (len(exact) - 1))
