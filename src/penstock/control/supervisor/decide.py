"""What to do about one pipeline. Pure: all that counts comes in, the clock too, and a decision and its reason come out.

All times are those of a steady clock, so that setting the time of day neither starts, stops nor delays anything.

A run that fails is started again after a pause that doubles, so often an hour. Who has to act decides how long that
goes on: a mistake in the pipeline or its setup is not tried again before somebody has changed something; what fails
outside is tried for ever; what looks like a bug is given up when the hour's budget is used.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from penstock.control.supervisor.health import Health, span
from penstock.control.supervisor.ports import Notice, Operation, Refusal, Run, State, Wanted

Kind = Literal["nothing", "start", "stop", "kill", "adopt", "wait", "give_up", "fail_over"]

RESTARTS_PER_HOUR = 6
FIRST_PAUSE = 2.0
LONGEST_PAUSE = 300.0
STOP_PATIENCE = dt.timedelta(minutes=2)
"""How long a run may take to finish its batch and stop."""
SILENT_TOO_LONG = dt.timedelta(seconds=60)
"""After so long without a sign of life a run is killed, and its state taken over."""
KILL_PATIENCE = dt.timedelta(seconds=30)
"""A process that a kill has not ended by then hangs in the kernel; another run takes its state over."""
BIRTH_PATIENCE = dt.timedelta(seconds=60)
"""A run that was begun and has not reported by then was never started."""
LASTED = dt.timedelta(minutes=10)
_HOUR = dt.timedelta(hours=1)
_FOR_PEOPLE = ("author", "operator")
_MAY_PASS = ("DISK_FULL", "JVM_FAILED", "JARS_UNAVAILABLE", "STATE_IN_USE", "FENCED", "SINK_FENCED")
"""Where an operator should act, but it may be right again without the pipeline being changed."""
_MAY_BE_CHANCE = ("JVM_DIED",)
"""Where trying again may help; if it does not, somebody should know."""


@dataclass(frozen=True)
class Decision:
    kind: Kind
    reason: str
    state: State
    """What the pipeline is in, once this is done."""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """An operation that needs the state of a pipeline for itself."""

    operation: Operation
    state: State
    """What the pipeline is in meanwhile."""
    purpose: str
    evidence: str


@dataclass(frozen=True)
class Case:
    """All that counts for one pipeline."""

    wanted: Wanted
    run: Run | None
    """The open run, if there is one."""
    health: Health | None = None
    silent: dt.timedelta = dt.timedelta(0)
    """For how long the open run has given no sign of life."""
    adopted: bool = True
    """Whether this server knows the open run already."""
    past: Sequence[Run] = ()
    """Runs that have ended, the oldest first: at least the newest, and those of the last hour."""
    targets: Sequence[str] = ("local",)
    """The one it runs on, or should, and those it may move to, in their order."""
    configured: Collection[str] | None = None
    """All targets that the server knows; None if that does not count."""
    notices: Sequence[Notice] = ()
    held: Held | None = None
    """What needs its state, if anything does: then nothing else may have it."""
    ahead: dt.timedelta = dt.timedelta(0)
    """How far the time of day is ahead of the clock by which all times here are told."""


def recent(past: Sequence[Run], now: dt.datetime) -> list[Run]:
    """Those that count: the newest, and those started within the last hour. A store that goes by the time of day may
    have told more."""
    return [run for run in past[:-1] if run.started_at > now - _HOUR] + list(past[-1:])


def decide(case: Case, now: dt.datetime) -> Decision:
    """What to do now."""
    if case.run is None:
        return _without_run(case, now)
    return _with_run(case, case.run, now)


def refused(decision: Decision, refusal: Refusal) -> Decision:
    """What is done instead of a start, or with a run that an earlier server has started, that may not be."""
    data = {"code": refusal.problem.get("code"), "owner": refusal.problem.get("owner")}
    if decision.kind == "adopt":
        return Decision("stop", refusal.reason, "STOPPING", data)
    if refusal.may_pass:
        return Decision("wait", refusal.reason, "BACKING_OFF", data)
    return Decision("give_up", refusal.reason, "FAILED", data)


# --- a run is open -----------------------------------------------------------------------------------------


def _with_run(case: Case, run: Run, now: dt.datetime) -> Decision:
    if run.kill_asked_at is not None:
        return _killed(run, now)
    if run.stop_asked_at is not None:
        return _stopping(case, run, now)
    if case.held is not None:
        return Decision("stop", case.held.purpose, "STOPPING", {"operation": case.held.operation.id})
    if case.wanted.desired == "stopped":
        return Decision("stop", "it should not run", "STOPPING")
    if not case.wanted.suits(run.version):
        return Decision("stop", f"version {case.wanted.version} takes the place of {run.version}", "STOPPING")
    moving = _away(case, run, now)
    if moving is not None:
        return moving
    if case.silent >= SILENT_TOO_LONG:
        reason = f"no sign of life for {span(case.silent)}"
        return Decision("kill", reason, "STALLED", {"take_over": True})
    health = case.health or Health("STARTING", "its process starts")
    kind: Kind = "nothing" if case.adopted else "adopt"
    return Decision(kind, health.evidence, health.state)


def _away(case: Case, run: Run, now: dt.datetime) -> Decision | None:
    """Whether it has to leave the target it runs on."""
    notice = _notice_for(case, run.target)
    if notice is not None:
        place = next_target(case, run.target)
        if place is None:
            return None
        reason = f"target '{run.target}' will be taken away ({notice.heard_from}); it moves to '{place}'"
        return Decision("fail_over", reason, "STOPPING", {"to": place, "noticed_at": notice.at})
    if run.target != case.wanted.target:
        return Decision("stop", f"it should run on target '{case.wanted.target}'", "STOPPING")
    return None


def _stopping(case: Case, run: Run, now: dt.datetime) -> Decision:
    assert run.stop_asked_at is not None
    notice = _notice_for(case, run.target)
    deadline = run.stop_asked_at + STOP_PATIENCE
    if notice is not None and notice.deadline is not None:
        deadline = min(deadline, notice.deadline)
    if now >= deadline:
        return Decision("kill", f"it has not stopped in {span(now - run.stop_asked_at)}", "STOPPING")
    return Decision("wait", run.stop_reason or "it was asked to stop", "STOPPING")


def _killed(run: Run, now: dt.datetime) -> Decision:
    assert run.kill_asked_at is not None
    if now - run.kill_asked_at < KILL_PATIENCE:
        return Decision("wait", "it was killed", "STOPPING")
    return Decision("give_up", "its process does not end; a new run takes its state over", "STALLED", {"abandon": True})


# --- no run is open ----------------------------------------------------------------------------------------


def _without_run(case: Case, now: dt.datetime) -> Decision:
    if case.held is not None:
        return Decision("wait", case.held.evidence, case.held.state)
    if case.wanted.desired == "stopped":
        return Decision("nothing", "it should not run", "STOPPED")
    last = case.past[-1] if case.past else None
    place = _place_to_run(case)
    if place is None:
        return Decision(
            "wait", f"target '{case.wanted.target}' is being taken away, and there is no other", "BACKING_OFF"
        )
    if case.configured is not None and place not in case.configured:
        return Decision("give_up", f"there is no target '{place}' in the configuration of the server", "FAILED")
    if last is None:
        return _start(place, "it should run")
    if case.wanted.generation > last.generation:
        return _start(place, "it was changed or started anew", last)
    if last.stop_asked_at is not None:
        return _start(place, last.stop_reason or "it was stopped to be started again", last)
    if last.outcome == "done":
        return Decision("nothing", "it has come to its end", "STOPPED")
    if last.outcome == "stopped":
        return _stopped_from_outside(case, place, last, now)
    return _after_failure(case, place, last, now)


def _start(place: str, reason: str, last: Run | None = None) -> Decision:
    """An unanswering run that was killed may still hold the state."""
    taken = last is not None and last.kill_asked_at is not None
    return Decision("start", reason, "STARTING", {"target": place, "take_over": taken})


def _stopped_from_outside(case: Case, place: str, last: Run, now: dt.datetime) -> Decision:
    """Somebody else told it to stop, as a machine does that is shut down: it goes on elsewhere if it can."""
    if place == last.target:
        place = next_target(case, last.target) or place
    waits = _pause(case, last, now)
    if waits is not None:
        return waits
    return _start(place, f"run {last.id} was stopped from outside", last)


def _after_failure(case: Case, place: str, last: Run, now: dt.datetime) -> Decision:
    cause = last.reason or "it ended without a word"
    owner = class_of(last)
    if owner in _FOR_PEOPLE:
        return Decision("give_up", cause, "FAILED", {"owner": last.owner, "code": last.code})
    budget, used = _budget(case), _restarts(case, now)
    if len(used) >= budget:
        if owner == "external":
            again = (used[0].started_at if used else now) + _HOUR + case.ahead
            reason = f"{cause} ({_count(len(used))} in the last hour; next at {again:%H:%M:%S}Z)"
            return Decision("wait", reason, "BACKING_OFF", {"next_at": again.isoformat()})
        return Decision("give_up", f"{cause} ({_count(len(used))} in the last hour)", "FAILED", {"code": last.code})
    return _pause(case, last, now) or _start(place, f"after a failure: {cause}", last)


def class_of(run: Run) -> str:
    """Whose a failure is, as far as starting again goes: author, operator, external or bug."""
    if run.code in _MAY_PASS:
        return "external"
    if run.code in _MAY_BE_CHANCE or run.owner is None:
        return "bug"
    return run.owner


def _pause(case: Case, last: Run, now: dt.datetime) -> Decision | None:
    assert last.ended_at is not None
    again = last.ended_at + dt.timedelta(seconds=pause(in_a_row(case.past), last.id))
    if now >= again:
        return None
    cause = last.reason or "it ended without a word"
    reason = f"{cause} (next start in {span(again - now + dt.timedelta(seconds=1))})"
    return Decision("wait", reason, "BACKING_OFF", {"next_at": (again + case.ahead).isoformat()})


def in_a_row(past: Sequence[Run]) -> int:
    """How many runs have failed one after the other, each before it had lasted."""
    count = 0
    for run in reversed(past):
        if run.stop_asked_at is not None or run.outcome in ("done", None):
            break
        count += 1
        if run.lasted:
            break
    return count


def pause(failures: int, run: str) -> float:
    """Seconds until the next start: twice as long each time, and not the same for all that fail at once."""
    exponent = min(max(failures, 1) - 1, 20)
    chance = int.from_bytes(hashlib.sha256(run.encode()).digest()[:4]) / 2**32
    return min(FIRST_PAUSE * 2.0**exponent, LONGEST_PAUSE) * (0.75 + chance / 2)


def _budget(case: Case) -> int:
    if case.wanted.restarts_per_hour is not None:
        return case.wanted.restarts_per_hour
    known = [run.restarts_per_hour for run in case.past if run.restarts_per_hour is not None]
    return known[-1] if known else RESTARTS_PER_HOUR


def _restarts(case: Case, now: dt.datetime) -> list[Run]:
    """The starts of the last hour that followed a failure of the same generation."""
    found = []
    for before, run in pairwise(case.past):
        again = before.stop_asked_at is None and before.generation == run.generation == case.wanted.generation
        if again and run.started_at > now - _HOUR:
            found.append(run)
    return found


def _count(restarts: int) -> str:
    return "1 restart" if restarts == 1 else f"{restarts} restarts"


# --- where it runs -----------------------------------------------------------------------------------------


def _notice_for(case: Case, target: str) -> Notice | None:
    return next((notice for notice in case.notices if notice.target == target), None)


def next_target(case: Case, target: str) -> str | None:
    """The target after this one in the list that nobody takes away; None if there is none."""
    names = list(case.targets)
    start = names.index(target) + 1 if target in names else 0
    others = [name for name in (*names[start:], *names[:start]) if name != target]
    return next((name for name in others if _notice_for(case, name) is None), None)


def _place_to_run(case: Case) -> str | None:
    if _notice_for(case, case.wanted.target) is None:
        return case.wanted.target
    return next_target(case, case.wanted.target)
