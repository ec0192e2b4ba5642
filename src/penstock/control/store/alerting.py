"""The store as alerts and the courier of their notifications see it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, and_, exists, func, literal, or_, select
from sqlalchemy.exc import IntegrityError

from penstock.control.alerts.evaluate import AlertState, Transition
from penstock.control.alerts.notify.courier import LONGEST_PAUSE
from penstock.control.alerts.ports import Gone, OpenAlert, Outgoing
from penstock.control.alerts.silences import Silence
from penstock.control.store import alerts as rows
from penstock.control.store.database import Store
from penstock.control.store.schema import UtcTime, alerts, notifications

_AT_ONCE = 100


class AlertingStore:
    """What `penstock.control.alerts.ports` asks for, on a database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._store.writing() as connection:
                yield connection
        except IntegrityError as error:
            raise Gone from error

    # --- alerts ---

    def open(self) -> Sequence[OpenAlert]:
        told = (
            select(notifications.c.alert, notifications.c.channel)
            .join(alerts, alerts.c.id == notifications.c.alert)
            .where(alerts.c.state == "firing", notifications.c.transition == Transition.FIRING.value)
        )
        with self._store.reading() as connection:
            channels: dict[int, set[str]] = {}
            for alert, channel in connection.execute(told):
                channels.setdefault(alert, set()).add(channel)
            found = rows.open_alerts(connection)
        return [_open(alert, frozenset(channels.get(alert.id, ()))) for alert in found]

    def begin(self, pipeline: str, rule: str, severity: str, state: AlertState, evidence: str, now: dt.datetime) -> int:
        with self._writing() as connection:
            return rows.open_alert(
                connection,
                pipeline,
                rule,
                severity=severity,
                state=state.phase,
                since=state.since or now,
                evidence=evidence,
                fired_at=now if state.phase == "firing" else None,
            )

    def move(self, alert: int, state: AlertState, evidence: str, now: dt.datetime) -> None:
        with self._writing() as connection:
            fired_at = func.coalesce(alerts.c.fired_at, literal(now, UtcTime())) if state.phase == "firing" else None
            rows.change_alert(
                connection, alert, state=state.phase, calm_since=state.calm_since, evidence=evidence, fired_at=fired_at
            )

    def resolve(self, alert: int, now: dt.datetime, content: Mapping[str, Any]) -> None:
        with self._writing() as connection:
            rows.change_alert(connection, alert, state="resolved", resolved_at=now)
            for told in rows.notifications_of(connection, alert):
                if told.transition == Transition.FIRING:
                    channel, over = told.channel, Transition.RESOLVED.value
                    rows.put_in_outbox(connection, alert, channel, over, content=content, now=now)

    def drop(self, alert: int) -> None:
        with self._writing() as connection:
            rows.drop_alert(connection, alert)

    def tell(self, alert: int, channels: Sequence[str], now: dt.datetime, content: Mapping[str, Any]) -> None:
        with self._writing() as connection:
            for channel in channels:
                rows.put_in_outbox(connection, alert, channel, Transition.FIRING.value, content=content, now=now)

    def silences(self, now: dt.datetime) -> Sequence[Silence]:
        with self._store.reading() as connection:
            found = rows.silences_at(connection, now)
        return [Silence(silence.until, silence.pipeline, silence.rule) for silence in found]

    # --- the outbox ---

    def due(self, now: dt.datetime) -> Sequence[Outgoing]:
        # What is to be sent later than any pause lasts was noted before the clock was set back.
        is_due = or_(notifications.c.next_at <= now, notifications.c.next_at > now + LONGEST_PAUSE)
        first = notifications.alias("first")
        unsaid = exists().where(
            first.c.alert == notifications.c.alert,
            first.c.channel == notifications.c.channel,
            first.c.transition == Transition.FIRING.value,
            first.c.next_at.is_not(None),
        )
        waits = and_(notifications.c.transition == Transition.RESOLVED.value, unsaid)
        query = select(notifications).where(is_due, ~waits)
        with self._store.reading() as connection:
            found = connection.execute(query.order_by(notifications.c.id).limit(_AT_ONCE)).all()
        return [Outgoing(n.id, n.alert, n.channel, n.content, n.created_at, n.attempts) for n in found]

    def sent(self, notification: int, now: dt.datetime) -> None:
        with self._store.writing() as connection:
            rows.note_sent(connection, notification, now=now)

    def failed(self, notification: int, error: str, next_at: dt.datetime | None) -> None:
        with self._store.writing() as connection:
            rows.note_failed(connection, notification, error=error, next_at=next_at)

    def waiting(self) -> int:
        """How many notifications are not sent yet."""
        query = select(func.count()).select_from(notifications).where(notifications.c.next_at.is_not(None))
        with self._store.reading() as connection:
            return int(connection.execute(query).scalar_one())


def _open(alert: rows.Alert, told: frozenset[str]) -> OpenAlert:
    phase: Any = alert.state
    state = AlertState(phase, alert.since, alert.calm_since)
    return OpenAlert(alert.id, alert.pipeline, alert.rule, alert.severity, state, alert.evidence, told)
