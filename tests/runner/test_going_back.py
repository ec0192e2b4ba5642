"""Going back to a savepoint to the end: the state, its sinks and nothing between, also after an end in the middle."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.running import course, json_lines, table

from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.take import Wish
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.going_back import go_back_to
from penstock.runner.savepoints import create, restore_into
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

BODY = """\
sources:
  rows: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: bigint}}}}
sinks:
  store: {from: rows, sqlite: {path: ./out.db, table: rows, BATCH}}
"""


def written(project: Project, batch: str) -> Path:
    return project.write(BODY.replace("BATCH", batch))


def ran(project: Project, pipeline: Path, *ids: int) -> None:
    """Reads a file more for each id."""
    for id in ids:
        project.put(f"in/{id}.json", json_lines([{"id": id}]))
    course(build(load(pipeline)), project.folder / "state")


def stored(project: Project) -> list[int]:
    return sorted(id for (id,) in table(project.folder / "out.db", "SELECT id FROM rows"))


def gone_back(project: Project, pipeline: Path, folder: Path) -> int:
    file, state = load(pipeline), project.folder / "state"
    return go_back_to(file, state, folder, lambda: nullcontext(shared_session())).batch


def test_sinks_have_gone_back_before_the_next_run(project: Project) -> None:
    pipeline, state = written(project, "batchColumn: batch"), project.folder / "state"
    ran(project, pipeline, 0)
    _, folder = create(load(pipeline), state, Wish("one"))
    ran(project, pipeline, 1)
    assert stored(project) == [0, 1]
    assert gone_back(project, pipeline, folder) == 0
    assert stored(project) == [0]
    assert pending(state) is None

    # Somebody who died right after the state was put back: sinks go back now, and twice does no harm.
    ran(project, pipeline)
    assert stored(project) == [0, 1]
    restore_into(load(pipeline), state, folder)
    assert pending(state) is not None
    assert gone_back(project, pipeline, folder) == 0
    assert (stored(project), pending(state)) == ([0], None)
    assert gone_back(project, pipeline, folder) == 0
    ran(project, pipeline, 2)
    assert stored(project) == [0, 1, 2]


def test_a_sink_that_cannot_leaves_all_as_it_was(project: Project) -> None:
    pipeline, state = written(project, "onViolation: dead"), project.folder / "state"
    ran(project, pipeline, 0)
    _, folder = create(load(pipeline), state, Wish("one"))
    ran(project, pipeline, 1)
    with pytest.raises(PenstockError) as raised:
        gone_back(project, pipeline, folder)
    assert raised.value.code == "SINK_CANNOT_REWIND"
    assert (stored(project), pending(state)) == ([0, 1], None)
    ran(project, pipeline, 2)
    assert stored(project) == [0, 1, 2]
