"""A run that is to stop: its batch comes to its end, and none is left that is only planned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.engine.running import json_lines

from penstock.components.shared import crashpoints
from penstock.engine.analyse import analyse
from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.query import RunningPipeline
from penstock.engine.statedir import StateDir
from penstock.testing import shared_session
from penstock.testing.processes import until

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

PIPELINE = """
    sources:
      rows:
        files: {path: ./in, maxFilesPerBatch: 1}
        format: {json: {schema: {id: int}}}
    sinks:
      out: {from: rows, sqlite: {path: out.db, table: t}}
    run: {trigger: TRIGGER}
"""


def started(project: Project, state: StateDir, trigger: str) -> RunningPipeline:
    graph, spark = project.build(PIPELINE.replace("TRIGGER", trigger)), shared_session()
    analysed = analyse(spark, graph, state.spool)
    analysed.raise_errors()
    running = RunningPipeline(spark, graph, analysed, state)
    running.start(once=False)
    return running


def standing(state: StateDir) -> tuple[int, int]:
    return last_committed(state.checkpoint), last_number(state.checkpoint / "offsets")


@pytest.mark.timeout(120)
def test_between_two_batches_it_stops_without_waiting_for_the_next(project: Project) -> None:
    project.put("in/0.json", json_lines([{"id": 0}]))
    with StateDir(project.folder / "state", "demo") as state:
        running = started(project, state, "1 hour")
        try:
            until(lambda: standing(state) == (0, 0), "the first batch", every=0.05)
            running.finish()
            assert not running.active
            assert standing(state) == (0, 0)
        finally:
            running.stop()
            running.close()


@pytest.mark.timeout(120)
def test_in_a_batch_it_stops_after_that(project: Project) -> None:
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": number}]))
    begun: list[int] = []

    def slowly(point: str, batch: int) -> None:
        if point == "sink.before_write":
            begun.append(batch)
            time.sleep(0.5)

    crashpoints.install(slowly)
    try:
        with StateDir(project.folder / "state", "demo") as state:
            running = started(project, state, "10 ms")
            try:
                until(lambda: begun, "the first batch")
                running.finish()
                assert not running.active
                assert standing(state) == (begun[-1], begun[-1])
            finally:
                running.stop()
                running.close()
    finally:
        crashpoints.install(None)
