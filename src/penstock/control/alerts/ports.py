"""What alerts ask of the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.control.alerts.evaluate import AlertState
from penstock.control.alerts.silences import Silence


@dataclass(frozen=True)
class OpenAlert:
    """An alert that is pending or fires, and the channels for which there is a notification of its firing."""

    id: int
    pipeline: str
    rule: str
    severity: str
    state: AlertState
    evidence: str
    told: frozenset[str] = frozenset()


class Gone(Exception):
    """The pipeline has been deleted meanwhile, and its alerts with it."""


class AlertStore(Protocol):
    """Alerts and the notifications of them. Each call is one transaction; those that write may raise Gone."""

    def open(self) -> Sequence[OpenAlert]:
        """All alerts that are pending or fire."""

    def begin(self, pipeline: str, rule: str, severity: str, state: AlertState, evidence: str, now: dt.datetime) -> int:
        """Notes a new alert, pending or firing; gives back its id."""

    def move(self, alert: int, state: AlertState, evidence: str, now: dt.datetime) -> None:
        """Notes what has become of an open one."""

    def resolve(self, alert: int, now: dt.datetime, content: Mapping[str, Any]) -> None:
        """Notes that one that fired is over, with a notification for every channel that has one of its firing."""

    def drop(self, alert: int) -> None:
        """Forgets one that never fired."""

    def tell(self, alert: int, channels: Sequence[str], now: dt.datetime, content: Mapping[str, Any]) -> None:
        """Adds a notification that an alert fires for each channel that has none yet."""

    def silences(self, now: dt.datetime) -> Sequence[Silence]:
        """The silences that hold."""


@dataclass(frozen=True)
class Outgoing:
    """A notification that is to be sent; `attempts` is how often that was tried in vain."""

    id: int
    alert: int
    channel: str
    content: Mapping[str, Any]
    created_at: dt.datetime
    attempts: int = 0


class Outbox(Protocol):
    """Notifications on their way. One for an alert, a channel and a transition is there once only."""

    def due(self, now: dt.datetime) -> Sequence[Outgoing]:
        """What is to be sent now, oldest first; that an alert is over only after its firing was sent or given up."""

    def sent(self, notification: int, now: dt.datetime) -> None:
        """Notes that one was sent."""

    def failed(self, notification: int, error: str, next_at: dt.datetime | None) -> None:
        """Notes that one could not be sent, and when to try again; None gives it up."""
