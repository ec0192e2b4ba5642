"""Rules on who is told, and when: alerts that can fire, do not always fire, and an owner."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Severity
from penstock.doctor.rule import Found, rule
from penstock.spec.alerts import DEFAULTS, Alert
from penstock.spec.location import Path_
from penstock.spec.units import Duration

_OWNERS = ("owner", "team")


@rule(
    "page-alert-off",
    Severity.WARNING,
    message="alert '{alert}' ({when}) is turned off",
    why="It is one of those that call somebody because data is lost or nothing advances.",
    fix="Remove the entry, or replace it by a condition that fits: an entry with `name: {alert}` and `when`.",
)
def page_alert_off(checkup: Checkup) -> Iterator[Found]:
    for index, alert in enumerate(checkup.pipeline.alerts):
        default = DEFAULTS.get(alert.title)
        if alert.off and default is not None and default.severity == "page":
            yield Found(("spec", "alerts", index), {"alert": alert.title, "when": str(default.when)})


@rule(
    "page-alert-weakened",
    Severity.WARNING,
    message="alert '{alert}' has severity {severity} instead of page",
    why="It reports that data is lost or nothing advances. With a lower severity nobody is called at once.",
    fix="Write `severity: page`.",
)
def page_alert_weakened(checkup: Checkup) -> Iterator[Found]:
    for index, alert in enumerate(checkup.pipeline.alerts):
        default = DEFAULTS.get(alert.title)
        if not alert.off and default is not None and default.severity == "page" and alert.severity != "page":
            path = ("spec", "alerts", index)
            where = (*path, "severity") if "severity" in alert.model_fields_set else path
            yield Found(where, {"alert": alert.title, "severity": alert.severity})


@rule(
    "alert-always-fires",
    Severity.WARNING,
    message="alert '{alert}' ({when}) always fires: source '{source}' lets the watermark trail by {maxDelay}",
    why="The watermark is always behind by `maxDelay`. An alert that always fires is ignored, also when it matters.",
    fix="Compare with more than {maxDelay}, or take a shorter `maxDelay`.",
)
def alert_always_fires(checkup: Checkup) -> Iterator[Found]:
    for alert, path in _effective(checkup):
        condition = alert.when
        if condition is None or condition.measure != "watermark_lag" or condition.operator not in (">", ">="):
            continue
        for source in checkup.pipeline.sources:
            if source.event_time is None or condition.node not in (None, source.name):
                continue
            delay = source.event_time.max_delay
            limit = condition.threshold
            if isinstance(limit, float) and delay.millis > 0 and delay >= Duration(round(limit * 1000)):
                own = path or ("spec", "sources", source.name, "eventTime", "maxDelay")
                evidence = {"alert": alert.title, "when": str(condition)}
                yield Found(own, {**evidence, "source": source.name, "maxDelay": str(delay)})


def _effective(checkup: Checkup) -> Iterator[tuple[Alert, Path_ | None]]:
    """The alerts that hold for the pipeline, with where its own stand."""
    own = {alert.title for alert in checkup.pipeline.alerts}
    yield from ((alert, None) for name, alert in DEFAULTS.items() if name not in own)
    for index, alert in enumerate(checkup.pipeline.alerts):
        if not alert.off:
            yield alert, ("spec", "alerts", index, "when")


@rule(
    "owner-missing",
    Severity.WARNING,
    message="no label says whom the pipeline belongs to",
    why="Whoever receives an alert must know whom to ask, and a server gives rights by labels.",
    fix="Add a label `team` or `owner`: `labels: {{team: news}}`.",
    production_only=True,
)
def owner_missing(checkup: Checkup) -> Iterator[Found]:
    if not any(checkup.pipeline.labels.get(name) for name in _OWNERS):
        # Names only: a label's value may be what nobody should print.
        yield Found(("metadata", "labels"), {"labels": sorted(checkup.pipeline.labels)}, key=True)
