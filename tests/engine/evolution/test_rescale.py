"""State that is divided anew: what comes after it is what would have come without."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import CLICKS, JOIN, LATEST, NATIVE, ROLLING, VIEWS, WINDOW, Story
from tests.faults.victim import contents

from penstock.engine.checkpoint import last_committed
from penstock.engine.evolution.contents import Content, Variable
from penstock.engine.ledger import Ledger
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.verify import verify
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.reports.state_folder import state_partitions
from penstock.runner.ledger import read_ledger
from penstock.runner.rescale import rescale
from penstock.runner.savepoints import delete
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

STEPS = {"per_minute": WINDOW, "recent": ROLLING, "newest": LATEST, "per_user": NATIVE, "clicked": JOIN}


def divide(story: Story, pipeline: Path, partitions: int) -> None:
    done = rescale(load(pipeline), story.state, partitions, spark=shared_session())
    assert done.rescaled.after == partitions
    assert done.rescaled.rows > 0
    assert state_partitions(story.state / "checkpoint") == partitions


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "partitions"),
    [(("per_minute", "per_user"), (3, 5)), pytest.param(tuple(STEPS), (4, 7, 2), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_results_are_the_same_whatever_the_partitions(
    project: Project, steps: Sequence[str], partitions: Sequence[int]
) -> None:
    """Windows, rolling values, last rows, a join and an aggregation of Spark's own, divided anew once or twice."""
    story = Story(project)
    pipeline = story.write({name: STEPS[name] for name in steps}, (VIEWS, CLICKS))
    first, *others = partitions
    story.more(2)
    story.run(pipeline, first)
    for count in others:
        divide(story, pipeline, count)
        story.more(1)
        if count == others[-1]:
            story.end()
        story.run(pipeline)

    story.check(*steps)
    assert read_ledger(load(pipeline), story.state).verdict == "sealed"
    assert [entry.batch for entry in Ledger(story.state / "ledger.db").entries()] == list(
        range(last_committed(story.state / "checkpoint") + 1)
    )
    before = found_in(story.state)
    assert [one.savepoint.partitions for one in before if one.savepoint] == [*partitions[:-1]]
    assert all(one.savepoint is not None and verify(one.folder, one.savepoint) == [] for one in before)


@pytest.mark.timeout(300)
def test_nothing_changes_when_it_fails_or_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(project)
    pipeline = story.write({"per_user": NATIVE})
    story.more()
    story.run(pipeline)
    held = contents(story.state / "checkpoint")

    with StateDir(story.state, "demo"), pytest.raises(PenstockError) as running:
        rescale(load(pipeline), story.state, 3, spark=shared_session())
    assert running.value.code == "STATE_IN_USE"
    assert rescale(load(pipeline), story.state, 2, spark=shared_session()).savepoint is None

    with pytest.raises(PenstockError) as missing:
        rescale(load(pipeline), project.folder / "nowhere", 3, spark=shared_session())
    assert missing.value.code == "STATE_MISSING"
    assert not (project.folder / "nowhere").exists()
    usage, work = shutil.disk_usage, story.state / ".restore"
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: usage(path)._replace(free=10 if work.exists() else 10**9))
        with pytest.raises(PenstockError) as refused:
            rescale(load(pipeline), story.state, 3, spark=shared_session())
    assert refused.value.code == "SAVEPOINT_NO_SPACE"
    assert contents(story.state / "checkpoint") == held
    delete(story.state, found_in(story.state)[0].name)

    checksums = iter([1, 2])
    monkeypatch.setattr(
        "penstock.engine.evolution.rescale.contents", lambda *_: {Variable(0): Content(1, next(checksums))}
    )
    with pytest.raises(PenstockError) as differing:
        rescale(load(pipeline), story.state, 3, spark=shared_session())
    assert differing.value.code == "RESCALE_FAILED"
    assert contents(story.state / "checkpoint") == held
    assert not (story.state / ".restore").exists()
    (one,) = found_in(story.state)
    assert one.savepoint is not None
    assert one.savepoint.note == "before rescaling from 2 to 3 partitions"

    # The run that comes next does not ask for what the state is not.
    story.write({"per_user": NATIVE}, extra="state: {partitions: 3}")
    with pytest.raises(PenstockError) as fixed:
        story.run(pipeline)
    assert fixed.value.code == "STATE_PARTITIONS_FIXED"
