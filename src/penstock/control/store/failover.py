"""Notices that a target is about to be taken away, and how long it took pipelines to move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, select

from penstock.control.store.pages import Page, page
from penstock.control.store.pipelines import EVERYTHING, Scopes, within
from penstock.control.store.records import insert_or_replace, maker
from penstock.control.store.schema import failovers, notices
from penstock.control.supervisor.ports import Failover, Notice


@dataclass(frozen=True)
class StoredFailover(Failover):
    id: int = 0


_notice = maker(Notice)
_failover = maker(Failover)
_stored = maker(StoredFailover)


def put_notices(connection: Connection, found: Iterable[Notice]) -> None:
    """Known by target and time; what was known of them is replaced."""
    insert_or_replace(connection, notices, (vars(notice) for notice in found), key=("target", "at"))


def put_failovers(connection: Connection, found: Iterable[Failover]) -> None:
    """Known by pipeline and time of the notice; what was known of them is replaced."""
    insert_or_replace(connection, failovers, (vars(move) for move in found), key=("pipeline", "noticed_at"))


def open_notices(connection: Connection) -> list[Notice]:
    query = select(notices).where(notices.c.withdrawn_at.is_(None)).order_by(notices.c.id)
    return [_notice(row) for row in connection.execute(query).mappings()]


def open_failovers(connection: Connection) -> list[Failover]:
    """Those that have not caught up yet."""
    query = select(failovers).where(failovers.c.caught_up_at.is_(None)).order_by(failovers.c.id)
    return [_failover(row) for row in connection.execute(query).mappings()]


def listed_failovers(
    connection: Connection,
    *,
    pipeline: str | None = None,
    scopes: Scopes = EVERYTHING,
    limit: int = 100,
    after: int | None = None,
) -> Page[StoredFailover]:
    """Newest first."""
    query = select(failovers).where(*within(failovers.c.pipeline, scopes))
    if pipeline is not None:
        query = query.where(failovers.c.pipeline == pipeline)
    return page(connection, query, failovers.c.id, _stored, limit=limit, after=after, newest_first=True)
