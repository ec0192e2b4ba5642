"""The aggregate functions: what each may take, what it gives, what is kept of rows for it, and how it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.columns import key_fields, numbers, plain, value_codes
from penstock.kernels.list_partials import Distinct, Events, Frequencies, Registers, listed, members_of
from penstock.kernels.nested import is_nested
from penstock.kernels.partials import (
    Columns,
    Earliest,
    Greatest,
    Latest,
    Least,
    Moments,
    Partial,
    RowCount,
    Sum,
    ValueCount,
    as_floats,
)
from penstock.kernels.spans import Grouped, Spans

FUNCTIONS = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "stddev",
    "first",
    "last",
    "count_distinct",
    "approx_count_distinct",
    "percentile",
    "top_k",
    "collect",
)


INSTANT = pa.timestamp("us", tz="UTC")
"""The type of the bounds of windows."""


def result_type(function: str, input_type: pa.DataType | None, option: float | None = None) -> pa.DataType:
    """The type of a result. Raises ValueError if the function cannot take that type or option.

    `input_type` is None for a function without a column.
    """
    if function not in FUNCTIONS:
        raise ValueError(f"there is no aggregate function '{function}'; there are {', '.join(FUNCTIONS)}")
    _check_option(function, option)
    if function == "count":
        return pa.int64()
    if input_type is None:
        raise ValueError(f"{function} needs a column")
    kind = input_type.value_type if pa.types.is_dictionary(input_type) else input_type
    if function in ("count_distinct", "approx_count_distinct"):
        if _holds_map(kind):
            raise ValueError(f"{function} cannot take {input_type}: maps cannot be compared")
        return pa.int64()
    if function in ("sum", "avg", "stddev", "percentile"):
        if not _is_number(kind):
            raise ValueError(f"{function} takes numbers, not {input_type}")
        return _sum_type(kind) if function == "sum" else pa.float64()
    if not _is_ordered(kind):
        raise ValueError(f"{function} takes values that have an order, not {input_type}")
    if function == "top_k":
        return pa.list_(pa.struct([("value", kind), ("count", pa.int64())]))
    return pa.list_(kind) if function == "collect" else kind


def _check_option(function: str, option: float | None) -> None:
    if function == "percentile":
        if option is None or not 0 <= option <= 1:
            raise ValueError(f"percentile needs a fraction between 0 and 1, not {option}")
    elif function == "top_k":
        if option is None or option != int(option) or option < 1:
            raise ValueError(f"top_k needs a whole number of at least 1, not {option}")
    elif option is not None:
        raise ValueError(f"{function} has no option, but was given {option}")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    blobs = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    moments = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return bool(_is_number(kind) or texts or blobs or moments or pa.types.is_boolean(kind))


def _holds_map(kind: pa.DataType) -> bool:
    children = (kind.field(index).type for index in range(kind.num_fields)) if is_nested(kind) else ()
    return bool(pa.types.is_map(kind)) or any(_holds_map(child) for child in children)


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal128(kind):
        return pa.decimal128(min(kind.precision + 10, 38), kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


@dataclass(frozen=True)
class Function:
    """One output column: its type, the partial aggregates it is made of, and how."""

    type: pa.DataType
    partials: Sequence[Partial]
    finish: Callable[..., pa.Array]
    """Gets the merged columns of each of its partial aggregates."""
    over: Callable[[Columns, Spans], pa.Array] | None = None
    """A quicker way than merging and finishing: gets the columns of its one partial aggregate, and the spans."""


def function_of(aggregate: Aggregate, schema: pa.Schema) -> Function:
    """The function behind an aggregate over rows with these columns."""
    column, option = aggregate.column, aggregate.option
    if column is None:
        type = result_type(aggregate.function, None, option)
        return Function(type, [RowCount(None, pa.null())], lambda rows: rows[0])
    given = schema.field(column).type
    type = result_type(aggregate.function, given, option)
    kind = given.value_type if pa.types.is_dictionary(given) else given
    count = ValueCount(column, kind)
    match aggregate.function:
        case "count":
            return Function(type, [count], lambda counted: counted[0])
        case "sum" | "avg":
            total = Sum(column, kind)
            if aggregate.function == "sum":
                return Function(type, [total, count], lambda sums, counted: total.total(sums, _none(counted), type))
            scale = 10.0**kind.scale if pa.types.is_decimal(kind) else 1.0
            return Function(type, [total, count], lambda sums, counted: _mean(total.floats(sums), counted, scale))
        case "min":
            return Function(type, [Least(column, kind)], lambda found: found[0])
        case "max":
            return Function(type, [Greatest(column, kind)], lambda found: found[0])
        case "first":
            return Function(type, [Earliest(column, kind)], lambda found: found[1])
        case "last":
            return Function(type, [Latest(column, kind)], lambda found: found[1])
        case "stddev":
            return Function(type, [Moments(column, kind)], _deviation)
        case "count_distinct":
            distinct = Distinct(column, kind)
            return Function(type, [distinct], _sizes, lambda lists, spans: pa.array(distinct.count(lists[0], spans)))
        case "approx_count_distinct":
            return Function(type, [Registers(column, kind)], lambda lists: pa.array(Registers.estimate(lists[0])))
        case "percentile":
            assert option is not None
            return Function(type, [Frequencies(column, kind)], lambda lists: _percentile(lists[0], option))
        case "top_k":
            assert option is not None
            return Function(type, [Frequencies(column, kind)], lambda lists: _top(lists[0], int(option), type))
        case _:
            return Function(type, [Events(column, kind)], lambda lists: _collected(lists[0], type))


def _none(counted: Columns) -> np.ndarray:
    return np.asarray(numbers(counted[0]) == 0)


def _mean(total: np.ndarray, counted: Columns, scale: float) -> pa.Array:
    count = numbers(counted[0])
    return pa.array(total / (np.maximum(count, 1) * scale), mask=count == 0)


def _deviation(moments: Columns) -> pa.Array:
    count, squares = numbers(moments[0]), numbers(moments[2])
    return pa.array(np.sqrt(squares / np.maximum(count - 1, 1)), mask=count < 2)


def _sizes(lists: Columns) -> pa.Array:
    return pc.list_value_length(lists[0]).cast(pa.int64())


def _percentile(lists: pa.ListArray, fraction: float) -> pa.Array:
    """Between the two values next to the wanted place, in proportion, as Spark's `percentile`."""
    members, owners = members_of(lists)
    values, counts = as_floats(members.field("value")), numbers(members.field("count"))
    total = Spans(*_bounds(owners, len(lists)), len(owners)).sum(counts)
    running = np.cumsum(counts)
    position = (total - 1) * fraction
    lower, upper = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
    before = np.cumsum(total) - total
    filled = total > 0
    result = np.zeros(len(lists))
    low, high = (values[np.searchsorted(running, (before + place)[filled], side="right")] for place in (lower, upper))
    above, below = (upper - position)[filled], (position - lower)[filled]
    with np.errstate(invalid="ignore"):
        mixed = above * low + below * high
    result[filled] = np.where((lower == upper)[filled] | (low == high), low, mixed)
    return pa.array(result, mask=~filled)


def _bounds(owners: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(np.bincount(owners, minlength=count))
    return np.append(0, ends[:-1])[:count], ends


def _top(lists: pa.ListArray, most: int, type: pa.DataType) -> pa.Array:
    members, owners = members_of(lists)
    order = np.lexsort((-numbers(members.field("count")), owners))
    start, _ = _bounds(owners, len(lists))
    kept = order[np.arange(len(owners)) - start[owners] < most]
    return listed(members.take(pa.array(kept)), owners[kept], len(lists)).cast(type)


def _collected(lists: pa.ListArray, type: pa.DataType) -> pa.Array:
    members, owners = members_of(lists)
    values = members.field("value")
    codes, _ = value_codes(values)
    order = np.lexsort((codes, numbers(members.field("time")), owners))
    return listed(values.take(pa.array(order)), owners, len(lists)).cast(type)


class Aggregation:
    """All aggregates of a step together: they share what they keep of the rows."""

    def __init__(self, aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        self.functions = [function_of(aggregate, schema) for aggregate in aggregates]
        self.fields = [
            pa.field(aggregate.name, function.type)
            for aggregate, function in zip(aggregates, self.functions, strict=True)
        ]
        shared: dict[str, Partial] = {}
        for function in self.functions:
            for partial in function.partials:
                shared.setdefault(partial.name, partial)
        self.partials = tuple(shared.values())

    @cached_property
    def kept(self) -> list[pa.Field]:
        """The columns that are kept for a group."""
        return [field for partial in self.partials for field in partial.fields]

    @property
    def parts(self) -> list[list[str]]:
        """What is kept of rows, and of which type, as JSON."""
        return [[partial.name, str(partial.type)] for partial in self.partials]

    def fitted(self, kept: pa.Table, schema: pa.Schema) -> pa.Table:
        """Kept groups with the columns of `schema`: what was not kept of them before begins with nothing."""
        if kept.schema.names == schema.names:
            return kept
        known = {name: kept.column(name) for name in kept.schema.names}
        for partial in self.partials:
            if any(field.name not in known for field in partial.fields):
                known |= dict(
                    zip((field.name for field in partial.fields), partial.nothing(kept.num_rows), strict=True)
                )
        return pa.table([known[name] for name in schema.names], names=schema.names)

    def start(self, rows: pa.Table, groups: Grouped) -> list[pa.Array]:
        """The kept columns for groups of rows as they came."""
        return [column for partial in self.partials for column in partial.start(rows, groups)]

    def merge(self, kept: pa.Table, spans: Spans) -> list[pa.Array]:
        """The kept columns for spans of groups."""
        columns = _columns(kept, self.partials)
        return [column for partial in self.partials for column in partial.merge(columns[partial.name], spans)]

    def results(self, kept: pa.Table, spans: Spans) -> Iterator[tuple[slice, list[pa.Array]]]:
        """The finished columns for spans of groups, some results at a time: which, and their columns."""
        for which, rows, piece in spans.pieces(self._weights(kept, spans)):
            yield which, self._finished(kept.slice(rows.start, rows.stop - rows.start), piece)

    def _finished(self, kept: pa.Table, spans: Spans) -> list[pa.Array]:
        columns = _columns(kept, self.partials)
        merged: dict[str, Columns] = {}
        finished = []
        for function in self.functions:
            if function.over is not None:
                finished.append(function.over(columns[function.partials[0].name], spans))
                continue
            for partial in function.partials:
                if partial.name not in merged:
                    merged[partial.name] = partial.merge(columns[partial.name], spans)
            finished.append(function.finish(*(merged[partial.name] for partial in function.partials)))
        return finished

    def _weights(self, kept: pa.Table, spans: Spans) -> np.ndarray | None:
        """What each row costs where it has to be copied for each of its results; None if none has to be."""
        if not any(partial.spreads for partial in self.partials):
            return None
        weights = np.ones(kept.num_rows, np.int64)
        for field in self.kept:
            if pa.types.is_list(field.type):
                weights += numbers(pc.list_value_length(plain(kept.column(field.name))))
        return weights


def _columns(kept: pa.Table, partials: Sequence[Partial]) -> Mapping[str, Columns]:
    return {partial.name: [plain(kept.column(field.name)) for field in partial.fields] for partial in partials}


def output_schema(schema: pa.Schema, keys: Iterable[str], aggregation: Aggregation) -> pa.Schema:
    """The columns of results for windows: keys, the bounds of the window, aggregates."""
    bounds = [pa.field("window_start", INSTANT), pa.field("window_end", INSTANT)]
    return pa.schema([*key_fields(schema, keys), *bounds, *aggregation.fields])
