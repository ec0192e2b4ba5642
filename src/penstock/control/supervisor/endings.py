"""How a run has ended, from what was seen of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from penstock.control.supervisor import decide
from penstock.control.supervisor.observe import Observation
from penstock.control.supervisor.ports import Run, RunOutcome


def settled(seen: Observation, now: dt.datetime, age: dt.timedelta) -> Run | None:
    """The run with how it ended, if it has; it was started so long ago."""
    run = seen.run
    if seen.alive:
        return None
    if seen.end is not None and seen.end.run == run.id:
        first = next(iter(seen.end.problems), None)
        outcome: RunOutcome = seen.end.outcome
        reason = None if first is None else str(first.get("message", ""))
        return _ended(seen, seen.end.at, outcome, reason, seen.end.exit_code,
                      None if first is None else str(first.get("owner", "bug")),
                      None if first is None else str(first.get("code", "")))  # fmt: skip
    if seen.known:
        killed = run.kill_asked_at is not None
        why = run.stop_reason if killed or run.stop_asked_at is not None else None
        return _ended(seen, now, "died", why or "its process ended without a word")
    if age >= decide.BIRTH_PATIENCE:
        return _ended(seen, now, "lost", "its process never reported")
    return None


def _ended(
    seen: Observation,
    at: dt.datetime,
    outcome: RunOutcome,
    reason: str | None,
    exit_code: int | None = None,
    owner: str | None = None,
    code: str | None = None,
) -> Run:
    found = replace(seen.run, ended_at=at, outcome=outcome, reason=reason, exit_code=exit_code, owner=owner, code=code,
                    pid=seen.pid, process_started=seen.process_started)  # fmt: skip
    if seen.status is None:
        return found
    return replace(found, epoch=seen.status.epoch or None, restarts_per_hour=seen.status.restarts_per_hour)


def ended_how(run: Run) -> str:
    """In words."""
    why = f": {run.reason}" if run.reason else ""
    return f"{run.outcome}{why}"
