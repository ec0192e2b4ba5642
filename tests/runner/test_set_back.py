"""The machine's clock is set back while a pipeline runs: its next batch comes all the same."""

from __future__ import annotations

import datetime as dt
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.running import json_lines

from penstock.components.shared import crashpoints
from penstock.engine.progress import Status
from penstock.engine.statedir import StateDir
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.course import Course
from penstock.runner.set_back import LEAST, SetBack, seconds_up
from penstock.testing import shared_session
from penstock.testing.processes import until

if TYPE_CHECKING:
    from tests.conftest import Project

HOUR = 3600.0
PIPELINE = """
    run: {trigger: 1 hour}
    sources:
      rows:
        files: {path: ./in, maxFilesPerBatch: 1}
        format: {json: {schema: {id: int}}}
    sinks:
      out: {from: rows, sqlite: {path: out.db, table: t, batchColumn: batch}}
"""


# --- noticing it ---------------------------------------------------------------------------------------------------


@dataclass
class Clocks:
    """The time of day and a steady clock. `halts` are seconds that pass between one reading and the next."""

    time: float = 1_700_000_000.0
    up: float = 50.0
    halts: list[float] = field(default_factory=list)

    def pass_by(self, seconds: float) -> None:
        self.time += seconds
        self.up += seconds

    def wall(self) -> float:
        self._halt()
        return self.time

    def steady(self) -> float:
        self._halt()
        return self.up

    def _halt(self) -> None:
        self.pass_by(self.halts.pop(0) if self.halts else 0.0)


@given(st.lists(st.tuples(st.floats(0, 7200), st.floats(-0.9 * LEAST, 0.9 * LEAST)), max_size=20))
def test_a_clock_that_is_slowed_down_or_corrected_a_little_is_not_noticed(turns: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    seen = SetBack(clocks.wall, clocks.steady)
    for passed, correction in turns:
        clocks.pass_by(passed)
        clocks.time += correction
        assert seen.look() == 0


@given(st.floats(LEAST + 0.1, 2 * 86_400), st.floats(0, 7200))
def test_one_that_is_set_back_is_noticed_until_a_query_begins_and_not_after(jump: float, passed: float) -> None:
    clocks = Clocks()
    seen = SetBack(clocks.wall, clocks.steady)
    clocks.time -= jump
    for _ in range(3):
        clocks.pass_by(passed)
        assert seen.look() == pytest.approx(jump, abs=0.01)
    seen.begin()
    for _ in range(3):
        clocks.pass_by(passed)
        assert seen.look() == 0


@pytest.mark.parametrize(
    ("jumps", "lost"),
    [
        ([HOUR], [0]),
        ([HOUR, -HOUR], [0, HOUR]),
        ([-HOUR, HOUR], [HOUR, 0]),
        ([-HOUR, -HOUR], [HOUR, 2 * HOUR]),
        ([-HOUR, HOUR / 2], [HOUR, HOUR / 2]),
    ],
)
def test_what_a_clock_that_is_set_forward_gives_back_is_not_lost(jumps: list[float], lost: list[float]) -> None:
    clocks = Clocks()
    seen = SetBack(clocks.wall, clocks.steady)
    found = []
    for jump in jumps:
        clocks.time += jump
        clocks.pass_by(0.2)
        found.append(seen.look())
    assert found == pytest.approx(lost, abs=0.01)


@given(st.lists(st.floats(0, 7200), max_size=12))
def test_a_process_that_is_halted_while_it_looks_is_not_deceived(halts: list[float]) -> None:
    clocks = Clocks()
    seen = SetBack(clocks.wall, clocks.steady)
    clocks.halts = halts
    for _ in range(6):
        assert seen.look() == 0


# --- a run ---------------------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """A run beside the test, with a clock that the test sets."""

    state: StateDir
    way: Course
    shift: float = 0.0

    def wall(self) -> float:
        return time.time() + self.shift

    @property
    def ledger(self) -> list[tuple[int, dict[str, int], dict[str, int]]]:
        entries = self.way.tracker.ledger.entries()
        return [(entry.batch, dict(entry.rows_in), dict(entry.rows_out)) for entry in entries]


@contextmanager
def running(project: Project) -> Iterator[Watched]:
    """Runs it until the block ends, and then to a clean stop."""
    graph, seen, stop = build(load(project.write(PIPELINE))), list[Status](), threading.Event()
    failures: list[BaseException] = []
    with StateDir(project.folder / "state", graph.file.pipeline.name) as state:
        status = Status(graph.file.pipeline.name, "starting", dt.datetime.now(dt.UTC))
        way = Course(shared_session(), graph, state, seen.append, status, stop, state.logs / "log")
        watched = Watched(state, way)
        way.set_back = SetBack(watched.wall, seconds_up)

        def through() -> None:
            try:
                seen.append(way.through(once=False))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=through)
        thread.start()
        try:
            yield watched
        finally:
            stop.set()
            thread.join(60)
    assert not thread.is_alive()
    assert failures == []
    assert [ended.report.batch for status in seen for ended in status.ended] == list(range(len(watched.ledger)))


def stored(project: Project) -> list[tuple[int, int]]:
    """Rows and their batches."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(project.folder / "out.db")) as db:
        return db.execute("SELECT id, batch FROM t ORDER BY id").fetchall()
    return []


def put(project: Project, number: int) -> None:
    project.put(f"in/{number}.json", json_lines([{"id": number}]))


def balanced(batches: int) -> list[tuple[int, dict[str, int], dict[str, int]]]:
    return [(batch, {"rows": 1}, {"out": 1}) for batch in range(batches)]


@pytest.mark.spark
def test_the_next_batch_comes_within_seconds_and_no_row_twice(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    put(project, 0)
    with caplog.at_level(logging.WARNING, "penstock.runner.course"), running(project) as run:
        until(lambda: run.ledger == balanced(1), "the first batch")
        for number in (1, 2):
            put(project, number)
            # Spark waits for the full hour, which is now an hour further off.
            run.shift -= HOUR
            until(lambda: len(run.ledger) > number, "the next batch", 60)  # noqa: B023
        assert run.ledger == balanced(3)
    assert stored(project) == [(0, 0), (1, 1), (2, 2)]
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.runner.course"]
    assert len(lines) == 2
    assert all(line.startswith("the machine's clock was set back by 3600 seconds") for line in lines)


@pytest.mark.spark
def test_a_batch_at_work_is_finished_first(project: Project) -> None:
    put(project, 0)
    in_batch, seen_back, begun = threading.Event(), threading.Event(), list[int]()

    def hold(point: str, batch: int) -> None:
        if point == "sink.before_write":
            begun.append(batch)
            if batch == 0:
                in_batch.set()
                assert seen_back.wait(60)

    crashpoints.install(hold)
    try:
        with running(project) as run:
            assert in_batch.wait(60)
            put(project, 1)
            run.shift -= HOUR
            until(lambda: run.way.set_back.lost > 0, "it notices")
            seen_back.set()
            until(lambda: run.ledger == balanced(2), "the batch at work, and the next", 60)
    finally:
        seen_back.set()
        crashpoints.install(None)
    assert begun == [0, 1]
    assert stored(project) == [(0, 0), (1, 1)]
