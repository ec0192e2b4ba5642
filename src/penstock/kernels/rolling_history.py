"""Rows as kept for later intervals: time, keys and arguments, in time order, with codes in place of most values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.kernels.base import TIME
from penstock.kernels.columns import canonical
from penstock.kernels.trailing import Ints, time_order
from penstock.kernels.trailing_columns import CODED, PLAIN, PRESENT

Selection: TypeAlias = slice | NDArray[Any]
Values: TypeAlias = NDArray[Any] | pa.Array


@dataclass(frozen=True)
class Part:
    """Rows in time order. Coded columns are numbers into a dictionary that all parts of one advance share."""

    time: NDArray[np.int64]
    columns: Mapping[str, Values]

    def pick(self, chosen: Selection) -> Part:
        """Some of the rows, by a slice, by a mask, or by their numbers."""
        return Part(self.time[chosen], {name: _picked(column, chosen) for name, column in self.columns.items()})

    def since(self, time: int) -> Part:
        """The rows after a time."""
        before = int(np.searchsorted(self.time, time, side="right"))
        return self.pick(slice(before, None)) if before else self


def joined(parts: Sequence[Part]) -> tuple[Part, Ints]:
    """Rows of all parts in time order, and for each its number when all are counted one part after the other."""
    time = np.concatenate([part.time for part in parts])
    columns = {name: _joined([part.columns[name] for part in parts]) for name in parts[0].columns}
    order = time_order(time)
    whole = Part(time, columns)
    return (whole, np.arange(len(time))) if order is None else (whole.pick(order), order)


def _picked(column: Values, chosen: Selection) -> Values:
    if isinstance(column, np.ndarray):
        return column[chosen]
    if isinstance(chosen, slice):
        return column.slice(chosen.start)
    return column.filter(pa.array(chosen)) if chosen.dtype == np.bool_ else column.take(pa.array(chosen))


def _joined(columns: Sequence[Values]) -> Values:
    return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else pa.concat_arrays(columns)


@dataclass(frozen=True)
class Layout:
    """The columns of kept rows besides their time: under its name, from which column, and how it is kept."""

    columns: Mapping[str, tuple[str, str]]

    def fitted(self, run: pa.Table, schema: pa.Schema) -> pa.Table:
        """A run of another layout as one of this: of what was not kept, nothing is known."""
        if run.schema.names == [TIME, *self.columns] and all(
            _way(run.schema.field(name).type) == way for name, (_, way) in self.columns.items()
        ):
            return run
        arrays = [run.column(TIME)]
        for name, (source, way) in self.columns.items():
            kind = schema.field(source).type
            known = single(run.column(name)) if name in run.schema.names else None
            arrays.append(_as_kept(known, kind, way, run.num_rows))
        return pa.table(arrays, names=[TIME, *self.columns])

    def coded(self) -> list[str]:
        return [name for name, (_, way) in self.columns.items() if way == CODED]

    def read(self, runs: Sequence[pa.Table], rows: pa.Table) -> tuple[list[Part], Part, dict[str, pa.Array]]:
        """Runs and new rows as parts, and the dictionaries they share. The part of new rows is not in time order."""
        parts: list[dict[str, Values]] = [{} for _ in range(len(runs) + 1)]
        dictionaries: dict[str, pa.Array] = {}
        for name, (source, way) in self.columns.items():
            kept = [single(run.column(name)) for run in runs]
            added = single(rows.column(source))
            if way == CODED:
                columns, dictionaries[name] = _coded(kept, canonical(added))
            elif way == PRESENT:
                columns = [flags(column) for column in [*kept, added.is_valid()]]
            else:
                columns = [*kept, added]
            for part, column in zip(parts, columns, strict=True):
                part[name] = column
        times = [instants(table) for table in [*runs, rows]]
        *old, new = (Part(time, part) for time, part in zip(times, parts, strict=True))
        return old, new, dictionaries

    def write(self, part: Part, dictionaries: Mapping[str, pa.Array]) -> pa.Table:
        """A run of rows, with what it needs of the dictionaries."""
        arrays = [pa.array(part.time)]
        for name, (_, way) in self.columns.items():
            column = part.columns[name]
            arrays.append(_own_dictionary(column, dictionaries[name]) if way == CODED else _compact(column))
        return pa.Table.from_arrays(arrays, [TIME, *self.columns])


def _way(kind: pa.DataType) -> str:
    return CODED if pa.types.is_dictionary(kind) else PRESENT if pa.types.is_boolean(kind) else PLAIN


def _as_kept(known: pa.Array | None, kind: pa.DataType, way: str, count: int) -> pa.Array:
    if known is not None and _way(known.type) == way:
        return known
    if known is None:
        values = pa.nulls(count, kind)
    else:
        values = known.dictionary_decode() if pa.types.is_dictionary(known.type) else known
    if way == CODED:
        return canonical(values).dictionary_encode(null_encoding="encode")
    return values.is_valid() if way == PRESENT else values


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def instants(table: pa.Table) -> NDArray[np.int64]:
    """The times of rows."""
    times: NDArray[np.int64] = single(table.column(TIME)).to_numpy()
    return times


def flags(column: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found


def _coded(kept: Sequence[pa.Array], added: pa.Array) -> tuple[list[NDArray[Any]], pa.Array]:
    """The numbers of values in one common dictionary. Of runs only their dictionaries are looked at."""
    if not len(added):
        # Arrow forgets pieces without values; so that there is one for them all the same, it is a null for a moment.
        codes, dictionary = _coded(kept, pa.nulls(1, added.type))
        return [*codes[:-1], codes[-1][:0]], dictionary
    pieces = pa.chunked_array([*(column.dictionary for column in kept), added], added.type)
    encoded = pieces.dictionary_encode(null_encoding="encode")
    numbers = [piece.indices.to_numpy() for piece in encoded.chunks]
    codes = [numbers[at][column.indices.to_numpy()] for at, column in enumerate(kept)]
    return [*codes, numbers[-1]], encoded.chunk(0).dictionary


def _own_dictionary(codes: Ints, values: pa.Array) -> pa.DictionaryArray:
    used = np.zeros(len(values), np.bool_)
    used[codes] = True
    numbers = np.cumsum(used, dtype=np.int32) - 1
    return pa.DictionaryArray.from_arrays(pa.array(numbers[codes]), values.take(pa.array(np.flatnonzero(used))))


def _compact(column: Values) -> pa.Array:
    """A column that does not hold on to rows it was cut from."""
    return pa.array(column) if isinstance(column, np.ndarray) else pa.concat_arrays([column])
