"""Kills while state is divided anew and while it is carried over: what is left is the old side or the new one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.evolution.story import LATEST, NATIVE, ROLLING, WINDOW, Story

from penstock.components.shared.crashpoints import AT, GRAFT_POINTS, RESCALE_POINTS
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.verify import verify
from penstock.reports.state_folder import state_partitions
from penstock.testing.processes import LIGHT, penstock

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]
SWAPPED = ("restore.built", "restore.swapped")
"""From these points on it is the new side."""


def said(*arguments: str | Path, log: Path, at: str = "") -> int:
    code, text = penstock(*arguments, log=log, env={AT: f"{at}@0"} if at else None)
    assert code in (0, -signal.SIGKILL), text
    return code


def run_on(story: Story, pipeline: Path, log: Path) -> None:
    story.more(1)
    assert said("run", pipeline, "--once", "--state-dir", story.state, *LIGHT, log=log) == 0


def look(story: Story, names: tuple[str, ...], pipeline: Path, log: Path) -> None:
    """All windows are closed, and all rows are there."""
    story.end()
    assert said("run", pipeline, "--once", "--state-dir", story.state, *LIGHT, log=log) == 0
    story.check(*names)
    for one in found_in(story.state):
        assert one.savepoint is not None
        assert verify(one.folder, one.savepoint) == []


def test_a_kill_at_each_point_of_dividing_state_anew(project: Project, tmp_path: Path) -> None:
    story, log = Story(project), tmp_path / "run.log"
    pipeline = story.write({"per_minute": WINDOW, "recent": ROLLING, "newest": LATEST, "per_user": NATIVE})
    run_on(story, pipeline, log)
    partitions = state_partitions(story.state / "checkpoint")
    assert partitions is not None
    for number, point in enumerate(RESCALE_POINTS, 1):
        arguments = ("rescale", pipeline, "--partitions", str(partitions + number), "--state-dir", story.state)
        assert said(*arguments, log=log, at=point) == -signal.SIGKILL
        run_on(story, pipeline, log)
        found = state_partitions(story.state / "checkpoint")
        assert (found == partitions + number) == (point in SWAPPED)
    look(story, ("per_minute", "recent", "newest", "per_user"), pipeline, log)


def test_a_kill_at_each_point_of_carrying_state_over(project: Project, tmp_path: Path) -> None:
    story, log = Story(project), tmp_path / "run.log"
    names = ("per_minute", "per_user")
    versions = [
        ({"per_minute": f"{WINDOW}, renamedFrom: minutes", "per_user": f"{NATIVE}, renamedFrom: users"}, None),
        (
            {"users": f"{NATIVE}, renamedFrom: per_user", "minutes": f"{WINDOW}, renamedFrom: per_minute"},
            {"per_minute": "minutes", "per_user": "users"},
        ),
    ]
    pipeline = story.write({"per_minute": WINDOW, "per_user": NATIVE})
    run_on(story, pipeline, log)
    for number, point in enumerate(GRAFT_POINTS, 1):
        steps, sinks = versions[number % 2]
        story.write(steps, sinks=sinks)
        arguments = ("upgrade", pipeline, "--state-dir", story.state)
        assert said(*arguments, log=log, at=point) == -signal.SIGKILL
        # On the old side it is done now; on the new side there is nothing left to do.
        assert said(*arguments, log=log) == 0
        assert ("fits this version" in log.read_text("utf-8")) == (point in SWAPPED)
        run_on(story, pipeline, log)
    look(story, names, pipeline, log)
