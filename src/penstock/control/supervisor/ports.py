"""What the supervisor asks of the store: one read and one write a tick, as plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from penstock.control.launch.access import ProcessAccess
from penstock.reports.values import BatchLine

Desired = Literal["running", "stopped"]
State = Literal[
    "STARTING", "RUNNING", "IDLE", "CATCHING_UP", "STALLED", "DEGRADED", "STOPPING", "STOPPED", "BACKING_OFF", "FAILED",
    "SAVING", "RESTORING", "RESCALING", "UPGRADING",
]  # fmt: skip
RunOutcome = Literal["stopped", "done", "failed", "fenced", "died", "lost"]
"""How a run ended: what it said itself, or `died` without a word, or `lost` before it came to life."""


@dataclass(frozen=True)
class Wanted:
    """A pipeline as its owner wants it, and the state in which the supervisor last saw it."""

    name: str
    desired: Desired
    generation: int
    """Raised by every change of what is wanted, and by `start`."""
    version: int
    file: str
    """The file of that version; empty while it cannot be written."""
    target: str = "local"
    state: State = "STOPPED"
    state_reason: str = ""
    observed_generation: int = 0
    restarts_per_hour: int | None = None
    """How often it may be started again, if its document says so."""
    alike: frozenset[int] = frozenset()
    """Earlier versions whose runs need not be started again for this one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    scope: Mapping[str, str] | None = None
    """The limit of the token that made it."""

    def suits(self, version: int) -> bool:
        """Whether a run of that version is what is wanted."""
        return version == self.version or version in self.alike


@dataclass(frozen=True)
class Run:
    """One run of a pipeline."""

    id: str
    pipeline: str
    version: int
    generation: int
    target: str
    started_at: dt.datetime
    take_over: bool = False
    pid: int | None = None
    process_started: str | None = None
    epoch: int | None = None
    stop_asked_at: dt.datetime | None = None
    """When the supervisor asked it to stop; None if it did not."""
    kill_asked_at: dt.datetime | None = None
    stop_reason: str | None = None
    lasted: bool = False
    """Whether it made progress for long enough that its failures do not count with earlier ones."""
    restarts_per_hour: int | None = None
    """What its pipeline says of `run.restart`, once that is known."""
    ended_at: dt.datetime | None = None
    outcome: RunOutcome | None = None
    exit_code: int | None = None
    reason: str | None = None
    """Why it ended, in one sentence."""
    owner: str | None = None
    """Who has to act on that: author, operator, external or bug."""
    code: str | None = None

    @property
    def open(self) -> bool:
        return self.ended_at is None


OperationKind = Literal[
    "savepoint",
    "verify",
    "restore",
    "fork",
    "rescale",
    "upgrade",
    "cutover",
    "compare",
    "takeover",
    "abandon",
    "accept_gap",
]
OperationOutcome = Literal["done", "failed"]


@dataclass(frozen=True)
class Operation:
    """Work on the state of a pipeline, or on a savepoint of it, that somebody has asked for."""

    id: str
    pipeline: str
    kind: OperationKind
    asked_at: dt.datetime
    asked_by: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What exactly, in the words of the process that does it."""
    back_to: int | None = None
    """The version that the pipeline goes back to if it fails."""
    attempts: int = 0
    begun_at: dt.datetime | None = None
    """When its newest attempt began."""
    run: str | None = None
    """The run that was asked to do it."""
    pid: int | None = None
    process_started: str | None = None
    cancelled_by: str | None = None
    """Who no longer wants it."""
    ended_at: dt.datetime | None = None
    outcome: OperationOutcome | None = None
    reason: str | None = None
    """Why it failed, in one sentence."""
    owner: str | None = None
    code: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.ended_at is None


@dataclass(frozen=True)
class FoundSavepoint:
    """A savepoint as it lies in the state folder of a pipeline; without a batch if it cannot be read."""

    name: str
    at: dt.datetime
    batch: int | None = None
    bytes: int | None = None
    state_bytes: int | None = None
    watermark: int | None = None
    partitions: int | None = None
    note: str = ""
    automatic: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)
    """The pipeline as it was declared."""


@dataclass(frozen=True)
class Steered:
    """A pipeline that the supervisor itself lets be otherwise, as an operation has failed."""

    version: int | None = None
    desired: Desired | None = None


@dataclass(frozen=True)
class Notice:
    """Somebody said that a target will be taken away. It holds until it is withdrawn."""

    target: str
    heard_from: str
    at: dt.datetime
    deadline: dt.datetime | None = None
    withdrawn_at: dt.datetime | None = None


@dataclass(frozen=True)
class Failover:
    """One move of a pipeline to another target, with the times that it took."""

    pipeline: str
    from_target: str
    to_target: str
    noticed_at: dt.datetime
    stopped_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    caught_up_at: dt.datetime | None = None


@dataclass(frozen=True)
class Event:
    at: dt.datetime
    kind: str
    text: str
    pipeline: str | None = None
    run: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StateChange:
    """What is now known of a pipeline; `target` is another only after a failover."""

    state: State
    reason: str
    at: dt.datetime
    observed_generation: int
    target: str


@dataclass(frozen=True)
class BatchOf:
    pipeline: str
    run: str
    line: BatchLine
    checkpoint_bytes: int | None = None
    """The size of the checkpoint as it was last measured."""


@dataclass(frozen=True)
class Failure:
    """What a run or an operation failed of; `problem` is `penstock.errors.Problem.as_dict`."""

    pipeline: str
    run: str | None
    at: dt.datetime
    problem: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """All that the supervisor decides by.

    Of each pipeline it holds the open run, the newest one, and those that were started within the last hour.
    """

    pipelines: Sequence[Wanted] = ()
    runs: Sequence[Run] = ()
    """In the order in which they were started."""
    notices: Sequence[Notice] = ()
    """Those that have not been withdrawn."""
    failovers: Sequence[Failover] = ()
    """Those that have not come to their end."""
    operations: Sequence[Operation] = ()
    """Those that have not ended, in the order in which they were asked for."""


@dataclass
class Changes:
    """What a tick has to note. Runs and operations are known by their id, failovers by pipeline and `noticed_at`,
    notices by target and `at`, batches by run and number: what is there already is replaced, so saving twice does no
    harm. The savepoints of a pipeline are all that it has."""

    runs: dict[str, Run] = field(default_factory=dict)
    states: dict[str, StateChange] = field(default_factory=dict)
    batches: list[BatchOf] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    savepoints: dict[str, tuple[FoundSavepoint, ...]] = field(default_factory=dict)
    steered: dict[str, Steered] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def join(self, later: Changes) -> None:
        """Takes up what came later, for a store that could not be reached in between."""
        for name in ("runs", "states", "operations", "savepoints", "steered"):
            getattr(self, name).update(getattr(later, name))
        for name in ("batches", "failures", "events", "notices", "failovers"):
            getattr(self, name).extend(getattr(later, name))


@dataclass(frozen=True)
class Target:
    """A place where pipelines run, as Spark's own options; `failover` names where they go when it is taken away."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    jars: Mapping[str, str] = field(default_factory=dict)
    """Jars of its packages, with the sha256 that each must have."""
    failover: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Why a run may not be, or go on."""

    problem: Mapping[str, Any]
    """As `penstock.errors.Problem.as_dict`."""
    reason: str
    may_pass: bool = False
    """Whether it may be allowed later without anybody changing the pipeline."""


class Admission(Protocol):
    """What the project of a pipeline lets it use."""

    def folder(self, wanted: Wanted) -> Path:
        """Where its relative paths start; raises PATH_NOT_WRITABLE."""

    def targets(self, wanted: Wanted) -> Mapping[str, Target]:
        """Those that it may run on."""

    def refusal(
        self,
        wanted: Wanted,
        target: str,
        version: int | None = None,
        running: Callable[[], Iterable[tuple[Wanted, str]]] | None = None,
    ) -> Refusal | None:
        """Why it may not run there in a version, by default the one that is wanted. None if it may.

        With `running`, which tells the pipelines that run and where, also whether it may take that much more.
        """


class Folders(Protocol):
    """Where the files of pipelines lie."""

    def run(self, name: str, run: str) -> Path: ...

    def operation(self, name: str, operation: str) -> Path: ...

    def version(self, name: str, number: int, kind: str) -> Path: ...

    def state(self, name: str) -> Path: ...


AccessOf = Callable[[Wanted, Sequence[int]], ProcessAccess]
"""What a pipeline with these versions may use: its folders, and the secrets that they refer to."""


class Store(Protocol):
    """Raises STORE_DOWN when it cannot be reached; the supervisor then goes on with what it knows."""

    def load(self, since: dt.datetime) -> Snapshot:
        """What there is now, in one read; runs started after `since` are all in it."""

    def save(self, changes: Changes) -> None:
        """Notes all of it or nothing, in one transaction. States change only pipelines that still exist."""


class Lease(Protocol):
    """The right of this server, and no other, to act for the pipelines of a store."""

    trouble: str | None
    """Why this server must not act, when it was last asked."""
    taken: bool
    """Whether another server has the right, when it was last asked."""

    def take(self) -> None:
        """Raises STORE_IN_USE if another server has it, and STORE_DOWN if the store does not answer."""

    def held(self) -> bool:
        """Whether this server has it now; one that was lost is taken again if nobody else has it."""

    def close(self) -> None: ...


def after(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """The snapshot as it is once the changes have been noted."""
    runs = {**{run.id: run for run in snapshot.runs}, **changes.runs}
    failovers = {(item.pipeline, item.noticed_at): item for item in (*snapshot.failovers, *changes.failovers)}
    notices = {(item.target, item.at): item for item in (*snapshot.notices, *changes.notices)}
    operations = {**{item.id: item for item in snapshot.operations}, **changes.operations}
    pipelines = (_in_state(pipeline, changes.states.get(pipeline.name)) for pipeline in snapshot.pipelines)
    return Snapshot(
        tuple(_steered(pipeline, changes.steered.get(pipeline.name)) for pipeline in pipelines),
        tuple(runs.values()),
        tuple(item for item in notices.values() if item.withdrawn_at is None),
        tuple(item for item in failovers.values() if item.caught_up_at is None),
        tuple(item for item in operations.values() if item.open),
    )


def _in_state(pipeline: Wanted, change: StateChange | None) -> Wanted:
    if change is None:
        return pipeline
    return replace(
        pipeline,
        state=change.state,
        state_reason=change.reason,
        observed_generation=change.observed_generation,
        target=change.target,
    )


def _steered(pipeline: Wanted, steered: Steered | None) -> Wanted:
    if steered is None:
        return pipeline
    version = pipeline.version if steered.version is None else steered.version
    # The file of another version is known once the store has been read anew.
    file = pipeline.file if version == pipeline.version else ""
    desired = steered.desired or pipeline.desired
    return replace(pipeline, generation=pipeline.generation + 1, version=version, file=file, desired=desired)
