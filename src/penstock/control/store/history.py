"""What happened: batches with their numbers (the checkpoint's among them), exceptions and events."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, func, insert, select, update

from penstock.control.store.pages import Page, page
from penstock.control.store.pipelines import EVERYTHING, Scopes, within
from penstock.control.store.records import insert_missing, maker
from penstock.control.store.schema import COUNTS, batches, events, exceptions, pipelines
from penstock.control.supervisor.ports import Failure

BATCH, MINUTE, HOUR = 0, 60, 3600
"""What one row of history stands for: one batch, or all batches of a minute or an hour."""


@dataclass(frozen=True)
class BatchNumbers:
    """The numbers of a batch, or of `span` batches that have been put together."""

    pipeline: str
    run: str
    batch: int
    at: dt.datetime
    duration_ms: int
    rows_in: int
    rows_out: int
    late: int = 0
    dead: int = 0
    filtered: int = 0
    watermark: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_ms: int | None = None
    balanced: bool = True
    details: Mapping[str, Any] | None = None
    grain: int = BATCH
    span: int = 1
    longest_ms: int | None = None

    def as_row(self) -> dict[str, Any]:
        longest = self.duration_ms if self.longest_ms is None else self.longest_ms
        return {**vars(self), "details": dict(self.details or {}), "longest_ms": longest}


@dataclass(frozen=True)
class StoredBatch(BatchNumbers):
    id: int = 0


@dataclass(frozen=True)
class StoredException:
    id: int
    pipeline: str
    run: str | None
    at: dt.datetime
    code: str
    message: str
    hint: str
    owner: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    id: int
    at: dt.datetime
    pipeline: str | None
    run: str | None
    kind: str
    text: str
    data: Mapping[str, Any]


_batch = maker(StoredBatch)
_exception = maker(StoredException)
_event = maker(Event)


# --- batches -----------------------------------------------------------------------------------------------


def add_batches(connection: Connection, found: Iterable[BatchNumbers]) -> int:
    """Adds batches and counts their rows; one that is known already is left as it is. How many were new."""
    new = put_batches(connection, found)
    sums: dict[str, Counter[str]] = {}
    for row in new:
        sums.setdefault(row["pipeline"], Counter()).update({name: row[name] for name in COUNTS})
    if sums:
        added = {name: pipelines.c[name] + bindparam(f"more_{name}") for name in COUNTS}
        known = update(pipelines).where(pipelines.c.name == bindparam("of")).values(added)
        rows = [{"of": name, **{f"more_{key}": counts[key] for key in COUNTS}} for name, counts in sums.items()]
        connection.execute(known, rows)
    return len(new)


def put_batches(connection: Connection, found: Iterable[BatchNumbers]) -> Sequence[RowMapping]:
    """Adds batches without counting their rows; those that were new."""
    rows = (numbers.as_row() for numbers in found)
    return insert_missing(connection, batches, rows, returning=("pipeline", *COUNTS))


def batches_of(
    connection: Connection,
    pipeline: str,
    *,
    run: str | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    up_to: int | None = None,
    limit: int = 100,
    after: int | None = None,
) -> Page[StoredBatch]:
    """Newest first; `up_to` is the number of a batch."""
    query = select(batches).where(batches.c.pipeline == pipeline)
    if run is not None:
        query = query.where(batches.c.run == run)
    if since is not None:
        query = query.where(batches.c.at >= since)
    if until is not None:
        query = query.where(batches.c.at < until)
    if up_to is not None:
        query = query.where(batches.c.batch <= up_to)
    return page(connection, query, batches.c.id, _batch, limit=limit, after=after, newest_first=True)


# --- exceptions --------------------------------------------------------------------------------------------


def add_exceptions(connection: Connection, found: Iterable[Failure]) -> None:
    """Keeps what runs failed of; told again, it is not kept twice."""
    insert_missing(connection, exceptions, (_failure(each) for each in found))


def _failure(failure: Failure) -> dict[str, Any]:
    told = failure.problem
    return {
        "pipeline": failure.pipeline,
        "run": failure.run,
        "at": failure.at,
        "code": str(told.get("code", "INTERNAL"))[:60],
        "message": str(told.get("message", "")),
        "hint": str(told.get("hint", "")),
        "owner": str(told.get("owner", "bug"))[:10],
        "detail": {key: told[key] for key in ("severity", "params", "location") if key in told},
    }


def exceptions_of(
    connection: Connection,
    *,
    pipeline: str | None = None,
    run: str | None = None,
    scopes: Scopes = EVERYTHING,
    limit: int = 100,
    after: int | None = None,
) -> Page[StoredException]:
    """Newest first."""
    query = select(exceptions).where(*within(exceptions.c.pipeline, scopes))
    if pipeline is not None:
        query = query.where(exceptions.c.pipeline == pipeline)
    if run is not None:
        query = query.where(exceptions.c.run == run)
    return page(connection, query, exceptions.c.id, _exception, limit=limit, after=after, newest_first=True)


# --- events ------------------------------------------------------------------------------------------------


def add_event(
    connection: Connection,
    kind: str,
    text: str,
    *,
    now: dt.datetime,
    pipeline: str | None = None,
    run: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    values = {"at": now, "pipeline": pipeline, "run": run, "kind": kind, "text": text, "data": dict(data or {})}
    connection.execute(insert(events).values(values))


def listed_events(
    connection: Connection,
    *,
    pipeline: str | None = None,
    kind: str | None = None,
    scopes: Scopes = EVERYTHING,
    limit: int = 100,
    after: int | None = None,
    newest_first: bool = True,
) -> Page[Event]:
    """Events; with `newest_first` off those after one, in the order they happened."""
    query = select(events).where(*within(events.c.pipeline, scopes))
    if pipeline is not None:
        query = query.where(events.c.pipeline == pipeline)
    if kind is not None:
        query = query.where(events.c.kind == kind)
    return page(connection, query, events.c.id, _event, limit=limit, after=after, newest_first=newest_first)


def last_event(connection: Connection) -> int:
    """The number of the newest event; 0 if there is none."""
    return int(connection.execute(select(func.coalesce(func.max(events.c.id), 0))).scalar_one())
