"""Sends what is in the outbox, and tries again what could not be sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

from penstock.control.alerts.notify.base import NotSent
from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.notify.message import Message
from penstock.control.alerts.ports import Outbox, Outgoing
from penstock.errors import PenstockError
from penstock.spec.secrets import hide

FIRST_PAUSE = dt.timedelta(seconds=10)
LONGEST_PAUSE = dt.timedelta(minutes=15)
GIVEN_UP_AFTER = dt.timedelta(days=1)


def next_attempt(attempts: int, created_at: dt.datetime, now: dt.datetime) -> dt.datetime | None:
    """When to try again after so many attempts in vain, or None if a day of trying was enough."""
    pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE)
    return now + pause if now + pause < created_at + GIVEN_UP_AFTER else None


class Courier:
    """Works through the outbox. One that is cut off in between sends the message again, with the same id."""

    def __init__(self, outbox: Outbox, channels: Mapping[str, Channel], now: Callable[[], dt.datetime]) -> None:
        self._outbox = outbox
        self._channels = channels
        self._now = now

    def deliver(self) -> int:
        """Sends what is due; says how many went out. A channel that fails is left alone for the rest of the round."""
        broken: set[str] = set()
        sent = 0
        for outgoing in self._outbox.due(self._now()):
            if outgoing.channel in broken:
                continue
            error = self._send(outgoing)
            if error is None:
                self._outbox.sent(outgoing.id, self._now())
                sent += 1
            else:
                broken.add(outgoing.channel)
                again = next_attempt(outgoing.attempts + 1, outgoing.created_at, self._now())
                self._outbox.failed(outgoing.id, error, again)
        return sent

    def _send(self, outgoing: Outgoing) -> str | None:
        """Why it could not be sent, or None if it was."""
        channel = self._channels.get(outgoing.channel)
        if channel is None:
            return f"the server has no channel '{outgoing.channel}' any more"
        try:
            channel.notifier().send(Message.of(outgoing.content), outgoing.alert)
        except NotSent as error:
            return hide(str(error))
        except PenstockError as error:
            return hide(error.problems[0].message)
        except Exception as error:  # One message that cannot be made must not hold up all others.
            return f"the message could not be made ({type(error).__name__})"
        return None
