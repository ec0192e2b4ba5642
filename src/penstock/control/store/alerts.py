"""Alerts, silences, and the outbox from which notifications are sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, update

from penstock.control.store.pages import Page, page
from penstock.control.store.pipelines import EVERYTHING, Scopes, within
from penstock.control.store.records import insert_missing, insert_numbered, maker
from penstock.control.store.schema import alerts, notifications, silences
from penstock.errors import PenstockError


@dataclass(frozen=True)
class Alert:
    """A rule of a pipeline whose condition holds (`pending`, then `firing`) or held (`resolved`)."""

    id: int
    pipeline: str
    rule: str
    severity: str
    state: str
    since: dt.datetime
    fired_at: dt.datetime | None
    resolved_at: dt.datetime | None
    calm_since: dt.datetime | None
    evidence: str


@dataclass(frozen=True)
class Silence:
    """No notification about a pipeline, a rule, or both; about all where neither is named."""

    id: int
    pipeline: str | None
    rule: str | None
    until: dt.datetime
    created_at: dt.datetime
    created_by: str
    why: str


@dataclass(frozen=True)
class Notification:
    """A message to send, or sent, about one transition of an alert to one channel."""

    id: int
    alert: int
    channel: str
    transition: str
    created_at: dt.datetime
    attempts: int
    next_at: dt.datetime | None
    sent_at: dt.datetime | None
    last_error: str | None
    content: Mapping[str, Any]


_alert = maker(Alert)
_silence = maker(Silence)
_notification = maker(Notification)


# --- alerts ------------------------------------------------------------------------------------------------


def open_alerts(connection: Connection) -> list[Alert]:
    """Those that are pending or firing."""
    query = select(alerts).where(alerts.c.state.in_(("pending", "firing"))).order_by(alerts.c.id)
    return [_alert(row) for row in connection.execute(query).mappings()]


def open_alert(
    connection: Connection,
    pipeline: str,
    rule: str,
    *,
    severity: str,
    state: str,
    since: dt.datetime,
    evidence: str,
    fired_at: dt.datetime | None = None,
) -> int:
    values = {"pipeline": pipeline, "rule": rule, "severity": severity, "state": state, "since": since}
    return insert_numbered(connection, alerts, {**values, "evidence": evidence, "fired_at": fired_at})


def change_alert(connection: Connection, alert: int, **values: Any) -> None:
    """Writes any of its columns but those that say which alert it is."""
    connection.execute(update(alerts).where(alerts.c.id == alert).values(values))


def drop_alert(connection: Connection, alert: int) -> None:
    """Forgets one that never fired."""
    connection.execute(delete(alerts).where(alerts.c.id == alert, alerts.c.fired_at.is_(None)))


def get_alert(connection: Connection, alert: int) -> Alert:
    """Raises NOT_FOUND."""
    row = connection.execute(select(alerts).where(alerts.c.id == alert)).mappings().first()
    if row is None:
        raise PenstockError.of("NOT_FOUND", what="alert", name=alert)
    return _alert(row)


def listed_alerts(
    connection: Connection,
    *,
    pipeline: str | None = None,
    state: str | None = None,
    scopes: Scopes = EVERYTHING,
    limit: int = 100,
    after: int | None = None,
) -> Page[Alert]:
    """Newest first."""
    query = select(alerts).where(*within(alerts.c.pipeline, scopes))
    if pipeline is not None:
        query = query.where(alerts.c.pipeline == pipeline)
    if state is not None:
        query = query.where(alerts.c.state == state)
    return page(connection, query, alerts.c.id, _alert, limit=limit, after=after, newest_first=True)


# --- silences ----------------------------------------------------------------------------------------------


def add_silence(
    connection: Connection,
    *,
    pipeline: str | None,
    rule: str | None,
    until: dt.datetime,
    by: str,
    why: str,
    now: dt.datetime,
) -> Silence:
    values = {"pipeline": pipeline, "rule": rule, "until": until, "created_at": now, "created_by": by, "why": why}
    return get_silence(connection, insert_numbered(connection, silences, values))


def get_silence(connection: Connection, silence: int) -> Silence:
    """Raises NOT_FOUND."""
    row = connection.execute(select(silences).where(silences.c.id == silence)).mappings().first()
    if row is None:
        raise PenstockError.of("NOT_FOUND", what="silence", name=silence)
    return _silence(row)


def silences_at(connection: Connection, now: dt.datetime) -> list[Silence]:
    """Those that hold."""
    rows = connection.execute(select(silences).where(silences.c.until > now).order_by(silences.c.id)).mappings()
    return [_silence(row) for row in rows]


def listed_silences(
    connection: Connection, *, scopes: Scopes = EVERYTHING, limit: int = 100, after: int | None = None
) -> Page[Silence]:
    """Newest first."""
    query = select(silences).where(*within(silences.c.pipeline, scopes))
    return page(connection, query, silences.c.id, _silence, limit=limit, after=after, newest_first=True)


def end_silence(connection: Connection, silence: int, *, now: dt.datetime) -> Silence:
    """It holds no longer; raises NOT_FOUND."""
    connection.execute(update(silences).where(silences.c.id == silence, silences.c.until > now).values(until=now))
    return get_silence(connection, silence)


# --- the outbox --------------------------------------------------------------------------------------------


def put_in_outbox(
    connection: Connection, alert: int, channel: str, transition: str, *, content: Mapping[str, Any], now: dt.datetime
) -> bool:
    """False if this transition has been told, or is to be told, to the channel already."""
    row = {"alert": alert, "channel": channel, "transition": transition, "created_at": now, "attempts": 0}
    return len(insert_missing(connection, notifications, [{**row, "next_at": now, "content": dict(content)}])) == 1


def due_notifications(connection: Connection, now: dt.datetime, limit: int = 20) -> list[Notification]:
    """Those that are to be tried now, the longest due first."""
    query = select(notifications).where(notifications.c.sent_at.is_(None), notifications.c.next_at <= now)
    rows = connection.execute(query.order_by(notifications.c.next_at, notifications.c.id).limit(limit)).mappings()
    return [_notification(row) for row in rows]


def note_sent(connection: Connection, notification: int, *, now: dt.datetime) -> None:
    known = update(notifications).where(notifications.c.id == notification)
    connection.execute(known.values(sent_at=now, next_at=None, attempts=notifications.c.attempts + 1))


def note_failed(connection: Connection, notification: int, *, error: str, next_at: dt.datetime | None) -> None:
    """It is tried again at `next_at`, or never."""
    known = update(notifications).where(notifications.c.id == notification)
    connection.execute(known.values(last_error=error, next_at=next_at, attempts=notifications.c.attempts + 1))


def notifications_of(connection: Connection, alert: int) -> list[Notification]:
    query = select(notifications).where(notifications.c.alert == alert).order_by(notifications.c.id)
    return [_notification(row) for row in connection.execute(query).mappings()]
