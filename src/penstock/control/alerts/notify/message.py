"""What somebody is told: the values of one transition of an alert, and the words made of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.alerts.evaluate import Transition


@dataclass(frozen=True)
class Message:
    """One transition of one alert."""

    transition: Transition
    pipeline: str
    rule: str
    severity: str
    condition: str
    evidence: str
    since: dt.datetime
    at: dt.datetime
    labels: Mapping[str, str]

    @property
    def headline(self) -> str:
        return f"[{self.severity}] {self.pipeline}: {self.rule} {self.transition}"

    def as_dict(self) -> dict[str, Any]:
        """What the outbox keeps and webhooks get."""
        return {
            "status": str(self.transition),
            "pipeline": self.pipeline,
            "rule": self.rule,
            "severity": self.severity,
            "condition": self.condition,
            "evidence": self.evidence,
            "since": self.since.isoformat(),
            "at": self.at.isoformat(),
            "labels": dict(self.labels),
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Message:
        return cls(
            transition=Transition(content["status"]),
            pipeline=content["pipeline"],
            rule=content["rule"],
            severity=content["severity"],
            condition=content["condition"],
            evidence=content["evidence"],
            since=dt.datetime.fromisoformat(content["since"]),
            at=dt.datetime.fromisoformat(content["at"]),
            labels=dict(content["labels"]),
        )

    def lines(self) -> list[str]:
        """The message as plain sentences, for people."""
        form = "%Y-%m-%d %H:%M:%S UTC"
        told = [self.evidence, f"Since: {self.since.astimezone(dt.UTC):{form}}"]
        if self.condition:
            told.insert(1, f"Condition: {self.condition}")
        if self.transition is Transition.RESOLVED:
            told.append(f"Over: {self.at.astimezone(dt.UTC):{form}}")
        if self.labels:
            told.append("Labels: " + ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items())))
        return told
