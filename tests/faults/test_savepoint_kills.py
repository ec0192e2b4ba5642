"""Kills while a savepoint is taken and while one is restored: what is left is the old side or the new one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from tests.faults.victim import Victim

from penstock.components.shared.crashpoints import AT, RESTORE_POINTS, SAVEPOINT_POINTS
from penstock.engine.savepoints.places import found_in
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify
from penstock.frontends.load import load
from penstock.reports.savepoint_requests import Asked, Requests
from penstock.runner.savepoints import create
from penstock.testing import shared_session
from penstock.testing.processes import LIGHT, Process, penstock

pytestmark = pytest.mark.spark

SINKS = ("row_files", "window_latest", "window_files")


def run_restoring(victim: Victim, name: str, log: Path, *, at: str = "") -> tuple[int, str]:
    arguments = ("run", victim.pipeline, "--once", "--restore", name, *LIGHT)
    return penstock(*arguments, log=log, env={AT: at} if at else None)


def whole(victim: Victim) -> list[str]:
    """The savepoints that are there, each of which must be sound."""
    found = found_in(victim.state)
    for one in found:
        assert one.savepoint is not None
        assert verify(one.folder, one.savepoint) == []
    return [one.name for one in found]


def kill_while_saving(victim: Victim, name: str, point: str, log: Path) -> None:
    """A run that is asked for a savepoint while it is at work, and dies in it."""
    Requests(victim.state).ask(Asked(name))
    arguments = ["run", victim.pipeline, *LIGHT, "--state-dir", victim.state]
    with Process(arguments, log, {AT: f"{point}@0"}) as process:
        assert process.wait() == -signal.SIGKILL, process.text
    for request in Requests(victim.state).waiting():
        Requests(victim.state).forget(request)


@pytest.mark.timeout(600)
def test_a_kill_in_a_restore_leaves_the_old_side_or_the_new_one(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", SINKS, files=4)
    victim.crashes.kill_at("batch.start", 2)
    create(load(victim.pipeline), victim.state, Wish("middle"), spark=shared_session())
    assert whole(victim) == ["middle"]
    victim.finish()

    code, text = run_restoring(victim, "middle", tmp_path / "run.log", at="restore.swapped@0")
    assert code == -signal.SIGKILL, text
    victim.finish()
    assert whole(victim) == ["middle"]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_kill_at_each_point_of_saving_and_restoring(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "victim", SINKS, files=6)
    victim.crashes.kill_at("batch.start", 2)
    create(load(victim.pipeline), victim.state, Wish("first"), spark=shared_session())
    for point in SAVEPOINT_POINTS:
        name = point.replace(".", "-")
        kill_while_saving(victim, name, point, tmp_path / "save.log")
        assert (name in whole(victim)) == (point == "savepoint.after_rename")
        victim.check_nothing_twice()
    victim.finish()
    assert whole(victim) == ["first", "savepoint-after_rename"]
    for name in ("first", "savepoint-after_rename"):
        for place in (*(f"{point}@0" for point in RESTORE_POINTS), "sink.rewinding"):
            at = place if "@" in place else f"{place}@{batch_of(victim, name)}"
            code, text = run_restoring(victim, name, tmp_path / "run.log", at=at)
            assert code == -signal.SIGKILL, f"{at}: {text}"
            victim.finish()
    kept = tmp_path / "kept"
    shutil.copytree(victim.state / "savepoints" / "first", kept)
    shutil.rmtree(victim.state)
    code, text = run_restoring(victim, str(kept), tmp_path / "run.log")
    assert code == 0, text
    victim.check_complete()


def batch_of(victim: Victim, name: str) -> int:
    return next(one.savepoint.batch for one in found_in(victim.state) if one.name == name and one.savepoint)
