"""DEDUPE against an oracle, whatever the order, the cuts and the watermark; its state goes away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row
from tests.kernels.small_oracles import Clock, DedupeOracle, multiset

from penstock.kernels import dedupe, slots
from penstock.kernels.base import TIME
from penstock.kernels.dedupe import Dedupe

SCHEMA = pa.schema(
    [(TIME, pa.int64()), ("user", pa.string()), ("shard", pa.int64()), ("value", pa.string()), ("unused", pa.int64())]
)
MS = 1000


def row(time: int, user: str | None = "a", **others: Any) -> Row:
    empty: Row = dict.fromkeys(SCHEMA.names)
    return {**empty, TIME: time, "user": user, **others}


ROWS = st.builds(
    row,
    time=st.one_of(
        st.integers(-9, 9).map(lambda n: n * MS), st.integers(-9 * MS, 9 * MS), st.sampled_from([MS, MS + 1])
    ),
    user=st.sampled_from(["a", "a", "a", "b", "c", None]),
    shard=st.sampled_from([1, 1, 2, None]),
    value=st.sampled_from(["x", "y", "z", None]),
    unused=st.integers(0, 3),
)
BATCHES = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=5)


@given(
    batches=BATCHES,
    keys=st.sampled_from([("user",), ("user", "shard"), ("shard",)]),
    passed=st.sampled_from([("user", "shard", "value", TIME), ("value", TIME), ("value",)]),
    within=st.sampled_from([0, 1, 2 * MS, 5 * MS, 12 * MS + 1, 100 * MS]),
    exact=st.booleans(),
    step=st.sampled_from([0, 3 * MS, 3 * MS, 8 * MS]),
    delay=st.sampled_from([0, 2 * MS, 8 * MS, 50 * MS]),
    buckets=st.integers(1, 2),
    seed=st.integers(0, 99),
)
@settings(max_examples=CASES, deadline=None)
def test_gives_what_the_oracle_gives(
    batches: list[list[Row]],
    keys: tuple[str, ...],
    passed: tuple[str, ...],
    within: int,
    exact: bool,
    step: int,
    delay: int,
    buckets: int,
    seed: int,
) -> None:
    kernel = Dedupe(SCHEMA, keys, within, passed, exact=exact)
    driver = Driver(kernel, [SCHEMA], [keys], max_delay=delay, buckets=buckets, seed=seed)
    oracle = DedupeOracle(Clock(delay), keys, passed, within)
    for number, rows in enumerate(batches):
        batch = [{**one, TIME: one[TIME] + number * step} for one in rows]
        driver.batch(batch)
        out = oracle.batch(batch)
        if not exact:
            assert multiset(driver.by_batch[-1]) == multiset(out)
    driver.finish(1 << 50)
    if exact:
        assert multiset(driver.main) == multiset(oracle.exact())
    assert multiset([late for _, late, _ in driver.missed]) == multiset(oracle.late)
    assert driver.chunk_count() == 0


def run(kernel: Dedupe, *batches: list[Row], **how: Any) -> Driver:
    driver = Driver(kernel, [SCHEMA], [kernel.keys], **how)
    for batch in batches:
        driver.batch(batch)
    return driver


def times(rows: list[Row]) -> list[int]:
    return sorted(one[TIME] // MS for one in rows)


def test_rows_wait_for_the_watermark() -> None:
    kernel = Dedupe(SCHEMA, ("user",), 10 * MS, (TIME,))
    driver = run(kernel, [row(20 * MS)], [row(15 * MS)], [row(26 * MS)], [], max_delay=5 * MS)
    assert [times(rows) for rows in driver.by_batch] == [[], [15], [], []]
    driver.finish(100 * MS)
    assert times(driver.main) == [15, 26]


def test_at_once_the_first_to_come_is_kept() -> None:
    kernel = Dedupe(SCHEMA, ("user",), 10 * MS, (TIME,), exact=False)
    driver = run(kernel, [row(20 * MS)], [row(15 * MS), row(9 * MS)], [row(30 * MS), row(31 * MS)], max_delay=50 * MS)
    assert [times(rows) for rows in driver.by_batch] == [[20], [9], [31]]


@pytest.mark.parametrize("exact", [True, False])
def test_a_long_chain_of_one_key(exact: bool) -> None:
    kernel = Dedupe(SCHEMA, ("user",), 3, (TIME,), exact=exact)
    driver = run(kernel, [row(number) for number in range(5000)], buckets=1)
    driver.finish(1 << 50)
    assert sorted(one[TIME] for one in driver.main) == list(range(0, 5000, 4))


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_kept_is_known_while_others_in_its_chunk_are_forgotten(exact: bool) -> None:
    kernel = Dedupe(SCHEMA, ("user",), 10 * MS, (TIME,), exact=exact)
    driver = run(kernel, [row(0, "a"), row(9 * MS, "b")], [], [row(11 * MS, "c")], [], [row(18 * MS, "b")], buckets=1)
    driver.finish(1 << 50)
    assert times(driver.main) == [0, 9, 11]


def test_times_may_be_centuries_apart() -> None:
    kernel = Dedupe(SCHEMA, ("user",), 1, (TIME,), exact=False)
    ages = [-62135596800000000, 0, 253402300799999999]
    driver = run(kernel, [row(time) for time in ages] * 2, buckets=1)
    assert sorted(one[TIME] for one in driver.main) == ages


def test_chains_are_found_as_by_a_loop() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        count = int(random.integers(1, 60))
        codes = np.sort(random.integers(0, 4, count))
        instants = random.integers(0, 100, count)
        instants = instants[np.lexsort((instants, codes))]
        within = int(random.integers(0, 20))
        expected, last = [], None
        for code, time in zip(codes, instants, strict=True):
            expected.append(last is None or last[0] != code or time > last[1] + within)
            last = (code, time) if expected[-1] else last
        new = np.append(True, codes[1:] != codes[:-1])
        assert dedupe._chained(instants, new, within).tolist() == expected


@pytest.mark.parametrize("exact", [True, False])
def test_state_stays_small(exact: bool) -> None:
    """Chunks are few, written few times, and gone when the watermark has passed them."""
    kernel = Dedupe(SCHEMA, ("user",), 50 * MS, (TIME, "value"), exact=exact)
    driver = Driver(kernel, [SCHEMA], [("user",)], max_delay=20 * MS, buckets=1)
    for number in range(300):
        driver.batch([row(number * MS + one, f"{number}/{one}", value="x" * 20) for one in range(10)])
        rows = sum(table.num_rows for n, table in driver.state[0].tables().items() if n >= 0)
        assert driver.chunk_count() <= 20
        assert rows <= 10 * (2 * 50 + 2 * 20 + 10)
    steady = driver.written[100:]
    assert sum(steady) / len(steady) < 10 * 60 * 8 * 2
    driver.finish(1 << 50)
    assert driver.chunk_count() == 0


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "PART_ROWS", 8)
    kernel = Dedupe(SCHEMA, ("user",), 1000 * MS, (TIME,))
    driver = run(kernel, *([row(n * MS, f"{n}")] for n in range(100)), max_delay=50 * MS, buckets=1)
    chunks = driver.state[0].tables()
    assert all(table.num_rows <= 8 for number, table in chunks.items() if number >= 0)
    driver.finish(500 * MS)
    assert times(driver.main) == list(range(100))
    driver.batch([row(600 * MS, f"{n}") for n in range(100)])
    driver.finish(1 << 50)
    assert times(driver.main) == list(range(100))
    assert driver.chunk_count() == 0


def test_waiting_rows_are_not_read_before_their_time() -> None:
    class Watched(dict[int, pa.Table]):
        asked: list[int] = []

        def __getitem__(self, number: int) -> pa.Table:
            self.asked.append(number)
            return super().__getitem__(number)

    kernel = Dedupe(SCHEMA, ("user",), 10 * MS, (TIME,))
    driver = run(kernel, [row(90 * MS + n) for n in range(50)], buckets=1)
    state = Watched(driver.state[0].tables())
    result = kernel.advance(state, [[]], 80 * MS)
    assert state.asked == [-1]
    assert (result.put, list(result.drop), result.wake) == ({}, [], 90 * MS)
