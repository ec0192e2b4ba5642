"""The address at which a cloud tells a machine that it will be reclaimed, as spot machines are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from penstock.control.supervisor.ports import Notice

_SECONDS = 2.0


@dataclass(frozen=True)
class MetadataAddress:
    """How one cloud is asked: `ask` gives the time of the end, or None as long as there is none."""

    name: str
    url: str
    ask: Callable[[httpx.Client, str], dt.datetime | None]


def _aws(client: httpx.Client, url: str) -> dt.datetime | None:
    token = client.put(f"{url}/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    token.raise_for_status()
    answer = client.get(
        f"{url}/latest/meta-data/spot/instance-action", headers={"X-aws-ec2-metadata-token": token.text}
    )
    return _time(answer, "time")


def _azure(client: httpx.Client, url: str) -> dt.datetime | None:
    answer = client.get(
        f"{url}/metadata/scheduledevents", params={"api-version": "2020-07-01"}, headers={"Metadata": "true"}
    )
    answer.raise_for_status()
    for event in answer.json().get("Events", []):
        if event.get("EventType") == "Preempt":
            return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
    return None


def _google(client: httpx.Client, url: str) -> dt.datetime | None:
    answer = client.get(f"{url}/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"})
    answer.raise_for_status()
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30) if answer.text.strip() == "TRUE" else None


def _time(answer: httpx.Response, key: str) -> dt.datetime | None:
    if answer.status_code == 404:
        return None
    answer.raise_for_status()
    found: Any = answer.json()
    return dt.datetime.fromisoformat(str(found[key]))


_LINK_LOCAL = "http://169.254.169.254"
CLOUDS = {
    "aws": MetadataAddress("aws", _LINK_LOCAL, _aws),
    "azure": MetadataAddress("azure", _LINK_LOCAL, _azure),
    "google": MetadataAddress("google", "http://metadata.google.internal", _google),
}


class MetadataNotices:
    """The end of this machine is the end of the targets that run on it."""

    def __init__(self, address: MetadataAddress, targets: Sequence[str], now: Callable[[], dt.datetime]) -> None:
        self.name = f"metadata/{address.name}"
        self._address = address
        self._targets = tuple(targets)
        self._now = now
        self._held: tuple[Notice, ...] = ()
        self._client = httpx.Client(timeout=_SECONDS, trust_env=False)

    def restore(self, known: tuple[Notice, ...]) -> None: ...

    def notices(self) -> tuple[Notice, ...]:
        deadline = self._address.ask(self._client, self._address.url)
        if deadline is None:
            self._held = ()
        elif not self._held:
            self._held = tuple(Notice(target, self.name, self._now(), deadline) for target in self._targets)
        return self._held
