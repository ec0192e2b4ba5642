"""What a run is told when it starts, and what it tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import AwareDatetime

from penstock.access.limits import Access

Outcome = Literal["stopped", "done", "failed", "fenced"]


@dataclass(frozen=True)
class RunOrder:
    """What to run, and where; `folder` is where relative paths of the pipeline start."""

    run: str
    pipeline: str
    version: int
    file: str
    folder: str
    state_dir: str
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    jars: Mapping[str, str] = field(default_factory=dict)
    """Jars of the target's packages, with the sha256 that each must have."""
    take_over: bool = False
    """Whether it may take the state from a run that still holds it but no longer answers."""
    access: Access | None = None
    """What the pipeline may open; None for a run that nobody limits."""


@dataclass(frozen=True)
class BacklogReport:
    amount: int
    unit: str


@dataclass(frozen=True)
class HistoryReport:
    """How far it is through the history of its sources; `seconds_left` is None as long as it cannot be told."""

    done: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class LastBatch:
    batch: int
    at: AwareDatetime
    duration_ms: int


@dataclass(frozen=True)
class RunStatus:
    """How a run is now. Row counts are of this run, by source, step or sink."""

    run: str
    pid: int
    process_started: str
    """What tells the process from a later one of the same number; see `penstock.reports.processes`."""
    phase: str
    at: AwareDatetime
    """When this was written; a run that lives writes at least every second."""
    turned_at: AwareDatetime | None = None
    """When the loop that drives Spark last came round."""
    started_at: AwareDatetime | None = None
    epoch: int = 0
    batches: int = 0
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    rows_late: Mapping[str, int] = field(default_factory=dict)
    rows_dead: Mapping[str, int] = field(default_factory=dict)
    rows_filtered: Mapping[str, int] = field(default_factory=dict)
    earlier_rows: int = 0
    """Rows that came in during runs before this one."""
    rows_per_second: float = 0.0
    watermarks: Mapping[str, int] = field(default_factory=dict)
    """Of each source, in milliseconds since 1970; 0 before its first row."""
    watermark: int | None = None
    backlog: Mapping[str, BacklogReport] = field(default_factory=dict)
    caught_up_in: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds until nothing waits at a source any more; None if ever more waits."""
    history: HistoryReport | None = None
    last_batch: LastBatch | None = None
    state_rows: int = 0
    state_bytes: int = 0
    checkpoint_bytes: int | None = None
    checkpoint_at: AwareDatetime | None = None
    """When Spark last committed a batch."""
    disk_free: int | None = None
    sink_retries: Mapping[str, int] = field(default_factory=dict)
    """How often each sink has had to try again in this run."""
    careful: bool = False
    """Whether rows on which an expression fails are set aside; it costs, so only since there was one."""
    trigger_ms: int = 1000
    restarts_per_hour: int | None = None
    """What the pipeline says of `run.trigger` and `run.restart`, so that who supervises it need not read its file; None
    before the run has read it itself."""


@dataclass(frozen=True)
class BatchLine:
    """One finished batch."""

    batch: int
    at: AwareDatetime
    duration_ms: int
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    sink_ms: Mapping[str, int] = field(default_factory=dict)
    """How long each sink took; where a sink takes the rows straight from the query, with computing them."""
    sink_retries: Mapping[str, int] = field(default_factory=dict)
    balanced: bool = True
    """Whether every row that came in is accounted for."""
    epoch: int = 0
    """The run that it belongs to, as its state counts them; 0 if it was reported by an earlier version."""
    cores: int | None = None
    """Cores of the run, if its master says how many."""
    written_bytes: int | None = None
    """Bytes of state that it wrote into the checkpoint; None if that cannot be seen."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, and why; `problems` are those of `penstock.errors.Problem.as_dict`."""

    run: str
    at: AwareDatetime
    exit_code: int
    outcome: Outcome
    problems: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Executor:
    """A process of a cluster that computes for a run."""

    id: str
    host: str

    def __str__(self) -> str:
        return f"executor {self.id} on {self.host}"


@dataclass(frozen=True)
class LogLine:
    """A line of the log of a run. `text` says in one line what happened; `more` is what was written originally."""

    at: AwareDatetime
    level: str
    logger: str
    text: str
    code: str | None = None
    more: str | None = None
    executor: Executor | None = None
    """Where it was written; None in the process of the run itself."""
    batch: int | None = None
    """The batch that was at work."""


# --- operations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperationOrder:
    """Work on the state of a pipeline that does not run, or on its savepoints; `asked` says what exactly."""

    operation: str
    kind: str
    pipeline: str
    file: str
    folder: str
    state_dir: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    jars: Mapping[str, str] = field(default_factory=dict)
    """Jars of the target's packages, with the sha256 that each must have."""
    access: Access | None = None
    """What the pipeline may open."""


FOLLOWS = "it follows"
"""How the stage of an operation begins whose new version reads what the pipeline has read."""


@dataclass(frozen=True)
class OperationStatus:
    """How far an operation is; `done` of `total` bytes where they are counted."""

    operation: str
    pid: int
    process_started: str
    stage: str
    at: AwareDatetime
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class OperationEnd:
    """What an operation has done, or why it has not."""

    operation: str
    at: AwareDatetime
    outcome: Literal["done", "failed"]
    result: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()
