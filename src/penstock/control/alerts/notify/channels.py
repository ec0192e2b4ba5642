"""A channel as the server's configuration names it: one way to send, and the severities it takes."""

from __future__ import annotations

from pydantic import model_validator

from penstock.control.alerts.notify.base import Notifier
from penstock.control.alerts.notify.email import Email
from penstock.control.alerts.notify.slack import Slack
from penstock.control.alerts.notify.webhook import Webhook
from penstock.spec.alerts import AlertSeverity
from penstock.spec.fields import Config, field, unfit
from penstock.spec.resolve import with_secrets

_KINDS = ("webhook", "slack", "email")


class Channel(Config):
    """Where somebody is told of alerts; it has exactly one of `webhook`, `slack` and `email`."""

    webhook: Webhook | None = field(None, doc="Posts JSON to an address.")
    slack: Slack | None = field(None, doc="Posts to a channel of Slack.")
    email: Email | None = field(None, doc="Sends mail.")
    severities: tuple[AlertSeverity, ...] = field(
        ("page", "warn"), doc="Alerts that name no channel are told here if they have one of these severities."
    )

    @model_validator(mode="after")
    def _has_one_way(self) -> Channel:
        if [self.webhook, self.slack, self.email].count(None) != len(_KINDS) - 1:
            raise unfit(f"a channel needs exactly one of {', '.join(_KINDS)}", "Make a channel of its own for each.")
        return self

    def notifier(self) -> Notifier:
        """What sends, with secrets looked up; raises SECRET_NOT_SET."""
        way = self.webhook or self.slack or self.email
        assert way is not None
        return with_secrets(way)
