"""Aggregate functions by themselves: what they take and give, merged in any way, and their edges."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Row
from tests.kernels.window_oracle import VALUES, aggregated, choices, comparable, instant

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.aggregates import FUNCTIONS, Aggregation, result_type
from penstock.kernels.base import TIME
from penstock.kernels.columns import sort_order
from penstock.kernels.spans import Groups, Spans

CHOICES = choices()


def kept_of(aggregation: Aggregation, rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """What is kept of rows as one group."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    columns = aggregation.start(table, Groups(np.zeros(len(rows), np.int64), 1))
    return pa.table(columns, schema=pa.schema(aggregation.kept))


def finished(aggregation: Aggregation, kept: pa.Table, spans: Spans) -> list[Row]:
    found: list[Row] = []
    for _, columns in aggregation.results(kept, spans):
        found += pa.table(columns, schema=pa.schema(aggregation.fields)).to_pylist()
    return found


def value_of(function: str, values: Sequence[Any], type: pa.DataType, option: float | None = None) -> Any:
    """The aggregate of values that come one second after another, each merged with those before."""
    schema = pa.schema([(TIME, pa.int64()), ("x", type)])
    aggregation = Aggregation([Aggregate("out", function, "x", option)], schema)
    parts = [
        kept_of(aggregation, [{TIME: number * 1_000_000, "x": value}], schema) for number, value in enumerate(values)
    ]
    kept = parts[0]
    for part in parts[1:]:
        pair = pa.concat_tables([kept, part])
        kept = pa.table(aggregation.merge(pair, whole(pair)), schema=pair.schema)
    (row,) = finished(aggregation, kept, whole(kept))
    return row["out"]


def whole(table: pa.Table) -> Spans:
    return Spans(np.array([0]), np.array([table.num_rows]), table.num_rows)


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 1 << 48).map(random.Random))
def test_merging_in_any_order_and_over_any_spans_gives_the_aggregate_of_all_rows(draw: random.Random) -> None:
    aggregates = draw.sample(CHOICES, draw.choice([1, 2, 4]))
    columns = list(dict.fromkeys(item.column for item in aggregates if item.column is not None))
    schema = pa.schema([(TIME, pa.int64()), *((name, VALUES[name][0]) for name in columns)])
    aggregation = Aggregation(aggregates, schema)
    groups = [
        [
            {TIME: draw.randint(-3, 9), **{name: draw.choice(VALUES[name][1]) for name in columns}}
            for _ in range(draw.choice([1, 1, 2, 5]))
        ]
        for _ in range(draw.randint(1, 6))
    ]
    kept = pa.concat_tables([kept_of(aggregation, rows, schema) for rows in groups])
    bounds = sorted((low, draw.randint(low + 1, len(groups))) for low in draw.choices(range(len(groups)), k=4))
    lo = np.array([low for low, _ in bounds])
    hi = np.maximum.accumulate([high for _, high in bounds])
    expected = [
        {item.name: aggregated(item, [row for rows in groups[low:high] for row in rows]) for item in aggregates}
        for low, high in zip(lo, hi, strict=True)
    ]
    assert comparable(finished(aggregation, kept, Spans(lo, hi, len(groups)))) == comparable(expected)
    cut = draw.randint(0, len(groups) - 1)
    merged = aggregation.merge(
        kept, Spans(np.array([0, cut])[cut == 0 :], np.array([cut, len(groups)])[cut == 0 :], len(groups))
    )
    table = pa.table(merged, schema=kept.schema)
    everything = [row for rows in groups for row in rows]
    assert comparable(finished(aggregation, table, whole(table))) == comparable(
        [{item.name: aggregated(item, everything) for item in aggregates}]
    )


@pytest.mark.parametrize(
    ("function", "type", "result"),
    [
        ("count", pa.string(), pa.int64()),
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.uint64(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(10, 2), pa.decimal128(20, 2)),
        ("sum", pa.decimal128(33, 5), pa.decimal128(38, 5)),
        ("avg", pa.decimal128(10, 2), pa.float64()),
        ("min", pa.string(), pa.string()),
        ("max", pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC")),
        ("stddev", pa.int64(), pa.float64()),
        ("first", pa.bool_(), pa.bool_()),
        ("last", pa.date32(), pa.date32()),
        ("count_distinct", pa.list_(pa.int64()), pa.int64()),
        ("approx_count_distinct", pa.string(), pa.int64()),
        ("collect", pa.decimal128(10, 2), pa.list_(pa.decimal128(10, 2))),
    ],
)
def test_every_function_knows_the_type_it_gives(function: str, type: pa.DataType, result: pa.DataType) -> None:
    assert result_type(function, type) == result


def test_functions_with_options_know_the_type_they_give() -> None:
    assert result_type("percentile", pa.int32(), 0.5) == pa.float64()
    assert result_type("top_k", pa.string(), 3) == pa.list_(pa.struct([("value", pa.string()), ("count", pa.int64())]))
    assert result_type("count", None) == pa.int64()


@pytest.mark.parametrize(
    ("function", "type", "option", "message"),
    [
        ("sum", pa.string(), None, "sum takes numbers, not string"),
        ("avg", pa.bool_(), None, "avg takes numbers, not bool"),
        ("min", pa.list_(pa.int64()), None, "min takes values that have an order, not list<item: int64>"),
        ("sum", None, None, "sum needs a column"),
        ("median", pa.int64(), None, "there is no aggregate function 'median'"),
        ("percentile", pa.int64(), None, "percentile needs a fraction between 0 and 1, not None"),
        ("percentile", pa.int64(), 1.5, "percentile needs a fraction between 0 and 1, not 1.5"),
        ("top_k", pa.int64(), 0, "top_k needs a whole number of at least 1, not 0"),
        ("top_k", pa.int64(), 1.5, "top_k needs a whole number of at least 1, not 1.5"),
        ("sum", pa.int64(), 2, "sum has no option, but was given 2"),
        ("count_distinct", pa.map_(pa.string(), pa.int64()), None, "maps cannot be compared"),
    ],
)
def test_functions_refuse_what_they_cannot_take(
    function: str, type: pa.DataType | None, option: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        result_type(function, type, option)


def test_groups_without_a_value_count_zero_and_have_no_other_result() -> None:
    options = {"percentile": 0.5, "top_k": 2.0}
    found = {name: value_of(name, [None, None], pa.int64(), options.get(name)) for name in FUNCTIONS}
    assert found == {
        **dict.fromkeys(FUNCTIONS),
        **dict.fromkeys(("count", "count_distinct", "approx_count_distinct"), 0),
        "top_k": [],
        "collect": [],
    }


MANY: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127]),
    "int64": (pa.int64(), [-(1 << 63), -1, 0, (1 << 63) - 1]),
    "uint64": (pa.uint64(), [0, 1, 1 << 63, (1 << 64) - 1]),
    "float32": (pa.float32(), [-math.inf, -1.5, 0.25, math.inf]),
    "float64": (pa.float64(), [-math.inf, -1e300, -1e-300, 0.0, 5e-324, 1.5, math.inf]),
    "decimal": (pa.decimal128(18, 2), [Decimal("-9999999999999999.99"), Decimal("0.00"), Decimal("0.01")]),
    "big decimal": (pa.decimal128(38, 0), [Decimal(-(10**37)), Decimal(-1), Decimal(10**37)]),
    "string": (pa.string(), ["", "A", "a", "aa", "ä", "𝄞"]),
    "large string": (pa.large_string(), ["", "b"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\xff", b"\xff"]),
    "fixed binary": (pa.binary(2), [b"\x00\x01", b"\xff\x00"]),
    "bool": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [date(1900, 1, 1), date(1970, 1, 1), date(2100, 1, 1)]),
    "time": (pa.time64("us"), [time(0, 0), time(23, 59, 59, 999_999)]),
    "short time": (pa.time32("ms"), [time(0, 0), time(1, 2, 3)]),
    "instant": (pa.timestamp("us", tz="UTC"), [instant(-1), instant(0), instant(1)]),
    "duration": (pa.duration("us"), [timedelta(days=-1), timedelta(0), timedelta(microseconds=1)]),
}


@pytest.mark.parametrize("name", MANY)
def test_least_and_greatest_are_found_for_every_type_that_has_an_order(name: str) -> None:
    type, ascending = MANY[name]
    mixed = [None, *ascending[1:], ascending[0], None]
    assert value_of("min", mixed, type) == ascending[0]
    assert value_of("max", mixed, type) == ascending[-1]
    assert value_of("collect", mixed, type) == [*ascending[1:], ascending[0]]
    assert value_of("top_k", [*ascending, *ascending], type, 1) == [{"value": ascending[0], "count": 2}]
    assert value_of("count_distinct", [*mixed, *ascending], type) == len(ascending)


def test_not_a_number_is_one_value_and_greater_than_all() -> None:
    other = np.array([0x7FF8000000000001], np.int64).view(np.float64)[0]
    values = [1.0, math.nan, other, -math.nan, math.inf]
    assert math.isnan(value_of("max", values, pa.float64()))
    assert value_of("min", values, pa.float64()) == 1.0
    assert value_of("count_distinct", values, pa.float64()) == 3
    assert math.isnan(value_of("percentile", values, pa.float64(), 1.0))
    assert value_of("percentile", values, pa.float64(), 0.25) == math.inf
    assert [row["count"] for row in value_of("top_k", values, pa.float64(), 3)] == [3, 1, 1]


def test_negative_zero_is_zero() -> None:
    assert value_of("count_distinct", [0.0, -0.0], pa.float64()) == 1
    assert math.copysign(1, value_of("min", [0.0, -0.0], pa.float64())) == 1
    assert value_of("approx_count_distinct", [0.0, -0.0], pa.float64()) == 1


def test_sums_of_integers_are_exact_and_say_when_they_do_not_fit() -> None:
    most = (1 << 63) - 1
    assert value_of("sum", [most, most, -most], pa.int64()) == most
    assert value_of("sum", [-most, -1], pa.int64()) == -(1 << 63)
    assert value_of("sum", [127] * 3, pa.int8()) == 381
    with pytest.raises(OverflowError, match="a sum of 'x' does not fit into 64 bits"):
        value_of("sum", [most, 1], pa.int64())
    with pytest.raises(OverflowError):
        value_of("sum", [(1 << 64) - 1], pa.uint64())


def test_sums_of_decimals_are_exact_and_say_when_they_do_not_fit() -> None:
    cents = [Decimal("0.01"), Decimal("-99999999.99"), Decimal("99999999.99")]
    assert value_of("sum", cents, pa.decimal128(10, 2)) == Decimal("0.01")
    most = Decimal(10**38 - 1)
    assert value_of("sum", [most, Decimal(1 - 10**38), Decimal(-7)], pa.decimal128(38, 0)) == Decimal(-7)
    assert value_of("sum", [Decimal(10**37)] * 9, pa.decimal128(38, 0)) == Decimal(9 * 10**37)
    with pytest.raises(OverflowError, match="a sum of 'x' does not fit into decimal128"):
        value_of("sum", [most, Decimal(1)], pa.decimal128(38, 0))
    assert value_of("avg", [Decimal("1.50"), Decimal("-0.50")], pa.decimal128(10, 2)) == 0.5


def test_sums_of_floats_are_the_same_in_any_order() -> None:
    values = [1e16, 0.1, -1e16, 0.2, 1e-9, 3.3e11, -7.25]
    sums = {value_of("sum", random.Random(seed).sample(values, len(values)), pa.float64()) for seed in range(20)}
    assert len(sums) == 1
    assert math.isclose(sums.pop(), math.fsum(values), rel_tol=1e-15)


def test_sums_of_floats_take_what_is_very_big_or_very_small() -> None:
    assert value_of("sum", [1e300, 1e300], pa.float64()) == 2e300
    assert value_of("sum", [1e-300, 1e-300], pa.float64()) == 2e-300
    assert value_of("sum", [math.inf, 1.0], pa.float64()) == math.inf
    assert math.isnan(value_of("sum", [math.inf, -math.inf], pa.float64()))
    assert value_of("sum", [-0.5, 0.25], pa.float32()) == -0.25


def test_standard_deviation_is_right_far_from_zero() -> None:
    assert math.isclose(value_of("stddev", [1e9 + 1, 1e9 + 2, 1e9 + 3], pa.float64()), 1.0, rel_tol=1e-9)
    assert value_of("stddev", [0.1] * 7, pa.float64()) == 0.0
    assert value_of("stddev", [5], pa.int64()) is None
    assert math.isnan(value_of("stddev", [1.0, math.inf], pa.float64()))


def test_percentiles_lie_between_two_values_in_proportion() -> None:
    assert value_of("percentile", [1, 2, 3, 4], pa.int64(), 0.5) == 2.5
    assert value_of("percentile", [10.0, 20.0], pa.float64(), 0.3) == 13.0
    assert value_of("percentile", [7], pa.int64(), 0.99) == 7.0
    assert value_of("percentile", [math.inf, math.inf], pa.float64(), 0.5) == math.inf


def test_first_and_last_go_by_time_and_then_by_value() -> None:
    schema = pa.schema([(TIME, pa.int64()), ("x", pa.string())])
    aggregation = Aggregation([Aggregate("first", "first", "x"), Aggregate("last", "last", "x")], schema)
    rows = [(5, "b"), (1, None), (2, "z"), (2, "y"), (5, "c"), (9, None)]
    for seed in range(10):
        mixed = random.Random(seed).sample(rows, len(rows))
        kept = pa.concat_tables([kept_of(aggregation, [{TIME: at, "x": value}], schema) for at, value in mixed])
        assert finished(aggregation, kept, whole(kept)) == [{"first": "y", "last": "c"}]


def test_lists_and_structs_are_told_apart() -> None:
    lists = [[1, 2], [1], [2], [1, 2], [], [None], None, [12]]
    assert value_of("count_distinct", lists, pa.list_(pa.int64())) == 6
    assert value_of("approx_count_distinct", lists, pa.list_(pa.int64())) == 6
    kind = pa.struct([("a", pa.string()), ("b", pa.string())])
    pairs = [("x", "y"), ("xy", ""), ("", "xy"), (None, "xy"), ("x", "y"), ("1:x", "y")]
    assert value_of("count_distinct", [{"a": a, "b": b} for a, b in pairs], kind) == 5
    deep = pa.list_(pa.struct([("f", pa.float64())]))
    assert value_of("count_distinct", [[{"f": 0.0}], [{"f": -0.0}], [{"f": None}], [None]], deep) == 3


@pytest.mark.parametrize("count", [1, 10, 100, 1000, 10_000, 200_000])
def test_approximate_counts_are_close(count: int) -> None:
    schema = pa.schema([(TIME, pa.int64()), ("x", pa.string())])
    aggregation = Aggregation([Aggregate("n", "approx_count_distinct", "x")], schema)
    values = pa.array(np.char.add("value ", np.arange(count).astype(str)))
    rows = pa.table([pa.array(np.zeros(count, np.int64)), values], schema=schema)
    parts = [rows, rows.slice(count // 2)]
    kept = pa.concat_tables(
        [
            pa.table(
                aggregation.start(part, Groups(np.zeros(part.num_rows, np.int64), 1)),
                schema=pa.schema(aggregation.kept),
            )
            for part in parts
        ]
    )
    (row,) = finished(aggregation, kept, whole(kept))
    assert abs(row["n"] - count) <= 0.05 * count


def test_approximate_counts_never_change() -> None:
    """Registers are kept in state: another hash would make nonsense of what is there."""
    assert value_of("approx_count_distinct", ["a", "b", "c"], pa.string()) == 3
    schema = pa.schema([(TIME, pa.int64()), ("x", pa.string())])
    aggregation = Aggregation([Aggregate("n", "approx_count_distinct", "x")], schema)
    kept = kept_of(aggregation, [{TIME: 0, "x": "a"}, {TIME: 0, "x": "b"}], schema)
    assert kept.column(0).to_pylist() == [[79233, 207617]]


@pytest.mark.parametrize("bound", [3, 1 << 15, 1 << 16, 1 << 17, 1 << 31, 1 << 40, 1 << 50])
def test_sorting_by_sixteen_bits_at_a_time_is_stable(bound: int) -> None:
    values = np.random.default_rng(1).integers(0, bound, 2000)
    assert np.array_equal(sort_order(values, bound), np.argsort(values, kind="stable"))
