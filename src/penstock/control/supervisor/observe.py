"""Looks at runs: what they have reported, and whether their processes live. Never acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.supervisor.ports import Run
from penstock.reports.folder import START, Cursor, RunFolder
from penstock.reports.processes import is_alive, works_in
from penstock.reports.values import BatchLine, RunEnd, RunStatus

_ALL = 10_000_000


@dataclass(frozen=True)
class Observation:
    """What is to be seen of an open run now."""

    run: Run
    alive: bool
    """Whether its process lives, as far as one is known."""
    pid: int | None
    process_started: str | None
    status: RunStatus | None
    end: RunEnd | None
    batches: Sequence[BatchLine] = ()
    cursor: Cursor = START
    """Up to where the batches go."""

    @property
    def known(self) -> bool:
        """Whether there is a process to look for."""
        return self.pid is not None


def observe(run: Run, folder: RunFolder, cursor: Cursor) -> Observation:
    """Reads the folder of a run; `cursor` is up to where its batches are known."""
    status = folder.status
    pid, started = run.pid, run.process_started
    own = True
    if pid is None and status is not None and status.run == run.id:
        # The server could not note which process it is; the run tells it, and must not name another's.
        pid, started = status.pid, status.process_started
        own = works_in(pid, folder.path)
    # Whether it lives is asked first: one that ends in between has then written its end.
    alive = own and pid is not None and started is not None and is_alive(pid, started)
    batches, cursor = folder.read_batches(cursor, most=_ALL)
    return Observation(run, alive, pid, started, status, folder.end, tuple(batches), cursor)
