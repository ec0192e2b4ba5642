"""The shapes of answers, and how they are made from what is stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from penstock.control.store.pages import LARGEST, Page
from penstock.control.store.pipelines import Pipeline
from penstock.control.supervisor.ports import Operation
from penstock.control.supervisor.watched import Live
from penstock.reports.codec import plain
from penstock.reports.values import OperationStatus, RunStatus

_T = TypeVar("_T")
_A = TypeVar("_A", bound=BaseModel)
_LARGEST_KEY = 2**63 - 1

Limit = Annotated[int, Query(ge=1, le=LARGEST, description="How many at most.")]
AfterNumber = Annotated[int | None, Query(ge=0, le=_LARGEST_KEY, description="What `next` of the page before says.")]
BatchNumber = Annotated[
    int | None, Query(alias="upTo", ge=0, le=_LARGEST_KEY, description="The number of the last batch that is wanted.")
]
AfterName = Annotated[str | None, Query(max_length=63, description="What `next` of the page before says.")]


class Answer(BaseModel):
    """camelCase outside, made from dataclasses."""

    model_config = ConfigDict(from_attributes=True, alias_generator=to_camel, populate_by_name=True)


class Listed(Answer, Generic[_A]):
    """A page of a list."""

    items: list[_A]
    next: str | None = Field(description="Give it as `after` for the next page; null on the last.")


def listed(page: Page[_T], make: Callable[[_T], _A]) -> Listed[_A]:
    return Listed(items=[make(item) for item in page.items], next=page.next)


class PipelineAnswer(Answer):
    """A pipeline as it is now."""

    name: str
    labels: dict[str, str]
    desired: str
    generation: int
    observed_generation: int
    revision: int
    version: int
    target: str
    state: str
    reason: str = Field(description="The evidence for the state, in one sentence.")
    since: dt.datetime = Field(description="Since when it has this state.")
    deleting: bool
    watermark: int | None = Field(description="Milliseconds since 1970.")
    rows_in: int = Field(description="All rows that were ever read, counted batch by batch.")
    rows_out: int
    rows_late: int
    rows_dead: int
    rows_filtered: int
    rows_per_second: float | None
    backlog: dict[str, Any]
    seconds_left: float | None = Field(description="Until it has caught up, if it has to and that can be told.")
    run: str | None
    operations: list[OperationAnswer] = Field(description="What is done to its state, or waits to be.")
    created_at: dt.datetime
    updated_at: dt.datetime

    @classmethod
    def of(cls, found: Pipeline, live: Live | None, default_target: str) -> PipelineAnswer:
        status = live.status if live is not None else None
        # What the supervisor saw last is newer than what it noted, unless something else is wanted since.
        fresh = live is not None and found.observed_generation == found.generation
        # Its parts have their types already; to check them again would be most of the work of a long list.
        return cls.model_construct(
            name=found.name,
            labels=dict(found.labels),
            desired=found.desired,
            generation=found.generation,
            observed_generation=found.observed_generation,
            revision=found.revision,
            version=found.version,
            target=found.target or default_target,
            state=live.health.state if fresh and live is not None else found.state,
            reason=live.health.evidence if fresh and live is not None else found.state_reason,
            since=found.state_since,
            deleting=found.deleting_at is not None,
            watermark=status.watermark if status is not None else None,
            rows_in=found.rows_in,
            rows_out=found.rows_out,
            rows_late=found.late,
            rows_dead=found.dead,
            rows_filtered=found.filtered,
            rows_per_second=status.rows_per_second if status is not None else None,
            backlog=plain(dict(status.backlog)) if status is not None else {},
            seconds_left=live.health.seconds_left if live is not None else None,
            run=live.run.id if live is not None and live.run is not None else None,
            operations=[OperationAnswer.of(item.operation, item.status) for item in (live.operations if live else ())],
            created_at=found.created_at,
            updated_at=found.updated_at,
        )


class VersionAnswer(Answer):
    pipeline: str
    number: int
    kind: str
    checksum: str
    created_at: dt.datetime
    created_by: str


class VersionText(VersionAnswer):
    text: str


class RunAnswer(Answer):
    id: str
    pipeline: str
    version: int
    generation: int
    target: str
    started_at: dt.datetime
    ended_at: dt.datetime | None
    outcome: str | None
    exit_code: int | None
    reason: str | None
    owner: str | None
    code: str | None
    pid: int | None
    epoch: int | None
    stop_asked_at: dt.datetime | None
    stop_reason: str | None


class BatchAnswer(Answer):
    id: int
    run: str
    batch: int
    at: dt.datetime
    span: int = Field(description="How many batches the row stands for, once history has been thinned.")
    duration_ms: int
    longest_ms: int | None
    rows_in: int
    rows_out: int
    late: int
    dead: int
    filtered: int
    watermark: int | None
    state_rows: int | None
    state_bytes: int | None
    checkpoint_bytes: int | None
    checkpoint_ms: int | None
    balanced: bool
    details: dict[str, Any]


class ExceptionAnswer(Answer):
    id: int
    pipeline: str
    run: str | None
    at: dt.datetime
    code: str
    message: str
    hint: str
    owner: str
    detail: dict[str, Any]


class SavepointAnswer(Answer):
    name: str
    pipeline: str
    version: int | None = Field(description="The version it was taken of; null if the server does not have it.")
    at: dt.datetime
    batch: int | None = Field(description="The last batch in it; null if it cannot be read.")
    bytes: int | None
    state_bytes: int | None
    watermark: int | None = Field(description="Milliseconds since 1970.")
    partitions: int | None
    note: str
    automatic: bool = Field(description="Whether the pipeline took it by itself, and may remove it by itself.")


class OperationAnswer(Answer):
    """Work on the state of a pipeline, or on a savepoint."""

    id: str
    pipeline: str
    kind: str
    state: str = Field(description="waiting, running, done or failed.")
    asked: dict[str, Any]
    asked_at: dt.datetime
    asked_by: str
    begun_at: dt.datetime | None
    attempts: int
    run: str | None = Field(description="The run that was asked to do it.")
    cancelled_by: str | None
    stage: str | None = Field(description="What it is at, in words.")
    done: int | None = Field(description="Bytes, where they are counted.")
    total: int | None
    ended_at: dt.datetime | None
    reason: str | None = Field(description="Why it failed, in one sentence.")
    owner: str | None
    code: str | None
    result: dict[str, Any]

    @classmethod
    def of(cls, found: Operation, status: OperationStatus | None = None) -> OperationAnswer:
        begun = found.begun_at is not None or found.run is not None
        return cls(
            id=found.id,
            pipeline=found.pipeline,
            kind=found.kind,
            state=found.outcome or ("running" if begun else "waiting"),
            asked=dict(found.asked),
            asked_at=found.asked_at,
            asked_by=found.asked_by,
            begun_at=found.begun_at,
            attempts=found.attempts,
            run=found.run,
            cancelled_by=found.cancelled_by,
            stage=status.stage if status is not None else None,
            done=status.done if status is not None else None,
            total=status.total if status is not None else None,
            ended_at=found.ended_at,
            reason=found.reason,
            owner=found.owner,
            code=found.code,
            result=dict(found.result) if found.ended_at is not None else {},
        )


class EventAnswer(Answer):
    id: int
    at: dt.datetime
    pipeline: str | None
    run: str | None
    kind: str
    text: str
    data: dict[str, Any]


class FailoverAnswer(Answer):
    id: int
    pipeline: str
    from_target: str
    to_target: str
    noticed_at: dt.datetime
    stopped_at: dt.datetime | None
    started_at: dt.datetime | None
    caught_up_at: dt.datetime | None


class AlertAnswer(Answer):
    id: int
    pipeline: str
    rule: str
    severity: str
    state: str
    since: dt.datetime
    fired_at: dt.datetime | None
    resolved_at: dt.datetime | None
    evidence: str


class NotificationAnswer(Answer):
    channel: str
    transition: str
    created_at: dt.datetime
    attempts: int
    next_at: dt.datetime | None
    sent_at: dt.datetime | None
    last_error: str | None


class SilenceAnswer(Answer):
    id: int
    pipeline: str | None
    rule: str | None
    until: dt.datetime
    created_at: dt.datetime
    created_by: str
    why: str


class TokenAnswer(Answer):
    id: str
    name: str
    role: str
    scope: dict[str, str]
    session: bool
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    last_used_at: dt.datetime | None


class AuditAnswer(Answer):
    id: int
    at: dt.datetime
    who: str
    role: str
    action: str
    object: str
    detail: dict[str, Any]


def status_answer(status: RunStatus | None) -> dict[str, Any] | None:
    """The report of a run, as it is written."""
    return None if status is None else dict(plain(status))
