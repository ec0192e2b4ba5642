"""Partial aggregates: what is kept of rows so that it can be merged in any order, a row of columns for each group.

A partial aggregate is made of single rows (`lift`), and merged over spans of sorted rows (`merge`). Those that hold
many values for a group are in `list_partials`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.base import TIME
from penstock.kernels.columns import canonical, decimal_words, decimals, numbers, ordered, plain
from penstock.kernels.spans import Grouped, Spans

Columns = Sequence[pa.Array]

_MASK = (1 << 32) - 1
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class Partial(ABC):
    """A partial aggregate of one column. Equal ones, by `name`, are kept once."""

    kind: str
    spreads = False
    """Whether merging windows that share rows costs memory for each row of each window."""

    def __init__(self, column: str | None, type: pa.DataType) -> None:
        self.column = column
        self.type = type
        self.name = f"_{self.kind}" if column is None else f"_{self.kind}:{column}"

    @property
    @abstractmethod
    def types(self) -> Sequence[pa.DataType]:
        """The types of its columns."""

    @property
    def fields(self) -> list[pa.Field]:
        types = self.types
        if len(types) == 1:
            return [pa.field(self.name, types[0])]
        return [pa.field(f"{self.name}.{index}", type) for index, type in enumerate(types)]

    @abstractmethod
    def lift(self, rows: pa.Table) -> Columns:
        """Of every row by itself."""

    @abstractmethod
    def merge(self, columns: Columns, spans: Spans) -> Columns:
        """Of every span of rows."""

    def nothing(self, count: int) -> Columns:
        """Of so many groups without a value."""
        zeros = pa.array(np.zeros(count, np.int64))
        return self.lift(pa.table({TIME: zeros, str(self.column): pa.nulls(count, self.type)}))

    def start(self, rows: pa.Table, groups: Grouped) -> Columns:
        """Of every group of rows."""
        order = pa.array(groups.order)
        return self.merge([column.take(order) for column in self.lift(rows)], groups.spans)

    def values(self, rows: pa.Table) -> pa.Array:
        """The column it is about."""
        return canonical(plain(rows.column(self.column)))


def is_valid(values: pa.Array) -> np.ndarray:
    if not values.null_count:
        return np.ones(len(values), bool)
    return np.asarray(pc.is_valid(values).to_numpy(zero_copy_only=False))


def as_floats(values: pa.Array) -> np.ndarray:
    """Numbers of any type as float64, 0 for nulls."""
    return np.asarray(values.cast(pa.float64()).fill_null(0.0).to_numpy())


class RowCount(Partial):
    """How many rows there are."""

    kind = "rows"
    types = (pa.int64(),)

    def lift(self, rows: pa.Table) -> Columns:
        return [pa.array(np.ones(rows.num_rows, np.int64))]

    def nothing(self, count: int) -> Columns:
        return [pa.array(np.zeros(count, np.int64))]

    def start(self, rows: pa.Table, groups: Grouped) -> Columns:
        return [pa.array(groups.sizes)]

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        return [pa.array(spans.sum(numbers(columns[0])))]


class ValueCount(RowCount):
    """How many values are not null."""

    kind = "count"

    def lift(self, rows: pa.Table) -> Columns:
        return [pa.array(is_valid(plain(rows.column(self.column))).astype(np.int64))]

    def start(self, rows: pa.Table, groups: Grouped) -> Columns:
        if not rows.column(self.column).null_count:
            return [pa.array(groups.sizes)]
        return Partial.start(self, rows, groups)


class Sum(Partial):
    """An exact sum in digits of 32 bits, each added up as an integer, so that neither order nor grouping matters.

    Integers and decimals have as many digits as their type needs. Floats have two before and two after the point,
    and a plain float for what does not fit into them: what is greater than 2^62, finer than 2^-64, or no number.
    """

    kind = "sum"

    @property
    def digits(self) -> int:
        kind = self.type
        if pa.types.is_floating(kind):
            return 4
        if pa.types.is_decimal(kind):
            return 2 if kind.precision <= 18 else 4
        return 1 if kind.bit_width <= 32 else 2

    @property
    def types(self) -> Sequence[pa.DataType]:
        rest = [pa.float64()] if pa.types.is_floating(self.type) else []
        return [pa.int64()] * self.digits + rest

    def lift(self, rows: pa.Table) -> Columns:
        values = self.values(rows)
        if pa.types.is_floating(self.type):
            return [pa.array(part) for part in _float_digits(as_floats(values))]
        if pa.types.is_decimal(self.type):
            low, high = (half.view(np.int64) for half in decimal_words(values))
            if self.digits == 2:
                return [pa.array(low & _MASK), pa.array(low >> 32)]
            return [pa.array(part) for part in (low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32)]
        whole = np.asarray(values.fill_null(0).to_numpy())
        if self.digits == 1:
            return [pa.array(whole.astype(np.int64))]
        high = whole >> 32
        return [pa.array((whole & whole.dtype.type(_MASK)).astype(np.int64)), pa.array(high.astype(np.int64))]

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        merged = [pa.array(spans.sum(numbers(column))) for column in columns[: self.digits]]
        for column in columns[self.digits :]:
            rest = numbers(column)
            with np.errstate(invalid="ignore", over="ignore"):
                merged.append(pa.array(spans.sum_floats(rest) if rest.any() else np.zeros(len(spans))))
        return merged

    def total(self, columns: Columns, empty: np.ndarray, type: pa.DataType) -> pa.Array:
        """The sum as a value of `type`; null where there was no value."""
        if pa.types.is_floating(self.type):
            return pa.array(self.floats(columns), mask=empty)
        digits = _carried([numbers(column) for column in columns])
        if pa.types.is_decimal(type):
            self._check_decimals(digits, type)
            low = (digits[0] | (digits[1] << 32)).view(np.uint64)
            return decimals(low, digits[2] | (digits[3] << 32), type, empty)
        whole = digits[0] | (digits[1] << 32)
        if not np.array_equal(digits[2] | (digits[3] << 32), whole >> 63):
            raise OverflowError(f"a sum of '{self.column}' does not fit into 64 bits")
        return pa.array(whole, mask=empty)

    def floats(self, columns: Columns) -> np.ndarray:
        """The sum as a float, for decimals without their point; 0 where there was no value."""
        digits = [numbers(column) for column in columns[: self.digits]]
        if not pa.types.is_floating(self.type):
            return _as_float(digits)
        rest = numbers(columns[-1])
        total = _as_float(digits) * 2.0**-64
        return np.asarray(total + rest if rest.any() else total)

    def _check_decimals(self, digits: list[np.ndarray], type: pa.DataType) -> None:
        limit = 10**type.precision
        for place in np.flatnonzero(np.abs(_as_float(digits)) >= limit * (1 - 1e-9)):
            exact = sum(int(digit[place]) << 32 * index for index, digit in enumerate(digits))
            if abs(exact) >= limit:
                raise OverflowError(f"a sum of '{self.column}' does not fit into {type}")


def _float_digits(values: np.ndarray) -> list[np.ndarray]:
    """Digits worth 2^-64, 2^-32, 1 and 2^32, and the rest."""
    with np.errstate(invalid="ignore"):
        fits = np.abs(values) < 2.0**62
    fitting = np.where(fits, values, 0.0)
    whole = np.trunc(fitting)
    after = (fitting - whole) * 2.0**32
    first = np.trunc(after)
    beyond = (after - first) * 2.0**32
    second = np.trunc(beyond)
    rest = np.where(fits, (beyond - second) * 2.0**-64, values)
    before = whole.astype(np.int64)
    return [second.astype(np.int64), first.astype(np.int64), before & _MASK, before >> 32, rest]


def _carried(digits: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Four digits below 2^32, of which the last has the sign."""
    result: list[np.ndarray] = []
    carry = np.zeros(len(digits[0]), np.int64)
    for index in range(4):
        carry = carry + digits[index] if index < len(digits) else carry
        result.append(carry & _MASK if index < 3 else carry)
        carry = carry >> 32
    return result


def _as_float(digits: Sequence[np.ndarray]) -> np.ndarray:
    """The number of the digits as a float; the sign is taken off first, as carries would make small ones inexact."""
    negative = _carried(digits)[3] < 0
    low, second, third, top = _carried([np.where(negative, -digit, digit) for digit in digits])
    fraction = (low | (second << 32)).view(np.uint64).astype(np.float64)
    magnitude = (top.astype(np.float64) * 2.0**32 + third) * 2.0**64 + fraction
    return np.asarray(np.where(negative, -magnitude, magnitude))


class Least(Partial):
    """The least value; null if there is none."""

    kind = "least"

    @property
    def types(self) -> Sequence[pa.DataType]:
        return [self.type]

    def lift(self, rows: pa.Table) -> Columns:
        return [self.values(rows)]

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        codes, restore = ordered(columns[0])
        valid = is_valid(columns[0])
        found = spans.sum(valid) > 0
        return [restore(self._best(np.where(valid, codes, self._worst), spans), found)]

    _worst = _GREATEST

    def _best(self, codes: np.ndarray, spans: Spans) -> np.ndarray:
        return spans.least(codes)


class Greatest(Least):
    """The greatest value; null if there is none."""

    kind = "greatest"
    _worst = _LEAST

    def _best(self, codes: np.ndarray, spans: Spans) -> np.ndarray:
        return spans.greatest(codes)


class Earliest(Partial):
    """The time and the value of the row with the least time, among such the least value."""

    kind = "earliest"
    _worst = _GREATEST

    @property
    def types(self) -> Sequence[pa.DataType]:
        return [pa.int64(), self.type]

    def lift(self, rows: pa.Table) -> Columns:
        return [plain(rows.column(TIME)), self.values(rows)]

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        time, (codes, restore) = numbers(columns[0]), ordered(columns[1])
        valid = is_valid(columns[1])
        found = spans.sum(valid) > 0
        if spans.apart:
            best = self._best(np.where(valid, time, self._worst), spans)
            candidate = valid & (time == np.repeat(best, spans.sizes))
            picked = self._best(np.where(candidate, codes, self._worst), spans)
        else:
            order = np.lexsort((codes, time))
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            rows = order[np.where(found, self._best(np.where(valid, rank, self._worst), spans), 0)]
            best, picked = time[rows], codes[rows]
        return [pa.array(np.where(found, best, 0)), restore(picked, found)]

    def _best(self, codes: np.ndarray, spans: Spans) -> np.ndarray:
        return spans.least(codes)


class Latest(Earliest):
    """The time and the value of the row with the greatest time, among such the greatest value."""

    kind = "latest"
    _worst = _LEAST

    def _best(self, codes: np.ndarray, spans: Spans) -> np.ndarray:
        return spans.greatest(codes)


class Moments(Partial):
    """How many values, their mean, and the sum of squared distances from it. Its last digits depend on the order."""

    kind = "moments"
    types = (pa.int64(), pa.float64(), pa.float64())
    spreads = True

    def lift(self, rows: pa.Table) -> Columns:
        values = self.values(rows)
        count = is_valid(values).astype(np.int64)
        return [pa.array(count), pa.array(as_floats(values)), pa.array(np.zeros(len(values)))]

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        count, mean, squares = (numbers(column) for column in columns)
        rows, results = spans.spread
        total = spans.sum(count)
        with np.errstate(invalid="ignore", over="ignore"):
            # Distances from some value among those of the span, then from the mean: nothing big is taken from bigger.
            near = mean[self._first_with_value(count, spans)]
            weight = count[rows].astype(np.float64)
            off = np.where(weight > 0, mean[rows] - near[results], 0.0)
            size = len(spans)
            middle = near + np.bincount(results, weight * off, size) / np.maximum(total, 1)
            distance = np.where(weight > 0, mean[rows] - middle[results], 0.0)
            around = np.bincount(results, squares[rows] + weight * distance**2, size)
        none = total == 0
        return [pa.array(total), pa.array(np.where(none, 0.0, middle)), pa.array(np.where(none, 0.0, around))]

    @staticmethod
    def _first_with_value(count: np.ndarray, spans: Spans) -> np.ndarray:
        """For each span its first row that has values, or any row."""
        place = np.where(count > 0, np.arange(len(count)), len(count))
        return np.asarray(np.minimum(spans.least(place), len(count) - 1))
