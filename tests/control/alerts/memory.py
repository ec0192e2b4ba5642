"""The store of alerts in memory, for tests that are about something else."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.alerts.evaluate import AlertState
from penstock.control.alerts.ports import OpenAlert, Outgoing
from penstock.control.alerts.silences import Silence


@dataclass
class Notification:
    """A row of the outbox."""

    outgoing: Outgoing
    transition: str
    next_at: dt.datetime | None
    sent_at: dt.datetime | None = None
    last_error: str | None = None


@dataclass
class MemoryStore:
    alerts: dict[int, OpenAlert] = field(default_factory=dict)
    over: list[OpenAlert] = field(default_factory=list)
    outbox: list[Notification] = field(default_factory=list)
    quiet: list[Silence] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def open(self) -> Sequence[OpenAlert]:
        return [replace(alert, told=self._told(alert.id)) for alert in self.alerts.values()]

    def begin(self, pipeline: str, rule: str, severity: str, state: AlertState, evidence: str, now: dt.datetime) -> int:
        identity = next(self.numbers)
        self.alerts[identity] = OpenAlert(identity, pipeline, rule, severity, state, evidence)
        return identity

    def move(self, alert: int, state: AlertState, evidence: str, now: dt.datetime) -> None:
        self.alerts[alert] = replace(self.alerts[alert], state=state, evidence=evidence)

    def resolve(self, alert: int, now: dt.datetime, content: Mapping[str, Any]) -> None:
        for channel in sorted(self._told(alert)):
            self._put(alert, channel, "resolved", now, content)
        self.over.append(self.alerts.pop(alert))

    def drop(self, alert: int) -> None:
        assert self.alerts.pop(alert).state.phase != "firing"

    def tell(self, alert: int, channels: Sequence[str], now: dt.datetime, content: Mapping[str, Any]) -> None:
        for channel in channels:
            self._put(alert, channel, "firing", now, content)

    def silences(self, now: dt.datetime) -> Sequence[Silence]:
        return [silence for silence in self.quiet if now < silence.until]

    def due(self, now: dt.datetime) -> Sequence[Outgoing]:
        waiting = {
            (n.outgoing.alert, n.outgoing.channel) for n in self.outbox if n.transition == "firing" and n.next_at
        }
        return [
            n.outgoing
            for n in self.outbox
            if n.next_at is not None
            and n.next_at <= now
            and not (n.transition == "resolved" and (n.outgoing.alert, n.outgoing.channel) in waiting)
        ]

    def sent(self, notification: int, now: dt.datetime) -> None:
        found = self._row(notification)
        found.sent_at, found.next_at = now, None

    def failed(self, notification: int, error: str, next_at: dt.datetime | None) -> None:
        found = self._row(notification)
        found.outgoing = replace(found.outgoing, attempts=found.outgoing.attempts + 1)
        found.last_error, found.next_at = error, next_at

    def _row(self, notification: int) -> Notification:
        return next(n for n in self.outbox if n.outgoing.id == notification)

    def _told(self, alert: int) -> frozenset[str]:
        return frozenset(n.outgoing.channel for n in self.outbox if n.outgoing.alert == alert)

    def _put(self, alert: int, channel: str, transition: str, now: dt.datetime, content: Mapping[str, Any]) -> None:
        known = {(n.outgoing.alert, n.outgoing.channel, n.transition) for n in self.outbox}
        if (alert, channel, transition) not in known:
            row = Outgoing(next(self.numbers), alert, channel, dict(content), now)
            self.outbox.append(Notification(row, transition, now))
