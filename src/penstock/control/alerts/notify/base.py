"""What every kind of channel shares."""

from __future__ import annotations

from typing import Protocol

from penstock.control.alerts.notify.message import Message

TIMEOUT_SECONDS = 10.0


class NotSent(Exception):
    """Says in one line why a message did not go out; holds nothing secret."""


class Notifier(Protocol):
    """Sends messages somewhere."""

    def send(self, message: Message, alert: int) -> None:
        """Returns once it is certain that the message was taken; raises NotSent otherwise."""
