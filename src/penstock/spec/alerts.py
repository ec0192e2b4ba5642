"""When somebody is to be told of a pipeline: what a file can say, and what holds for every pipeline."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import ValidationInfo, field_validator

from penstock.spec.conditions import Condition
from penstock.spec.fields import Change, Config, field, unfit
from penstock.spec.units import Duration

ALERT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

AlertSeverity = Literal["page", "warn", "info"]


class Alert(Config):
    """A condition, how long it must hold, and how much it matters."""

    name: str | None = field(
        None,
        pattern=f"^{ALERT_NAME.pattern}$",
        doc="Unique among the alerts of the pipeline. Default: what the condition watches.",
        change=Change.NOTHING,
    )
    off: bool = field(False, doc="Turns off the alert of this name that every pipeline has.", change=Change.NOTHING)
    when: Condition | None = field(
        None, doc="The condition, such as `watermark_lag > 5 minutes`.", change=Change.NOTHING
    )
    for_: Duration = field(
        Duration(0), alias="for", doc="How long it must hold before the alert fires.", change=Change.NOTHING
    )
    severity: AlertSeverity = field(
        "warn",
        doc="page: somebody must act now. warn: somebody should look today. info: good to know.",
        change=Change.NOTHING,
    )
    notify: tuple[str, ...] = field(
        (),
        doc="Channels of the server that are told. Default: those that the server has for this severity.",
        change=Change.NOTHING,
    )

    @field_validator("when")
    @classmethod
    def _fits_off(cls, value: Condition | None, info: ValidationInfo) -> Condition | None:
        off = info.data.get("off")
        if value is None and off is False:
            raise unfit("an alert needs a condition", "Write for example `when: watermark_lag > 5 minutes`.")
        if value is not None and off:
            raise unfit("an alert that is off has no condition", "Remove `when`, or remove `off`.")
        if off and info.data.get("name", "") is None:
            raise unfit("which alert is off is not said", f"Add its `name`: one of {', '.join(DEFAULTS)}.")
        return value

    @property
    def title(self) -> str:
        """Its name, or what it watches."""
        return self.name or (self.when.measure if self.when else "")


def _default(when: str, severity: AlertSeverity, for_: str = "0 s", name: str | None = None) -> Alert:
    return Alert.model_validate({"when": when, "severity": severity, "for": for_, "name": name})


DEFAULTS: dict[str, Alert] = {
    alert.title: alert
    for alert in (
        _default("watermark_lag > 15 minutes", "warn", "5 minutes"),
        _default("commit_age > 10 minutes", "page"),
        _default("restarts >= 3", "page"),
        _default("dead_share > 1%", "warn", "5 minutes"),
        _default("ledger_unbalanced > 0", "page"),
        _default("disk_free < 2 GiB", "page", "1 minute"),
        _default("health == FAILED", "page", name="failed"),
        _default("health == STALLED", "page", "5 minutes", name="stalled"),
    )
}
"""The alerts that every pipeline has, by name."""
