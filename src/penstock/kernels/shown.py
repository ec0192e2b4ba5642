"""What state holds in columns for people: helpers of the kernels' `shown`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.aggregates import INSTANT
from penstock.kernels.columns import plain

EVENT_TIME = "event_time"
"""The column of the event time of what is kept, where it is kept by row."""


def instants(micros: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Times of kernels as timestamps."""
    return plain(micros).cast(INSTANT)


def laid_out(told: Mapping[str, pa.Array], rest: Mapping[str, pa.Array]) -> pa.Table:
    """What is told of rows, and then their columns; where both have a name, that of the first gives way."""
    names = [_free(name, rest) for name in told]
    arrays = [*told.values(), *rest.values()]
    return pa.table([_written_out(array) for array in arrays], names=[*names, *rest])


def _free(name: str, taken: Iterable[str]) -> str:
    return _free(f"_{name}", taken) if name in taken else name


def _written_out(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def picked(rows: pa.Table, names: Iterable[str], left_out: Sequence[str] = ()) -> dict[str, pa.Array]:
    """Columns of rows by name."""
    return {name: plain(rows.column(name)) for name in names if name not in left_out}


def nulls(schema: pa.Schema, names: Iterable[str], rows: int, left_out: Sequence[str] = ()) -> dict[str, pa.Array]:
    """Columns that are not known of rows."""
    return {name: pa.nulls(rows, _kind(schema.field(name).type)) for name in names if name not in left_out}


def _kind(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def flags(value: bool, rows: int) -> pa.Array:
    return pa.array([value] * rows, pa.bool_())


def words(value: str, rows: int) -> pa.Array:
    return pc.fill_null(pa.nulls(rows, pa.string()), value)
