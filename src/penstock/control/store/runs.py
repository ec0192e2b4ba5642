"""Runs: each is one runner process, from its start to what it ended with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, or_, select

from penstock.control.store.pages import Page, page
from penstock.control.store.pipelines import EVERYTHING, Scopes, within
from penstock.control.store.records import insert_or_replace, maker
from penstock.control.store.schema import runs
from penstock.control.supervisor.ports import Run
from penstock.errors import PenstockError


@dataclass(frozen=True)
class StoredRun(Run):
    sequence: int = 0
    """Its number in the order in which runs were started."""


_run = maker(Run)
_stored = maker(StoredRun)


def put(connection: Connection, found: Iterable[Run]) -> None:
    """Notes runs; what was known of them is replaced."""
    insert_or_replace(connection, runs, (vars(run) for run in found), key=("id",))


def get(connection: Connection, run: str) -> StoredRun:
    """Raises NOT_FOUND."""
    row = connection.execute(select(runs).where(runs.c.id == run)).mappings().first()
    if row is None:
        raise PenstockError.of("NOT_FOUND", what="run", name=run)
    return _stored(row)


def last_of(connection: Connection, pipeline: str) -> StoredRun | None:
    query = select(runs).where(runs.c.pipeline == pipeline).order_by(runs.c.sequence.desc()).limit(1)
    row = connection.execute(query).mappings().first()
    return None if row is None else _stored(row)


def latest(connection: Connection) -> dict[str, StoredRun]:
    """The newest run of each pipeline."""
    newest = select(func.max(runs.c.sequence)).group_by(runs.c.pipeline)
    rows = connection.execute(select(runs).where(runs.c.sequence.in_(newest))).mappings()
    return {row["pipeline"]: _stored(row) for row in rows}


def after(connection: Connection, pipeline: str, sequence: int) -> list[StoredRun]:
    """The runs of a pipeline that were started after one of them, the oldest first."""
    query = select(runs).where(runs.c.pipeline == pipeline, runs.c.sequence > sequence).order_by(runs.c.sequence)
    return [_stored(row) for row in connection.execute(query).mappings()]


def recent(connection: Connection, since: dt.datetime) -> list[Run]:
    """The open runs, the newest of each pipeline and all started since a time, in the order of their start."""
    newest = select(func.max(runs.c.sequence)).group_by(runs.c.pipeline)
    query = select(runs).where(or_(runs.c.ended_at.is_(None), runs.c.started_at >= since, runs.c.sequence.in_(newest)))
    return [_run(row) for row in connection.execute(query.order_by(runs.c.sequence)).mappings()]


def listed(
    connection: Connection,
    *,
    pipeline: str | None = None,
    scopes: Scopes = EVERYTHING,
    limit: int = 100,
    after: int | None = None,
) -> Page[StoredRun]:
    """Newest first."""
    query = select(runs).where(*within(runs.c.pipeline, scopes))
    if pipeline is not None:
        query = query.where(runs.c.pipeline == pipeline)
    return page(connection, query, runs.c.sequence, _stored, limit=limit, after=after, newest_first=True)
