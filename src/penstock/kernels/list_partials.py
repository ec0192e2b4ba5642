"""Partial aggregates that hold a list for a group: the distinct values, how often each came, and the like."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.base import TIME
from penstock.kernels.columns import numbers, plain, sort_order, value_codes
from penstock.kernels.nested import is_nested, written
from penstock.kernels.partials import Columns, Partial, is_valid
from penstock.kernels.spans import Groups, Spans
from penstock.kernels.stable_hash import key_hash

REGISTERS = 12
"""An approximate distinct count has 2^12 registers: its standard error is 1.6 %."""
_RANK_BITS = 6


def listed(members: pa.Array, owners: np.ndarray, count: int) -> pa.ListArray:
    """Lists of members that are sorted by the list they belong to."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), members)


def members_of(lists: pa.ListArray) -> tuple[pa.Array, np.ndarray]:
    """The members of all lists in turn, and to which list each belongs."""
    sizes = numbers(pc.list_value_length(lists))
    return lists.flatten(), np.repeat(np.arange(len(lists)), sizes)


class ListPartial(Partial):
    """Lists of members."""

    spreads = True

    @property
    @abstractmethod
    def member(self) -> pa.DataType:
        """The type of a member."""

    @property
    def types(self) -> Sequence[pa.DataType]:
        return [pa.list_(self.member)]

    def lift(self, rows: pa.Table) -> Columns:
        values = self.values(rows)
        owners = np.flatnonzero(is_valid(values))
        return [listed(self.members(rows, values.drop_null(), owners), owners, rows.num_rows)]

    @abstractmethod
    def members(self, rows: pa.Table, values: pa.Array, places: np.ndarray) -> pa.Array:
        """Members for the values, which are in these places of the rows."""

    def merge(self, columns: Columns, spans: Spans) -> Columns:
        rows, results = spans.spread
        lists = columns[0] if spans.apart else columns[0].take(pa.array(rows))
        members, owners = members_of(lists)
        members, owners = self.combined(members, results[owners], len(spans))
        return [listed(members, owners, len(spans))]

    @abstractmethod
    def combined(self, members: pa.Array, owners: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
        """Members that say the same of one owner made one. Owners ascend, before and after; there are `count`."""


class Distinct(ListPartial):
    """The distinct values, ascending; of lists and structs what they look like written as bytes."""

    kind = "distinct"

    @property
    def member(self) -> pa.DataType:
        return pa.binary() if is_nested(self.type) else self.type

    def values(self, rows: pa.Table) -> pa.Array:
        return _comparable(super().values(rows))

    def members(self, rows: pa.Table, values: pa.Array, places: np.ndarray) -> pa.Array:
        return values

    def combined(self, members: pa.Array, owners: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
        codes, distinct = value_codes(members)
        width = max(len(distinct), 1)
        pairs = Groups(owners * width + codes, count * width).numbers
        return distinct.take(pa.array(pairs % width)), pairs // width

    @staticmethod
    def count(lists: pa.ListArray, spans: Spans) -> np.ndarray:
        """How many distinct values each span has, without spreading the lists over the spans.

        A row is in neighbouring results. Going through the rows that hold one value, in order, a row adds one to those
        of its results that the row before was not in. Results of different keys never share rows, so that a value's
        rows may be gone through without telling the keys apart.
        """
        members, rows = members_of(lists)
        codes = _unordered_codes(members)
        order = sort_order(codes, len(codes))
        codes, rows = codes[order], rows[order]
        first, stop = spans.results_of_rows
        begin, end = first[rows], stop[rows]
        same = codes[1:] == codes[:-1]
        begin[1:] = np.where(same, np.maximum(begin[1:], end[:-1]), begin[1:])
        adds = begin < end
        size = len(spans) + 1
        steps = np.bincount(begin[adds], minlength=size) - np.bincount(end[adds], minlength=size)
        return np.cumsum(steps)[: len(spans)]


def _comparable(values: pa.Array) -> pa.Array:
    return written(values) if is_nested(values.type) else values


def _unordered_codes(values: pa.Array) -> np.ndarray:
    return numbers(values.dictionary_encode().indices).astype(np.int64)


class Frequencies(ListPartial):
    """The distinct values, ascending, and how often each came."""

    kind = "frequencies"

    @property
    def member(self) -> pa.DataType:
        return pa.struct([("value", self.type), ("count", pa.int64())])

    def members(self, rows: pa.Table, values: pa.Array, places: np.ndarray) -> pa.Array:
        return self._members(values, np.ones(len(values), np.int64))

    def _members(self, values: pa.Array, counts: np.ndarray) -> pa.Array:
        return pa.StructArray.from_arrays([values, pa.array(counts)], fields=list(self.member))

    def combined(self, members: pa.Array, owners: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
        codes, distinct = value_codes(members.field("value"))
        width = max(len(distinct), 1)
        pairs = Groups(owners * width + codes, count * width)
        counts = pairs.spans.sum(numbers(members.field("count"))[pairs.order])
        return self._members(distinct.take(pa.array(pairs.numbers % width)), counts), pairs.numbers // width


class Events(ListPartial):
    """All values with their times."""

    kind = "events"

    @property
    def member(self) -> pa.DataType:
        return pa.struct([("time", pa.int64()), ("value", self.type)])

    def members(self, rows: pa.Table, values: pa.Array, places: np.ndarray) -> pa.Array:
        times = plain(rows.column(TIME)).take(pa.array(places))
        return pa.StructArray.from_arrays([times, values], fields=list(self.member))

    def combined(self, members: pa.Array, owners: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
        return members, owners


class Registers(ListPartial):
    """HyperLogLog: for each register that was hit the longest run of zeros in a hash, in one number with its place."""

    kind = "registers"

    @property
    def member(self) -> pa.DataType:
        return pa.int32()

    def values(self, rows: pa.Table) -> pa.Array:
        return _comparable(super().values(rows))

    def members(self, rows: pa.Table, values: pa.Array, places: np.ndarray) -> pa.Array:
        hashes = key_hash([values])
        register = (hashes >> np.uint64(64 - REGISTERS)).astype(np.int64)
        rest = (hashes & np.uint64((1 << (64 - REGISTERS)) - 1)).astype(np.float64)
        rank = (64 - REGISTERS) - np.frexp(rest)[1] + 1
        return pa.array(((register << _RANK_BITS) | rank).astype(np.int32))

    def combined(self, members: pa.Array, owners: np.ndarray, count: int) -> tuple[pa.Array, np.ndarray]:
        packed = (owners << (REGISTERS + _RANK_BITS)) | numbers(members)
        groups = Groups(packed >> _RANK_BITS, count << REGISTERS)
        best = groups.spans.greatest(packed[groups.order])
        mask = (1 << (REGISTERS + _RANK_BITS)) - 1
        return pa.array((best & mask).astype(np.int32)), best >> (REGISTERS + _RANK_BITS)

    @staticmethod
    def estimate(lists: pa.ListArray) -> np.ndarray:
        """How many distinct values there were, by Ertl's estimator, which is right for few and for many."""
        members, owners = members_of(lists)
        ranks, count = numbers(members) & ((1 << _RANK_BITS) - 1), len(lists)
        size, most = 1 << REGISTERS, 64 - REGISTERS
        histogram = np.zeros((count, most + 2))
        hit = np.bincount(owners * (most + 2) + ranks, minlength=count * (most + 2))
        histogram += hit.reshape(count, most + 2)
        histogram[:, 0] = size - histogram.sum(axis=1)
        total = size * _tau(1 - histogram[:, most + 1] / size)
        for rank in range(most, 0, -1):
            total = 0.5 * (total + histogram[:, rank])
        total += size * _sigma(histogram[:, 0] / size)
        with np.errstate(divide="ignore"):
            result = size * size / (2 * np.log(2.0)) / total
        return np.where(np.isfinite(result), np.rint(result), 0).astype(np.int64)


def _sigma(share: np.ndarray) -> np.ndarray:
    """Σ x^(2^k) 2^(k-1) over k, and x: the part of the registers that were not hit. Infinite if none was."""
    power, weight, total = share.copy(), 1.0, share.copy()
    full = share >= 1
    for _ in range(64):
        power = np.where(full, 0.0, power * power)
        step = power * weight
        if not step.any():
            break
        total, weight = total + step, weight * 2
    return np.where(full, np.inf, total)


def _tau(share: np.ndarray) -> np.ndarray:
    """The part of the registers that ran over."""
    inside = (share > 0) & (share < 1)
    root = np.where(inside, share, 1.0)
    weight, total = 1.0, 1 - root
    for _ in range(64):
        root, weight = np.sqrt(root), weight * 0.5
        step = (1 - root) ** 2 * weight
        if not step.any():
            break
        total = total - step
    return np.where(inside, total / 3, 0.0)
