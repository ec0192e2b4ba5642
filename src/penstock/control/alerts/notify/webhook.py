"""A channel that posts every message as JSON to an address."""

from __future__ import annotations

from penstock.control.alerts.notify.http import post
from penstock.control.alerts.notify.message import Message
from penstock.spec.fields import Config, Holds, field


class Webhook(Config):
    """Posts JSON. A message may come twice, when an answer was lost; then it has the same `id`."""

    url: str = field(holds=Holds.ADDRESS, doc="Where messages are posted; it may be or hold a reference to a secret.")
    headers: dict[str, str] = field(
        default={}, secret=True, doc="Headers such as `Authorization`, as references to secrets."
    )

    def send(self, message: Message, alert: int) -> None:
        identity = {"id": f"{alert}-{message.transition}", "alert": alert}
        post(self.url, {**identity, **message.as_dict()}, self.headers)
