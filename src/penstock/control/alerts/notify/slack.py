"""A channel of Slack, or of anything else that takes Slack's incoming webhooks."""

from __future__ import annotations

from typing import Any

from penstock.control.alerts.evaluate import Transition
from penstock.control.alerts.notify.http import post
from penstock.control.alerts.notify.message import Message
from penstock.spec.fields import Config, field

_MARKS = {"page": ":rotating_light:", "warn": ":warning:", "info": ":information_source:"}


class Slack(Config):
    """Posts a short text by an incoming webhook."""

    url: str = field(secret=True, doc="The address of the incoming webhook, as a reference to a secret.")

    def send(self, message: Message, alert: int) -> None:
        post(self.url, slack_body(message), {})


def slack_body(message: Message) -> dict[str, Any]:
    """`text` is what notifications on a phone show, `blocks` what the channel shows."""
    mark = ":white_check_mark:" if message.transition is Transition.RESOLVED else _MARKS[message.severity]
    headline, lines = _escaped(message.headline), "\n".join(_escaped(line) for line in message.lines())
    section = {"type": "section", "text": {"type": "mrkdwn", "text": f"{mark} *{headline}*\n{lines}"}}
    return {"text": f"{mark} {headline}", "blocks": [section]}


def _escaped(text: str) -> str:
    """The three characters by which Slack knows links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
