"""A pipeline that runs takes savepoints: when it is asked, while it waits for data, and by itself."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.running import course, json_lines, table
from tests.engine.savepoints.taking import put_back

from penstock.engine.progress import Status
from penstock.engine.savepoints.places import found_in, readable
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.reports.savepoint_requests import Asked, Requests
from penstock.runner import savepoints
from penstock.runner.course import Course
from penstock.runner.savepoints import create
from penstock.testing import shared_session
from penstock.testing.processes import until

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

PIPELINE = """
    run: {trigger: 0 seconds}
    savepoints: {every: 1 second, keep: 2}
    sources:
      views:
        files: {path: ./in, maxFilesPerBatch: 1}
        format: {json: {schema: {id: int}}}
    sinks:
      store: {from: views, sqlite: {path: out.db, table: views, batchColumn: batch}}
"""


@contextmanager
def running(pipeline: Path, state_dir: Path, clock: Callable[[], dt.datetime] | None = None) -> Iterator[list[Status]]:
    """Runs it beside the test until the block ends, and then to a clean stop. `clock` is what its savepoints go by."""
    graph, seen, stop = build(load(pipeline)), list[Status](), threading.Event()
    failures: list[BaseException] = []
    with StateDir(state_dir, graph.file.pipeline.name) as state:
        status = Status(graph.file.pipeline.name, "starting", dt.datetime.now(dt.UTC))
        way = Course(shared_session(), graph, state, seen.append, status, stop, state.logs / "log")
        way.savepoints.clock = clock or way.savepoints.clock

        def through() -> None:
            try:
                way.through(once=False)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=through)
        thread.start()
        try:
            yield seen
        finally:
            stop.set()
            thread.join(60)
    assert failures == []


def stored(project: Project) -> list[int]:
    if not (project.folder / "out.db").exists():
        return []
    try:
        return [id for (id,) in table(project.folder / "out.db", "SELECT id FROM views ORDER BY id")]
    except sqlite3.OperationalError:
        # The table comes with the first batch.
        return []


def test_savepoints_of_a_pipeline_that_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savepoints, "_LOOK_SECONDS", 0.2)
    pipeline, state = project.write(PIPELINE), project.folder / "state"
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": number}]))
    with running(pipeline, state):
        until(lambda: stored(project) == [0, 1, 2], "all rows")
        # It waits for data now, and is asked all the same.
        idle, folder = create(load(pipeline), state, Wish("idle", "while it waits"))
        assert (idle.batch, idle.note, verify(folder, idle)) == (2, "while it waits", [])
        with pytest.raises(PenstockError) as raised:
            create(load(pipeline), state, Wish("idle"))
        assert raised.value.code == "SAVEPOINT_EXISTS"

        def own() -> list[str]:
            return [one.name for one in readable(found_in(state)) if one.automatic]

        until(lambda: len(own()) == 2, "two of its own")
        first = own()
        until(lambda: len(own()) == 2 and own()[0] not in first, "newer ones in their place")
        project.put("in/3.json", json_lines([{"id": 3}]))
        until(lambda: stored(project) == [0, 1, 2, 3], "the row after it")
        asked = Requests(state).ask(Asked("last"))
    answer = Requests(state).answered(asked)
    assert answer is not None
    assert answer.problems == ()
    assert [one.batch for one in readable(found_in(state)) if one.name in ("idle", "last")] == [2, 3]

    put_back(pipeline, state, folder)
    course(build(load(pipeline)), state)

    assert stored(project) == [0, 1, 2, 3]


def test_a_clock_that_is_set_back_delays_none_of_its_own(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savepoints, "_LOOK_SECONDS", 0.2)
    pipeline, state = project.write(PIPELINE), project.folder / "state"
    project.put("in/0.json", json_lines([{"id": 0}]))
    began, shift = dt.datetime.now(dt.UTC), dt.timedelta()

    def own(before: dt.datetime) -> set[str]:
        return {one.name for one in readable(found_in(state)) if one.automatic and one.created_at < before}

    with running(pipeline, state, lambda: dt.datetime.now(dt.UTC) + shift):
        until(lambda: len(own(dt.datetime.max.replace(tzinfo=dt.UTC))) == 2, "two of its own")
        shift = -dt.timedelta(hours=1)
        until(lambda: own(began), "one by the new clock")
        first = own(began)
        until(lambda: own(began) - first, "the next one")
    assert len(own(dt.datetime.max.replace(tzinfo=dt.UTC))) == 2
