"""The interval join against an oracle, at its edges, and what it keeps."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row
from tests.kernels.join_oracle import IntervalJoinOracle, chosen

from penstock.kernels import interval_join, join_runs, matching
from penstock.kernels.base import BUCKET, NO_WATERMARK, TIME
from penstock.kernels.interval_join import IntervalJoin
from penstock.kernels.stable_hash import key_hash

LEFT = pa.schema([(TIME, pa.int64()), ("k", pa.string()), ("j", pa.int32()), ("v", pa.int64()), ("x", pa.string())])
RIGHT = pa.schema([(TIME, pa.int64()), ("kk", pa.string()), ("jj", pa.int32()), ("w", pa.int64())])
KERNEL = IntervalJoin(
    left=LEFT,
    right=RIGHT,
    left_keys=("k", "j"),
    right_keys=("kk", "jj"),
    how="full",
    lower=-1000,
    upper=2000,
    left_out=(("k", "k"), (TIME, "left_time"), ("v", "v")),
    right_out=(("w", "w"), (TIME, "right_time"), ("kk", "kk")),
    small_run=2,
    chunk_rows=3,
)


@pytest.fixture(autouse=True, scope="module")
def _small_scale() -> Iterator[None]:
    """Everything that is bounded is so at once."""
    with patch.object(interval_join, "LEAST_SEGMENT", 500), patch.object(matching, "PAIRS_AT_ONCE", 3):
        yield


def weak_hash(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Sends different keys to the same hash."""
    return key_hash(columns) % np.uint64(2)


def driver(kernel: IntervalJoin, **options: Any) -> Driver:
    return Driver(kernel, (kernel.left, kernel.right), (kernel.left_keys, kernel.right_keys), **options)


def left(time: int, k: str | None = "a", j: int | None = 1, v: int = 0) -> Row:
    return {TIME: time, "k": k, "j": j, "v": v, "x": "not needed"}


def right(time: int, kk: str | None = "a", jj: int | None = 1, w: int = 0) -> Row:
    return {TIME: time, "kk": kk, "jj": jj, "w": w}


def counted(rows: Sequence[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


@dataclass
class Case:
    how: str
    lower: int
    upper: int
    max_delay: int
    batches: list[tuple[list[Row], list[Row]]]
    small_run: int
    chunk_rows: int
    weak: bool
    seed: int


RESTS, NAMES, NUMBERS = [0, 0, 0, 1, 500, 999], ["a", "a", "a", "b", "c", None], [1, 1, 1, 1, 2, None]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    bounds = sorted(draw(st.tuples(*[st.sampled_from([-9000, -2500, -1000, -1, 0, 0, 1, 1000, 3000, 9000])] * 2)))
    span = draw(st.sampled_from([4, 12, 40]))
    rows = st.lists(st.integers(0, 2**30), max_size=draw(st.sampled_from([3, 10])))
    batches: list[tuple[list[Row], list[Row]]] = []
    for cut in draw(st.lists(rows, min_size=1, max_size=5)):
        pair: tuple[list[Row], list[Row]] = ([], [])
        for index, number in enumerate(cut):
            is_right, ms, rest, name, j = chosen(number, [0, 1], range(-2, span), RESTS, NAMES, NUMBERS)
            serial = len(batches) * 100 + index
            pair[is_right].append((left, right)[is_right](ms * 1000 + rest, name, j, serial))
        batches.append(pair)
    return Case(
        how=draw(st.sampled_from(["inner", "left", "right", "full"])),
        lower=bounds[0],
        upper=bounds[1],
        max_delay=draw(st.sampled_from([0, 1000, 5000])),
        batches=batches,
        small_run=draw(st.sampled_from([1, 2, 4])),
        chunk_rows=draw(st.sampled_from([1, 3, 100])),
        weak=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
    )


@given(cases())
@settings(max_examples=CASES, deadline=None)
def test_every_batch_gives_what_the_oracle_gives(case: Case) -> None:
    kernel = replace(
        KERNEL,
        how=case.how,
        lower=case.lower,
        upper=case.upper,
        small_run=case.small_run,
        chunk_rows=case.chunk_rows,
    )
    run = driver(kernel, max_delay=case.max_delay, seed=case.seed, buckets=2)
    oracle = IntervalJoinOracle(
        (kernel.left_keys, kernel.right_keys),
        case.how,
        case.lower,
        case.upper,
        (kernel.left_out, kernel.right_out),
        case.max_delay,
    )
    with patch.object(join_runs, "key_hash", weak_hash if case.weak else key_hash):
        for lefts, rights in case.batches:
            before = run.before
            run.batch(lefts, rights)
            assert counted(run.by_batch[-1]) == counted(oracle.batch(lefts, rights))
            for row in run.by_batch[-1]:
                time = row["left_time"] if row["left_time"] is not None else row["right_time"]
                assert time > before - kernel.hold
        run.finish(10**9)
    assert counted(run.by_batch[-1]) == counted(oracle.finish(10**9))
    assert Counter((side, repr(row)) for side, row, _ in run.missed) == Counter(
        (side, repr(row)) for side, row in oracle.late
    )
    assert run.chunk_count() == 0
    assert set(run.wakes.values()) <= {None}


@pytest.mark.parametrize(("distance", "matches"), [(-1001, 0), (-1000, 1), (0, 1), (2000, 1), (2001, 0)])
def test_both_ends_of_the_interval_belong_to_it(distance: int, matches: int) -> None:
    run = driver(replace(KERNEL, how="inner"), max_delay=100_000)
    run.batch([left(50_000)], [])
    run.batch([], [right(50_000 + distance)])
    assert len(run.main) == matches


def advanced(kernel: IntervalJoin, lefts: list[Row], rights: list[Row], watermark: int) -> Any:
    tables = [
        [pa.Table.from_pylist(rows, schema=schema)] if rows else []
        for rows, schema in ((lefts, kernel.left), (rights, kernel.right))
    ]
    return kernel.advance({}, tables, watermark)


@pytest.mark.parametrize("is_left", [True, False])
def test_a_lonely_row_leaves_at_the_first_watermark_that_rules_out_partners(is_left: bool) -> None:
    """A right row at the watermark + 1 is timely, so a left row at time t may still meet one at t + upper before."""
    reach = KERNEL.upper if is_left else -KERNEL.lower
    rows = ([left(7000)], []) if is_left else ([], [right(7000)])
    early = advanced(KERNEL, *rows, watermark=7000 + reach - 1)
    assert early.main.num_rows == 0
    assert early.wake == 7000 + reach
    assert early.put
    due = advanced(KERNEL, *rows, watermark=7000 + reach)
    assert due.main.num_rows == 1
    assert due.wake is None
    assert not due.put
    woken = KERNEL.advance(early.put, [[], []], 7000 + reach)
    assert woken.main.equals(due.main)
    assert set(woken.drop) == set(early.put)


def test_the_last_possible_partner_is_met() -> None:
    kernel = replace(KERNEL, how="left")
    first = advanced(kernel, [left(7000)], [], watermark=8999)
    last = kernel.advance(first.put, [[], [pa.Table.from_pylist([right(9000)], schema=RIGHT)]], 9500)
    assert [(row["left_time"], row["right_time"]) for row in last.main.to_pylist()] == [(7000, 9000)]
    assert last.wake is None or last.wake > 9500


def test_an_idle_bucket_is_woken_in_the_batch_where_a_row_is_due() -> None:
    run = driver(replace(KERNEL, how="left"), buckets=7)
    run.batch([left(1000, "a")], [])
    run.batch([left(2000, "zzz")], [])
    run.batch([left(3000, "zzz")], [])
    run.batch([left(4000, "zzz")], [])
    assert [[row["k"] for row in batch] for batch in run.by_batch] == [[], [], [], ["a"]]


def test_a_row_given_alone_is_not_given_again_when_its_neighbour_finds_a_partner() -> None:
    run = driver(replace(KERNEL, how="left", small_run=10, chunk_rows=10), max_delay=3000, buckets=1)
    run.batch([left(1000), left(5000), left(6500)], [])
    run.batch([], [])
    run.batch([], [right(4500)])
    run.batch([], [])
    run.finish(10**6)
    assert [row["left_time"] for row in run.main] == [1000, 5000, 6500]


def test_null_keys_equal_nothing_and_are_given_at_once() -> None:
    run = driver(KERNEL)
    run.batch(
        [left(1000, None, v=1), left(1000, "a", None, v=2)], [right(1000, None, w=3), right(1000, "a", None, w=4)]
    )
    assert sorted((row["v"], row["w"]) for row in run.main if row["v"] is not None) == [(1, None), (2, None)]
    assert sorted((row["w"], row["v"]) for row in run.main if row["w"] is not None) == [(3, None), (4, None)]
    assert run.chunk_count() == 0


def test_null_keys_are_not_even_sent_where_they_are_not_given() -> None:
    kernel = replace(KERNEL, how="left")
    rows = pa.Table.from_pylist([{**right(1, None), BUCKET: 0}], schema=RIGHT.append(pa.field(BUCKET, pa.int32())))
    assert kernel.prepare(1, rows).num_rows == 0
    assert kernel.prepare(1, rows).column_names == [TIME, "kk", "jj", "w", BUCKET]


@pytest.mark.parametrize(
    ("how", "lower", "upper", "hold"),
    [
        ("inner", -5000, 3000, 3000),
        ("left", -5000, 3000, 3000),
        ("right", -5000, 3000, 5000),
        ("full", -5000, 3000, 5000),
        ("full", 1000, 3000, 3000),
        ("inner", -5000, -3000, 0),
        ("right", -5000, -3000, 5000),
        ("inner", 0, 0, 0),
    ],
)
def test_rows_are_held_no_longer_than_needed(how: str, lower: int, upper: int, hold: int) -> None:
    kernel = replace(KERNEL, how=how, lower=lower, upper=upper)
    assert kernel.hold == hold
    watermark = 100_000
    lags = []
    for time in (watermark - hold + 1, watermark - upper + 1):
        for new in (time + lower, time + upper):
            if new > watermark >= time:
                stored = advanced(kernel, [left(time)], [], watermark)
                table = pa.Table.from_pylist([right(new)], schema=RIGHT)
                lags += [
                    (watermark - time, row) for row in kernel.advance(stored.put, [[], [table]], watermark).main["k"]
                ]
    if how in ("right", "full") and -lower > 0:
        stored = advanced(kernel, [], [right(watermark + lower + 1)], watermark)
        late = kernel.advance(stored.put, [[], []], watermark + 1)
        lags += [(watermark - row.as_py(), row) for row in late.main["right_time"]]
    assert max((lag for lag, _ in lags), default=-1) == hold - 1


def test_pairs_are_given_once_however_the_rows_are_cut() -> None:
    lefts = [left(1000 * (n % 7), "ab"[n % 2], v=n) for n in range(20)]
    rights = [right(900 * (n % 9), "ab"[n % 2], w=n) for n in range(20)]
    whole = driver(replace(KERNEL, how="full"), max_delay=10**6)
    whole.batch(lefts, rights)
    whole.finish(10**7)
    for size in (1, 3, 7):
        cut = driver(replace(KERNEL, how="full"), max_delay=10**6)
        for start in range(0, 20, size):
            cut.batch(lefts[start : start + size], rights[start : start + size])
        cut.finish(10**7)
        assert counted(cut.main) == counted(whole.main)


KEYS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [1, -1],
    pa.uint64(): [1, 2**63],
    pa.float64(): [1.5, float("inf")],
    pa.date32(): [dt.date(2024, 1, 1), dt.date(1960, 1, 1)],
    pa.timestamp("us", "UTC"): [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)],
    pa.decimal128(30, 2): [Decimal("1.25"), Decimal("-12345678901234567890.25")],
    pa.string(): ["", "a" * 100],
    pa.large_string(): ["é", "a"],
    pa.binary(): [b"\x00", b""],
    pa.binary(3): [b"abc", b"abd"],
}


@pytest.mark.parametrize("kind", list(KEYS), ids=str)
def test_keys_of_any_type(kind: pa.DataType) -> None:
    schema = pa.schema([(TIME, pa.int64()), ("k", kind), ("v", pa.int64())])
    kernel = IntervalJoin(schema, schema, ("k",), ("k",), "inner", 0, 0, (("v", "v"),), (("v", "w"),))
    run = driver(kernel, max_delay=1000)
    rows = [{TIME: 5, "k": key, "v": n} for n, key in enumerate([*KEYS[kind], None])]
    run.batch(rows, [])
    run.batch([], rows)
    assert sorted((row["v"], row["w"]) for row in run.main) == [(0, 0), (1, 1)]


def test_a_batch_reads_and_writes_only_what_it_must() -> None:
    kernel = replace(KERNEL, how="full", lower=-10_000, upper=10_000, small_run=4, chunk_rows=64)
    state: dict[int, pa.Table] = {}
    for start in range(0, 100_000, 500):
        rows = [left(start + n, f"k{n}", v=n) for n in range(20)], [right(start + n, f"q{n}", w=n) for n in range(20)]
        tables = [[pa.Table.from_pylist(part, schema=s)] for part, s in zip(rows, (LEFT, RIGHT), strict=True)]
        result = kernel.advance(state, tables, 0)
        for number in result.drop:
            del state[number]
        state.update(result.put)
    read: list[int] = []

    class Watched(dict[int, pa.Table]):
        def __getitem__(self, number: int) -> pa.Table:
            read.append(number)
            return super().__getitem__(number)

    partner = pa.Table.from_pylist([right(50_000, "k3", w=-1)], schema=RIGHT)
    result = kernel.advance(Watched(state), [[], [partner]], 0)
    assert result.main.num_rows == 40
    assert len(read) < len(state) / 4
    assert sum(table.nbytes for table in result.put.values()) < sum(t.nbytes for t in state.values()) / 4
    flags = [table for table in result.put.values() if table.column_names == ["matched"]]
    assert flags
    assert all(table.schema.field(0).type == pa.bool_() for table in flags)
    bulk = [table for table in result.put.values() if "v" in table.column_names]
    assert not bulk, "left rows are not rewritten because they have found a partner"


def test_runs_stay_few_and_rows_are_rewritten_seldom() -> None:
    kernel = replace(KERNEL, how="inner", lower=0, upper=10**9, small_run=64, chunk_rows=1000)
    state: dict[int, pa.Table] = {}
    written = 0
    for n in range(256):
        rows = pa.Table.from_pylist([left(n * 1000 + i, f"k{i}") for i in range(8)], schema=LEFT)
        result = kernel.advance(state, [[rows], []], NO_WATERMARK)
        for number in result.drop:
            del state[number]
        state.update(result.put)
        written += sum(table.num_rows for number, table in result.put.items() if number)
    assert sum(table.num_rows for number, table in state.items() if number) == 256 * 8
    assert len(state) <= 30
    assert written <= 256 * 8 * 12


def test_state_is_bounded_by_what_can_still_match() -> None:
    kernel = replace(KERNEL, how="full", lower=-20_000, upper=20_000, small_run=8, chunk_rows=64)
    run = driver(kernel, max_delay=1000, buckets=1)
    sizes = []
    for n in range(150):
        start = n * 1000
        run.batch(
            [left(start + i, f"k{i % 5}", v=i) for i in range(10)], [right(start + i, f"q{i % 5}") for i in range(10)]
        )
        sizes.append(
            sum(t.num_rows for number, t in run.state[0].tables().items() if number and TIME in t.column_names)
        )
    assert max(sizes) <= 2 * 2 * 10 * 23, "at most twice what is alive"
    run.finish(10**8)
    assert run.chunk_count() == 0


def test_order_of_tables_and_rows_does_not_matter() -> None:
    kernel = replace(KERNEL, how="full")
    rows = [left(1000 * (n % 4), "ab"[n % 2], v=n) for n in range(12)]
    others = [right(1000 * (n % 5), "ab"[n % 2], w=n) for n in range(12)]
    one = advanced(kernel, rows, others, 1500)
    tables = [
        [pa.Table.from_pylist(part, schema=schema) for part in (rows[6:][::-1], rows[:6])]
        for rows, schema in ((rows, LEFT), (others, RIGHT))
    ]
    other = kernel.advance({}, tables, 1500)
    assert counted(one.main.to_pylist()) == counted(other.main.to_pylist())
    assert one.wake == other.wake


@pytest.mark.parametrize(
    "change",
    [
        {"how": "outer"},
        {"lower": 5, "upper": 4},
        {"left_keys": ()},
        {"left_keys": ("k",)},
        {"left_keys": ("j", "k")},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        replace(KERNEL, **change)


def test_kernels_travel() -> None:
    assert KERNEL.output.names
    assert pickle.loads(pickle.dumps(KERNEL)) == KERNEL
