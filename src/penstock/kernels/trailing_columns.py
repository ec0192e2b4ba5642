"""Aggregates over trailing intervals for columns of any Arrow type: what is kept of a column, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.columns import Restore, canonical, decimal_words, decimals, ordered
from penstock.kernels.exact_sums import BITS, Digits, below, digits_of, normal, rounded, squared_deviations, squares_of
from penstock.kernels.trailing import (
    Bools,
    Intervals,
    trailing_count,
    trailing_distinct,
    trailing_first,
    trailing_last,
    trailing_least,
    trailing_sum,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CODED, PLAIN, PRESENT = "coded", "plain", "present"
"""How a column is kept: as a dictionary and numbers into it; as it is; or only whether there is a value."""

_ORDERED = {"min", "max", "first", "last"}
_DECIMAL_DIGITS = 38
_LIMIT = 1 << 63
_LOW = (1 << 32) - 1
_INT_MAX = np.iinfo(np.int64).max


def result_type(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType:
    """The type of an aggregate's column."""
    if aggregate.function in ("count", "count_distinct"):
        return pa.int64()
    if aggregate.function in ("avg", "stddev"):
        return pa.float64()
    kind = schema.field(aggregate.column).type
    if aggregate.function in _ORDERED:
        return kind
    if aggregate.function != "sum":
        raise ValueError(f"no rolling aggregate {aggregate.function!r}")
    return _sum_type(kind)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision + 10, _DECIMAL_DIGITS), kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def kept_as(schema: pa.Schema, aggregates: Iterable[Aggregate]) -> dict[str, str]:
    """For each column aggregates read, the least that must be kept of it."""
    kept: dict[str, str] = {}
    for aggregate in aggregates:
        column, function = aggregate.column, aggregate.function
        if column is None:
            continue
        kind = schema.field(column).type
        if function == "count_distinct" or (function in _ORDERED and not _sorts_as_number(kind)):
            kept[column] = CODED
        elif function == "count":
            kept.setdefault(column, PRESENT)
        elif kept.get(column) != CODED:
            kept[column] = PLAIN
    return kept


def _sorts_as_number(kind: pa.DataType) -> bool:
    """Whether values are compared as the numbers they are stored as."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


@dataclass(frozen=True)
class Codes:
    """A column as numbers into a dictionary, in which null is a value like any other."""

    numbers: Ints
    values: pa.Array

    @cached_property
    def null(self) -> int | None:
        """The number of null."""
        found = np.flatnonzero(self.values.is_null().to_numpy(zero_copy_only=False))
        return int(found[0]) if len(found) else None


Column: TypeAlias = Codes | Bools | pa.Array
"""A column row by row in the way it is kept: `CODED`, `PRESENT` or `PLAIN`."""


class Argument:
    """A column and what intervals need of it. Each is computed once for all aggregates that read it."""

    def __init__(self, ranges: Intervals, kind: pa.DataType, column: Column) -> None:
        self.ranges = ranges
        self.kind = kind
        self.column = column

    @cached_property
    def codes(self) -> Ints:
        """By place, for coded columns."""
        assert isinstance(self.column, Codes)
        return self.column.numbers[self.ranges.rows]

    @cached_property
    def size(self) -> int:
        """Codes are below it."""
        assert isinstance(self.column, Codes)
        return len(self.column.values)

    @cached_property
    def array(self) -> pa.Array:
        """The values by row."""
        column = self.column
        return column.values.take(pa.array(column.numbers)) if isinstance(column, Codes) else column

    @cached_property
    def valid(self) -> Bools | None:
        """By place, whether there is a value; None if there is one everywhere."""
        if isinstance(self.column, Codes):
            null = self.column.null
            return None if null is None else self.codes != null
        valid = self.column if isinstance(self.column, np.ndarray) else _valid(self.column)
        return None if valid.all() else valid[self.ranges.rows]

    @cached_property
    def count(self) -> Ints:
        return trailing_count(self.ranges, self.valid)

    @cached_property
    def none(self) -> Bools | None:
        """Which intervals have no value."""
        return None if self.valid is None else self.count == 0

    @cached_property
    def floats(self) -> Floats:
        """By place, 0 for null."""
        numbers = pc.fill_null(self.array.cast(pa.float64(), safe=False), 0.0).to_numpy()
        by_place: Floats = numbers[self.ranges.rows]
        return by_place

    @cached_property
    def wild(self) -> Bools | None:
        """By place, which are infinite or not a number; None if none is."""
        wild: Bools = ~np.isfinite(self.floats)
        return wild if wild.any() else None

    @cached_property
    def tame(self) -> Floats:
        return self.floats if self.wild is None else np.where(self.wild, 0.0, self.floats)

    @cached_property
    def total(self) -> Digits:
        """The exact sums of finite floats, or of decimals without their point."""
        if not pa.types.is_decimal(self.kind):
            return self.float_total
        digits = _decimal_digits(self.array)
        return {place: trailing_sum(self.ranges, part[self.ranges.rows]) for place, part in digits.items()}

    @cached_property
    def float_total(self) -> Digits:
        """The exact sums of values as floats, of finite ones."""
        return {place: trailing_sum(self.ranges, part) for place, part in digits_of(self.tame).items()}

    @cached_property
    def whole(self) -> Ints:
        """Integers by place, 0 for null."""
        numbers = pc.fill_null(self.array, 0).to_numpy().astype(np.int64, copy=False)
        by_place: Ints = numbers[self.ranges.rows]
        return by_place

    @cached_property
    def overflowing(self) -> Floats | None:
        """The sums of integers as floats if one of them does not fit 64 bits, as is seldom the case."""
        longest = int((self.ranges.end - self.ranges.first).max(initial=0))
        largest = max(abs(int(end)) for end in (self.whole.min(initial=0), self.whole.max(initial=0)))
        if longest * largest < _LIMIT:
            return None
        low, high = trailing_sum(self.ranges, self.whole & _LOW), trailing_sum(self.ranges, self.whole >> 32)
        carried = high + (low >> 32)
        fits = (carried >= -(1 << 31)) & (carried < 1 << 31)
        return None if fits.all() else high.astype(np.float64) * 2.0**32 + low

    @cached_property
    def sum(self) -> Ints | Floats:
        """The sums of integers or floats; of decimals as floats, in units of their last digit."""
        if pa.types.is_integer(self.kind):
            return trailing_sum(self.ranges, self.whole)
        result = rounded(self.total, len(self.ranges.asked))
        if pa.types.is_decimal(self.kind) or self.wild is None:
            return result
        return result + self._wild_sum()

    def _wild_sum(self) -> Floats:
        """What the infinite and undefined values of each interval come to: 0 if there are none."""
        result = np.zeros(len(self.ranges.asked))
        with np.errstate(invalid="ignore"):
            for value in (np.inf, -np.inf):
                result += np.where(trailing_count(self.ranges, self.floats == value) > 0, value, 0.0)
        return np.where(trailing_count(self.ranges, np.isnan(self.floats)) > 0, np.nan, result)

    @cached_property
    def sorting(self) -> tuple[Ints, Restore]:
        """By place, integers that sort as the values do, and the way back. NaN is greater than all other numbers."""
        if not isinstance(self.column, Codes):
            by_row, restore = ordered(canonical(self.array))
            return by_row[self.ranges.rows], restore
        order = pc.array_sort_indices(self.column.values)
        rank = np.empty(len(order), np.int64)
        rank[order.to_numpy()] = np.arange(len(order))
        values = self.column.values.take(order)
        return rank[self.codes], lambda found, valid: values.take(pa.array(found, mask=~valid))

    def restored(self, found: Ints) -> pa.Array:
        """The values that sort as these integers do, where an interval has any."""
        valid = np.ones(len(found), np.bool_) if self.none is None else ~self.none
        return self.sorting[1](found, valid)


def _valid(array: pa.Array) -> Bools:
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _decimal_digits(array: pa.Array) -> Digits:
    """The digits of decimals without their point."""
    low, high = (word.view(np.int64) for word in decimal_words(array))
    mask = (1 << BITS) - 1
    return {0: low & mask, 1: (low >> BITS) & mask, 2: high & mask, 3: high >> BITS}


def _decimals(total: Digits, kind: pa.DataType, none: Bools | None) -> pa.Array:
    """Decimals of exact sums; null where the sum has more digits than there can be."""
    _, table = normal(total)
    low, high = table[0] | (table[1] << BITS), table[2] | (table[3] << BITS)
    missing = np.zeros(len(low), np.bool_) if none is None else none
    if kind.precision == _DECIMAL_DIGITS:
        missing = missing | ~below(total, 10**_DECIMAL_DIGITS)
    return decimals(low.view(np.uint64), high, kind, missing)


def aggregated(aggregate: Aggregate, ranges: Intervals, arguments: Mapping[str, Argument]) -> pa.Array:
    """An aggregate over the interval of each row asked about, by place."""
    if aggregate.column is None:
        return pa.array(trailing_count(ranges, None))
    return _FUNCTIONS[aggregate.function](arguments[aggregate.column])


def _masked(values: NDArray[Any], none: Bools | None) -> pa.Array:
    return pa.array(values, mask=none, from_pandas=False)


def _sum(column: Argument) -> pa.Array:
    if pa.types.is_decimal(column.kind):
        return _decimals(column.total, _sum_type(column.kind), column.none)
    if pa.types.is_integer(column.kind) and column.overflowing is not None:
        raise OverflowError("the sum over a row's interval does not fit into 64 bits")
    return _masked(column.sum, column.none)


def _avg(column: Argument) -> pa.Array:
    unit = 10.0**column.kind.scale if pa.types.is_decimal(column.kind) else 1.0
    total = column.overflowing if pa.types.is_integer(column.kind) and column.overflowing is not None else column.sum
    return _masked(total / (np.maximum(column.count, 1) * unit), column.none)


def _stddev(column: Argument) -> pa.Array:
    """Of a sample: null for less than two values."""
    count = column.count
    squares, too_big = squares_of(column.tame)
    total = {place: trailing_sum(column.ranges, part) for place, part in squares.items()}
    deviations = squared_deviations(count, column.float_total, total)
    result = np.sqrt(np.maximum(deviations, 0.0) / np.maximum(count.astype(np.float64) * (count - 1), 1.0))
    if too_big.any():
        result[trailing_count(column.ranges, too_big) > 0] = np.inf
    if column.wild is not None:
        result[trailing_count(column.ranges, column.wild) > 0] = np.nan
    return _masked(result, count < 2)


def _min(column: Argument) -> pa.Array:
    numbers, _ = column.sorting
    if column.valid is not None:
        numbers = np.where(column.valid, numbers, _INT_MAX)
    return column.restored(trailing_least(column.ranges, numbers))


def _max(column: Argument) -> pa.Array:
    numbers = ~column.sorting[0]
    if column.valid is not None:
        numbers = np.where(column.valid, numbers, _INT_MAX)
    return column.restored(~trailing_least(column.ranges, numbers))


def _first(column: Argument) -> pa.Array:
    return column.restored(trailing_first(column.ranges, column.sorting[0], column.valid))


def _last(column: Argument) -> pa.Array:
    return column.restored(trailing_last(column.ranges, column.sorting[0], column.valid))


def _count_distinct(column: Argument) -> pa.Array:
    return pa.array(trailing_distinct(column.ranges, column.codes, column.size, column.valid))


_FUNCTIONS: Mapping[str, Callable[[Argument], pa.Array]] = {
    "count": lambda column: pa.array(column.count),
    "sum": _sum,
    "avg": _avg,
    "stddev": _stddev,
    "min": _min,
    "max": _max,
    "first": _first,
    "last": _last,
    "count_distinct": _count_distinct,
}
