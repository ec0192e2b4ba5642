"""A run tells of itself, and cannot pass another process off as its own."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

from penstock.control.supervisor.observe import observe
from penstock.control.supervisor.ports import Run
from penstock.reports.folder import START, RunFolder
from penstock.reports.processes import birth, works_in
from penstock.reports.values import RunStatus

NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def reported(folder: RunFolder, pid: int) -> None:
    folder.write_status(RunStatus("r1", pid, birth(pid) or "", "running", NOW))


def run_of(pid: int | None = None) -> Run:
    return Run("r1", "p", 1, 1, "local", NOW, pid=pid, process_started=None if pid is None else birth(pid))


def test_a_process_that_was_not_started_for_the_run_is_not_taken_for_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    folder.make()
    # The server itself, which would then signal itself.
    reported(folder, os.getpid())
    seen = observe(run_of(), folder, START)
    assert not seen.alive
    assert seen.known


def test_the_process_that_the_server_has_started_counts_whatever_a_run_reports(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r1")
    folder.make()
    with subprocess.Popen([sys.executable, "-c", "input()", str(folder.path)], stdin=subprocess.PIPE) as own:
        reported(folder, os.getpid())
        seen = observe(run_of(own.pid), folder, START)
        assert (seen.pid, seen.alive) == (own.pid, True)
        # One that it could not note is known by the folder that it was started for.
        assert works_in(own.pid, folder.path)
        reported(folder, own.pid)
        found = observe(run_of(), folder, START)
        assert (found.pid, found.alive) == (own.pid, True)
        own.kill()
