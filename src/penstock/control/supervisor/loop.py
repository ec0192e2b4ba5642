"""The supervisor: on every tick it looks, decides and acts for all pipelines, with one read and one write of the store.

Looking never acts, deciding is pure, and what was decided is noted before it is done. When the store cannot be
reached, the supervisor goes on with what it knows and notes later what has happened.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.access.limits import Access
from penstock.control.clock import Clock, Moments, notice_key
from penstock.control.launch.access import ProcessAccess
from penstock.control.supervisor import failover, health
from penstock.control.supervisor.act import Processes, remove_old_runs
from penstock.control.supervisor.decide import Case, Decision, decide, recent, refused
from penstock.control.supervisor.endings import ended_how, settled
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.notices.base import Listening
from penstock.control.supervisor.observe import Observation, observe
from penstock.control.supervisor.open_admission import OpenAdmission
from penstock.control.supervisor.operating import AtWork, Operating, held
from penstock.control.supervisor.ports import (
    AccessOf,
    Admission,
    BatchOf,
    Changes,
    Event,
    Failover,
    Failure,
    Folders,
    Lease,
    Operation,
    Run,
    Snapshot,
    StateChange,
    Store,
    Target,
    Wanted,
    after,
)
from penstock.control.supervisor.savepoints import SavepointWatch
from penstock.control.supervisor.watched import Live, Watched, calm, lasted
from penstock.errors import PenstockError
from penstock.reports.folder import Cursor, RunFolder
from penstock.reports.values import RunOrder

TICK_SECONDS = 1.0
RUNS_KEPT = 20
"""Folders of runs that have ended, of each pipeline."""
NOTED_EVERY = dt.timedelta(seconds=10)
"""After how long it is noted anew up to where the batches of a run have been read."""
_BREATH = 0.001
"""Seconds between the looks at two pipelines, in which requests are answered."""
_HOUR = dt.timedelta(hours=1)
_QUIET_KINDS = ("nothing", "wait")
_MOST_PENDING = 100_000

_log = logging.getLogger("penstock.supervisor")


@dataclass
class Tick:
    """What a tick has found and wants to do; `acts` are done after `changes` have been noted."""

    now: dt.datetime
    """The time of day, which is written down."""
    steady: dt.datetime
    """The time by which everything is decided."""
    snapshot: Snapshot
    acting: bool = True
    """Whether anything may be decided; otherwise it is only looked."""
    changes: Changes = field(default_factory=Changes)
    acts: list[Callable[[], None]] = field(default_factory=list)
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def event(self, kind: str, text: str, pipeline: str | None = None, run: str | None = None, **data: Any) -> None:
        self.changes.events.append(Event(self.now, kind, text, pipeline, run, data))


class Supervisor:
    """Runs in a thread of the server, or tick by tick in tests."""

    def __init__(
        self,
        store: Store,
        folders: Folders,
        targets: Callable[[], Mapping[str, Target]],
        *,
        base: Path,
        admission: Admission | None = None,
        limits: Callable[[Wanted], Access | None] = lambda wanted: None,
        processes: Processes | None = None,
        listening: Listening | None = None,
        lease: Lease | None = None,
        clock: Clock | None = None,
        access: AccessOf = lambda wanted, versions: ProcessAccess(),
    ) -> None:
        self.store = store
        self.folders = folders
        self.targets = targets
        self.limits = limits
        """What a pipeline may open."""
        self.admission = admission or OpenAdmission(base, targets)
        """What each pipeline may use; without one, all targets and the one folder `base`."""
        self.processes = processes or Processes()
        self.listening = listening
        self.lease = lease
        """The right to act for the store's pipelines; without one it is not in question."""
        self.clock = clock or Clock()
        self.access = access
        self.known = Snapshot()
        self.store_down: str | None = None
        """Why the store cannot be reached, while it cannot."""
        self.trouble: str | None = None
        """What the last tick failed of that did."""
        self.last_tick: dt.datetime | None = None
        """When, on the steady clock, it was last done."""
        self.last_tick_seconds = 0.0
        self._loaded = False
        self._pending = Changes()
        self._watched: dict[str, Watched] = {}
        self._live: dict[str, Live] = {}
        self._breathe: Callable[[], None] = lambda: None
        self._moments = Moments(self.clock)
        self._operating = Operating(
            folders, self.admission, self.processes, self._note_later, self._moments, access, limits
        )
        self._savepoints = SavepointWatch(folders)
        self._over = threading.Event()
        self._asked = threading.Event()

    # --- the thread ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Ticks until `end` is called. Runners are left alone: they go on, and are adopted by the next server."""
        self._breathe = lambda: time.sleep(_BREATH)
        while not self._over.is_set():
            self._asked.clear()
            began = time.monotonic()
            try:
                self.tick()
                self.trouble = None
            except Exception as error:
                # A tick that fails must not be the last one.
                trouble = f"{type(error).__name__}: {error}"
                if trouble != self.trouble:
                    _log.error("the supervisor failed", exc_info=error)
                self.trouble = trouble
            self.last_tick_seconds = time.monotonic() - began
            self._asked.wait(max(TICK_SECONDS - self.last_tick_seconds, 0.05))

    def wake(self) -> None:
        """Lets the next tick come at once, as something is wanted."""
        self._asked.set()

    def end(self) -> None:
        self._over.set()
        self._asked.set()

    def live(self) -> dict[str, Live]:
        """What was last seen of each pipeline."""
        return dict(self._live)

    # --- one tick --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        now, steady = self.clock.both()
        self.processes.collect()
        acts = self._may_act()
        if self.lease is not None and self.lease.taken:
            self._stand_back()
            return
        if not self._load(now, acts=acts):
            return
        tick = Tick(now, steady, self.known, acts)
        self._hear(tick)
        runs, operations = _by_pipeline(self.known.runs), _asked_of(self.known.operations)
        for wanted in self.known.pipelines:
            try:
                self._see_to(tick, wanted, runs.get(wanted.name, []), operations.get(wanted.name, []))
            except Exception as error:
                # One pipeline that cannot be seen to must not keep the others from it.
                self._note_trouble(tick, wanted, error)
            self._breathe()
        self._save(tick)
        self._forget()
        # The tick may have taken long.
        if tick.acts and self._may_act():
            for act in tick.acts:
                act()
        self.last_tick = steady

    def _may_act(self) -> bool:
        return self.lease is None or self.lease.held()

    def _stand_back(self) -> None:
        """Another server decides now: what is not noted yet is no longer for this one to note."""
        self._pending, self._loaded = Changes(), False
        self._watched, self._live = {}, {}
        self._savepoints.forget()
        self.last_tick = self.clock.steady()

    def _load(self, now: dt.datetime, *, acts: bool) -> bool:
        """Brings what is known up to date; False if nothing is known yet.

        While it is not sure that nobody else acts, what has happened waits to be noted, and what is known stays.
        """
        if not acts:
            return self._loaded
        try:
            if self._pending:
                self.store.save(self._pending)
                self._pending = Changes()
            self.known = self.store.load(self.clock.earliest(_HOUR))
            if not self._loaded and self.listening is not None:
                self.listening.restore(tuple(self.known.notices))
            self._loaded = True
            self.store_down = None
        except PenstockError as error:
            self.store_down = error.problems[0].message
        except Exception as error:
            # What can never be noted must not keep everything else from being noted.
            self._pending = Changes(events=[_trouble(error, now)])
            raise
        return self._loaded

    def _save(self, tick: Tick) -> None:
        self._see(tick.changes)
        if not tick.changes:
            return
        if self._pending or self.store_down is not None or not tick.acting:
            self._keep(tick.changes)
            return
        try:
            self.store.save(tick.changes)
        except PenstockError as error:
            self.store_down = error.problems[0].message
            self._keep(tick.changes)
            return
        self._note_cursors(tick.cursors)

    def _keep(self, changes: Changes) -> None:
        """Keeps what could not be noted; of batches and events the newest, should it go on for days."""
        self._pending.join(changes)
        del self._pending.batches[:-_MOST_PENDING]
        del self._pending.events[:-_MOST_PENDING]

    def _note_later(self, changes: Changes) -> None:
        """What became known after the tick was saved."""
        self._see(changes)
        self._keep(changes)

    def _see(self, changes: Changes) -> None:
        """What has just happened is known by the steady clock before anybody can set the time of day."""
        self.known = after(self.known, changes)
        for run in changes.runs.values():
            self._moments.run(run)
        for operation in changes.operations.values():
            self._moments.operation(operation)

    def _note_cursors(self, cursors: Mapping[str, Cursor]) -> None:
        """Now and then, and not all in one tick: batches that are read again after a crash are not noted twice."""
        now, runs = self.clock.steady(), {run.id: run for run in self.known.runs}
        due = [
            (watched, runs[run], cursor)
            for run, cursor in cursors.items()
            if run in runs and (watched := self._watched.get(run)) and now - watched.noted_at >= NOTED_EVERY
        ]
        for watched, run, cursor in sorted(due, key=lambda item: item[0].noted_at)[: len(cursors) // 5 + 1]:
            with suppress(OSError):
                self._folder(run).note_cursor(cursor)
            watched.noted_at = now

    def _note_trouble(self, tick: Tick, wanted: Wanted, error: Exception) -> None:
        found = _trouble(error, tick.now, wanted.name)
        if wanted.state_reason != found.text:
            tick.changes.events.append(found)
            change = StateChange(wanted.state, found.text, tick.now, wanted.observed_generation, wanted.target)
            tick.changes.states[wanted.name] = change

    def _hear(self, tick: Tick) -> None:
        if self.listening is None:
            return
        for notice in failover.news(tuple(self.known.notices), self.listening.heard, tick.now):
            tick.changes.notices.append(notice)
            if notice.withdrawn_at is None:
                text = f"target '{notice.target}' will be taken away, says {notice.heard_from}"
                tick.event("notice", text, target=notice.target, heard_from=notice.heard_from)
            else:
                tick.event("notice_withdrawn", f"target '{notice.target}' stays", target=notice.target)
        self.known = after(self.known, Changes(notices=tick.changes.notices))

    def _forget(self) -> None:
        open_runs = {run.id for run in self.known.runs if run.open}
        names = {wanted.name for wanted in self.known.pipelines}
        self._watched = {run: item for run, item in self._watched.items() if run in open_runs}
        self._live = {name: item for name, item in self._live.items() if name in names}
        runs, operations = (item.id for item in self.known.runs), (item.id for item in self.known.operations)
        self._moments.keep({*runs, *operations, *(notice_key(item) for item in self.known.notices)})

    # --- one pipeline ----------------------------------------------------------------------------------------

    def _see_to(self, tick: Tick, wanted: Wanted, runs: list[Run], asked: Sequence[Operation]) -> None:
        run = next((item for item in reversed(runs) if item.open), None)
        past = [item for item in runs if not item.open]
        judged: Health | None = None
        silent = dt.timedelta(0)
        adopted, status = True, None
        if run is not None:
            seen = self._look(tick, run)
            ended = settled(seen, tick.now, tick.steady - self._moments.run(run).started_at)
            if ended is not None:
                self._end_run(tick, run, ended, seen)
                past, run = [*past, ended], None
            else:
                run, watched = self._keep_up(tick, seen)
                judged = calm(watched, tick.steady, stopping=run.stop_asked_at is not None)
                silent = tick.steady - watched.trail.heard
                adopted, status = watched.adopted, watched.status
                watched.adopted = True
                self._follow_moves(tick, wanted.name, judged, 0 if status is None else status.batches)
        at_work = self._operating.see_to(tick, wanted, run, asked) if tick.acting else [AtWork(item) for item in asked]
        self._savepoints.look(tick.changes, wanted.name)
        if wanted.name in tick.changes.steered:
            # Something else is wanted of it from now on; the next tick sees to that.
            return
        target = run.target if run is not None else wanted.target
        order = (target, *self.admission.targets(wanted).get(target, Target()).failover)
        case = Case(
            wanted,
            None if run is None else self._moments.run(run),
            judged,
            silent,
            adopted,
            recent([self._moments.run(item) for item in past], tick.steady),
            order,
            self.targets().keys(),
            tuple(self._moments.notice(item) for item in self.known.notices),
            held(at_work, run),
            self.clock.ahead(),
        )
        decision = (
            self._admitted(tick, wanted, run, decide(case, tick.steady)) if tick.acting else _only_seen(wanted, judged)
        )
        run = self._carry_out(tick, wanted, run, past, decision)
        if tick.acting:
            self._note_state(tick, wanted, run, past, decision)
        shown = judged if judged is not None and decision.state == judged.state else None
        told = shown or Health(decision.state, decision.reason)
        self._live[wanted.name] = Live(wanted.name, told, run, status, at_work)

    def _look(self, tick: Tick, run: Run) -> Observation:
        watched = self._watched.get(run.id)
        folder = self._folder(run)
        seen = observe(run, folder, folder.cursor if watched is None else watched.cursor)
        size = None if seen.status is None else seen.status.checkpoint_bytes
        for line in seen.batches:
            tick.changes.batches.append(BatchOf(run.pipeline, run.id, line, size))
        if seen.batches:
            tick.cursors[run.id] = seen.cursor
        return seen

    def _keep_up(self, tick: Tick, seen: Observation) -> tuple[Run, Watched]:
        """Remembers what was seen of a run that goes on, and notes what is new of it."""
        now, run = tick.steady, seen.run
        watched = self._watched.get(run.id)
        if watched is None:
            watched = Watched(health.begin(now), seen.cursor, adopted=False)
            self._watched[run.id] = watched
        watched.looked = now
        watched.trail = health.follow(watched.trail, seen.status, seen.batches, now)
        watched.cursor, watched.status = seen.cursor, seen.status
        watched.found = health.judge(watched.trail, now)
        known = replace(run, pid=seen.pid, process_started=seen.process_started)
        if seen.status is not None:
            known = replace(known, epoch=seen.status.epoch or None, restarts_per_hour=seen.status.restarts_per_hour)
            known = replace(known, lasted=known.lasted or lasted(watched, now))
        if known != run:
            tick.changes.runs[run.id] = known
        return known, watched

    def _end_run(self, tick: Tick, run: Run, ended: Run, seen: Observation) -> None:
        tick.changes.runs[run.id] = ended
        tick.acts.append(lambda: self.processes.tidy(self._folder(run)))
        assert ended.ended_at is not None
        watched = self._watched.get(run.id)
        if watched is not None:
            # It says itself when it ended, by its own clock: not before it was last seen alive.
            moment = max(self._moments.of(run.id, ended.ended_at), watched.looked)
            self._moments.note(run.id, ended.ended_at, moment)
        problems = seen.end.problems if seen.end is not None else ()
        for problem in problems:
            tick.changes.failures.append(Failure(run.pipeline, run.id, ended.ended_at, problem))
        text = f"run {run.id} {ended_how(ended)}"
        tick.event("run_ended", text, run.pipeline, run.id, outcome=ended.outcome, exit_code=ended.exit_code)
        for move in self._moves(run.pipeline):
            tick.changes.failovers.append(failover.after_end(move, ended.ended_at))

    def _moves(self, pipeline: str) -> list[Failover]:
        return [move for move in self.known.failovers if move.pipeline == pipeline]

    def _follow_moves(self, tick: Tick, pipeline: str, judged: Health, batches: int) -> None:
        for move in self._moves(pipeline):
            now = failover.after_look(move, judged, batches, tick.now)
            if now != move:
                took = failover.seconds(now)
                tick.changes.failovers.append(now)
                text = f"caught up on target '{now.to_target}' {took:.0f} s after the notice"
                tick.event("failover_done", text, pipeline, seconds=took)

    def _admitted(self, tick: Tick, wanted: Wanted, run: Run | None, decision: Decision) -> Decision:
        """What was decided, unless the project of the pipeline does not allow it."""
        if decision.kind == "start":
            place = str(decision.data["target"])
            refusal = self.admission.refusal(wanted, place, running=lambda: self._running(tick, wanted.name))
        elif decision.kind == "adopt" and run is not None:
            refusal = self.admission.refusal(wanted, run.target, run.version)
        else:
            return decision
        if refusal is None:
            return decision
        if wanted.state != "FAILED" and not refusal.may_pass:
            tick.changes.failures.append(Failure(wanted.name, None, tick.now, refusal.problem))
        return refused(decision, refusal)

    def _running(self, tick: Tick, but: str) -> Iterator[tuple[Wanted, str]]:
        """The other pipelines that run, and where, with those that this tick starts."""
        known = {wanted.name: wanted for wanted in self.known.pipelines}
        runs = {**{run.id: run for run in self.known.runs}, **tick.changes.runs}
        for run in runs.values():
            if run.open and run.pipeline != but and run.pipeline in known:
                yield known[run.pipeline], run.target

    # --- what was decided ------------------------------------------------------------------------------------

    def _carry_out(
        self, tick: Tick, wanted: Wanted, run: Run | None, past: Sequence[Run], decision: Decision
    ) -> Run | None:
        kind = decision.kind
        if kind == "start":
            run = self._begin(tick, wanted, past, decision)
        elif kind in ("stop", "fail_over") and run is not None:
            run = replace(run, stop_asked_at=tick.now, stop_reason=decision.reason)
            if kind == "fail_over":
                move = failover.begun(run, decision.data["to"], decision.data["noticed_at"])
                tick.changes.failovers.append(move)
            self._signal(tick, run, self.processes.stop)
        elif kind == "kill" and run is not None:
            run = replace(run, kill_asked_at=tick.now, stop_reason=decision.reason)
            self._signal(tick, run, self.processes.kill)
        elif kind == "give_up" and run is not None:
            run = replace(run, ended_at=tick.now, outcome="lost", reason=decision.reason)
        if kind not in _QUIET_KINDS and not (kind == "give_up" and wanted.state == "FAILED"):
            where = run.id if run is not None else None
            tick.event(kind, decision.reason, wanted.name, where, **_plain(decision.data))
        if run is not None and kind in ("start", "stop", "fail_over", "kill", "give_up"):
            tick.changes.runs[run.id] = run
            return run if run.open else None
        return run

    def _begin(self, tick: Tick, wanted: Wanted, past: Sequence[Run], decision: Decision) -> Run:
        run = Run(
            id=f"r{secrets.token_hex(6)}",
            pipeline=wanted.name,
            version=wanted.version,
            generation=wanted.generation,
            target=decision.data["target"],
            started_at=tick.now,
            take_over=bool(decision.data.get("take_over")),
        )
        self._watched[run.id] = Watched(health.begin(tick.steady), Cursor(), adopted=True)
        moves = [item for item in tick.changes.failovers if item.pipeline == wanted.name] or self._moves(wanted.name)
        if not moves and past and past[-1].outcome == "stopped" and past[-1].target != run.target:
            # Somebody else stopped it there, as a machine does that is shut down.
            assert past[-1].ended_at is not None
            ended = past[-1].ended_at
            moves = [Failover(wanted.name, past[-1].target, run.target, ended, ended)]
        for move in moves:
            tick.changes.failovers.append(failover.after_start(move, run))
        tick.acts.append(lambda: self._start(wanted, run))
        return run

    def _start(self, wanted: Wanted, run: Run) -> None:
        now = self.clock.now()
        try:
            order = self._order(wanted, run)
            pid, started = self.processes.start(self._folder(run), order, self.access(wanted, (run.version,)))
            changes = Changes(runs={run.id: replace(run, pid=pid, process_started=started)})
        except PenstockError as error:
            (problem,) = error.problems
            ended = replace(run, ended_at=now, outcome="failed", reason=problem.message, code=problem.code,
                            owner=str(problem.definition.owner))  # fmt: skip
            event = Event(now, "run_ended", problem.message, run.pipeline, run.id)
            changes = Changes(runs={run.id: ended}, events=[event])
        # The process tells its number itself; this only spares a look when it has no time to.
        self._note_later(changes)
        with suppress(OSError):
            open_runs = frozenset(item.id for item in self.known.runs if item.open)
            remove_old_runs(self._folder(run).path.parent, RUNS_KEPT, open_runs)

    def _order(self, wanted: Wanted, run: Run) -> RunOrder:
        """Raises RUN_NOT_STARTED or PATH_NOT_WRITABLE."""
        target = self.admission.targets(wanted).get(run.target)
        if target is None or not wanted.file:
            reason = "its pipeline file cannot be written" if target else f"target '{run.target}' is not there for it"
            raise PenstockError.of("RUN_NOT_STARTED", run=run.id, reason=reason)
        return RunOrder(
            run=run.id,
            pipeline=run.pipeline,
            version=run.version,
            file=wanted.file,
            folder=str(self.admission.folder(wanted)),
            state_dir=str(self.folders.state(run.pipeline)),
            master=target.master,
            conf=dict(target.conf),
            driver_memory=target.driver_memory,
            jars=dict(target.jars),
            take_over=run.take_over,
            access=self.limits(wanted),
        )

    def _signal(self, tick: Tick, run: Run, send: Callable[[int, str], None]) -> None:
        pid, started = run.pid, run.process_started
        if pid is not None and started is not None:
            tick.acts.append(lambda: send(pid, started))

    def _note_state(self, tick: Tick, wanted: Wanted, run: Run | None, past: Sequence[Run], decision: Decision) -> None:
        moved = run.target if run is not None and decision.kind == "start" and run.target != wanted.target else None
        # What was wanted has been seen to once a run of it is there, or none where none is wanted.
        seen_to = run is None or (
            wanted.desired == "running" and wanted.suits(run.version) and run.stop_asked_at is None
        )
        generation = wanted.generation if seen_to else wanted.observed_generation
        same = decision.state == wanted.state and decision.reason == wanted.state_reason
        if same and generation == wanted.observed_generation and moved is None:
            return
        if decision.state != wanted.state and {decision.state, wanted.state} != {"RUNNING", "IDLE"}:
            tick.event("state", f"{wanted.state} → {decision.state}: {decision.reason}", wanted.name,
                       run.id if run is not None else None, before=wanted.state, now=decision.state)  # fmt: skip
        # Another reason for the same state is news only where it stays: numbers of a run change all the time.
        news = decision.state != wanted.state or decision.state in ("FAILED", "STOPPING", "STOPPED")
        if news or generation != wanted.observed_generation or moved is not None:
            change = StateChange(decision.state, decision.reason, tick.now, generation, moved or wanted.target)
            tick.changes.states[wanted.name] = change

    def _folder(self, run: Run) -> RunFolder:
        return RunFolder(self.folders.run(run.pipeline, run.id))


def _only_seen(wanted: Wanted, judged: Health | None) -> Decision:
    """How a pipeline is, with nothing to be done about it."""
    if judged is None:
        return Decision("nothing", wanted.state_reason, wanted.state)
    return Decision("nothing", judged.evidence, judged.state)


def _trouble(error: Exception, now: dt.datetime, pipeline: str | None = None) -> Event:
    return Event(now, "supervisor_failed", f"the supervisor failed: {type(error).__name__}: {error}", pipeline)


def _by_pipeline(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each pipeline in the order of their start, as they come; their times of day may say otherwise."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.pipeline, []).append(run)
    return found


def _asked_of(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """The operations of each pipeline, in the order in which they were asked for."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.pipeline, []).append(operation)
    return found


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if isinstance(value, dt.datetime) else value for key, value in data.items()}
