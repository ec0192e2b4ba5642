"""The session kernel against plain Python: all rows of every batch, late rows, and what is kept."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Row
from tests.kernels.window_oracle import KEYS, VALUES, SessionOracle, choices, draw_batches, drive, driver, small_limits

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import BUCKET, TIME, Result
from penstock.kernels.session import Session

SECOND = 1_000_000
CHOICES = choices()


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 1 << 48).map(random.Random))
def test_sessions_hold_all_timely_rows(draw: random.Random) -> None:
    unit = draw.choice([2, 1000, SECOND, 60 * SECOND])
    keys = tuple(draw.sample(sorted(KEYS), draw.choice([0, 1, 1, 1, 2])))
    aggregates = tuple(draw.sample(CHOICES, draw.choice([1, 1, 2])))
    columns = list(dict.fromkeys(item.column for item in aggregates if item.column is not None))
    fields = [(key, KEYS[key][0]) for key in keys] + [(name, VALUES[name][0]) for name in columns]
    gap = draw.randint(1, 12) * unit
    kernel = Session(pa.schema([(TIME, pa.int64()), *fields]), keys, aggregates, gap)
    delay = draw.choice([0, 0, 3, 10, 40]) * unit
    run = driver(kernel, max_delay=delay, buckets=draw.choice([1, 2, 3]), seed=draw.randint(0, 1 << 30))
    values = {name: (KEYS[name] if name in KEYS else VALUES[name])[1] for name in (*keys, *columns)}
    batches = draw_batches(draw, unit, delay, 2 * gap, values)
    newest = max((row[TIME] for rows in batches for row in rows), default=0)
    with small_limits(draw):
        drive(SessionOracle(keys, aggregates, gap), run, batches, newest + gap)
    assert run.chunk_count() == 0
    assert set(run.wakes.values()) <= {None}


def count_kernel(gap: int) -> Session:
    schema = pa.schema([(TIME, pa.int64()), ("key", pa.string())])
    return Session(schema, ("key",), (Aggregate("n", "count"),), gap)


def at(seconds: float, key: str | None = "a") -> Row:
    return {TIME: round(seconds * SECOND), "key": key}


def seen(rows: Iterable[Row]) -> list[tuple[str | None, float, float, int]]:
    """Key, start and end in seconds, and count of results."""
    return sorted(
        (row["key"], row["window_start"].timestamp(), row["window_end"].timestamp(), row["n"]) for row in rows
    )


def test_rows_as_far_apart_as_the_gap_are_in_one_session() -> None:
    run = driver(count_kernel(10 * SECOND))
    run.batch([at(0), at(10), at(20.000001)])
    run.finish(100 * SECOND)
    assert seen(run.main) == [("a", 0, 20, 2), ("a", 20.000001, 30.000001, 1)]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    run = driver(count_kernel(10 * SECOND), max_delay=60 * SECOND)
    run.batch([at(0), at(15)])
    run.batch([at(8)])
    run.finish(100 * SECOND)
    assert seen(run.main) == [("a", 0, 25, 3)]


def test_a_session_that_ends_at_the_watermark_is_closed_and_takes_no_more_rows() -> None:
    run = driver(count_kernel(10 * SECOND), buckets=1)
    run.batch([at(0), at(5), at(15, "b")])
    run.batch([at(5.5)])
    assert seen(run.main) == []
    run.batch([at(25, "b")])
    run.batch([])
    assert seen(run.main) == [("a", 0, 15.5, 3)]
    run.batch([at(15.5), at(14.9)])
    assert [missed for _, _, missed in run.missed] == [1]
    run.finish(100 * SECOND)
    assert seen(run.main) == [("a", 0, 15.5, 3), ("a", 15.5, 25.5, 1), ("b", 15, 35, 2)]


def prepared(kernel: Session, rows: list[Row]) -> list[list[pa.Table]]:
    table = pa.Table.from_pylist(rows, schema=kernel.input).append_column(BUCKET, pa.array([0] * len(rows), pa.int32()))
    return [[kernel.prepare(0, table).drop_columns([BUCKET])]]


def applied(state: dict[int, pa.Table], result: Result) -> None:
    for number in result.drop:
        del state[number]
    state.update(result.put)


def test_the_end_of_the_first_session_to_end_wakes() -> None:
    kernel = count_kernel(10 * SECOND)
    state: dict[int, pa.Table] = {}
    result = kernel.advance(state, prepared(kernel, [at(1), at(4), at(2, "b")]), 0)
    assert result.wake == 12 * SECOND
    applied(state, result)
    result = kernel.advance(state, [[]], 12 * SECOND)
    assert seen(result.main.to_pylist()) == [("b", 2, 12, 1)]
    assert result.wake == 14 * SECOND
    applied(state, result)
    applied(state, kernel.advance(state, [[]], 14 * SECOND))
    assert state == {}


def test_a_session_without_end_keeps_little() -> None:
    kernel = count_kernel(10 * SECOND)
    state: dict[int, pa.Table] = {}
    kept = []
    for second in range(0, 1000, 3):
        result = kernel.advance(state, prepared(kernel, [at(second)]), (second - 5) * SECOND)
        assert result.main.num_rows == 0
        applied(state, result)
        kept.append(sum(table.num_rows for table in state.values()))
    assert max(kept) < 30
    result = kernel.advance(state, [[]], 2000 * SECOND)
    assert seen(result.main.to_pylist()) == [("a", 0, 1009, 334)]


def test_nothing_is_read_or_rewritten_while_no_session_may_end() -> None:
    kernel = count_kernel(10 * SECOND)
    state: dict[int, pa.Table] = {}
    applied(state, kernel.advance(state, prepared(kernel, [at(5, f"key {n}") for n in range(3000)]), 0))
    result = kernel.advance(state, prepared(kernel, [at(6, "key 7")]), 1)
    assert sum(table.num_rows for table in result.put.values()) == 2
    assert not result.drop


def test_many_rows_give_the_same_as_few() -> None:
    draw = random.Random(5)
    rows = [at(draw.random() * 600, f"key {min(draw.randint(0, 300), draw.randint(0, 300))}") for _ in range(12_000)]
    run = driver(count_kernel(8 * SECOND), max_delay=200 * SECOND)
    oracle = SessionOracle(["key"], [Aggregate("n", "count")], 8 * SECOND)
    rows.sort(key=lambda row: row[TIME] + draw.randint(0, 100) * SECOND)
    drive(oracle, run, [rows[start : start + 3000] for start in range(0, 12_000, 3000)], 1000 * SECOND)
    assert run.chunk_count() == 0


def test_a_row_is_late_when_a_session_of_its_own_would_end_at_the_watermark() -> None:
    rows = pa.Table.from_pylist([at(1), at(1.000001)], schema=count_kernel(1).input)
    late = count_kernel(10 * SECOND).late(0, rows, 11 * SECOND)
    assert late.missed.tolist() == [1, 0]
    assert late.dropped.tolist() == [True, False]


def test_sessions_need_a_gap() -> None:
    with pytest.raises(ValueError, match="gap"):
        count_kernel(0)


def test_a_kernel_can_be_sent_to_where_the_rows_are() -> None:
    kernel = count_kernel(10 * SECOND)
    assert kernel.output
    assert pickle.loads(pickle.dumps(kernel)) == kernel
