"""Hashes of rows that never change: the same in every process, on every machine, for every cut of the columns.

They are kept in state. Equal values of one type have equal hashes, wherever they are. Different values may share one,
so whoever looks up by hash compares the values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

Column: TypeAlias = pa.ChunkedArray | pa.Array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_IN_TURN = 4
_INTEGERS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def key_hash(columns: Sequence[Column]) -> np.ndarray:
    """A hash per row over some columns, uint64. Null is a value like others."""
    hashes = _mixed(value_hash(plain(columns[0])))
    for column in columns[1:]:
        hashes *= _GOLDEN
        hashes += value_hash(plain(column))
        hashes = _mixed(hashes)
    return hashes


def plain(column: Column) -> pa.Array:
    """One array of a type whose equality is that of its bytes: floats as integers, dictionaries written out."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_floating(kind):
        return array.view(_INTEGERS[kind.bit_width // 8])
    return array


def integers(array: pa.Array) -> np.ndarray:
    """The bytes of a type of up to eight bytes as signed integers; anything where the value is null."""
    width = array.type.bit_width // 8
    return np.frombuffer(array.buffers()[1], f"<i{width}")[array.offset : array.offset + len(array)]


def valid(array: Column) -> np.ndarray:
    """Which values are not null."""
    if not array.null_count:
        return np.ones(len(array), bool)
    return np.asarray(array.is_valid())


def value_hash(array: pa.Array) -> np.ndarray:
    """A hash per value of an array made by `plain`."""
    if not len(array):
        return np.zeros(0, np.uint64)
    if pa.types.is_null(array.type):
        return np.full(len(array), _NULL)
    hashes = _nested_hash(array) if pa.types.is_nested(array.type) else _flat_hash(array)
    return np.where(valid(array), hashes, _NULL) if array.null_count else hashes


def _flat_hash(array: pa.Array) -> np.ndarray:
    kind, size = array.type, len(array)
    if pa.types.is_boolean(kind):
        return _mixed(array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if kind.num_buffers == 3:
        offset_type = "<i8" if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else "<i4"
        offsets = np.frombuffer(array.buffers()[1], offset_type)[array.offset : array.offset + size + 1]
        return _bytes_hash(offsets.astype(np.int64), array.buffers()[2])
    if kind.bit_width // 8 in _INTEGERS:
        return _mixed(integers(array).astype(np.int64).view(np.uint64))
    return _bytes_hash((array.offset + np.arange(size + 1)) * (kind.bit_width // 8), array.buffers()[1])


def _nested_hash(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_struct(kind):
        return key_hash([*array.flatten(), pa.nulls(len(array))])
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_type))
    offsets = np.asarray(array.offsets, np.int64)
    return _sequence_hash(key_hash([array.values]), offsets)


def _bytes_hash(offsets: np.ndarray, data: pa.Buffer | None) -> np.ndarray:
    """Hashes of slices of bytes, eight bytes at a time: the first words in turn, what is longer all at once."""
    low, high = int(offsets[0]), int(offsets[-1])
    starts, sizes = offsets[:-1] - low, np.diff(offsets)
    padded = np.zeros(high - low + 8, np.uint8)
    if data is not None:
        padded[:-8] = np.frombuffer(data, np.uint8)[low:high]
    anywhere = np.ndarray(high - low + 1, "<u8", padded, 0, (1,))

    def word_hash(rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        words = anywhere[starts[rows] + (place << 3)]
        beyond = np.maximum(8 - sizes[rows] + (place << 3), 0) << 3
        words &= _ALL >> beyond.astype(np.uint64)
        return _placed(words, place)

    hashes = sizes.astype(np.uint64)
    counts = (sizes + 7) >> 3
    for turn in range(min(_IN_TURN, int(counts.max()))):
        rows = np.flatnonzero(counts > turn)
        hashes[rows] += word_hash(rows, np.array([turn]))
    long = np.flatnonzero(counts > _IN_TURN)
    if len(long):
        which, place = _members(counts[long] - _IN_TURN)
        hashes[long] += _totals(word_hash(long[which], place + _IN_TURN), counts[long] - _IN_TURN)
    return _mixed(hashes)


def _sequence_hash(hashes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Hashes of lists from those of their members."""
    counts = np.diff(offsets)
    filled = np.flatnonzero(counts)
    which, place = _members(counts[filled])
    totals = counts.astype(np.uint64)
    if len(filled):
        members = _placed(hashes[offsets[filled][which] + place], place)
        totals[filled] += _totals(members, counts[filled])
    return _mixed(totals)


def _placed(words: np.ndarray, place: np.ndarray) -> np.ndarray:
    return _mixed(words ^ (place.astype(np.uint64) * _GOLDEN))


def _totals(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sums of so many words each, at least one."""
    return np.asarray(np.add.reduceat(words, np.cumsum(counts) - counts))


def _members(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For the members of sequences one after another: which sequence, and the place in it."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - (np.cumsum(counts) - counts)[which]


def _mixed(words: np.ndarray) -> np.ndarray:
    """Spreads every bit over all bits: the finaliser of splitmix64."""
    words = words + _GOLDEN
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
