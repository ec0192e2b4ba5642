"""State that is carried over to another version of a pipeline: steps that stay go on, those that are new begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import CLICKS, LATEST, NATIVE, PAIRED, ROLLING, VIEWS, WINDOW, Story
from tests.faults.victim import contents

from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.engine.statedir import read_identity
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.flow import flow
from penstock.runner.savepoints import create
from penstock.runner.upgrade import upgrade
from penstock.testing import shared_session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def carry_over(story: Story, pipeline: Path, *lose: str) -> dict[str, list[str]]:
    """What went on, and what began."""
    done = upgrade(load(pipeline), story.state, lose, spark=shared_session())
    assert done.grafted is not None
    return {"kept": sorted(done.grafted.kept), "begun": sorted(done.grafted.begun)}


def test_steps_are_added_removed_renamed_and_reordered_and_the_others_go_on(project: Project) -> None:
    story = Story(project)
    first = {"newest": LATEST, "per_minute": WINDOW, "per_user": NATIVE}
    pipeline = story.write(first)
    story.more(2)
    story.run(pipeline)
    seen = len(story.views)

    # One step is renamed, one is new, one is gone, and they stand in another order.
    second = {"recent": ROLLING, "per_user": NATIVE, "minutes": f"{WINDOW}, renamedFrom: per_minute"}
    tables = {"per_user": "per_user", "recent": "recent", "per_minute": "minutes"}
    story.write(second, sinks=tables)
    story.more(1)
    with pytest.raises(PenstockError) as refused:
        story.run(pipeline)
    assert refused.value.code == "CHANGE_NEEDS_UPGRADE"
    assert "--lose newest" in str(refused.value)
    held = contents(story.state / "checkpoint")
    with pytest.raises(PenstockError) as losing:
        carry_over(story, pipeline)
    assert losing.value.code == "CHANGE_LOSES_STATE"
    assert contents(story.state / "checkpoint") == held

    assert carry_over(story, pipeline, "newest") == {"kept": ["minutes", "per_user"], "begun": ["recent"]}
    story.end()
    story.run(pipeline)

    story.check("per_minute", "per_user")
    assert story.found("recent") == story.wanted("recent", story.views[seen:])
    (before,) = found_in(story.state)
    assert before.savepoint is not None
    assert verify(before.folder, before.savepoint) == []
    assert {operator.step for operator in before.savepoint.operators} == set(first)
    after, _ = create(load(pipeline), story.state, Wish("after"))
    assert {operator.step for operator in after.operators} == set(second)
    # Without Spark the same streams are foreseen.
    foreseen = flow(build(load(pipeline)), set(second))
    assert set(after.offsets) == {stream.name for stream in foreseen.streams}
    assert len(foreseen.streams) == 3
    identity = read_identity(story.state)
    assert identity is not None
    assert identity.version is not None
    assert set(identity.version.stateful) == set(second)


@pytest.mark.long
def test_a_join_of_sparks_own_goes_on_too(project: Project) -> None:
    """Both of its sides, in other partitions and under another number; and a step that the query computes twice."""
    story = Story(project)
    pipeline = story.write({"clicked": PAIRED}, (VIEWS, CLICKS))
    story.more(2)
    story.run(pipeline)
    story.write(
        {"recent": ROLLING, "clicked": PAIRED, "slow": "from: recent, sql: SELECT * FROM recent"},
        (VIEWS, CLICKS),
        sinks={"recent": "slow", "clicked": "clicked"},
        extra="state: {partitions: 3}",
    )
    story.more(1)
    done = upgrade(load(pipeline), story.state, spark=shared_session())
    assert done.rescaled is not None
    assert done.grafted is not None
    assert done.grafted.kept["clicked"] > 0
    assert done.grafted.begun == ("recent",)
    story.end()
    story.run(pipeline)
    story.check("clicked")
