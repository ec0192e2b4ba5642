"""One look at all pipelines: which alerts fire, which are over, and who is to be told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.control.alerts.evaluate import OK, AlertState, Transition, step
from penstock.control.alerts.evidence import after_all, evidence
from penstock.control.alerts.measure import Sample, value_of
from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.notify.message import Message
from penstock.control.alerts.ports import AlertStore, Gone, OpenAlert
from penstock.control.alerts.rules import channels_for
from penstock.control.alerts.silences import silenced
from penstock.spec.alerts import Alert
from penstock.spec.secrets import hide

_GONE = "the alert is no longer there"


@dataclass(frozen=True)
class Watched:
    """A pipeline with its alerts, and what was measured; `reason` is why its health is what it is."""

    pipeline: str
    rules: Mapping[str, Alert]
    sample: Sample
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    channels: Collection[str] | None = None
    """By which its alerts may be told; None for all that there are."""


@dataclass(frozen=True)
class Change:
    """An alert that began to fire or is over; what events and streams are told."""

    pipeline: str
    rule: str
    severity: str
    transition: Transition
    evidence: str


Timed = Callable[[str, dt.datetime], dt.datetime]
"""When something happened on a steady clock, by the name under which that is kept and its time of day."""


def as_written(thing: str, label: dt.datetime) -> dt.datetime:
    """For a clock that nobody sets."""
    return label


class Watch:
    """Looks at pipelines. What it knows of earlier looks is in the store, so it goes on after a restart."""

    def __init__(self, store: AlertStore, channels: Mapping[str, Channel], timed: Timed = as_written) -> None:
        self._store = store
        self._channels = channels
        self._timed = timed
        self.opened: frozenset[str] = frozenset()
        """The names under which times of alerts are kept that were open at the last look."""

    def look(self, watched: Iterable[Watched], now: dt.datetime) -> list[Change]:
        """Evaluates all alerts once; gives back what has changed."""
        found = {(each.pipeline, rule): (each, alert) for each in watched for rule, alert in each.rules.items()}
        opened = {(alert.pipeline, alert.rule): alert for alert in self._store.open()}
        self.opened = frozenset(_name(alert) for alert in opened.values())
        silences = self._store.silences(now)
        changes = []
        for (pipeline, rule), (each, alert) in found.items():
            silent = silenced(silences, pipeline, rule, now)
            with suppress(Gone):
                transition, said = self._evaluate(each, alert, opened.get((pipeline, rule)), silent, now)
                if transition is not None:
                    changes.append(Change(pipeline, rule, alert.severity, transition, said))
        for key in opened.keys() - found.keys():
            with suppress(Gone):
                changes += self._end(opened[key], now)
        return changes

    def _evaluate(
        self, each: Watched, alert: Alert, known: OpenAlert | None, silent: bool, now: dt.datetime
    ) -> tuple[Transition | None, str]:
        """One look at one alert: what there is to be told, and the evidence."""
        assert alert.when is not None
        value = value_of(alert.when, each.sample)
        before = known.state if known else OK
        hold_for = dt.timedelta(milliseconds=alert.for_.millis)
        after, transition = self._step(known, alert.when.holds(value), now, hold_for)
        if known is not None and transition is Transition.RESOLVED:
            said = hide(after_all(alert.when, value))
            self._store.resolve(known.id, now, _message(each, alert, before, transition, said, now))
            return transition, said
        if after.phase == "ok":
            if known is not None:
                self._store.drop(known.id)
            return None, ""
        changed = known is None or after.phase != before.phase
        said = hide(evidence(alert.when, value, each.reason)) if changed or known is None else known.evidence
        if known is None:
            identity = self._store.begin(each.pipeline, alert.title, alert.severity, after, said, now)
        else:
            identity = known.id
            if after != before:
                self._store.move(identity, after, said, now)
        if after.phase == "firing" and not silent:
            self._tell(each, alert, identity, known, after, said, now)
        return transition, said

    def _step(
        self, known: OpenAlert | None, holds: bool, now: dt.datetime, hold_for: dt.timedelta
    ) -> tuple[AlertState, Transition | None]:
        """For how long something has held is told by the steady clock; what is kept are times of day."""
        if known is None:
            return step(OK, holds, now, hold_for)
        before, moment = known.state, self._timed("now", now)
        since, calm_since = (
            None if label is None else self._timed(_name(known), label) for label in (before.since, before.calm_since)
        )
        after, transition = step(AlertState(before.phase, since, calm_since), holds, moment, hold_for)
        return (
            AlertState(
                after.phase,
                None if after.since is None else before.since if after.since == since else now,
                None if after.calm_since is None else before.calm_since if after.calm_since == calm_since else now,
            ),
            transition,
        )

    def _tell(
        self,
        each: Watched,
        alert: Alert,
        identity: int,
        known: OpenAlert | None,
        state: AlertState,
        said: str,
        now: dt.datetime,
    ) -> None:
        """Also in later looks: a silence may have ended, or the server may have been cut off."""
        told = known.told if known else frozenset()
        allowed = {
            name: channel for name, channel in self._channels.items() if each.channels is None or name in each.channels
        }
        missing = [name for name in channels_for(alert, allowed) if name not in told]
        if missing:
            self._store.tell(identity, missing, now, _message(each, alert, state, Transition.FIRING, said, now))

    def _end(self, alert: OpenAlert, now: dt.datetime) -> list[Change]:
        """One whose rule or pipeline is no longer watched."""
        if alert.state.phase != "firing":
            self._store.drop(alert.id)
            return []
        since = alert.state.since or now
        told = Message(
            Transition.RESOLVED, alert.pipeline, alert.rule, alert.severity, "", _GONE, since=since, at=now, labels={}
        )
        self._store.resolve(alert.id, now, told.as_dict())
        return [Change(alert.pipeline, alert.rule, alert.severity, Transition.RESOLVED, _GONE)]


def _name(alert: OpenAlert) -> str:
    return f"alert {alert.id}"


def _message(
    each: Watched, alert: Alert, state: AlertState, transition: Transition, said: str, now: dt.datetime
) -> dict[str, Any]:
    told = Message(
        transition=transition,
        pipeline=each.pipeline,
        rule=alert.title,
        severity=alert.severity,
        condition=str(alert.when),
        evidence=said,
        since=state.since or now,
        at=now,
        labels=each.labels,
    )
    return told.as_dict()
