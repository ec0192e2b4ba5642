"""A server's surroundings without a server: a store in memory, folders, targets, and a clock that tests can turn."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.control.clocks import TurnedClock

from penstock.control.launch.access import NOTHING, ProcessAccess
from penstock.control.supervisor.act import Processes
from penstock.control.supervisor.loop import Supervisor
from penstock.control.supervisor.notices.base import Herald, Listening
from penstock.control.supervisor.ports import (
    Changes,
    Event,
    Failover,
    FoundSavepoint,
    Notice,
    Operation,
    OperationKind,
    Run,
    Snapshot,
    Target,
    Wanted,
    after,
)
from penstock.errors import PenstockError
from penstock.reports.folder import RunFolder
from penstock.reports.processes import birth
from penstock.reports.values import BatchLine, LastBatch, RunOrder, RunStatus
from penstock.testing.processes import end_below, until

_ROOT = str(Path(__file__).parents[3])


def _program(module: str) -> tuple[str, ...]:
    """Started anywhere, it finds the other modules of the tests."""
    text = f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.control.supervisor.{module} import main; main()"
    return (sys.executable, "-c", text)


FAKE = _program("fake_runner")
FAKE_WORKER = _program("fake_worker")


class MemoryStore:
    """What the real store does, in plain values; it counts how often it is asked."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.batches: dict[tuple[str, int], BatchLine] = {}
        self.events: list[Event] = []
        self.failovers: dict[tuple[str, dt.datetime], Failover] = {}
        self.failures: list[Mapping[str, Any]] = []
        self.operations: dict[str, Operation] = {}
        self.savepoints: dict[str, tuple[FoundSavepoint, ...]] = {}
        self.loads = self.saves = 0
        self.down = False

    def load(self, since: dt.datetime) -> Snapshot:
        self._refuse()
        self.loads += 1
        newest = {run.pipeline: run.id for run in self.snapshot.runs}
        runs = [run for run in self.snapshot.runs if run.open or run.started_at > since or run.id in newest.values()]
        return replace(self.snapshot, runs=tuple(runs))

    def save(self, changes: Changes) -> None:
        self._refuse()
        self.saves += 1
        self.snapshot = after(self.snapshot, changes)
        for item in changes.batches:
            self.batches[(item.run, item.line.batch)] = item.line
        self.events += changes.events
        self.failures += [item.problem for item in changes.failures]
        self.failovers |= {(item.pipeline, item.noticed_at): item for item in changes.failovers}
        self.operations |= changes.operations
        self.savepoints |= changes.savepoints
        # The file of the version that it goes back to.
        files = {name: f"/versions/{name}.yaml" for name in changes.steered}
        known = (replace(item, file=files.get(item.name, item.file)) for item in self.snapshot.pipelines)
        self.snapshot = replace(self.snapshot, pipelines=tuple(known))

    def _refuse(self) -> None:
        if self.down:
            raise PenstockError.of("PATH_NOT_WRITABLE", path="the store", reason="it is down")

    # --- as its owner would ----------------------------------------------------------------------------------

    def want(self, name: str, **changes: Any) -> None:
        """Adds a pipeline, or changes what is wanted of it, which raises its generation."""
        known = {item.name: item for item in self.snapshot.pipelines}
        before = known.get(name, Wanted(name, "running", 0, 1, f"/versions/{name}.yaml"))
        known[name] = replace(before, generation=before.generation + 1, **changes)
        self.snapshot = replace(self.snapshot, pipelines=tuple(known.values()))

    def ask(self, pipeline: str, kind: OperationKind, /, back_to: int | None = None, **asked: Any) -> str:
        """Asks for an operation; its id."""
        found = Operation(f"o{secrets.token_hex(6)}", pipeline, kind, dt.datetime.now(dt.UTC), "ann", asked, back_to)
        self.operations[found.id] = found
        self.snapshot = replace(self.snapshot, operations=(*self.snapshot.operations, found))
        return found.id

    def cancel(self, operation: str, by: str) -> None:
        known = tuple(
            replace(item, cancelled_by=by) if item.id == operation else item for item in self.snapshot.operations
        )
        self.snapshot = replace(self.snapshot, operations=known)

    def pipeline(self, name: str) -> Wanted:
        return next(item for item in self.snapshot.pipelines if item.name == name)

    def runs(self, name: str) -> list[Run]:
        """In the order of their start."""
        return [run for run in self.snapshot.runs if run.pipeline == name]

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self.events if event.pipeline == name and event.kind != "state"]


@dataclass(frozen=True)
class TestFolders:
    __test__ = False
    path: Path

    def run(self, name: str, run: str) -> Path:
        return self.path / name / "runs" / run

    def operation(self, name: str, operation: str) -> Path:
        return self.path / name / "operations" / operation

    def version(self, name: str, number: int, kind: str) -> Path:
        return self.path / name / "versions" / f"{number}.{kind}"

    def state(self, name: str) -> Path:
        return self.path / name / "state"


class Pretended(Processes):
    """Runs without processes: each is this very process, and reports when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: dict[str, tuple[RunFolder, RunOrder]] = {}
        self.signals: list[tuple[str, int]] = []

    def start(self, folder: RunFolder, order: RunOrder, access: ProcessAccess = NOTHING) -> tuple[int, str]:
        folder.make()
        folder.write_order(order)
        self.orders[order.run] = (folder, order)
        return os.getpid(), birth(os.getpid()) or ""

    def report(self, batch: int) -> None:
        now = dt.datetime.now(dt.UTC)
        for folder, order in self.orders.values():
            folder.add_batch(BatchLine(batch, now, 10, rows_in={"views": 1}))
            folder.write_status(
                RunStatus(order.run, os.getpid(), birth(os.getpid()) or "", "running", now, batches=batch + 1,
                          last_batch=LastBatch(batch, now, 10))
            )  # fmt: skip

    def stop(self, pid: int, started: str) -> None:
        self.signals.append(("stop", pid))

    def kill(self, pid: int, started: str) -> None:
        self.signals.append(("kill", pid))


@dataclass
class World:
    """A supervisor with fake runners; leaving it kills what was started."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: TurnedClock = field(default_factory=TurnedClock)
    targets: dict[str, Target] = field(default_factory=lambda: {"local": Target()})
    heralds: Sequence[Herald] = ()
    processes: Processes = field(default_factory=lambda: Processes(FAKE, worker=FAKE_WORKER))

    def __post_init__(self) -> None:
        self.folders = TestFolders(self.folder)
        self.supervisor = self.serve()

    def serve(self) -> Supervisor:
        """A server that has just started."""
        self.listening = Listening(self.heralds)
        self.supervisor = Supervisor(
            self.store, self.folders, lambda: self.targets, base=self.folder, processes=self.processes,
            listening=self.listening, clock=self.clock,
        )  # fmt: skip
        return self.supervisor

    def tick(self) -> None:
        self.listening.ask()
        self.supervisor.tick()

    def until(self, condition: Callable[[], object], what: str, seconds: float = 20) -> None:
        """Ticks until the condition holds."""

        def look() -> object:
            self.tick()
            return condition()

        until(look, what, seconds, every=0.02)

    def mode(self, name: str, mode: str) -> None:
        self.folders.state(name).mkdir(parents=True, exist_ok=True)
        (self.folders.state(name) / "mode").write_text(mode, "utf-8")

    def worker(self, name: str, mode: str) -> None:
        """What operations on a pipeline do from now on."""
        self.folders.state(name).mkdir(parents=True, exist_ok=True)
        (self.folders.state(name) / "worker").write_text(mode, "utf-8")

    def operation(self, operation: str) -> Operation:
        return self.store.operations[operation]

    def state(self, name: str) -> str:
        return self.store.pipeline(name).state

    def open_run(self, name: str) -> Run | None:
        return next((run for run in self.store.runs(name) if run.open), None)

    def process(self, name: str) -> tuple[int, str]:
        """Of the open run, as it has reported it."""
        run = self.open_run(name)
        assert run is not None
        status = RunFolder(self.folders.run(name, run.id)).status
        assert status is not None
        return status.pid, status.process_started

    def end(self) -> None:
        """Kills what was started, also what has not reported yet that it is there."""
        end_below(self.folder)


def notice(target: str, **changes: Any) -> Notice:
    return replace(Notice(target, "hook", dt.datetime.now(dt.UTC)), **changes)
