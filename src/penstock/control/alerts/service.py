"""The part of the server that evaluates alerts and sends notifications, in a thread of its own."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.notify.courier import Courier
from penstock.control.alerts.rules import rules_of
from penstock.control.alerts.watch import Change, Watch, Watched
from penstock.control.clock import Clock, Moments
from penstock.control.samples import Seen
from penstock.control.store import history, pipelines
from penstock.control.store.alerting import AlertingStore
from penstock.control.store.database import Store
from penstock.errors import PenstockError
from penstock.spec.alerts import Alert
from penstock.spec.secrets import hide

LOOK_SECONDS = 10.0
_Known = tuple[dt.datetime | None, int]
"""When a pipeline was made, and its version: another of its name has versions of the same numbers."""


class AlertService:
    """Looks at all pipelines every ten seconds. `seen` says how they are; it may raise STORE_DOWN."""

    def __init__(
        self,
        store: Store,
        seen: Callable[[], list[Seen]],
        channels: Mapping[str, Channel],
        clock: Clock,
        acts: Callable[[], bool] = lambda: True,
        channels_of: Callable[[Seen], Collection[str]] | None = None,
    ) -> None:
        self._store = store
        self._acts = acts
        self._seen = seen
        self._moments = Moments(clock)
        self._alerting = AlertingStore(store)
        self._channels_of = channels_of or (lambda _: tuple(channels))
        """The names of those by which the alerts of a pipeline may be told."""
        self._watch = Watch(self._alerting, channels, self._moments.of)
        self._courier = Courier(self._alerting, channels, clock.now)
        self._rules: dict[str, tuple[_Known, dict[str, Alert]]] = {}
        """Of each pipeline the alerts of a version."""
        self._over = threading.Event()
        self.trouble: str | None = None
        """Why the last look failed, if it did."""

    def run(self) -> None:
        """Looks until `end` is called. A look that fails is not the last one."""
        while not self._over.is_set():
            try:
                if self._acts():
                    self.look()
                    self._courier.deliver()
                self.trouble = None
            except PenstockError as error:
                self.trouble = hide(error.problems[0].message)
            except Exception as error:
                self.trouble = hide(f"{type(error).__name__}: {error}")
            self._over.wait(LOOK_SECONDS)

    def end(self) -> None:
        self._over.set()

    def look(self) -> list[Change]:
        """Evaluates all alerts once, and notes what has changed as events."""
        found = self._seen()
        rules = self._current_rules(found)
        watched = [
            Watched(each.name, rules[each.name], each.sample, each.reason, each.labels, self._channels_of(each))
            for each in found
        ]
        now = self._moments.clock.now()
        changes = self._watch.look(watched, now)
        self._moments.keep(self._watch.opened)
        if changes:
            with self._store.writing() as connection:
                for change in changes:
                    text = f"alert '{change.rule}' is {change.transition}: {change.evidence}"
                    data = {"rule": change.rule, "severity": change.severity, "status": str(change.transition)}
                    history.add_event(connection, "alert", text, now=now, pipeline=change.pipeline, data=data)
        return changes

    def _current_rules(self, found: list[Seen]) -> dict[str, dict[str, Alert]]:
        """The alerts of each pipeline; a version is read once."""
        known = {name: of for name, (of, _) in self._rules.items()}
        missing = [each for each in found if known.get(each.name) != (each.made, each.version)]
        if missing:
            with self._store.reading() as connection:
                for each in missing:
                    document = pipelines.version(connection, each.name, each.version).document
                    self._rules[each.name] = ((each.made, each.version), rules_of(alerts_in(document)))
        names = {each.name for each in found}
        self._rules = {name: rules for name, rules in self._rules.items() if name in names}
        return {name: rules for name, (_, rules) in self._rules.items()}


def alerts_in(document: Mapping[str, Any]) -> list[Alert]:
    """The alerts of a pipeline as its document says them."""
    return [Alert.model_validate(each) for each in document.get("spec", {}).get("alerts", ())]
