"""ROLLING against an oracle, whatever the order, the cuts and the watermark; it writes little, its state goes away."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels import rolling_oracle as oracle
from tests.kernels.driving import CASES, Driver, Row

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import NO_WATERMARK, TIME
from penstock.kernels.rolling import Rolling
from penstock.kernels.rolling_runs import Shelf

MS = 1000
SECOND = 1_000_000
DAY = 86_400 * SECOND
FAR = 1 << 55

SCHEMA = pa.schema(
    [
        (TIME, pa.int64()),
        ("user", pa.string()),
        ("shard", pa.int32()),
        ("item", pa.string()),
        ("amount", pa.int64()),
        ("weight", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("wide", pa.decimal128(38, 0)),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("seen", pa.timestamp("us", "UTC")),
        ("small", pa.float32()),
        ("id", pa.int64()),
    ]
)
NAN, INF = math.nan, math.inf
VALUES: dict[str, list[Any]] = {
    "item": ["a", "b", "b", "ä", "", None, "c", "zz"],
    "amount": [1, 2, None, -5, 1 << 40, 0, -(1 << 56), 3],
    "weight": [1e18, 1e-3, -1e18, 0.1, None, 0.1, -0.0, 2.5],
    "wild": [1e18, 1e-3, NAN, INF, None, -INF, 1e300, 5e-324],
    "price": [Decimal("0.01"), Decimal("-1234567.89"), None, Decimal("3.50"), Decimal("3.5"), Decimal(0)],
    "wide": [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(1), None, Decimal(1 << 100)],
    "day": [dt.date(2024, 1, 1), dt.date(1960, 5, 5), None],
    "flag": [True, False, None],
    "seen": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 7, 20, 1, 2, 3, 4, tzinfo=dt.UTC), None],
    "small": [0.5, -1.25, None, NAN],
}
NUMBERS = ["amount", "weight", "price"]
MENU = [
    ("count", None),
    *[("count", column) for column in ("item", "flag", "weight")],
    *[("count_distinct", column) for column in ("item", "amount", "weight", "flag", "price")],
    *[(function, column) for function in ("sum", "avg", "stddev") for column in NUMBERS],
    *[(function, column) for function in ("min", "max", "first", "last") for column in VALUES if column != "wild"],
]


def make(time: int, who: int, what: int, number: int, wild: bool = False) -> Row:
    """A row from small numbers."""
    values = {name: found[(what + 3 * place) % len(found)] for place, (name, found) in enumerate(VALUES.items())}
    if wild:
        values["weight"] = values["wild"]
    del values["wild"]
    user, shard = [("u", 1), ("u", 1), ("u", 1), ("u", 2), ("v", 1), (None, None), ("v", None)][who]
    return {TIME: time, "user": user, "shard": shard, "id": number, **values}


def same(found: Any, expected: Any, aggregate: Aggregate) -> bool:
    if found is None or expected is None:
        return found is expected
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(found)
    if aggregate.function in ("avg", "stddev"):
        return math.isclose(found, expected, rel_tol=1e-12, abs_tol=0.0)
    return bool(found == expected)


def compare(found: list[list[Row]], expected: list[list[Row]], aggregates: Sequence[Aggregate]) -> None:
    assert [sorted(row["id"] for row in batch) for batch in found] == [
        sorted(row["id"] for row in batch) for batch in expected
    ]
    answers = {row["id"]: row for batch in expected for row in batch}
    for row in (row for batch in found for row in batch):
        answer = answers[row["id"]]
        assert row.keys() == answer.keys()
        assert {name: row[name] for name in ("id", "user")} == {name: answer[name] for name in ("id", "user")}
        for each in aggregates:
            assert same(row[each.name], answer[each.name], each), (each, row, answer)


def check(
    batches: list[list[Row]], keys: tuple[str, ...], aggregates: Sequence[Aggregate], over: int, driver: Driver
) -> Driver:
    """Drives the batches and compares all that leaves, batch by batch."""
    for batch in batches:
        driver.batch(batch)
    driver.finish(FAR)
    kernel = driver.kernel
    assert isinstance(kernel, Rolling)
    marks = oracle.Watermarks(batches, driver.max_delay, FAR)
    answer = oracle.at_once if kernel.at_once else oracle.settled
    compare(driver.by_batch, answer(marks, keys, aggregates, over, kernel.passed), aggregates)
    assert sorted(row["id"] for _, row, _ in driver.missed) == sorted(row["id"] for row in marks.late)
    return driver


def driver_of(
    aggregates: Sequence[Aggregate], over: int, keys: tuple[str, ...] = ("user",), at_once: bool = False, **options: Any
) -> Driver:
    columns = {TIME, *keys, "id", "user", *(each.column for each in aggregates if each.column)}
    schema = pa.schema([field for field in SCHEMA if field.name in columns])
    kernel = Rolling(schema, keys, tuple(aggregates), over, ("id", "user"), at_once)
    return Driver(pickle.loads(pickle.dumps(kernel)), [schema], [keys], **options)


def project(driver: Driver, rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in driver.schemas[0].names} for row in rows]


STEPS = st.one_of(st.integers(-3, 12).map(lambda n: n * MS), st.integers(-2 * MS, 14 * MS))
CHOICES = st.tuples(STEPS, st.integers(0, 6), st.integers(0, 39))
BATCHES = st.lists(st.lists(CHOICES, max_size=7), min_size=1, max_size=4)


@given(
    drawn=BATCHES,
    drift=st.sampled_from([0, 2 * MS, 7 * MS]),
    menu=st.lists(st.sampled_from(MENU), min_size=1, max_size=3),
    keys=st.sampled_from([("user",), ("user",), ("user", "shard"), ("shard",), ()]),
    over=st.sampled_from([1, MS, 3 * MS, 5 * MS + 1, 40 * MS]),
    delay=st.sampled_from([0, 2 * MS, 9 * MS]),
    at_once=st.booleans(),
    wild=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=CASES, deadline=None)
def test_gives_what_the_oracle_gives(
    drawn: list[list[tuple[int, int, int]]],
    drift: int,
    menu: list[tuple[str, str | None]],
    keys: tuple[str, ...],
    over: int,
    delay: int,
    at_once: bool,
    wild: bool,
    seed: int,
) -> None:
    aggregates = [Aggregate(f"a{place}", function, column) for place, (function, column) in enumerate(menu)]
    driver = driver_of(aggregates, over, keys, at_once, max_delay=delay, buckets=1 + seed % 2, seed=seed)
    batches = []
    for number, batch in enumerate(drawn):
        rows = [
            make(step + number * drift, who, what, 100 * number + place, wild)
            for place, (step, who, what) in enumerate(batch)
        ]
        batches.append(project(driver, rows))
    check(batches, keys, aggregates, over, driver)


COUNTS = [Aggregate("n", "count"), Aggregate("d", "count_distinct", "item")]
DISTINCT = [Aggregate("d", "count_distinct", "item"), Aggregate("e", "count_distinct", "amount")]
FLOATS = [Aggregate("s", "sum", "weight"), Aggregate("t", "stddev", "weight"), Aggregate("l", "last", "item")]
ALL = [Aggregate(f"a{place}", function, column) for place, (function, column) in enumerate(MENU)]


def stream(seed: int, batches: int, size: int, over: int, disorder: int) -> list[list[Row]]:
    """Batches that move on by a fraction of the interval each, out of order, sometimes empty."""
    chance = random.Random(seed)
    result: list[list[Row]] = []
    number = 0
    for batch in range(batches):
        rows = []
        for _ in range(chance.choice([0, size, size, 2 * size])):
            time = (batch * over) // 23 + chance.randrange(over // 23) - chance.randrange(1 + disorder)
            rows.append(make(time, chance.randrange(7), chance.randrange(40), number))
            number += 1
        result.append(rows)
    return result


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("aggregates", [COUNTS, DISTINCT, FLOATS], ids=["counts", "distinct", "floats"])
@pytest.mark.parametrize(("disorder", "delay"), [(0, 0), (2 * SECOND, SECOND), (10 * SECOND, 30 * SECOND)])
def test_long_streams_keep_few_runs_and_all_answers(
    at_once: bool, aggregates: list[Aggregate], disorder: int, delay: int
) -> None:
    over = 60 * SECOND
    driver = driver_of(aggregates, over, at_once=at_once, max_delay=delay, buckets=2, seed=1)
    batches = [project(driver, rows) for rows in stream(disorder + delay, 70, 4, over, disorder)]
    check(batches, ("user",), aggregates, over, driver)
    assert driver.chunk_count() == 0


@pytest.mark.parametrize("at_once", [False, True])
def test_all_aggregates_together(at_once: bool) -> None:
    driver = driver_of(ALL, 5 * SECOND, ("user", "shard"), at_once, max_delay=SECOND)
    batches = [project(driver, rows) for rows in stream(5, 12, 8, 5 * SECOND, SECOND)]
    check(batches, ("user", "shard"), ALL, 5 * SECOND, driver)


@pytest.mark.parametrize("aggregates", [ALL, DISTINCT], ids=["all", "distinct"])
def test_answers_are_the_same_to_the_last_bit_however_rows_are_cut(aggregates: list[Aggregate]) -> None:
    over, delay = 5 * SECOND, 4 * SECOND
    rows = [row for batch in stream(8, 25, 8, over, SECOND) for row in batch]
    outputs = set()
    for seed in range(6):
        driver = driver_of(aggregates, over, max_delay=delay, buckets=1 + seed % 3, seed=seed)
        chance = random.Random(seed)
        left = project(driver, rows)
        while left:
            size = chance.choice([1, 5, 40, 100])
            batch, left = left[:size], left[size:]
            driver.batch(chance.sample(batch, len(batch)))
        driver.finish(FAR)
        assert not driver.missed
        outputs.add(repr(sorted(driver.main, key=lambda row: row["id"])))
    assert len(outputs) == 1


def rows_of(times: Sequence[int], **columns: Any) -> list[Row]:
    return [
        {TIME: time, "user": "u", "id": number, **{name: values[number] for name, values in columns.items()}}
        for number, time in enumerate(times)
    ]


def results(driver: Driver, *batches: list[Row]) -> dict[int, Row]:
    for batch in batches:
        driver.batch(batch)
    driver.finish(FAR)
    return {row["id"]: row for row in driver.main}


def test_the_interval_is_open_at_its_start_and_has_all_rows_of_its_end() -> None:
    driver = driver_of(COUNTS, 10 * MS)
    rows = rows_of([0, 1, 10 * MS, 10 * MS, 10 * MS + 1, 20 * MS], item=["a", "b", "a", "c", "a", "d"])
    out = results(driver, rows)
    assert [out[number]["n"] for number in range(6)] == [1, 2, 3, 3, 3, 2]
    assert [out[number]["d"] for number in range(6)] == [1, 2, 3, 3, 2, 2]


def test_a_row_leaves_when_the_watermark_reaches_it_and_not_before() -> None:
    driver = driver_of(COUNTS, 10 * MS, max_delay=5 * MS)
    driver.batch(rows_of([0, 5 * MS, 10 * MS], item=["a", "a", "a"]))
    assert driver.main == []
    driver.batch([])
    assert sorted(row["id"] for row in driver.main) == [0, 1]
    assert {wake for wake in driver.wakes.values() if wake is not None} == {10 * MS}
    driver.batch([])
    assert len(driver.main) == 2
    driver.finish(10 * MS)
    assert sorted(row["id"] for row in driver.main) == [0, 1, 2]


def test_rows_that_do_not_wait_count_later_ones_only_from_their_batch_on() -> None:
    driver = driver_of(COUNTS, 10 * MS, at_once=True, max_delay=50 * MS)
    first, second = rows_of([5 * MS, 8 * MS], item=["a", "b"]), rows_of([6 * MS, 4 * MS, 18 * MS], item=["c", "a", "x"])
    driver.batch(first)
    driver.batch([{**row, "id": row["id"] + 10} for row in second])
    assert [{row["id"]: (row["n"], row["d"]) for row in batch} for batch in driver.by_batch] == [
        {0: (1, 1), 1: (2, 2)},
        {10: (3, 2), 11: (1, 1), 12: (1, 1)},
    ]


def test_late_rows_are_counted_and_leave_no_trace() -> None:
    for at_once in (False, True):
        driver = driver_of(COUNTS, 10 * MS, at_once=at_once)
        driver.batch(rows_of([20 * MS], item=["a"]))
        driver.batch([])
        driver.batch([{**row, "id": 7} for row in rows_of([20 * MS], item=["b"])])
        driver.batch([{**row, "id": 8} for row in rows_of([21 * MS], item=["c"])])
        driver.finish(FAR)
        assert [(row["id"], missed) for _, row, missed in driver.missed] == [(7, 1)]
        assert {row["id"]: (row["n"], row["d"]) for row in driver.main} == {0: (1, 1), 8: (2, 2)}


def test_a_huge_value_leaves_no_trace_in_other_intervals_and_keys() -> None:
    sums = [Aggregate("s", "sum", "weight"), Aggregate("a", "avg", "weight"), Aggregate("t", "stddev", "weight")]
    driver = driver_of(sums, 2 * MS)
    out = results(
        driver, rows_of([step * MS for step in range(8)], weight=[1e-3, 1e18, 1e18, 1e-3, 1e-3, -1e300, 1e300, 0.1])
    )
    assert [out[number]["s"] for number in range(8)] == [1e-3, 1e18, 2e18, 1e18, 2e-3, -1e300, 0.0, 1e300]
    assert out[4]["t"] == 0.0
    assert out[2]["t"] == 0.0
    assert out[4]["a"] == 1e-3


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_undefined_and_infinite_values_touch_only_intervals_with_them(bad: float) -> None:
    sums = [Aggregate("s", "sum", "weight"), Aggregate("t", "stddev", "weight")]
    driver = driver_of(sums, 2 * MS)
    out = results(driver, rows_of([step * MS for step in range(5)], weight=[1.0, 2.0, bad, 4.0, 6.0]))
    assert [out[number]["s"] for number in (0, 1, 4)] == [1.0, 3.0, 10.0]
    assert all(repr(out[number]["s"]) == repr(bad) for number in (2, 3))
    assert [out[number]["t"] for number in (1, 4)] == [math.sqrt(0.5), math.sqrt(2.0)]
    assert all(math.isnan(out[number]["t"]) for number in (2, 3))


def test_sums_of_decimals_are_exact_and_null_if_they_have_too_many_digits() -> None:
    sums = [Aggregate("s", "sum", "price"), Aggregate("w", "sum", "wide"), Aggregate("a", "avg", "price")]
    driver = driver_of(sums, 2 * MS)
    wide = [Decimal("9" * 38), Decimal(1), Decimal("-" + "9" * 38), Decimal(-1)]
    price = [Decimal("9999999.99"), Decimal("0.01"), None, None]
    out = results(driver, rows_of([step * MS for step in range(4)], wide=wide, price=price))
    assert [out[number]["w"] for number in range(4)] == [wide[0], None, Decimal("-" + "9" * 37 + "8"), None]
    assert [out[number]["s"] for number in range(4)] == [price[0], Decimal("10000000.00"), Decimal("0.01"), None]
    assert [out[number]["a"] for number in range(4)] == [9999999.99, 5000000.0, 0.01, None]
    assert driver.kernel.output.field("s").type == pa.decimal128(19, 2)
    assert driver.kernel.output.field("w").type == pa.decimal128(38, 0)


def test_a_sum_of_integers_that_does_not_fit_is_refused_and_its_average_is_not() -> None:
    big = (1 << 63) - 1
    fits = rows_of([0, MS, 2 * MS], amount=[big, -big, big])
    out = results(driver_of([Aggregate("s", "sum", "amount")], 3 * MS), fits)
    assert [out[number]["s"] for number in range(3)] == [big, 0, big]
    least = rows_of([0, MS], amount=[-big, -1])
    assert results(driver_of([Aggregate("s", "sum", "amount")], 3 * MS), least)[1]["s"] == -(1 << 63)
    over = rows_of([0, MS], amount=[big, 1])
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        results(driver_of([Aggregate("s", "sum", "amount")], 3 * MS), over)
    assert results(driver_of([Aggregate("a", "avg", "amount")], 3 * MS), over)[1]["a"] == 2.0**62


def test_times_may_be_very_far_apart() -> None:
    driver = driver_of(COUNTS, 10 * MS, buckets=1)
    far = 1 << 60
    rows = [
        {TIME: time, "user": user, "item": "a", "id": number}
        for number, (time, user) in enumerate((time, user) for time in (-far, far, far + 1) for user in "abcdefgh")
    ]
    driver.batch(rows)
    driver.finish(1 << 61)
    assert sorted((row["id"], row["n"], row["d"]) for row in driver.main) == [
        (number, 1 if number < 16 else 2, 1) for number in range(24)
    ]


def bulk(start: int, stop: int, count: int, seed: int, users: int = 500) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            TIME: np.sort(chance.integers(start, stop, count)),
            "user": pa.array(chance.zipf(1.3, count) % users).cast(pa.string()),
            "item": pa.array(chance.integers(0, 1000, count)).cast(pa.string()),
            "id": pa.array(np.arange(count)),
        }
    )


def bulk_kernel(over: int, aggregates: Sequence[Aggregate] = COUNTS, at_once: bool = False) -> Rolling:
    schema = pa.schema([(TIME, pa.int64()), ("user", pa.string()), ("item", pa.string()), ("id", pa.int64())])
    return Rolling(schema, ("user",), tuple(aggregates), over, ("id",), at_once)


class Bucket:
    """One bucket, with what it wrote."""

    def __init__(self, kernel: Rolling) -> None:
        self.kernel = kernel
        self.state: dict[int, pa.Table] = {}
        self.written: list[int] = []
        self.wake: int | None = None

    def advance(self, rows: pa.Table | None, watermark: int) -> pa.Table:
        before = dict(self.state)
        result = self.kernel.advance(self.state, [[rows]] if rows is not None else [[]], watermark)
        assert self.state == before
        for number in result.drop:
            assert number not in result.put
            del self.state[number]
        self.state.update(result.put)
        self.written.append(sum(table.nbytes for table in result.put.values()))
        self.wake = result.wake
        return result.main

    def size(self) -> int:
        return sum(table.nbytes for table in self.state.values())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_batch_writes_little_more_than_it_adds(at_once: bool) -> None:
    """Seven days in 250 batches, then one day more, in which every batch must stay small."""
    over, count, step = 7 * DAY, 100, 7 * DAY // 250
    bucket = Bucket(bulk_kernel(over, at_once=at_once))
    one = bulk(0, step, count, 0).nbytes
    for batch in range(286):
        bucket.advance(bulk(batch * step, (batch + 1) * step, count, batch), (batch - 1) * step)
    assert len(bucket.state) < 80
    assert bucket.size() < 286 * one
    last = bucket.written[250:]
    assert sum(last) / len(last) < 6 * one
    assert max(last) < bucket.size() / 10


def test_waiting_rows_are_not_written_again_and_again() -> None:
    """Rows come up to 100 batches late, so each run waits for long and leaves bit by bit."""
    count, step, batches = 100, SECOND, 300
    bucket = Bucket(bulk_kernel(10 * SECOND))
    left = 0
    one = bulk(0, step, count, 0).nbytes
    for batch in range(batches):
        watermark = (batch - 100) * step
        left += bucket.advance(bulk(max(watermark, -1) + 1, (batch + 1) * step, count, batch), watermark).num_rows
    assert sum(bucket.written) / batches < 6 * one
    assert len(bucket.state) < 300
    left += bucket.advance(None, FAR).num_rows
    assert left == count * batches
    assert not bucket.state
    assert bucket.wake is None


def test_history_is_removed_without_being_written_or_read() -> None:
    class Unread(dict[int, pa.Table]):
        def __getitem__(self, number: int) -> pa.Table:
            raise AssertionError("read")

    bucket = Bucket(bulk_kernel(100 * SECOND, at_once=True))
    bucket.advance(bulk(0, SECOND, 100, 1), NO_WATERMARK)
    bucket.advance(bulk(50 * SECOND, 51 * SECOND, 100, 1), NO_WATERMARK)
    wake = bucket.wake
    assert wake is not None
    assert 101 * SECOND <= wake <= 110 * SECOND
    early = bucket.kernel.advance(Unread(bucket.state), [[]], wake - 1)
    assert (early.put, early.drop, early.wake) == ({}, [], wake)
    result = bucket.kernel.advance(Unread(bucket.state), [[]], wake)
    assert (result.put, len(result.drop)) == ({}, 1)
    assert result.wake is not None
    assert result.wake > wake


def test_rows_far_ahead_do_not_keep_the_others() -> None:
    for at_once in (False, True):
        bucket = Bucket(bulk_kernel(10 * SECOND, at_once=at_once))
        ahead = bulk(1000 * DAY, 1000 * DAY + 1, 1, 1)
        for batch in range(20):
            rows = bulk(batch * SECOND, (batch + 1) * SECOND, 200, batch)
            bucket.advance(pa.concat_tables([rows, ahead]), (batch - 1) * SECOND)
        for second in range(20, 40):
            bucket.advance(bulk(second * SECOND, (second + 1) * SECOND, 1, second), (second - 1) * SECOND)
        rows_kept = sum(table.num_rows for number, table in bucket.state.items() if number)
        assert rows_kept < 150


def test_only_last_occurrences_are_kept_for_distinct_values() -> None:
    rows = bulk(0, SECOND, 20_000, 3, users=3)
    few = Bucket(bulk_kernel(100 * SECOND, [Aggregate("d", "count_distinct", "item")]))
    few.advance(rows, 2 * SECOND)
    assert sum(table.num_rows for table in few.state.values()) <= 3 * 1000


def test_columns_that_are_only_counted_are_kept_as_flags() -> None:
    kernel = bulk_kernel(100 * SECOND, [Aggregate("n", "count", "item")])
    bucket = Bucket(kernel)
    bucket.advance(bulk(0, SECOND, 1000, 3), 2 * SECOND)
    (run,) = bucket.state.values()
    assert pa.types.is_boolean(run.schema.field("of item").type)


def test_payload_of_any_type_leaves_as_it_came() -> None:
    kind = pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())])
    schema = pa.schema([(TIME, pa.int64()), ("user", pa.string()), ("body", kind)])
    kernel = Rolling(schema, ("user",), (Aggregate("n", "count"),), SECOND, ("body", TIME))
    driver = Driver(kernel, [schema], [("user",)])
    bodies = [{"a": [1, 2], "b": None}, None, {"a": None, "b": "x"}]
    driver.batch([{TIME: number * MS, "user": "u", "body": body} for number, body in enumerate(bodies)])
    driver.finish(FAR)
    assert sorted(driver.main, key=lambda row: row[TIME]) == [
        {"body": body, TIME: number * MS, "n": number + 1} for number, body in enumerate(bodies)
    ]


def test_runs_are_merged_within_their_time_and_filed_under_their_newest_row() -> None:
    shelf = Shelf(1, 10)
    number, merged = shelf.place(25, 4, {})
    assert (shelf.end(number), merged) == (30, [])
    present: dict[int, int] = {}
    for _ in range(3):
        number, merged = shelf.place(25, 4, present)
        assert merged == []
        present[number] = 4
    assert shelf.place(35, 4, present)[1] == []
    assert shelf.place(25, 1, present)[1] == []
    assert shelf.place(25, 4, present)[1] == sorted(present)
    number, merged = shelf.place(15, 4, present, span=4)
    assert (shelf.end(number), merged) == (30, sorted(present))
    assert shelf.crowded(29, [*present, number + 40]) == []
    assert shelf.crowded(30, [*present, number + 40]) == sorted([*present, number + 40])
    assert shelf.on([0, 2, *present, 3]) == sorted(present)


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(ValueError, match="median"):
        _ = bulk_kernel(SECOND, [Aggregate("m", "median", "item")]).output
