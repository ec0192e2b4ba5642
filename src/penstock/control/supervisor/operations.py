"""What to do about an operation. Pure: what is known of it comes in, a step and its reason come out.

A savepoint is asked of the run that there is. What only reads, or works beside the state, is done by a process of its
own while the pipeline runs. Everything else needs the state for itself, so the run is stopped first. A process that
dies is followed by another: the state folder is found on the old side or the new one, and the work goes on from there.
After a few it is given up.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.control.supervisor.decide import BIRTH_PATIENCE
from penstock.control.supervisor.ports import Operation, OperationKind, Run, State
from penstock.reports.values import OperationEnd, OperationStatus

ATTEMPTS = 3
"""How often a process may die over an operation."""
StepKind = Literal["nothing", "ask", "begin", "kill", "end"]

STATES: Mapping[OperationKind, State] = {
    "savepoint": "SAVING",
    "restore": "RESTORING",
    "fork": "RESTORING",
    "rescale": "RESCALING",
    "upgrade": "UPGRADING",
    "takeover": "UPGRADING",
    "accept_gap": "UPGRADING",
}
DONE: Mapping[OperationKind, str] = {
    "savepoint": "savepoint_taken",
    "verify": "savepoint_verified",
    "restore": "restored",
    "fork": "forked",
    "rescale": "rescaled",
    "upgrade": "upgraded",
    "cutover": "cutover_ended",
    "compare": "cutover_compared",
    "takeover": "taken_over",
    "abandon": "cutover_given_up",
    "accept_gap": "gap_accepted",
}
"""What is noted on the timeline when one is done."""
PURPOSE: Mapping[OperationKind, str] = {
    "savepoint": "a savepoint is to be taken",
    "verify": "a savepoint is to be verified",
    "restore": "a savepoint is to be restored",
    "fork": "it is to begin from a savepoint",
    "rescale": "its state is to be divided anew",
    "upgrade": "its state is to be carried over",
    "cutover": "a new version is to follow it",
    "compare": "it is to be compared with its new version",
    "takeover": "its new version is to take over",
    "abandon": "a cut-over is to be given up",
    "accept_gap": "it is to run without what a sink has lost",
}
BESIDE: frozenset[OperationKind] = frozenset({"verify", "cutover", "compare", "abandon"})
"""Those that leave the state alone, so that runs and other operations go on beside them."""


@dataclass(frozen=True)
class Seen:
    """What is to be seen of an operation now."""

    alive: bool = False
    pid: int | None = None
    process_started: str | None = None
    status: OperationStatus | None = None
    end: OperationEnd | None = None
    answer: OperationEnd | None = None
    """What the run has answered that was asked for it."""
    asked: bool = True
    """Whether the request to the run is still there."""


@dataclass(frozen=True)
class Step:
    kind: StepKind
    reason: str = ""
    problem: Mapping[str, Any] | None = None
    """Why it failed, if it ends with that: as `penstock.errors.Problem.as_dict`."""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.problem is not None


NOTHING = Step("nothing")


def needs_state(operation: Operation) -> bool:
    """Whether no run may have the state meanwhile."""
    return operation.kind != "savepoint" and operation.kind not in BESIDE


def holds(operation: Operation, run: Run | None) -> bool:
    """Whether it decides what becomes of runs: one that is there has to stop, or none may be started."""
    return operation.kind not in BESIDE and (run is None or needs_state(operation))


def in_turn(operations: Sequence[Operation]) -> list[Operation]:
    """Those that it is the turn of: the first, and what is done beside it."""
    first = next((item for item in operations if item.kind not in BESIDE), None)
    return [item for item in operations if item is first or item.kind in BESIDE]


def evidence(operation: Operation, status: OperationStatus | None) -> str:
    """In words, what is going on."""
    if status is None:
        return PURPOSE[operation.kind]
    if status.done is None or not status.total:
        return status.stage
    return f"{status.stage} ({100 * status.done // status.total} %)"


def next_step(operation: Operation, seen: Seen, run: Run | None, now: dt.datetime) -> Step:
    """What to do now; `run` is the open run of its pipeline."""
    if operation.cancelled_by is not None:
        return _cancelled(operation, seen)
    if operation.run is not None and operation.pid is None and operation.attempts == 0:
        return _asked(operation, seen, run)
    if operation.begun_at is None:
        return _not_begun(operation, run)
    return _begun(operation, seen, now)


def _cancelled(operation: Operation, seen: Seen) -> Step:
    """What it has said before it was ended counts."""
    if operation.begun_at is not None and seen.alive:
        return Step("kill", f"{operation.cancelled_by} no longer wants it")
    end = seen.answer or (seen.end if seen.end is not None and seen.end.operation == operation.id else None)
    if end is not None:
        return _ended(end)
    reason = f"{operation.cancelled_by} no longer wanted it"
    return Step("end", problem={"code": "OPERATION_CANCELLED", "message": reason, "owner": "operator"})


def _not_begun(operation: Operation, run: Run | None) -> Step:
    if operation.kind == "savepoint" and run is not None:
        return Step("ask", f"run {run.id} takes it")
    if needs_state(operation) and run is not None:
        return NOTHING
    return Step("begin", PURPOSE[operation.kind])


def _asked(operation: Operation, seen: Seen, run: Run | None) -> Step:
    if seen.answer is not None:
        return _ended(seen.answer)
    if run is not None and run.id == operation.run:
        # A server that was killed may have noted that it asks, and no more.
        return NOTHING if seen.asked else Step("ask", f"run {run.id} takes it")
    if run is not None:
        return Step("ask", f"run {run.id} takes it, as run {operation.run} has ended")
    return Step("begin", f"run {operation.run} has ended before it had taken it")


def _begun(operation: Operation, seen: Seen, now: dt.datetime) -> Step:
    assert operation.begun_at is not None
    # One that lives still has its folders open; its word counts once it has ended.
    if seen.alive:
        return NOTHING
    if seen.end is not None and seen.end.operation == operation.id:
        return _ended(seen.end)
    if seen.pid is None and now - operation.begun_at < BIRTH_PATIENCE:
        return NOTHING
    if operation.attempts < ATTEMPTS:
        return Step("begin", "its process ended without a word; what it has begun is gone on with")
    reason = f"its process ended without a word {operation.attempts} times"
    return Step("end", problem={"code": "OPERATION_FAILED", "message": reason, "owner": "operator"})


def _ended(end: OperationEnd) -> Step:
    if end.outcome == "done":
        return Step("end", result=end.result)
    first = next(iter(end.problems), {"code": "OPERATION_FAILED", "message": "it did not say why", "owner": "bug"})
    return Step("end", problem=first, result=end.result)
