"""The window kernel against plain Python: all rows of every batch, corrections, late rows, and what is kept."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Row
from tests.kernels.window_oracle import KEYS, VALUES, WindowOracle, choices, draw_batches, drive, driver, small_limits

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import BUCKET, NO_WATERMARK, TIME, Result
from penstock.kernels.window import Window

SECOND = 1_000_000
CHOICES = choices()


def draw_case(draw: random.Random, **fixed: Any) -> tuple[Window, WindowOracle, list[list[Row]], int]:
    """A kernel, its oracle, batches of rows, and the delay of the watermark."""
    unit = draw.choice([1, 1000, 1000, SECOND, SECOND, 60 * SECOND])
    size = draw.randint(1, 12) * unit
    slide = size if draw.random() < 0.35 else draw.randint(1, size // unit) * unit
    keys = tuple(draw.sample(sorted(KEYS), draw.choice([0, 0, 1, 1, 1, 2, 3])))
    aggregates = tuple(draw.sample(CHOICES, draw.choice([1, 1, 2])))
    columns = dict.fromkeys(item.column for item in aggregates if item.column is not None)
    fields = [(key, KEYS[key][0]) for key in keys] + [(name, VALUES[name][0]) for name in columns]
    replays = [("_replayed", pa.bool_())] if fixed.get("retained") else []
    options: dict[str, Any] = {name: value if name == "emit" else int(value * unit) for name, value in fixed.items()}
    given_slide = None if slide == size and draw.random() < 0.5 else slide
    kernel = Window(pa.schema([(TIME, pa.int64()), *fields, *replays]), keys, aggregates, size, given_slide, **options)
    oracle = WindowOracle(keys, aggregates, size, slide, **options)
    delay = draw.choice([0, 0, 0, 3, 10]) * unit
    values = {name: (KEYS[name] if name in KEYS else VALUES[name])[1] for name in (*keys, *columns)}
    values |= {"_replayed": [False, True, None]} if replays else {}
    reach = size + max(kernel.allowed, kernel.retained)
    return kernel, oracle, draw_batches(draw, unit, delay, reach, values), delay


def check(draw: random.Random, **fixed: Any) -> None:
    kernel, oracle, batches, delay = draw_case(draw, **fixed)
    run = driver(kernel, max_delay=delay, buckets=draw.choice([1, 2, 3]), seed=draw.randint(0, 1 << 30))
    times = [row[TIME] for rows in batches for row in rows]
    keep = max(kernel.allowed, kernel.retained)
    spread = max(times, default=0) - min(times, default=0)
    with small_limits(draw):
        drive(oracle, run, batches, max(times, default=0) + 2 * spread + 3 * kernel.size + keep)
    assert run.chunk_count() == 0
    assert set(run.wakes.values()) <= {None}


seeds = st.integers(0, 1 << 48).map(random.Random)


@settings(max_examples=CASES * 4 // 10, deadline=None)
@given(seeds)
def test_closed_windows_hold_all_timely_rows(draw: random.Random) -> None:
    check(draw)


@settings(max_examples=CASES * 2 // 10, deadline=None)
@given(seeds, st.sampled_from([0.5, 3, 12]))
def test_late_rows_correct_windows_while_these_allow_it(draw: random.Random, allowed: float) -> None:
    check(draw, allowed=allowed)


@settings(max_examples=CASES * 2 // 10, deadline=None)
@given(seeds, st.sampled_from([0, 4]))
def test_updates_give_every_window_that_may_have_changed(draw: random.Random, allowed: int) -> None:
    check(draw, emit="update", allowed=allowed)


@settings(max_examples=CASES * 2 // 10, deadline=None)
@given(seeds, st.sampled_from([0, 3]), st.sampled_from([2, 10]), st.sampled_from(["close", "update"]))
def test_replayed_rows_correct_windows_that_are_retained(
    draw: random.Random, allowed: int, retained: int, emit: str
) -> None:
    check(draw, allowed=allowed, retained=retained, emit=emit)


def count_kernel(size: int, slide: int | None = None, **options: Any) -> Window:
    schema = pa.schema([(TIME, pa.int64()), ("key", pa.string())])
    return Window(schema, ("key",), (Aggregate("n", "count"),), size, slide, **options)


def at(seconds: float, key: str | None = "a") -> Row:
    return {TIME: round(seconds * SECOND), "key": key}


def seen(rows: Iterable[Row]) -> list[tuple[str | None, int, int]]:
    """Key, start in seconds, and count of results."""
    return sorted((row["key"], int(row["window_start"].timestamp()), row["n"]) for row in rows)


def test_results_have_keys_bounds_and_aggregates_in_this_order() -> None:
    assert count_kernel(SECOND).output == pa.schema(
        [
            ("key", pa.string()),
            ("window_start", pa.timestamp("us", tz="UTC")),
            ("window_end", pa.timestamp("us", tz="UTC")),
            ("n", pa.int64()),
        ]
    )


def test_windows_are_aligned_to_1970_before_it_too() -> None:
    run = driver(count_kernel(10 * SECOND, 3 * SECOND))
    run.batch([at(-5), at(-0.000001)])
    run.finish(100 * SECOND)
    assert seen(run.main) == [("a", -12, 1), ("a", -9, 2), ("a", -6, 2), ("a", -3, 1)]


def test_a_window_that_ends_at_the_watermark_is_closed() -> None:
    run = driver(count_kernel(10 * SECOND), buckets=1)
    run.batch([at(1)])
    run.batch([at(9.999), at(10, "b")])
    assert seen(run.main) == []
    run.batch([at(9.5)])
    assert seen(run.main) == [("a", 0, 3)]
    assert run.missed == []
    run.batch([at(9.5)])
    assert seen(run.main) == [("a", 0, 3)]
    assert [missed for _, _, missed in run.missed] == [1]


def test_a_row_may_miss_some_of_its_windows_and_count_in_the_others() -> None:
    run = driver(count_kernel(10 * SECOND, 5 * SECOND), buckets=1)
    run.batch([at(1)])
    run.batch([at(12)])
    run.batch([])
    assert seen(run.main) == [("a", -5, 1), ("a", 0, 1)]
    run.batch([at(7)])
    assert [missed for _, _, missed in run.missed] == [1]
    run.finish(100 * SECOND)
    assert seen(run.main) == [("a", -5, 1), ("a", 0, 1), ("a", 5, 2), ("a", 10, 1)]


def test_a_bucket_that_had_nothing_to_do_gives_what_a_busy_one_gives() -> None:
    results = []
    for buckets in (1, 16):
        run = driver(count_kernel(10 * SECOND, 5 * SECOND, allowed=4 * SECOND), buckets=buckets)
        run.batch([at(3, "busy"), at(22, "busy")])
        run.batch([at(23, "busy")])
        run.batch([at(14, "idle"), at(9, "idle")])
        run.finish(100 * SECOND)
        results.append((seen(run.main), seen(run.corrections), len(run.missed)))
    assert results[0] == results[1]
    assert ("idle", 10, 1) in results[0][1]


def test_a_correction_holds_the_rows_of_before_too() -> None:
    run = driver(count_kernel(10 * SECOND, allowed=5 * SECOND))
    run.batch([at(1), at(1, "b"), at(12)])
    run.batch([at(13)])
    assert seen(run.main) == [("a", 0, 1), ("b", 0, 1)]
    run.batch([at(2)])
    assert seen(run.corrections) == [("a", 0, 2)]
    run.batch([at(16)])
    run.batch([at(3, "c")])
    assert [missed for _, _, missed in run.missed] == []
    assert seen(run.corrections) == [("a", 0, 2), ("c", 0, 1)]
    run.batch([at(4)])
    assert [missed for _, _, missed in run.missed] == [1]


def test_retained_windows_take_replayed_rows_only() -> None:
    kernel = count_kernel(10 * SECOND, retained=60 * SECOND)
    kernel = replace(kernel, input=kernel.input.append(pa.field("_replayed", pa.bool_())))
    run = driver(kernel)
    run.batch([{**at(1), "_replayed": False}, {**at(30), "_replayed": False}])
    run.batch([])
    run.batch([{**at(2), "_replayed": None}, {**at(3), "_replayed": True}])
    assert [missed for _, _, missed in run.missed] == [1]
    assert seen(run.corrections) == [("a", 0, 2)]


def test_updates_come_in_every_batch_that_changes_a_window() -> None:
    run = driver(count_kernel(10 * SECOND, emit="update"))
    run.batch([at(1), at(2), at(2, "b")])
    run.batch([at(3)])
    run.batch([at(11)])
    run.batch([])
    assert [seen(rows) for rows in run.by_batch] == [[("a", 0, 2), ("b", 0, 1)], [("a", 0, 3)], [("a", 10, 1)], []]


def prepared(kernel: Window, rows: list[Row]) -> list[list[pa.Table]]:
    table = pa.Table.from_pylist(rows, schema=kernel.input).append_column(BUCKET, pa.array([0] * len(rows), pa.int32()))
    return [[kernel.prepare(0, table).drop_columns([BUCKET])]]


class Watched(dict[int, pa.Table]):
    """State that notes which chunks are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def __getitem__(self, number: int) -> pa.Table:
        self.read.append(number)
        return super().__getitem__(number)

    def take(self, result: Result) -> None:
        for number in result.drop:
            del self[number]
        self.update(result.put)
        self.read.clear()


def test_the_least_watermark_that_closes_a_window_wakes() -> None:
    kernel = count_kernel(10 * SECOND)
    state = Watched()
    result = kernel.advance(state, prepared(kernel, [at(12), at(31)]), 0, NO_WATERMARK)
    assert result.wake == 20 * SECOND
    state.take(result)
    result = kernel.advance(state, [[]], 20 * SECOND, 0)
    assert seen(result.main.to_pylist()) == [("a", 10, 1)]
    assert result.wake == 40 * SECOND
    state.take(result)
    result = kernel.advance(state, [[]], 40 * SECOND, 20 * SECOND)
    assert (result.wake, result.put) == (None, {})
    state.take(result)
    assert state == {}


def test_sliding_windows_wake_for_each_of_them() -> None:
    kernel = count_kernel(10 * SECOND, 5 * SECOND)
    state = Watched()
    watermark, before, ends = 0, NO_WATERMARK, []
    result = kernel.advance(state, prepared(kernel, [at(12)]), watermark, before)
    while result.wake is not None:
        state.take(result)
        before, watermark = watermark, result.wake
        result = kernel.advance(state, [[]], watermark, before)
        ends.append((watermark // SECOND, result.main.num_rows))
    assert ends == [(15, 1), (20, 1)]


def test_a_window_that_opens_and_closes_in_one_batch_is_not_stored() -> None:
    kernel = count_kernel(10 * SECOND)
    result = kernel.advance({}, prepared(kernel, [at(1), at(2)]), 10 * SECOND, 0)
    assert seen(result.main.to_pylist()) == [("a", 0, 2)]
    assert (dict(result.put), list(result.drop), result.wake) == ({}, [], None)


def test_rows_of_open_windows_are_added_without_reading_or_writing_what_is_there() -> None:
    kernel = count_kernel(10 * SECOND)
    state = Watched()
    state.take(kernel.advance(state, prepared(kernel, [at(1, f"key {n}") for n in range(3000)]), 0, NO_WATERMARK))
    size = sum(table.nbytes for table in state.values())
    result = kernel.advance(state, prepared(kernel, [at(2, "key 7")]), 0, 0)
    assert state.read == []
    assert sum(table.nbytes for table in result.put.values()) < size / 100
    assert not result.drop


def test_rows_are_written_few_times_however_many_batches_there_are() -> None:
    kernel = count_kernel(10 * SECOND)
    state = Watched()
    written = 0
    for batch in range(200):
        result = kernel.advance(state, prepared(kernel, [at(1, f"{batch} {n}") for n in range(10)]), 0, 0)
        written += sum(table.num_rows for table in result.put.values())
        assert not set(result.put) & set(result.drop)
        state.take(result)
    assert written < 2000 * 8
    assert len(state) <= 7
    result = kernel.advance(state, [[]], 10 * SECOND, 0)
    assert result.main.num_rows == 2000


def test_short_windows_share_chunks() -> None:
    kernel = count_kernel(1000)
    result = kernel.advance({}, prepared(kernel, [at(n / 500) for n in range(500)]), 0, 0)
    assert len(result.put) <= 2


def test_many_rows_give_the_same_as_few() -> None:
    draw = random.Random(5)
    rows = [at(draw.randint(0, 600), f"key {min(draw.randint(0, 300), draw.randint(0, 300))}") for _ in range(20_000)]
    kernel, oracle = (
        count_kernel(60 * SECOND, 20 * SECOND),
        WindowOracle(["key"], [Aggregate("n", "count")], 60 * SECOND, 20 * SECOND),
    )
    run = driver(kernel, max_delay=300 * SECOND)
    drive(oracle, run, [rows[start : start + 5000] for start in range(0, 20_000, 5000)], 1000 * SECOND)


def test_a_window_without_keys_is_one_for_all_rows() -> None:
    kernel = Window(pa.schema([(TIME, pa.int64())]), (), (Aggregate("n", "count"),), 10 * SECOND)
    run = driver(kernel)
    run.batch([{TIME: 1}, {TIME: 2}])
    run.finish(10 * SECOND)
    assert [row["n"] for row in run.main] == [2]


def test_keys_may_come_as_references_into_a_dictionary() -> None:
    kernel = count_kernel(10 * SECOND)
    kernel = replace(kernel, input=pa.schema([(TIME, pa.int64()), ("key", pa.dictionary(pa.int32(), pa.string()))]))
    run = driver(kernel)
    run.batch([at(1), at(2, None)])
    run.batch([at(2, None)])
    run.finish(10 * SECOND)
    assert sorted((row["key"] or "", row["n"]) for row in run.main) == [("", 2), ("a", 1)]


def test_a_kernel_can_be_sent_to_where_the_rows_are() -> None:
    kernel = count_kernel(10 * SECOND)
    assert kernel.output
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    assert again.output == kernel.output


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"size": 10, "slide": 11}, {"size": 10, "slide": 0}, {"size": 10, "emit": "never"}]
)
def test_windows_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        count_kernel(**options)


def test_an_advance_must_know_by_what_the_rows_were_judged() -> None:
    with pytest.raises(ValueError, match="judged"):
        count_kernel(10).advance({}, [[]], 0)
