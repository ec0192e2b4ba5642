"""Keys as numbers: the slot a key is kept in, which rows have the same key, and which come first; and logs of rows.

Columns of any Arrow type are told apart here, several at once, without a Python object per row. Nulls are values like
any other, equal to each other. Columns of lists and maps are the exception: they are compared by their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.base import State

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)
_WORDS = 32
_SIGN = np.uint64(1 << 63)
_ROOM = 1 << 62
_DIRECTORY = -1
_PARTS = pa.schema([(name, pa.int64()) for name in ("log", "number", "rows", "first", "last")])
PART_ROWS = 1 << 16
"""The most rows that chunks of a log are joined to."""


@dataclass(frozen=True)
class Part:
    """A chunk of a log: how many of its rows still count, and the least and the greatest of their times."""

    log: int
    number: int
    rows: int
    first: int
    last: int


class Logs:
    """Rows that are of use until some time, in the order they came: a bucket's state, as one or more logs of chunks.

    What is in the chunks is told by a directory, so that few of them have to be read. New rows are written as a chunk
    of their own, or together with the last chunks if these are not longer: each row is written a few times only, and
    chunks are not many. Rows that do not count any more go away with their chunk, or when it is written again.
    """

    def __init__(self, state: State, time: str) -> None:
        self._state = state
        self._time = time
        self._known = [Part(**row) for row in state[_DIRECTORY].to_pylist()] if _DIRECTORY in state else []
        self._parts = list(self._known)
        self._tables: dict[int, pa.Table] = {}
        self._written: dict[int, pa.Table] = {}

    def released(self, log: int, until: int) -> list[pa.Table]:
        """Takes the rows up to a time out of a log."""
        found: list[pa.Table] = []
        for place, part in enumerate(self._parts):
            if part.log == log and part.first <= until:
                table = self._read(part)
                times = self._times(table)
                found.append(table.filter(pa.array((times >= part.first) & (times <= until))))
                rest = times[times > until]
                if len(rest):
                    self._parts[place] = replace(part, rows=len(rest), first=int(rest.min()))
        self.expire(log, until)
        return found

    def between(self, log: int, first: int, last: int) -> list[pa.Table]:
        """The rows of these times, and maybe more."""
        return [self._read(part) for part in self._of(log) if part.first <= last and part.last >= first]

    def after(self, log: int, until: int) -> Iterator[pa.Table]:
        """The rows that count and are later than a time."""
        for part in self._of(log):
            table = self._read(part)
            times = self._times(table)
            yield table.filter(pa.array((times > until) & (times >= part.first)))

    def expire(self, log: int, until: int) -> None:
        """Removes chunks that have no rows after a time."""
        self._parts = [part for part in self._parts if part.log != log or part.last > until]

    def append(self, log: int, rows: pa.Table, until: int, merge: Callable[[pa.Table], pa.Table] | None = None) -> None:
        """Adds rows. Of those there, the ones up to a time do not count any more; `merge` may remove others."""
        if not rows.num_rows:
            return
        count, joined = rows.num_rows, [rows]
        for part in reversed(self._of(log)):
            if part.rows > count or part.rows + count > PART_ROWS:
                break
            table = self._read(part)
            joined.append(table.filter(pa.array(self._times(table) > until)))
            count += part.rows
            self._parts.remove(part)
        table = together(rows.schema, joined)
        table = (merge(table) if merge is not None and len(joined) > 1 else table).combine_chunks()
        times = self._times(table)
        number = max((*self._state, *self._written, _DIRECTORY)) + 1
        self._written[number] = table
        self._parts.append(Part(log, number, table.num_rows, int(times.min()), int(times.max())))

    def firsts(self, log: int) -> list[int]:
        """The least time of each chunk."""
        return [part.first for part in self._of(log)]

    def lasts(self, log: int) -> list[int]:
        """The greatest time of each chunk."""
        return [part.last for part in self._of(log)]

    def put(self) -> dict[int, pa.Table]:
        """The chunks to write."""
        if self._parts == self._known or not self._parts:
            return self._written
        columns = [[getattr(part, name) for part in self._parts] for name in _PARTS.names]
        return {**self._written, _DIRECTORY: pa.table(columns, schema=_PARTS)}

    def drop(self) -> list[int]:
        """The chunks to remove."""
        there = {part.number for part in self._parts}
        gone = [part.number for part in self._known if part.number not in there]
        return gone if self._parts or not self._known else [*gone, _DIRECTORY]

    def _of(self, log: int) -> list[Part]:
        return [part for part in self._parts if part.log == log]

    def _read(self, part: Part) -> pa.Table:
        if part.number not in self._tables:
            self._tables[part.number] = self._state[part.number]
        return self._tables[part.number]

    def _times(self, table: pa.Table) -> np.ndarray:
        return np.asarray(table.column(self._time).to_numpy())


def together(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """Tables as one with these columns and types; no tables give no rows."""
    same = [table.select(schema.names).cast(schema) for table in tables if table.num_rows]
    return pa.concat_tables([schema.empty_table(), *same])


def slot_of(table: pa.Table, columns: Sequence[str], slots: int) -> np.ndarray:
    """For each row a number below `slots` that depends on the values of these columns only (int64).

    It is the same in every process, on every machine and for every way Arrow may lay out the values, as state is kept
    by it: do not change what it gives.
    """
    hashed = np.zeros(table.num_rows, np.uint64)
    for name in columns:
        for array in _plain(table.column(name)):
            hashed *= np.uint64(31)
            hashed += _hashed(array)
            hashed += _GOLDEN
            _mix(hashed)
    hashed >>= np.uint64(32)
    hashed *= np.uint64(slots)
    hashed >>= np.uint64(32)
    return hashed.view(np.int64)


def key_codes(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """For each row a number (int64, not negative), the same for rows with equal values in these columns."""
    codes, bound = np.zeros(table.num_rows, np.int64), 1
    for name in columns:
        for array in _plain(table.column(name)):
            encoded = pc.dictionary_encode(array, null_encoding="encode")
            codes, bound = _combined(codes, bound, _numpy(encoded.indices), len(encoded.dictionary))
    return codes


def matched(known: pa.Table, asked: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """For each row of `known` the row of `asked` with the same values in these columns, or -1 (int64).

    No two rows of `asked` may be the same in these columns. Nothing is sorted or encoded on the side of `known`, which
    may be far longer.
    """
    known_codes, bound = np.zeros(known.num_rows, np.int64), 1
    asked_codes = np.zeros(asked.num_rows, np.int64)
    missing = np.zeros(known.num_rows, bool)
    for name in columns:
        pairs = zip(_plain(known.column(name)), _plain(asked.column(name)), strict=True)
        for known_array, asked_array in pairs:
            encoded = pc.dictionary_encode(asked_array, null_encoding="encode")
            size = len(encoded.dictionary)
            found = _numpy(pc.fill_null(pc.index_in(known_array, value_set=encoded.dictionary), -1))
            missing |= found < 0
            both = np.concatenate([known_codes, asked_codes])
            more = np.concatenate([np.maximum(found, 0), _numpy(encoded.indices)])
            both, bound = _combined(both, bound, more, size)
            known_codes, asked_codes = both[: known.num_rows], both[known.num_rows :]
    result = np.full(known.num_rows, -1, np.int64)
    if asked.num_rows:
        order = np.argsort(asked_codes)
        there = np.flatnonzero(~missing)
        place = np.minimum(np.searchsorted(asked_codes[order], known_codes[there]), asked.num_rows - 1)
        same = asked_codes[order[place]] == known_codes[there]
        result[there[same]] = order[place[same]]
    return result


def sort_keys(column: pa.ChunkedArray, descending: bool = False) -> list[np.ndarray]:
    """Arrays (int64) whose ascending order, the first array deciding first, is the order of the column's values.

    NaN is greater than all numbers, -0.0 less than 0.0. Nulls come last in either direction.
    """
    keys: list[np.ndarray] = []
    for array in _plain(column):
        values = _ordinals(array)
        values = ~values if descending else values
        if array.null_count:
            null = _numpy(pc.is_null(array))
            keys.append(null.astype(np.int64))
            values = np.where(null, 0, values)
        keys.append(values)
    return keys


def best_rows(
    table: pa.Table,
    groups: np.ndarray,
    keys: Sequence[np.ndarray],
    ties: Sequence[str],
    n: int = 1,
    descending: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The first `n` rows of each group: their numbers, group after group and in order, and their ranks from 0.

    Rows come in the order of `keys`; where these are equal, in the order of the columns of `ties`, nulls last; where
    these are equal too, in the order they have. Ties are only looked at among rows that may be under the first `n`,
    which keeps long lists of columns cheap.
    """
    packed = _packed([groups, *keys])
    order = np.argsort(packed[0]) if len(packed) == 1 else np.lexsort(packed[::-1])
    ranks = _places_in_runs(starts([groups[order]]))
    runs = starts([array[order] for array in packed])
    near = _filled(ranks, runs) < n
    order, ranks, runs = order[near], ranks[near], runs[near]
    tied = ~runs
    tied[:-1] |= tied[1:]
    places = np.flatnonzero(tied)
    if len(places):
        rows = order[places]
        some = table.select(list(dict.fromkeys(ties))).take(pa.array(rows))
        more = [key for name in ties for key in sort_keys(some.column(name), descending)]
        order[places] = rows[np.lexsort(_packed([np.cumsum(runs)[places], *more, rows])[::-1])]
    first = ranks < n
    return order[first], ranks[first]


def _places_in_runs(new: np.ndarray) -> np.ndarray:
    """For each place how far it is behind the start of its run."""
    places = np.arange(len(new))
    return np.asarray(places - _filled(places, new))


def _filled(values: np.ndarray, new: np.ndarray) -> np.ndarray:
    """For each place the value at the start of its run."""
    return np.asarray(values[new][np.cumsum(new) - 1])


def starts(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """For each place of sorted arrays whether it differs from the one before in any of them (bool)."""
    new = np.zeros(len(arrays[0]), bool)
    new[:1] = True
    for array in arrays:
        new[1:] |= array[1:] != array[:-1]
    return new


def _combined(codes: np.ndarray, bound: int, more: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Codes below `bound` and further ones below `size` as one, with its bound; made dense where they grow too big."""
    if bound * size > _ROOM:
        dictionary, codes = np.unique(codes, return_inverse=True)
        bound = len(dictionary)
    return codes * max(size, 1) + more, bound * max(size, 1)


def _packed(keys: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same order with fewer arrays: neighbours are joined while their values fit into 62 bits together."""
    packed: list[np.ndarray] = []
    room = 0
    for key in keys:
        if len(key) == 0:
            return [key]
        least = int(key.min())
        span = int(key.max()) - least + 1
        if packed and room * span <= _ROOM:
            packed[-1] = packed[-1] * span + (key - least)
            room *= span
        elif span <= _ROOM:
            packed.append(key - least)
            room = span
        else:
            packed.append(key)
            room = span
    return packed


def _plain(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    """A column as arrays of types that Arrow can compare: structs taken apart, other nested values as text."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode())
    if pa.types.is_struct(kind):
        fields = [part for field in array.flatten() for part in _plain(field)]
        return [pc.is_valid(array), *fields]
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        return [pa.array([None if value is None else repr(value) for value in array.to_pylist()], pa.string())]
    if pa.types.is_float16(kind):
        return [array.cast(pa.float32())]
    if str(kind) in ("string_view", "binary_view"):
        return [array.cast(pa.string() if str(kind) == "string_view" else pa.binary())]
    return [array]


def _numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Values without nulls, as numpy has them."""
    found: np.ndarray = array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()
    return found


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _integers(array: pa.Array) -> np.ndarray | None:
    """Values of a type that fits into 64 bits as int64 in the same order, whatever stands for null; None for others."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(kind):
        return _integers(array.cast(pa.int8()))
    if pa.types.is_floating(kind):
        return _float_ordinals(array.cast(pa.float64()))
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    filled = pc.fill_null(array, 0) if array.null_count else array
    if pa.types.is_uint64(kind):
        return (_numpy(filled) ^ _SIGN).view(np.int64)
    return _numpy(filled).astype(np.int64, copy=False)


def _float_ordinals(array: pa.Array) -> np.ndarray:
    values = _numpy(pc.fill_null(array, 0.0) if array.null_count else array)
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64((1 << 63) - 1))


def _ordinals(array: pa.Array) -> np.ndarray:
    """Integers in the order of an array's values, equal for equal ones; anything for nulls."""
    integers = _integers(array)
    if integers is not None:
        return integers
    encoded = pc.dictionary_encode(array)
    order = _numpy(pc.sort_indices(encoded.dictionary)).astype(np.int64)
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    return np.asarray(ranks[_numpy(pc.fill_null(encoded.indices, len(order)))])


def _mix(hashed: np.ndarray) -> None:
    """The finaliser of SplitMix64, in place."""
    shifted = hashed >> np.uint64(30)
    hashed ^= shifted
    hashed *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(hashed, np.uint64(27), out=shifted)
    hashed ^= shifted
    hashed *= np.uint64(0x94D049BB133111EB)
    np.right_shift(hashed, np.uint64(31), out=shifted)
    hashed ^= shifted


def _hashed(array: pa.Array) -> np.ndarray:
    integers = _integers(array)
    if integers is not None:
        hashed = integers.view(np.uint64).copy()
    elif _is_bytes(array.type):
        hashed = _hashed_bytes(array.cast(pa.large_binary()))
    elif pa.types.is_decimal(array.type):
        wide = pa.decimal128 if array.type.precision <= 38 else pa.decimal256
        kind = wide(array.type.precision, array.type.scale)
        hashed = _hashed_bytes(array.cast(kind).view(pa.binary(kind.bit_width // 8)).cast(pa.large_binary()))
    else:
        hashed = _hashed_bytes(array.cast(pa.string()).cast(pa.large_binary()))
    if array.null_count:
        hashed[_numpy(pc.is_null(array))] = _NULL
    return hashed


def _hashed_bytes(array: pa.Array) -> np.ndarray:
    """A number for each value: eight bytes at a time; of values longer than 256 bytes only a sample is read."""
    _, offsets, data = array.buffers()
    if len(array) == 0 or data is None:
        return np.zeros(len(array), np.uint64)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    begin, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    size = int(bounds[-1] - bounds[0])
    padded = np.zeros(size + 8, np.uint8)
    padded[:size] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    words = np.ndarray((size + 1,), "<u8", padded.data, strides=(1,))
    hashed = lengths.astype(np.uint64)
    rows = np.flatnonzero(lengths > 0)
    sampled = lengths > 8 * _WORDS
    for number in range(_WORDS):
        rows = rows[lengths[rows] > 8 * number]
        if not len(rows):
            break
        length = lengths[rows]
        place = np.where(sampled[rows], (length - 8) * number // (_WORDS - 1), 8 * number)
        spare = np.maximum(8 - (length - place), 0).astype(np.uint64) * np.uint64(8)
        part = hashed[rows] * np.uint64(31)
        part += (words[begin[rows] + place] << spare) >> spare
        _mix(part)
        hashed[rows] = part
    return hashed
