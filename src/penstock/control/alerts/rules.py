"""Which alerts a pipeline has: those of every pipeline, and its own in place of those of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.control.alerts.notify.channels import Channel
from penstock.errors import Problem, did_you_mean
from penstock.spec.alerts import DEFAULTS, Alert
from penstock.spec.location import PipelineFile


def rules_of(alerts: Iterable[Alert]) -> dict[str, Alert]:
    """The alerts that are evaluated, by name."""
    rules = {**DEFAULTS, **{alert.title: alert for alert in alerts}}
    return {name: alert for name, alert in rules.items() if not alert.off}


def channels_for(alert: Alert, channels: Mapping[str, Channel]) -> tuple[str, ...]:
    """Who is told: the channels that the alert names, or else those that take its severity."""
    if alert.notify:
        return tuple(dict.fromkeys(name for name in alert.notify if name in channels))
    return tuple(name for name, channel in channels.items() if alert.severity in channel.severities)


def unknown_channels(file: PipelineFile, channels: Iterable[str]) -> list[Problem]:
    """Channels that a pipeline names and this server does not have, each with its place."""
    known = set(channels)
    return [
        Problem(
            "ALERT_CHANNEL_UNKNOWN",
            {"name": name, "alert": alert.title, "suggestion": did_you_mean(name, known)},
            file.places.of("spec", "alerts", index, "notify", place),
        )
        for index, alert in enumerate(file.pipeline.alerts)
        for place, name in enumerate(alert.notify)
        if name not in known
    ]
