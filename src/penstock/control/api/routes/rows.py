"""What became of the rows of a pipeline: its ledger, what was set aside, and feeding that back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.control.api.answers import Answer, Limit
from penstock.control.api.asked import Asked, Word
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.api.queues import Kind
from penstock.control.api.state import asked_of_state
from penstock.control.auth.roles import Role
from penstock.control.desired import note
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["rows"])
Verdict = Literal["sealed", "open", "unbalanced"]
Counts = dict[str, int]


class Accounted(Answer):
    """Rows by the source, step or sink that counted them."""

    came_in: Counts = Field(alias="in")
    dead: Counts
    filtered: Counts
    late: Counts
    corrections: Counts
    replayed: Counts
    out: Counts


class BatchAccount(Accounted):
    batch: int
    epoch: int
    verdict: Verdict = Field(description="Sealed when it is committed and adds up.")
    problems: list[str]


class WindowAccount(Accounted):
    start: str
    verdict: Verdict = Field(description="Sealed when the watermark has passed its end and it adds up.")
    problems: list[str]


class LedgerAnswer(Answer):
    verdict: Verdict
    totals: Accounted
    batches: list[BatchAccount]


class WindowsAnswer(Answer):
    items: list[WindowAccount]


class DeadLetter(Answer):
    node: str | None
    batch: int | None
    stage: str | None
    error: str | None
    raw: str | None = Field(description="The row as it came; of a long one its beginning.")
    place: str | None
    seen_at: str | None


class DeadLetters(Answer):
    items: list[DeadLetter] = Field(description="The newest first.")
    stored_in: str | None = Field(description="The sink that the pipeline names for them; it is not read.")
    replayable: Counts = Field(description="How many can be fed back, by node.")


class LateRow(Answer):
    node: str | None
    batch: int | None
    late_by_ms: int | None
    row: dict[str, Any]


class LateRows(Answer):
    items: list[LateRow] = Field(description="The newest first.")
    stored_in: str | None = Field(description="The sink that the pipeline names for them; it is not read.")


class ReplayRequest(Asked):
    what: Literal["dead", "late"] = Field(description="Dead letters or late rows.")
    node: Word | None = Field(None, description="Only those of this source, step or sink; default: all.")
    dry_run: bool = Field(False, description="Only say what would be done.")


class ReplayedRows(Answer):
    node: str
    rows: int
    too_old: int = Field(description="Late rows that can no longer correct anything; they stay where they are.")


class ReplayAnswer(Answer):
    running: bool = Field(description="Whether the run takes them in at once; otherwise the next one does.")
    dry_run: bool
    nodes: list[ReplayedRows]


@router.guarded(Role.VIEWER, "GET", "/{name}/ledger", kind=Kind.STATE)
def get_ledger(services: ServicesOf, grant: Caller, name: str, last: Limit = 20) -> LedgerAnswer:
    """What became of the rows of its newest batches and of all, and whether it adds up."""
    return LedgerAnswer.model_validate(asked_of_state(services, grant, name, "ledger", last=last))


@router.guarded(Role.VIEWER, "GET", "/{name}/ledger/windows", kind=Kind.STATE)
def get_windows(services: ServicesOf, grant: Caller, name: str, last: Limit = 20) -> WindowsAnswer:
    """The same by windows of event time, for pipelines with `ledger.window`."""
    return WindowsAnswer.model_validate({"items": asked_of_state(services, grant, name, "windows", last=last)})


@router.guarded(Role.OPERATOR, "GET", "/{name}/dead", kind=Kind.STATE)
def get_dead(services: ServicesOf, grant: Caller, name: str, limit: Limit = 100) -> DeadLetters:
    """Its newest dead letters. They hold what was read, so they are not for everybody."""
    return DeadLetters.model_validate(asked_of_state(services, grant, name, "dead", last=limit))


@router.guarded(Role.OPERATOR, "GET", "/{name}/late", kind=Kind.STATE)
def get_late(services: ServicesOf, grant: Caller, name: str, limit: Limit = 100) -> LateRows:
    """Its newest late rows that were set aside."""
    return LateRows.model_validate(asked_of_state(services, grant, name, "late", last=limit))


@router.guarded(Role.OPERATOR, "POST", "/{name}/replay", kind=Kind.STATE)
def replay_rows(services: ServicesOf, grant: Caller, name: str, asked: ReplayRequest | None = None) -> ReplayAnswer:
    """Feeds rows that were set aside to the pipeline again, each once, whether it runs or not."""
    if asked is None:
        with services.store.reading() as connection:
            visible(connection, grant, name)
        raise PenstockError.of("REQUEST_INVALID", reason="say `what` is to be fed again: dead or late")
    found = asked_of_state(services, grant, name, f"replay_{asked.what}", node=asked.node, dry_run=asked.dry_run)
    if not asked.dry_run:
        with services.store.writing() as connection:
            note(connection, grant, services.now(), "pipeline.replay", name, {**asked.model_dump(), "done": found})
    return ReplayAnswer.model_validate(found)
