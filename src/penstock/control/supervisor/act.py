"""Does what was decided: starts runner processes and signals them. Nothing else in the supervisor touches a process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.control.launch.access import NOTHING, ProcessAccess
from penstock.control.launch.launcher import Launcher
from penstock.errors import PenstockError
from penstock.reports.folder import OperationFolder, ReportFolder, RunFolder
from penstock.reports.inside import remove_inside
from penstock.reports.processes import birth
from penstock.reports.values import OperationOrder, RunOrder

RUNNER = (sys.executable, "-m", "penstock.runner.main")
WORKER = (sys.executable, "-m", "penstock.runner.operate")
_SCRATCH = "scratch"
"""In the folder of a run or operation: what its process writes for the time that it lives."""


class Processes:
    """Processes of runs and operations. Those that this server has started are collected when they end."""

    def __init__(
        self, command: Sequence[str] = RUNNER, worker: Sequence[str] = WORKER, launcher: Launcher | None = None
    ) -> None:
        self._command = tuple(command)
        self._worker = tuple(worker)
        self._launcher = launcher or Launcher()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, folder: RunFolder, order: RunOrder, access: ProcessAccess = NOTHING) -> tuple[int, str]:
        """Starts a run in a session of its own, so that it goes on when the server ends; its process."""
        try:
            folder.make()
            self._launcher.give(folder.path, folder.log)
            folder.write_order(order)
            return self._begin(self._command, folder, order, access)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PenstockError.of("RUN_NOT_STARTED", run=order.run, reason=reason) from error

    def operate(
        self, folder: OperationFolder, order: OperationOrder, access: ProcessAccess = NOTHING
    ) -> tuple[int, str]:
        """Starts an operation as a run is started; its process."""
        try:
            folder.make()
            self._launcher.give(folder.path, folder.log)
            folder.forget_status()
            folder.write_order(order)
            return self._begin(self._worker, folder, order, access)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PenstockError.of("OPERATION_FAILED", reason=f"its process could not be started: {reason}") from error

    def _begin(
        self, command: Sequence[str], folder: ReportFolder, order: RunOrder | OperationOrder, access: ProcessAccess
    ) -> tuple[int, str]:
        state, scratch = Path(order.state_dir), folder.path / _SCRATCH
        home = state.with_name("home")
        for place in (state, home):
            place.mkdir(parents=True, exist_ok=True)
        # An earlier attempt may have left anything there.
        self.tidy(folder)
        scratch.mkdir()
        self._launcher.give(state, home, scratch)
        self._open_ways(order, folder)
        access = replace(
            access, read=(*access.read, *_read_of(order)), write=(*access.write, Path(order.folder)),
        )  # fmt: skip
        with folder.open_printed() as printed:
            child = self._launcher.start(
                [*command, str(folder.path)],
                access,
                folder=folder.path,
                home=home,
                scratch=scratch,
                own=(folder.path, state),
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        self._children[child.pid] = child
        return child.pid, birth(child.pid) or ""

    def _open_ways(self, order: RunOrder | OperationOrder, folder: ReportFolder) -> None:
        """Where processes run as another user, lets that user come to the folders of this pipeline."""
        user, state = self._launcher.user, Path(order.state_dir)
        if user is None:
            return
        for path in (state, folder.path, *_read_of(order)):
            user.let_reach(path, state.parents[2])
        for path in _read_of(order):
            if path.is_file():
                user.let_read(path)

    def tidy(self, folder: ReportFolder) -> None:
        """Removes what a process that has ended wrote for the time it lived."""
        place = folder.path / _SCRATCH
        if place.is_symlink():
            remove_inside(folder.path, _SCRATCH)
        shutil.rmtree(place, ignore_errors=True)

    def collect(self) -> None:
        """Lets go of children that have ended."""
        for pid in [pid for pid, child in self._children.items() if child.poll() is not None]:
            del self._children[pid]

    def stop(self, pid: int, started: str) -> None:
        """Asks a run to finish its batch and stop."""
        _send(pid, started, signal.SIGTERM)

    def kill(self, pid: int, started: str) -> None:
        """Ends a run at once; its JVM dies with it."""
        _send(pid, started, signal.SIGKILL)


def _read_of(order: RunOrder | OperationOrder) -> list[Path]:
    """What is read of the server's folder beside the pipeline's own: the files of versions, the state to fork."""
    found = [order.file]
    if isinstance(order, OperationOrder):
        found += [str(order.asked[key]) for key in ("file", "of") if key in order.asked]
    return [Path(path) for path in found if path]


def _send(pid: int, started: str, number: signal.Signals) -> None:
    """Signals this very process; one that has ended, or another of the same number, gets nothing."""
    if not hasattr(os, "pidfd_open"):
        if birth(pid) == started:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The handle is of one process for good, so after this look no other can be meant.
        if birth(pid) == started:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def remove_old_runs(runs: Path, keep: int, open_runs: frozenset[str]) -> list[str]:
    """Removes the folders of the oldest runs that have ended; which ones."""
    try:
        ended = [item for item in runs.iterdir() if item.is_dir() and item.name not in open_runs]
    except FileNotFoundError:
        return []
    ended.sort(key=lambda item: item.stat().st_mtime, reverse=True)
    for item in ended[keep:]:
        shutil.rmtree(item, ignore_errors=True)
    return [item.name for item in ended[keep:]]
