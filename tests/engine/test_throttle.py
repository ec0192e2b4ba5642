"""How much is let in: the arithmetic, and that Spark keeps to it."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.running import json_lines, run

from penstock.engine.throttle import FIRST_ROWS, Pace, Seen, paced
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project


@given(st.integers(1, 1_000_000), st.floats(0.01, 100), st.floats(0, 1000))
def test_a_paced_batch_is_at_most_what_its_time_allows(rate: int, trigger: float, last: float) -> None:
    rows = paced(rate, trigger, last)
    assert rows == 1 or rows / max(trigger, last) <= rate


@given(
    st.integers(FIRST_ROWS, 10**9),
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 10_000), st.booleans()), min_size=1, max_size=5),
    st.floats(1, 60),
)
def test_what_is_allowed_changes_in_steps(allowed: int, batches: list[tuple[int, float, bool]], goal: float) -> None:
    pace = Pace(allowed)
    for rows, seconds, troubled in batches:
        before, pace = pace.allowed, pace.after(Seen(rows, seconds, troubled), goal)
        assert max(before // 2, FIRST_ROWS) <= pace.allowed <= 2 * before
        if troubled:
            assert pace.allowed == max(before // 2, FIRST_ROWS)


@given(st.floats(0.0, 5.0), st.floats(2_000, 2_000_000), st.floats(1, 30), st.randoms(use_true_random=False))
def test_a_catch_up_is_as_fast_as_the_sink_and_no_batch_takes_much_longer(
    fixed: float, rows_per_second: float, goal: float, chance: random.Random
) -> None:
    """The sink takes a time for each batch, and then so many rows a second; both vary a little."""
    pace, times, speeds = Pace(FIRST_ROWS), [], []
    for _ in range(40):
        noise = chance.uniform(0.95, 1.05)
        seconds = (fixed + pace.allowed / rows_per_second) * noise
        times.append(seconds)
        speeds.append(pace.allowed / seconds)
        pace = pace.after(Seen(pace.allowed, seconds, troubled=False), goal)
    longest = max(goal, 3 * fixed)
    assert max(times) <= 2.5 * longest
    assert statistics.median(speeds[-10:]) >= 0.5 * min(rows_per_second, rows_per_second * goal / (goal + fixed))


def test_a_batch_that_did_not_use_what_it_had_says_nothing_of_more() -> None:
    assert Pace(10_000).after(Seen(500, 0.1, troubled=False), 1.0).allowed == 10_000


BODY = """
    sources:
      events:
        {source}
        throttle: {throttle}
    run: {{trigger: 200 milliseconds}}
    sinks:
      out: {{from: events, files: {{path: ./out}}}}
"""
GENERATED = "generator: {dataset: page_views, rows: %d, seed: 1}"


@pytest.mark.spark
def test_rows_per_second_are_kept_also_when_all_is_read_at_once(project: Project) -> None:
    graph = project.build(BODY.format(source=GENERATED % 3_000, throttle="{rowsPerSecond: 2000}"))
    before = time.monotonic()
    outcome = run(graph, project.folder / "state")
    took = time.monotonic() - before
    rows = [entry.rows_in["events"] for entry in outcome.ledger]
    assert (rows[0], sum(rows)) == (400, 3_000)
    assert took >= 3_000 / 2_000


@pytest.mark.spark
def test_adaptive_begins_small_and_grows(project: Project) -> None:
    graph = project.build(BODY.format(source=GENERATED % 20_000, throttle="{adaptive: true}"))
    rows = [entry.rows_in["events"] for entry in run(graph, project.folder / "state").ledger]
    assert rows[:2] == [1_000, 2_000] or (rows[0] == 1_000 and rows[1] < 2_000)
    assert max(rows) >= 2_000
    assert sum(rows) == 20_000


@pytest.mark.spark
@pytest.mark.parametrize("changes", [False, True])
def test_files_are_let_in_one_by_one_and_then_more(project: Project, changes: bool) -> None:
    for number in range(7):
        row: dict[str, object] = {"id": number}
        record = {"op": "c", "before": None, "after": row, "source": {"ts_ms": 1, "lsn": 1}} if changes else row
        project.put(f"in/{number}.json", json_lines(record for _ in range(10)))
    files, schema = "files: {path: ./in, maxFilesPerBatch: 3}", "schema: {id: bigint}"
    source = f"cdc: {{{files}, {schema}}}" if changes else f"{files}\n        format: {{json: {{{schema}}}}}"
    graph = project.build(BODY.format(source=source, throttle="{adaptive: true}"))
    rows = [entry.rows_in["events"] for entry in run(graph, project.folder / "state").ledger]
    assert rows[0] == 10
    assert max(rows) <= 30
    assert max(rows) >= 20
    assert sum(rows) == 70


def test_a_source_that_cannot_be_limited_is_refused(project: Project) -> None:
    with pytest.raises(PenstockError) as raised:
        project.load(BODY.format(source="memory: {schema: {id: bigint}}", throttle="{adaptive: true}"))
    assert raised.value.code == "THROTTLE_UNSUPPORTED"
    with pytest.raises(PenstockError) as raised:
        project.load(BODY.format(source=GENERATED % 1, throttle="{rowsPerSecond: 0}"))
    assert (raised.value.code, raised.value.problems[0].location is not None) == ("SPEC_BAD_VALUE", True)
