"""Sees to operations: looks at them, notes what became of them, and begins what it is the turn of."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from penstock.access.limits import Access
from penstock.control.clock import Moments
from penstock.control.supervisor.act import Processes, remove_old_runs
from penstock.control.supervisor.decide import Held
from penstock.control.supervisor.operations import (
    DONE,
    PURPOSE,
    STATES,
    Seen,
    Step,
    evidence,
    holds,
    in_turn,
    next_step,
)
from penstock.control.supervisor.ports import (
    AccessOf,
    Admission,
    Changes,
    Event,
    Failure,
    Folders,
    Operation,
    Run,
    Steered,
    Wanted,
)
from penstock.errors import PenstockError
from penstock.reports.codec import plain
from penstock.reports.folder import OperationFolder
from penstock.reports.processes import is_alive, works_in
from penstock.reports.savepoint_requests import Asked, Requests
from penstock.reports.state_folder import state_facts
from penstock.reports.values import OperationEnd, OperationOrder, OperationStatus

_ON_STATE_ALONE = ("savepoint", "verify", "abandon")
"""Operations that neither read sources nor write to sinks."""
KEPT = 20
"""Folders of operations that have ended, of each pipeline."""


@dataclass(frozen=True)
class AtWork:
    """An operation that is under way or waits, and how far it is."""

    operation: Operation
    status: OperationStatus | None = None

    @property
    def evidence(self) -> str:
        return evidence(self.operation, self.status)


def held(at_work: Sequence[AtWork], run: Run | None) -> Held | None:
    """The operation that decides what becomes of runs, if there is one."""
    found = next((item for item in at_work if holds(item.operation, run)), None)
    if found is None:
        return None
    kind = found.operation.kind
    return Held(found.operation, STATES[kind], PURPOSE[kind], found.evidence)


class Noting(Protocol):
    """As much of a tick as operations need."""

    @property
    def now(self) -> dt.datetime: ...
    @property
    def steady(self) -> dt.datetime: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def acts(self) -> list[Callable[[], None]]: ...


class Operating:
    """The operations of all pipelines. `note` keeps what becomes known after a tick has been saved."""

    def __init__(
        self,
        folders: Folders,
        admission: Admission,
        processes: Processes,
        note: Callable[[Changes], None],
        moments: Moments,
        access: AccessOf,
        limits: Callable[[Wanted], Access | None],
    ) -> None:
        self._folders = folders
        self._admission = admission
        self._processes = processes
        self._note = note
        self._moments = moments
        self._access = access
        self._limits = limits

    def see_to(self, tick: Noting, wanted: Wanted, run: Run | None, asked: Sequence[Operation]) -> list[AtWork]:
        """Those of a pipeline that have not ended, in the order in which they were asked for."""
        left: list[AtWork] = []
        turn = in_turn(asked)
        for operation in asked:
            if operation not in turn:
                left.append(AtWork(operation))
                continue
            seen = self._look(operation)
            step = next_step(self._moments.operation(operation), seen, run, tick.steady)
            now = self._do(tick, wanted, operation, step, run, seen)
            if now.open:
                left.append(AtWork(now, seen.status if step.kind == "nothing" else None))
        return left

    # --- looking -----------------------------------------------------------------------------------------------

    def _look(self, operation: Operation) -> Seen:
        folder = self._folder(operation)
        status = folder.status
        pid, started = operation.pid, operation.process_started
        own = True
        if pid is None and status is not None and status.operation == operation.id:
            # The server could not note which process it is; it tells that itself, and must not name another's.
            pid, started = status.pid, status.process_started
            own = works_in(pid, folder.path)
        # Whether it lives is asked first: one that ends in between has then written its end.
        alive = own and pid is not None and started is not None and is_alive(pid, started)
        if operation.run is None or operation.begun_at is not None:
            return Seen(alive, pid, started, status, folder.end)
        # A request goes once it is answered, so it is looked for before the answer is.
        asked = self._requests(operation).is_asked(operation.id)
        return Seen(alive, pid, started, status, folder.end, self._answer(operation), asked)

    def _answer(self, operation: Operation) -> OperationEnd | None:
        """What the run has answered."""
        found = self._requests(operation).answered(operation.id)
        if found is None:
            return None
        at = dt.datetime.now(dt.UTC)
        if found.problems:
            return OperationEnd(operation.id, at, "failed", {}, found.problems)
        name = Path(found.folder or "").name
        return OperationEnd(operation.id, at, "done", {"savepoint": name, "heldSeconds": found.held_seconds})

    # --- doing -------------------------------------------------------------------------------------------------

    def _do(
        self, tick: Noting, wanted: Wanted, operation: Operation, step: Step, run: Run | None, seen: Seen
    ) -> Operation:
        if step.kind == "nothing":
            now = replace(operation, pid=seen.pid, process_started=seen.process_started)
        elif step.kind == "ask":
            assert run is not None
            now = replace(operation, run=run.id)
            tick.acts.append(lambda: self._ask(now))
        elif step.kind == "begin":
            now = replace(
                operation, begun_at=tick.now, attempts=operation.attempts + 1, pid=None, process_started=None,
                result=operation.result or {"side": self._side(operation)},
            )  # fmt: skip
            self._event(tick, now, "operation", f"{operation.kind}: {step.reason}")
            tick.acts.append(lambda: self._begin(wanted, now))
        elif step.kind == "kill":
            now = operation
            pid, started = seen.pid, seen.process_started
            if pid is not None and started is not None:
                tick.acts.append(lambda: self._processes.kill(pid, started))
        else:
            now = self._end(tick, operation, step)
        if now != operation:
            tick.changes.operations[now.id] = now
        return now

    def _end(self, tick: Noting, operation: Operation, step: Step) -> Operation:
        tick.acts.append(lambda: self._forget_request(operation))
        tick.acts.append(lambda: self._processes.tidy(self._folder(operation)))
        if step.problem is None:
            ended = replace(operation, ended_at=tick.now, outcome="done", result=dict(step.result))
            # Those that were taken are noted as they are found, also if nobody has asked for them.
            if operation.kind != "savepoint":
                self._event(tick, ended, DONE[operation.kind], _told(ended), **_short(step.result))
            return ended
        # One that ended without a word may have come as far as the new side.
        told = "begun" in step.result
        moved = "side" in operation.result and operation.result["side"] != self._side(operation)
        return _failed(tick, operation, step.problem, begun=bool(step.result["begun"]) if told else moved)

    def _ask(self, operation: Operation) -> None:
        asked = operation.asked
        # Where that is not possible now, the next tick finds that it was not asked.
        with suppress(OSError):
            self._requests(operation).ask(Asked(asked.get("name"), str(asked.get("note", ""))), operation.id)

    def _forget_request(self, operation: Operation) -> None:
        with suppress(OSError):
            self._requests(operation).forget(operation.id)

    def _begin(self, wanted: Wanted, operation: Operation) -> None:
        folder = self._folder(operation)
        versions = [wanted.version]
        if "fileKind" in operation.asked:
            versions.append(int(operation.asked["version"]))
        try:
            self._forget_request(operation)
            order = self._order(wanted, operation)
            pid, started = self._processes.operate(folder, order, self._access(wanted, versions))
            self._note(Changes(operations={operation.id: replace(operation, pid=pid, process_started=started)}))
        except PenstockError as error:
            # The next tick finds that there is no process, and tries again.
            event = Event(dt.datetime.now(dt.UTC), "operation", error.problems[0].message, operation.pipeline)
            self._note(Changes(events=[event]))
        with suppress(OSError):
            remove_old_runs(folder.path.parent, KEPT, frozenset({operation.id}))

    def _order(self, wanted: Wanted, operation: Operation) -> OperationOrder:
        """Raises OPERATION_FAILED, or why the project does not let the pipeline run."""
        asked, version = dict(operation.asked), wanted.version
        if "of" in asked:
            asked["of"] = str(self._folders.state(str(asked["of"])))
        if "fileKind" in asked:
            version = int(asked["version"])
            asked["file"] = str(self._folders.version(operation.pipeline, version, str(asked["fileKind"])))
        refusal = None
        if operation.kind not in _ON_STATE_ALONE:
            refusal = self._admission.refusal(wanted, wanted.target, version)
        target = self._admission.targets(wanted).get(wanted.target)
        if refusal is not None or target is None:
            reason = refusal.reason if refusal is not None else f"target '{wanted.target}' is not there for it"
            raise PenstockError.of("OPERATION_FAILED", reason=reason)
        if not wanted.file:
            raise PenstockError.of("OPERATION_FAILED", reason="the pipeline file cannot be written")
        return OperationOrder(
            operation.id,
            operation.kind,
            operation.pipeline,
            wanted.file,
            str(self._admission.folder(wanted)),
            str(self._folders.state(operation.pipeline)),
            asked,
            target.master,
            dict(target.conf),
            target.driver_memory,
            dict(target.jars),
            self._limits(wanted),
        )

    def _event(self, tick: Noting, operation: Operation, kind: str, text: str, **data: Any) -> None:
        more = {"operation": operation.id, "kind": operation.kind, **data}
        tick.changes.events.append(Event(tick.now, kind, text, operation.pipeline, None, more))

    def _side(self, operation: Operation) -> str:
        """What tells the state before the work from the one after it."""
        found = state_facts(self._folders.state(operation.pipeline))
        text = "" if found is None else json.dumps([found.partitions, plain(found.version)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _requests(self, operation: Operation) -> Requests:
        return Requests(self._folders.state(operation.pipeline))

    def _folder(self, operation: Operation) -> OperationFolder:
        return OperationFolder(self._folders.operation(operation.pipeline, operation.id))


def _failed(tick: Noting, operation: Operation, problem: Mapping[str, Any], *, begun: bool) -> Operation:
    """Notes that it came to nothing: the state is as it was, and so is the version, if it was to be another.

    What has `begun` to be so could not be undone; the next run goes on with it.
    """
    message = str(problem.get("message", ""))
    # What a process said is a whole problem; what was seen of it is only told.
    whole = "hint" in problem
    ended = replace(operation, ended_at=tick.now, outcome="failed", reason=message,
                    code=str(problem.get("code", "")), owner=str(problem.get("owner", "bug")),
                    result={"problem": dict(problem)} if whole else {})  # fmt: skip
    data = {"operation": operation.id, "kind": operation.kind, "code": ended.code}
    text = f"{operation.kind} failed: {message}"
    if operation.back_to is not None and not begun:
        tick.changes.steered[operation.pipeline] = Steered(version=operation.back_to)
        text += f"; it goes on with version {operation.back_to}"
    if operation.kind == "fork":
        # Without the state it was to begin with, it would begin with nothing.
        tick.changes.steered[operation.pipeline] = Steered(desired="stopped")
    tick.changes.events.append(Event(tick.now, "operation_failed", text, operation.pipeline, None, data))
    if whole:
        tick.changes.failures.append(Failure(operation.pipeline, None, tick.now, problem))
    return ended


def _told(operation: Operation) -> str:
    found = operation.result
    if operation.kind == "rescale":
        return f"its state is divided into {(found.get('rescaled') or {}).get('after')} partitions now"
    if operation.kind in ("restore", "fork"):
        return f"it goes on after batch {found.get('batch')}, from savepoint {found.get('savepoint')}"
    if operation.kind == "verify":
        damages = found.get("damages") or ()
        return f"savepoint {found.get('savepoint')} is {'damaged' if damages else 'whole'}"
    if operation.kind == "upgrade":
        return "its state was carried over" if found.get("savepoint") else "its state fitted as it was"
    if operation.kind == "takeover":
        return f"version {operation.asked.get('version')} has taken over after batch {found.get('batch')}"
    if operation.kind in ("cutover", "abandon"):
        return "nothing follows it any more" if operation.kind == "cutover" else "the cut-over is given up"
    if operation.kind == "compare":
        return "it was compared with its new version"
    if operation.kind == "accept_gap":
        return f"it runs without what sink {operation.asked.get('sink')} has lost"
    return PURPOSE[operation.kind]


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("damages", "sinks")}
