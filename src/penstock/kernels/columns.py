"""Columns as numbers: what kernels need to group, sort and compare values of any type without a Python object each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Restore = Callable[[np.ndarray, np.ndarray], pa.Array]
"""Gives values back for their numbers; the second array says which are not null."""

_SIGN = np.int64(-(1 << 63))
_MAGNITUDE = np.int64((1 << 63) - 1)


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array of its own values, not of references into a dictionary."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A column of numbers without nulls."""
    return np.asarray(plain(column).to_numpy(zero_copy_only=False))


def canonical(values: pa.Array) -> pa.Array:
    """One form for equal floats: no negative zero, one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    values = pc.add(values, zero)
    wrong = pc.is_nan(values)
    return pc.if_else(wrong, nan, values) if pc.any(wrong).as_py() else values


def sort_order(values: np.ndarray, bound: int) -> np.ndarray:
    """Positions that sort numbers from 0 up to `bound`, equal ones in the order they have.

    Sixteen bits at a time, which numpy sorts by counting: several times faster than comparing.
    """
    if len(values) < 512 or bound >= 1 << 48:
        return np.argsort(values, kind="stable")
    order = np.argsort(values.astype(np.uint16), kind="stable")
    rest, shift = bound >> 16, 16
    while rest:
        order = order[np.argsort((values >> shift).astype(np.uint16)[order], kind="stable")]
        rest, shift = rest >> 16, shift + 16
    return order


def changes(values: np.ndarray) -> np.ndarray:
    """For each place whether its value differs from the one before; the first does."""
    result = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=result[1:])
    return result


def ranges(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """start[0], start[0] + 1, …, stop[0] - 1, start[1], …; empty where stop <= start."""
    lengths = np.maximum(stop - start, 0)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - ends + lengths, lengths) + np.arange(total)


@dataclass(frozen=True)
class Codes:
    """Rows numbered by their key: equal keys have equal numbers, from 0 up."""

    codes: np.ndarray
    count: int
    distinct: list[pa.Array]
    """The key columns, one place for each number."""

    def keys(self, codes: np.ndarray) -> list[pa.Array]:
        """The key columns of rows with these numbers."""
        places = pa.array(codes)
        return [column.take(places) for column in self.distinct]


def key_fields(schema: pa.Schema, keys: Iterable[str]) -> list[pa.Field]:
    """The key columns, with values in place of references into a dictionary."""
    fields = (schema.field(key) for key in keys)
    return [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in fields
    ]


def key_codes(rows: pa.Table, keys: Sequence[str]) -> Codes:
    """Numbers for the keys of rows; nulls are equal to each other."""
    if not keys:
        return Codes(np.zeros(rows.num_rows, np.int64), 1, [])
    columns = [plain(rows.column(key)) for key in keys]
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    codes, count = _indices(encoded[0]), len(encoded[0].dictionary)
    if len(keys) == 1:
        return Codes(codes, count, [encoded[0].dictionary])
    for column in encoded[1:]:
        # Numbers of pairs may be far apart, so they are numbered anew; both factors are at most the rows.
        pairs = pa.array(codes * len(column.dictionary) + _indices(column)).dictionary_encode()
        codes, count = _indices(pairs), len(pairs.dictionary)
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    places = pa.array(first)
    return Codes(codes, count, [column.take(places) for column in columns])


def _indices(encoded: pa.DictionaryArray) -> np.ndarray:
    return numbers(encoded.indices).astype(np.int64)


def placed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An ascending axis that has all the values, and the place of each on it. It is short if the values are few."""
    if not len(values):
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low < max(1024, len(values) // 4):
        return np.arange(low, high + 1), values - low
    axis, places = np.unique(values, return_inverse=True)
    return axis, places


def value_codes(values: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Small numbers in the order of the values, and the distinct values in that order. Values must not be null."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return rank[_indices(encoded)], encoded.dictionary.take(order)


def ordered(values: pa.Array) -> tuple[np.ndarray, Restore]:
    """Numbers in the order of the values, NaN above all, and the way back. The number of a null means nothing."""
    kind = values.type
    if _has_image(kind):
        return _image(values), lambda codes, valid: _from_image(codes, valid, kind)
    codes = np.zeros(len(values), np.int64)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    codes[valid], distinct = value_codes(values.drop_null())
    return codes, lambda picked, taken: distinct.take(pa.array(picked, mask=~taken))


def _has_image(kind: pa.DataType) -> bool:
    """Whether all values of a type have an int64 of their own."""
    fixed = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(fixed or pa.types.is_temporal(kind) or (pa.types.is_decimal128(kind) and kind.precision <= 18))


def _image(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pa.types.is_decimal(kind):
        return decimal_words(values)[0].view(np.int64)
    if pa.types.is_floating(kind):
        bits = np.asarray(values.cast(pa.float64()).fill_null(0.0).to_numpy()).view(np.int64)
        return bits ^ ((bits >> 63) & _MAGNITUDE)
    if pa.types.is_uint64(kind):
        return np.asarray(values.fill_null(0).to_numpy()).view(np.int64) ^ _SIGN
    if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy())


def _from_image(codes: np.ndarray, valid: np.ndarray, kind: pa.DataType) -> pa.Array:
    codes, mask = codes.astype(np.int64, copy=False), ~valid
    codes = np.where(valid, codes, 0)
    if pa.types.is_decimal(kind):
        return decimals(codes.view(np.uint64), codes >> 63, kind, mask)
    if pa.types.is_floating(kind):
        bits = codes ^ ((codes >> 63) & _MAGNITUDE)
        return pa.array(bits.view(np.float64), mask=mask).cast(kind)
    if pa.types.is_uint64(kind):
        return pa.array((codes ^ _SIGN).view(np.uint64), mask=mask)
    if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")):
        return pa.array(codes.astype(np.int32), mask=mask).cast(kind)
    return pa.array(codes, mask=mask).cast(kind)


def decimal_words(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high half of decimals without their point, as uint64; 0 for nulls."""
    if not len(values):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    words = np.frombuffer(values.buffers()[1], np.uint64).reshape(-1, 2)[values.offset : values.offset + len(values)]
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return np.where(valid, words[:, 0], np.uint64(0)), np.where(valid, words[:, 1], np.uint64(0))


def decimals(low: np.ndarray, high: np.ndarray, kind: pa.DataType, null: np.ndarray) -> pa.Array:
    """Decimals from their two halves."""
    words = np.empty((len(low), 2), np.uint64)
    words[:, 0], words[:, 1] = low, high.view(np.uint64)
    validity = pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(kind, len(low), [validity, pa.py_buffer(words)])
