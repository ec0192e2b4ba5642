"""Savepoints, restores and rescales in any order, killed at random moments: in the end all rows are there once."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest
from tests.faults.victim import Victim

from penstock.components.shared.crashpoints import AT, RESCALE_POINTS, RESTORE_POINTS, SAVEPOINT_POINTS
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.frontends.load import load
from penstock.reports.savepoint_requests import Asked, Requests
from penstock.reports.state_folder import state_partitions
from penstock.runner.savepoints import create
from penstock.testing import shared_session
from penstock.testing.processes import LIGHT, Process

pytestmark = pytest.mark.spark

SINKS = ("row_files", "window_latest", "window_files")
_LONGEST = 25.0
_REFUSED = 4
"""The exit code of what cannot be done now: the run before died in a batch, or in a restore, which comes first."""


class Chaos:
    def __init__(self, folder: Path, seed: int, files: int) -> None:
        self.chance = random.Random(seed)
        self.log = folder / "command.log"
        self.victim = Victim(folder / "victim", SINKS, files=files)
        text = self.victim.pipeline.read_text("utf-8")
        self.victim.pipeline.write_text(text.replace("  state: {partitions: 2}\n", ""), "utf-8")
        self.victim.crashes.kill_at("batch.start", 2)
        create(load(self.victim.pipeline), self.victim.state, Wish("first"), spark=shared_session())
        self.done: list[str] = []

    def round(self, number: int) -> None:
        """One thing that is asked for and dies, or comes to its end first; what is left is whole."""
        what = self.chance.choice((self.save, self.save_beside, self.restore, self.rescale))
        what(number)
        self.victim.check_nothing_twice()
        assert "first" in self.savepoints()

    def savepoints(self) -> list[str]:
        """Those that are there, each of which must be sound."""
        found = found_in(self.victim.state)
        for one in found:
            assert one.savepoint is not None, one.error
            assert verify(one.folder, one.savepoint) == []
        return [one.name for one in found]

    def save(self, number: int) -> None:
        before = self.savepoints()
        code = self.die(("savepoint", "create", self.victim.pipeline, "--name", f"at-{number}"), SAVEPOINT_POINTS)
        if code == 0:
            assert [*before, f"at-{number}"] == self.savepoints()

    def save_beside(self, number: int) -> None:
        """Of a run, which dies with it."""
        Requests(self.victim.state).ask(Asked(f"at-{number}"))
        self.die(("run", self.victim.pipeline, "--once", *LIGHT), SAVEPOINT_POINTS)
        for request in Requests(self.victim.state).waiting():
            Requests(self.victim.state).forget(request)

    def restore(self, number: int) -> None:
        name = self.chance.choice(self.savepoints())
        self.die(("run", self.victim.pipeline, "--once", "--restore", name, *LIGHT), RESTORE_POINTS)

    def rescale(self, number: int) -> None:
        before, wanted = state_partitions(self.victim.state / "checkpoint"), self.chance.randint(1, 4)
        code = self.die(("rescale", self.victim.pipeline, "--partitions", wanted), RESCALE_POINTS)
        if code == 0:
            assert state_partitions(self.victim.state / "checkpoint") == wanted
        elif code == _REFUSED:
            assert state_partitions(self.victim.state / "checkpoint") == before

    def die(self, arguments: tuple[object, ...], points: tuple[str, ...]) -> int:
        """Runs a command that is killed at one of the points, or at any time; its exit code."""
        point = self.chance.choice((None, *points))
        seconds = _LONGEST * self.chance.random()
        self.done.append(f"{arguments[0]} {arguments[1:]} killed at {point or f'{seconds:.1f} s'}")
        with Process(arguments, self.log, {AT: f"{point}@0"} if point else None) as process:
            try:
                code = process.wait(300 if point else seconds)
            except subprocess.TimeoutExpired:
                assert point is None, process.text
                return -signal.SIGKILL
        assert code in (0, _REFUSED, -signal.SIGKILL), f"{code}: {process.text}"
        return code

    def end(self) -> None:
        self.victim.finish()
        self.savepoints()


def play(folder: Path, seed: int, files: int, rounds: int) -> None:
    chaos = Chaos(folder, seed, files)
    try:
        for number in range(rounds):
            chaos.round(number)
        chaos.end()
    except BaseException:
        print(f"seed {seed}:", *chaos.done, sep="\n")
        raise


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3, 7])
def test_many_kills_at_random(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed, files=6, rounds=12)
