"""Equality of keys over whole columns: comparing, numbering, ordering, and taking what matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.stable_hash import Column, integers, plain, valid, value_hash

PAIRS_AT_ONCE = 1 << 18
"""How many matches are written out together: indices and rows of the rest do not exist meanwhile."""


def present(columns: Sequence[Column]) -> np.ndarray:
    """Which rows have a value in all columns."""
    full = np.ones(len(columns[0]), bool)
    for column in columns:
        if column.null_count:
            full &= valid(column)
    return full


def same_rows(one: Sequence[Column], rows: np.ndarray, other: Sequence[Column], others: np.ndarray) -> np.ndarray:
    """Whether rows have the same values in all columns, pair by pair. Null is the same as null, NaN as NaN.

    A negative number stands for a row of nulls.
    """
    same = np.ones(len(rows), bool)
    for left, right in zip(one, other, strict=True) if len(rows) else ():
        same &= _same(plain(take_or_null(left, rows)), plain(take_or_null(right, others)))
    return same


def dense_codes(columns: Sequence[Column], hashes: np.ndarray) -> np.ndarray:
    """A number per row: the same for rows with the same values and no others. Exact, the hashes only make it fast."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    codes = np.zeros(len(hashes), np.int64)
    if same_rows(columns, order[again], columns, order[again + 1]).all():
        steps = np.ones(len(hashes), np.int64)
        steps[again + 1] = 0
        codes[order] = np.cumsum(steps) - 1
        return codes
    for column in columns:
        ranks = np.unique(ordinals(column), return_inverse=True)[1]
        codes = np.unique(codes * (ranks.max(initial=0) + 1) + ranks, return_inverse=True)[1]
    return codes


def ordinals(column: Column) -> np.ndarray:
    """Integers that compare as the values do, null first. Nested values get an arbitrary but fixed order."""
    array = plain(column)
    kind = array.type
    if _is_opaque(kind):
        return value_hash(array)
    if pa.types.is_null(kind) or not len(array):
        return np.zeros(len(array), np.int64)
    if pa.types.is_floating(_value_type(column.type)):
        bits = integers(array).astype(np.int64)
        bits = np.where(bits < 0, bits ^ np.int64((1 << (kind.bit_width - 1)) - 1), bits)
        array = pa.array(bits, mask=~valid(array))
    if not array.null_count and pa.types.is_integer(array.type):
        return np.asarray(array.to_numpy())
    if not array.null_count and pa.types.is_temporal(array.type):
        return integers(array)
    ranks = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(valid(array), ranks, 0)


def lower_bound(values: np.ndarray, low: np.ndarray, high: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each row the first position in [low, high) with a value not below the wanted one, else `high`.

    Values need to ascend only within each of these ranges.
    """
    low, high = low.copy(), high.copy()
    searching = np.flatnonzero(low < high)
    while len(searching):
        middle = (low[searching] + high[searching]) >> 1
        below = values[middle] < wanted[searching]
        low[searching[below]] = middle[below] + 1
        high[searching[~below]] = middle[~below]
        searching = searching[low[searching] < high[searching]]
    return low


def expanded(starts: np.ndarray, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All members of ranges: which range, and the position. About `PAIRS_AT_ONCE` at a time, or a whole range."""
    ends = np.cumsum(counts)
    first, done = 0, 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, "right")))
        total = int(ends[last - 1]) - done
        if total:
            part = counts[first:last]
            offsets = starts[first:last] - (ends[first:last] - part - done)
            yield np.repeat(np.arange(first, last), part), np.arange(total) + np.repeat(offsets, part)
        first, done = last, done + total


def places_of(
    one: Sequence[Column], hashes: np.ndarray, other: Sequence[Column], other_hashes: np.ndarray
) -> np.ndarray:
    """For each row the row of the others with the same values, or -1; no two of the others may be the same."""
    places = np.full(len(hashes), -1)
    order = np.argsort(other_hashes, kind="stable")
    ordered = other_hashes[order]
    starts = np.searchsorted(ordered, hashes, "left")
    if not len(order):
        return places
    rows = np.flatnonzero(ordered[np.minimum(starts, len(order) - 1)] == hashes)
    counts = np.searchsorted(ordered, hashes[rows], "right") - starts[rows]
    for which, position in expanded(starts[rows], counts):
        mine, found = rows[which], order[position]
        same = same_rows(one, mine, other, found)
        places[mine[same]] = found[same]
    return places


def take_or_null(column: Column, rows: np.ndarray) -> Column:
    """Values at some rows; null where the number is negative."""
    absent = rows < 0
    return column.take(pa.array(rows, mask=absent) if absent.any() else pa.array(rows))


def _same(one: pa.Array, other: pa.Array) -> np.ndarray:
    if _is_opaque(one.type):
        return np.asarray(value_hash(one) == value_hash(other))
    if pa.types.is_null(one.type):
        return np.ones(len(one), bool)
    equal = pc.equal(one, other)
    if equal.null_count:
        equal = pc.or_(pc.fill_null(equal, False), pc.and_(one.is_null(), other.is_null()))
    return np.asarray(equal.to_numpy(zero_copy_only=False))


def _is_opaque(kind: pa.DataType) -> bool:
    """Types that Arrow does not compare; their hashes stand for them."""
    return bool(pa.types.is_nested(kind) or pa.types.is_interval(kind))


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
