"""Does what was decided: starts runner processes and signals them. Nothing else in the supervisor touches a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import PenstockError
from penstock.reports.folder import OperationFolder, ReportFolder, RunFolder
from penstock.reports.processes import birth
from penstock.reports.values import OperationOrder, RunOrder

RUNNER = (sys.executable, "-m", "penstock.runner.main")
WORKER = (sys.executable, "-m", "penstock.runner.operate")
_OF_THE_SERVER = re.compile(r"PENSTOCK_(TOKEN|URL|STORE|OIDC|SERVE)\w*")
"""Variables that are meant for the server or its clients, not for pipelines."""


class Processes:
    """Processes of runs and operations. Those that this server has started are collected when they end."""

    def __init__(
        self, command: Sequence[str] = RUNNER, hidden: Sequence[str] = (), worker: Sequence[str] = WORKER
    ) -> None:
        self._command = tuple(command)
        self._worker = tuple(worker)
        self._hidden = frozenset(hidden)
        """Names of further variables that runners do not get."""
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, folder: RunFolder, order: RunOrder) -> tuple[int, str]:
        """Starts a run in a session of its own, so that it goes on when the server ends; its process."""
        try:
            folder.make()
            folder.write_order(order)
            return self._begin(self._command, folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PenstockError.of("RUN_NOT_STARTED", run=order.run, reason=reason) from error

    def operate(self, folder: OperationFolder, order: OperationOrder) -> tuple[int, str]:
        """Starts an operation as a run is started; its process."""
        try:
            folder.make()
            folder.forget_status()
            folder.write_order(order)
            return self._begin(self._worker, folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PenstockError.of("OPERATION_FAILED", reason=f"its process could not be started: {reason}") from error

    def _begin(self, command: Sequence[str], folder: ReportFolder) -> tuple[int, str]:
        with folder.printed.open("ab") as printed:
            child = subprocess.Popen(
                [*command, str(folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment(os.environ, self._hidden),
                cwd=folder.path,
                start_new_session=True,
                close_fds=True,
            )
        self._children[child.pid] = child
        return child.pid, birth(child.pid) or ""

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


def environment(variables: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> dict[str, str]:
    """What a runner inherits: all but what is the server's own."""
    return {
        name: value for name, value in variables.items() if not _OF_THE_SERVER.fullmatch(name) and name not in hidden
    }


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
    import shutil

    try:
        ended = [item for item in runs.iterdir() if item.is_dir() and item.name not in open_runs]
    except FileNotFoundError:
        return []
    ended.sort(key=lambda item: item.stat().st_mtime, reverse=True)
    for item in ended[keep:]:
        shutil.rmtree(item, ignore_errors=True)
    return [item.name for item in ended[keep:]]
