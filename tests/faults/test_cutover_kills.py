"""Kills while a new version is prepared, follows and takes over: what is left is the old side or the new one."""

from __future__ import annotations

import random
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.engine.cutover.twins import Twins

from penstock.components.shared.crashpoints import AT, CUTOVER_POINTS
from penstock.engine.checkpoint import last_committed
from penstock.engine.cutover import note
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.verify import verify
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.runner.cutover import current, finish, start
from penstock.testing import shared_session
from penstock.testing.processes import LIGHT, PATIENCE, Process, penstock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

TAKEN = ("restore.built", "restore.swapped", "cutover.taken")
"""From these points on it is the new side."""
BEFORE = ("cutover.saved", "cutover.forked", "cutover.prepared")
"""Points of the beginning."""
BETWEEN = tuple(point for point in CUTOVER_POINTS if point not in (*BEFORE, *TAKEN))
KILLED = -signal.SIGKILL


class Cut:
    """Both versions. What is to be killed runs as a process of its own, the rest in that of the test."""

    def __init__(self, project: Project, seed: int = 1) -> None:
        self.twins = Twins(project, seed)
        self.old, self.new = self.twins.write()
        self.log = project.folder / "command.log"

    def killed(self, point: str, *arguments: object) -> None:
        code, text = penstock("cutover", *arguments, log=self.log, env={AT: f"{point}@0"})
        assert code == KILLED, text

    def runs(self, pipeline: Path) -> bool:
        """Runs a version over what is there; False if the state is not its own."""
        try:
            self.twins.run(pipeline)
        except PenstockError as error:
            if error.code != "CHANGE_NEEDS_UPGRADE":
                raise
            return False
        return True

    def is_old(self) -> None:
        """The pipeline goes on as if nothing had been, and the new version cannot."""
        self.twins.more(1)
        assert not self.runs(self.new)
        assert self.runs(self.old)

    @property
    def follows(self) -> bool:
        """Whether the new version has begun."""
        found = note.find(self.twins.state)
        return found is not None and found.stage == "following"

    @property
    def saved(self) -> int:
        """How many files had been read at the savepoint of the cut-over."""
        found = note.find(self.twins.state)
        assert found is not None
        savepoint = next(one.savepoint for one in found_in(self.twins.state) if one.name == found.savepoint)
        assert savepoint is not None
        return int(savepoint.offsets["events"]["logOffset"]) + 1

    def start(self) -> None:
        start(load(self.old), self.twins.state, load(self.new), spark=shared_session())

    def end(self, saved: int) -> None:
        """The new version runs to the end of all windows, the old one does not run, and all rows are there."""
        assert not self.runs(self.old)
        self.twins.taken("new", saved)
        self.twins.more(1)
        self.twins.end()
        assert self.runs(self.new)
        assert current(self.twins.state) is None
        assert not (self.twins.state / "cutover").exists()
        self.twins.check()
        for one in found_in(self.twins.state):
            assert one.savepoint is not None
            assert verify(one.folder, one.savepoint) == []


def test_a_kill_at_each_point_of_the_beginning(project: Project) -> None:
    cut = Cut(project)
    cut.twins.more(2)
    assert cut.runs(cut.old)
    for point in BEFORE:
        cut.killed(point, "start", cut.old, cut.new, "--once")
        cut.is_old()
    cut.start()
    saved = cut.saved
    assert len(found_in(cut.twins.state)) == 1
    finish(cut.twins.state, "demo", spark=shared_session())
    cut.end(saved)


def test_a_kill_at_each_point_before_the_swap(project: Project) -> None:
    cut = Cut(project)
    cut.twins.more(2)
    assert cut.runs(cut.old)
    cut.start()
    saved = cut.saved
    for point in BETWEEN:
        cut.is_old()
        cut.killed(point, "finish", cut.old)
    cut.is_old()
    finish(cut.twins.state, "demo", spark=shared_session())
    assert len(found_in(cut.twins.state)) == 2
    cut.end(saved)


@pytest.mark.parametrize("point", TAKEN)
def test_a_kill_at_each_point_since_the_swap(project: Project, point: str) -> None:
    cut = Cut(project)
    cut.twins.more(2)
    assert cut.runs(cut.old)
    cut.start()
    saved = cut.saved
    cut.twins.more(1)
    assert cut.runs(cut.old)
    cut.killed(point, "finish", cut.old)
    cut.end(saved)


def test_a_new_version_takes_over_from_a_pipeline_that_runs(project: Project) -> None:
    """All three at work at once: the pipeline, the new version that follows, and the command that cuts over."""
    cut = Cut(project)
    twins, checkpoint = cut.twins, cut.twins.state / "checkpoint"
    twins.more(2)
    with Process(["run", cut.old, *LIGHT], project.folder / "run.log") as pipeline:
        pipeline.wait_until(lambda: last_committed(checkpoint) >= 1, "the first rows")
        with Process(["cutover", "start", cut.old, cut.new], project.folder / "follow.log") as follower:
            follower.wait_until(lambda: cut.follows, "it can follow")
            saved = cut.saved
            twins.more(3)
            pipeline.wait_until(lambda: twins.read() >= 4, "more rows")
            follower.wait_until(lambda: note.followed(twins.state), "it follows")
            with Process(["cutover", "finish", cut.old], cut.log) as command:
                assert command.wait(3 * PATIENCE) == 0, command.text
            assert follower.wait() == 0, follower.text
            assert pipeline.wait() == 0, pipeline.text
    cut.end(saved)


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random(project: Project, seed: int) -> None:
    """Whenever it dies, one of the versions runs and the other does not; in the end every row is there once."""
    chance = random.Random(seed)
    cut = Cut(project, seed + 10)
    twins = cut.twins
    twins.more(2)
    assert cut.runs(cut.old)
    saved, longest = None, 40.0
    while True:
        finishes = cut.follows and chance.random() < 0.7
        command = ["finish", cut.old] if finishes else ["start", cut.old, cut.new, "--once"]
        # Leaving the context kills it.
        with Process(["cutover", *command], cut.log) as process, suppress(subprocess.TimeoutExpired):
            assert process.wait(chance.uniform(2, longest)) == 0, process.text
        # On a slow machine it needs longer to come to its end.
        longest += 10
        if cut.follows:
            saved = cut.saved
        given = twins.stored_windows()
        if not cut.runs(cut.old):
            break
        assert not cut.runs(cut.new)
        twins.more(1)
    assert saved is not None
    assert given == twins.stored_windows()
    cut.end(saved)
