"""State whose last run died in a batch: the batch comes to its end before the state is changed, in the old version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import CLICKS, ROLLING, VIEWS, WINDOW, Story
from tests.engine.running import course
from tests.faults.victim import contents

from penstock.components.shared import crashpoints
from penstock.engine.checkpoint import last_committed
from penstock.engine.savepoints.places import found_in
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.reports.state_folder import state_partitions
from penstock.runner.ledger import read_ledger
from penstock.runner.rescale import rescale
from penstock.runner.unfinished import unfinished_batch
from penstock.runner.upgrade import upgrade
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [pytest.param("batch.start", marks=pytest.mark.long), "batch.after_ledger"])
def test_a_batch_that_was_begun_is_finished_before_state_is_carried_over(project: Project, point: str) -> None:
    """Before sinks have anything of it, and after all of them have it: it is stored once, by the old version."""
    story = Story(project)
    pipeline = story.write({"per_minute": WINDOW}, (VIEWS, CLICKS))
    story.more(1)
    story.run(pipeline)
    story.more(1)
    course(build(load(pipeline)), story.state, die_at=point)
    begun = unfinished_batch(story.state)
    assert begun == last_committed(story.state / "checkpoint") + 1

    story.write({"per_minute": WINDOW, "recent": ROLLING}, (VIEWS, CLICKS))
    seen = len(story.views)
    done = upgrade(load(pipeline), story.state, spark=shared_session())
    assert done.savepoint is not None
    (saved,) = found_in(story.state)
    assert saved.savepoint is not None
    assert (saved.savepoint.batch, saved.savepoint.unfinished) == (begun, False)
    assert unfinished_batch(story.state) is None

    story.more(1)
    story.end()
    story.run(pipeline)
    story.check("per_minute")
    assert [row[0] for row in story.found("recent")] == [row.id for row in story.views[seen:]]
    assert read_ledger(load(pipeline), story.state).verdict == "sealed"


@pytest.mark.timeout(300)
def test_it_is_finished_before_a_rescale_though_the_file_says_another_number_by_now(project: Project) -> None:
    story = Story(project)
    pipeline = story.write({"per_minute": WINDOW}, extra="state: {partitions: 2}")
    story.more(2)
    course(build(load(pipeline)), story.state, die_at="batch.after_sinks")
    assert unfinished_batch(story.state) == 0

    story.write({"per_minute": WINDOW}, extra="state: {partitions: 3}")
    done = rescale(load(pipeline), story.state, 3, spark=shared_session())
    assert (done.rescaled.before, done.rescaled.after) == (2, 3)
    assert state_partitions(story.state / "checkpoint") == 3
    (saved,) = found_in(story.state)
    assert saved.savepoint is not None
    # To go back to it is to go back to the number it has.
    assert saved.savepoint.document["spec"]["state"] == {"partitions": 2}

    story.end()
    story.run(pipeline, 3)
    story.check("per_minute")


@pytest.mark.timeout(300)
def test_one_that_cannot_be_finished_is_told_with_its_reason_and_nothing_changes(project: Project) -> None:
    story = Story(project)
    pipeline = story.write({"per_minute": WINDOW})
    story.more(1)
    story.run(pipeline)
    story.more(1)
    course(build(load(pipeline)), story.state, die_at="batch.start")
    begun = last_committed(story.state / "checkpoint") + 1
    held = contents(story.state / "checkpoint")

    def broken(point: str, batch: int) -> None:
        if point == "sink.before_write":
            raise PenstockError.of("SINK_FENCED", node="per_minute_table", newer=2, epoch=1)

    crashpoints.install(broken)
    try:
        with pytest.raises(PenstockError) as refused:
            rescale(load(pipeline), story.state, 3, spark=shared_session())
    finally:
        crashpoints.install(None)
    assert refused.value.code == "CHANGE_UNFINISHED_BATCH"
    assert refused.value.problems[0].params["batch"] == begun
    assert "per_minute" in refused.value.problems[0].params["reason"]
    assert contents(story.state / "checkpoint") == held
    assert found_in(story.state) == []
