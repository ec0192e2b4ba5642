"""TOP_N against an oracle, whatever the order, the cuts and the watermark; its state stays small."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row
from tests.kernels.small_oracles import Clock, TopNOracle, multiset

from penstock.kernels import slots
from penstock.kernels.base import BUCKET, TIME
from penstock.kernels.top_n import TopN

SCHEMA = pa.schema(
    [
        (TIME, pa.int64()),
        ("user", pa.string()),
        ("shard", pa.int64()),
        ("score", pa.float64()),
        ("name", pa.string()),
        ("unused", pa.int64()),
    ]
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
    user=st.sampled_from(["a", "a", "a", "b", None]),
    shard=st.sampled_from([1, 1, 2, None]),
    score=st.sampled_from([1.0, 2.0, 2.0, 3.0, -1.5, None]),
    name=st.sampled_from(["x", "y", "z", None]),
    unused=st.integers(0, 3),
)
BATCHES = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=5)


@given(
    batches=BATCHES,
    keys=st.sampled_from([("user",), ("user", "shard"), ()]),
    n=st.sampled_from([1, 2, 3]),
    order=st.sampled_from(
        [(("score", True),), (("score", False),), (("name", True), ("score", False)), ((TIME, True),), ()]
    ),
    size=st.sampled_from([1 * MS, 5 * MS, 7 * MS + 3]),
    passed=st.sampled_from([("user", "shard", "name", "score"), ("name",), (TIME, "name")]),
    allowed=st.sampled_from([0, 0, 4 * MS, 11 * MS, 1000 * MS]),
    step=st.sampled_from([0, 3 * MS, 3 * MS, 8 * MS]),
    delay=st.sampled_from([0, 2 * MS, 8 * MS, 50 * MS]),
    buckets=st.integers(1, 2),
    seed=st.integers(0, 99),
)
@settings(max_examples=CASES, deadline=None)
def test_gives_what_the_oracle_gives(
    batches: list[list[Row]],
    keys: tuple[str, ...],
    n: int,
    order: tuple[tuple[str, bool], ...],
    size: int,
    passed: tuple[str, ...],
    allowed: int,
    step: int,
    delay: int,
    buckets: int,
    seed: int,
) -> None:
    kernel = TopN(SCHEMA, keys, n, order, size, passed, allowed)
    driver = Driver(kernel, [SCHEMA], [keys], max_delay=delay, buckets=buckets, seed=seed)
    oracle = TopNOracle(Clock(delay), keys, passed, n, order, size, allowed)
    for number, rows in enumerate(batches):
        batch = [{**one, TIME: one[TIME] + number * step} for one in rows]
        driver.batch(batch)
        oracle.batch(batch)
        assert multiset(driver.main) == multiset(oracle.main)
        assert multiset(driver.corrections) == multiset(oracle.corrections)
    oracle.clock.jump(1 << 50)
    oracle.batch([])
    driver.finish(1 << 50)
    assert multiset(driver.main) == multiset(oracle.main)
    assert multiset(driver.corrections) == multiset(oracle.corrections)
    assert multiset([late for _, late, _ in driver.missed]) == multiset(oracle.late)
    assert driver.chunk_count() == 0


def run(kernel: TopN, *batches: list[Row], **how: Any) -> Driver:
    driver = Driver(kernel, [SCHEMA], [kernel.keys], **how)
    for batch in batches:
        driver.batch(batch)
    return driver


def ranked(rows: list[Row]) -> list[tuple[int, Any]]:
    return sorted((one["rank"], one["name"]) for one in rows)


BEST_TWO = TopN(SCHEMA, ("user",), 2, (("score", True),), 10 * MS, ("name",))


def test_gives_window_and_rank_when_the_window_closes() -> None:
    driver = run(
        BEST_TWO,
        [row(1 * MS, score=1.0, name="x"), row(2 * MS, score=3.0, name="y"), row(3 * MS, score=2.0, name="z")],
        [row(10 * MS, score=9.0, name="next")],
        [],
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    window = {"window_start": epoch, "window_end": epoch + timedelta(milliseconds=10)}
    assert [len(rows) for rows in driver.by_batch] == [0, 0, 2]
    assert driver.by_batch[2] == [{"name": "y", **window, "rank": 1}, {"name": "z", **window, "rank": 2}]


def test_nan_is_greatest_and_null_always_last() -> None:
    rows = [
        row(1, score=float("nan"), name="nan"),
        row(2, score=float("inf"), name="inf"),
        row(3, score=None, name="null"),
    ]
    for descending, names in ((True, ["nan", "inf", "null"]), (False, ["inf", "nan", "null"])):
        driver = run(TopN(SCHEMA, ("user",), 3, (("score", descending),), MS, ("name",)), rows)
        driver.finish(1 << 50)
        assert [name for _, name in ranked(driver.main)] == names


def test_a_late_row_that_gets_into_a_list_corrects_it() -> None:
    kernel = TopN(SCHEMA, ("user",), 2, (("score", True),), 10 * MS, ("name",), allowed=20 * MS)
    driver = run(
        kernel,
        [row(1 * MS, score=1.0, name="x"), row(2 * MS, score=3.0, name="y"), row(15 * MS, "b")],
        [],
        [row(3 * MS, score=0.5, name="not good enough")],
        [row(4 * MS, score=2.0, name="z"), row(4 * MS, "new", score=1.0, name="n")],
        [row(60 * MS, "b")],
        [],
        [row(5 * MS, score=9.0, name="too late")],
    )
    assert ranked(driver.by_batch[1]) == [(1, "y"), (2, "x")]
    assert driver.by_batch[3] == []
    assert ranked(driver.corrections) == [(1, "n"), (1, "y"), (2, "z")]
    assert [late["name"] for _, late, _ in driver.missed] == ["too late"]


def test_a_window_that_ends_at_the_watermark_before_is_corrected() -> None:
    kernel = TopN(SCHEMA, ("user",), 1, (("score", True),), 10 * MS, ("name",), allowed=20 * MS)
    driver = run(kernel, [row(1 * MS, score=1.0, name="x"), row(10 * MS)], [], [row(3 * MS, score=2.0, name="y")])
    assert ranked(driver.by_batch[1]) == [(1, "x")]
    assert driver.by_batch[2] == []
    assert ranked(driver.corrections) == [(1, "y")]


def test_prepare_sends_no_more_than_can_be_listed() -> None:
    rows = [row(n % 20 * MS, f"{n % 3}", score=float(n)) for n in range(600)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA).append_column(BUCKET, pa.array([0] * 600, pa.int32()))
    assert BEST_TWO.prepare(0, table).num_rows == 2 * 2 * 3


def test_state_holds_only_candidates() -> None:
    driver = Driver(BEST_TWO, [SCHEMA], [("user",)], buckets=1, max_delay=30 * MS)
    for number in range(400):
        driver.batch([row(number * MS // 4, f"{one % 2}", score=float(one), name=f"{number}") for one in range(5)])
        tables = driver.state[0].tables()
        windows = len(set().union(*(t.column("_window").to_pylist() for n, t in tables.items() if n >= 0)))
        assert sum(table.num_rows for n, table in tables.items() if n >= 0) <= 2 * 2 * windows * 4
        assert len(tables) <= 12
    assert sum(driver.written[200:]) / 200 < 3000
    driver.finish(1 << 50)
    assert driver.chunk_count() == 0


def test_lists_given_stay_known_while_others_in_their_chunk_are_forgotten() -> None:
    kernel = TopN(SCHEMA, ("user",), 1, (("score", True),), 10 * MS, ("name",), allowed=20 * MS)
    first = [row(1 * MS, score=5.0, name="x"), row(11 * MS, score=5.0, name="y"), row(20 * MS)]
    driver = run(kernel, first, [row(35 * MS, "b")], [], [row(12 * MS, score=4.0, name="worse")], [], buckets=1)
    assert (driver.corrections, driver.missed) == ([], [])
    driver.batch([row(13 * MS, score=6.0, name="better")])
    assert ranked(driver.corrections) == [(1, "better")]


def test_open_windows_are_not_read_for_new_rows() -> None:
    class Watched(dict[int, pa.Table]):
        asked: list[int] = []

        def __getitem__(self, number: int) -> pa.Table:
            self.asked.append(number)
            return super().__getitem__(number)

    driver = run(BEST_TWO, [row(90 * MS, f"{n}", score=1.0) for n in range(50)], buckets=1)
    state = Watched(driver.state[0].tables())
    table = pa.Table.from_pylist([row(95 * MS, "0", score=2.0)], schema=SCHEMA)
    prepared = BEST_TWO.prepare(0, table.append_column(BUCKET, pa.array([0], pa.int32())))
    result = BEST_TWO.advance(state, [[prepared.drop_columns([BUCKET])]], 80 * MS, 80 * MS)
    assert state.asked == [-1]
    assert set(result.put) == {-1, 1}
    assert result.wake == 100 * MS


def test_many_windows_share_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "PART_ROWS", 16)
    kernel = TopN(SCHEMA, (), 1, (("score", True),), MS, ("name",), allowed=50 * MS)
    driver = run(kernel, *([row(n * MS + m, score=float(m), name=f"{n}") for m in range(3)] for n in range(200)))
    assert driver.chunk_count() <= 15
    driver.finish(1 << 50)
    assert sorted(int(one["name"]) for one in driver.main) == list(range(200))
    assert driver.corrections == []
    assert driver.chunk_count() == 0
