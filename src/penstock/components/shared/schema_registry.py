"""A schema registry that speaks Confluent's REST paths: which schema the writer of a message used.

A message begins with the number of its writer's schema. What a number stands for never changes, so a schema is fetched
once by each process that decodes. A registry that does not answer ends the batch, which comes again; only a number that
the registry does not know makes a message unreadable.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from penstock.access.limits import check_address
from penstock.components.shared.message_rows import Unreadable
from penstock.components.shared.registry_field import Registry
from penstock.components.shared.source_errors import SourceError
from penstock.errors import Problem

_LARGEST = 4 << 20
_MOST_REFERENCES = 100
_KEPT = 1000
_UNKNOWN_SECONDS = 30.0
"""For how long a number that is not known is not asked for again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_ONE_TRY_SECONDS = 10.0
_STRANGE = "it did not answer in the way of a schema registry"
_NO_SUCH = (40401, 40402, 40403)
"""How a registry says that there is no such subject, version or schema."""


@dataclass(frozen=True)
class Written:
    """A schema as the registry has it: its text, and those it refers to, by name, each after those it needs."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Client:
    """Where to ask; plain values, as it travels to Spark's tasks."""

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    timeout: float = 30.0

    def schema(self, number: int) -> Written:
        """The Avro schema of a number; raises Unreadable if there is none, SourceError if no answer comes."""
        known = _schemas.get((self, number))
        if known is None:
            known = _fetched(self, number)
            _keep(_schemas, (self, number), known)
        return known


_schemas: OrderedDict[tuple[Client, int], Written] = OrderedDict()
_unknown: OrderedDict[tuple[Client, int], float] = OrderedDict()


def client(registry: Registry) -> Client:
    """Raises URL_NOT_ALLOWED for a registry that this process may not reach."""
    check_address(registry.url, "the address of a schema registry")
    return Client(registry.url.rstrip("/"), registry.user, registry.password, registry.timeout.seconds)


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    while len(kept) > _KEPT:
        kept.popitem(last=False)


def _fetched(client: Client, number: int) -> Written:
    if time.monotonic() < _unknown.get((client, number), 0.0):
        raise _no_schema(number)
    asking = _Asking(client)
    try:
        found = asking.get(f"/schemas/ids/{number}")
    except _Missing:
        _keep(_unknown, (client, number), time.monotonic() + _UNKNOWN_SECONDS)
        raise _no_schema(number) from None
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise Unreadable(f"schema {number} of the registry is {kind}, not AVRO")
    text = asking.text(found)
    try:
        return Written(text, tuple(asking.references(found)))
    except _Missing as missing:
        raise Unreadable(
            f"schema {number} of the registry refers to {missing}, which the registry does not know"
        ) from None


def _no_schema(number: int) -> Unreadable:
    return Unreadable(f"the registry has no schema {number}")


class _Missing(Exception):
    """The registry says that it does not have something."""


class _Failed(Exception):
    """An attempt failed; another may not."""


class _Refused(Exception):
    """It will not answer any better when asked again."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another address was not checked, and would be given the password."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Asking:
    """Requests for one schema, within one time."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self.clock = clock
        self.deadline = clock() + client.timeout
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        self._seen = 0

    def get(self, path: str) -> Mapping[str, Any]:
        """What the registry says; tries again until the time is over."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(path)
            except _Refused as refused:
                raise self._stopped(str(refused)) from None
            except _Failed as failed:
                if self.clock() + pause > self.deadline:
                    raise self._stopped(str(failed)) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _stopped(self, reason: str) -> SourceError:
        return SourceError(Problem("REGISTRY_FAILED", {"url": self.client.url, "reason": reason}))

    def _once(self, path: str) -> Mapping[str, Any]:
        request = urllib.request.Request(
            self.client.url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        if self.client.user is not None:
            login = f"{self.client.user}:{self.client.password}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(login).decode()}")
        left = min(max(self.deadline - self.clock(), 0.1), _ONE_TRY_SECONDS)
        try:
            with self._opener.open(request, timeout=left) as answer:
                return self._parsed(self._read(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise self._told(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _Failed(str(getattr(error, "reason", error)) or type(error).__name__) from None

    def _read(self, answer: Any) -> bytes:
        """All of an answer, if it comes in time."""
        found = bytearray()
        end = min(self.deadline, self.clock() + _ONE_TRY_SECONDS)
        while piece := answer.read1(1 << 16):
            found += piece
            if len(found) > _LARGEST:
                raise _Refused(f"it answered with more than {_LARGEST >> 20} MiB")
            if self.clock() > end:
                raise _Failed("its answer did not come to an end in time")
        return bytes(found)

    def _parsed(self, content: bytes) -> Mapping[str, Any]:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _Failed(_STRANGE)
        return found

    def _told(self, error: urllib.error.HTTPError) -> Exception:
        if error.code == 404:
            try:
                code = self._parsed(self._read(error)).get("error_code")
            except (_Failed, _Refused, OSError):
                code = None
            # Any other server says 404 too.
            return _Missing() if code in _NO_SUCH else _Refused("it answered 404, and not as a schema registry does")
        if error.code in (401, 403):
            return _Refused(f"it answered {error.code}: it does not accept `user` and `password`")
        if 300 <= error.code < 400:
            return _Refused(f"it answered {error.code}: it sends to another address, which is not followed")
        if error.code in (408, 429) or error.code >= 500:
            return _Failed(f"it answered {error.code}")
        return _Refused(f"it answered {error.code}")

    def text(self, found: Mapping[str, Any]) -> str:
        if not isinstance(found.get("schema"), str):
            raise self._stopped(_STRANGE)
        return str(found["schema"])

    def _named(self, found: Mapping[str, Any]) -> list[tuple[str, int]]:
        """The subjects and versions that a schema refers to."""
        try:
            return [(str(item["subject"]), int(item["version"])) for item in found.get("references") or ()]
        except (KeyError, TypeError, ValueError):
            raise self._stopped(_STRANGE) from None

    def references(self, found: Mapping[str, Any], known: dict[tuple[str, int], str] | None = None) -> list[str]:
        """The schemas that one refers to, each after those it refers to itself."""
        known = {} if known is None else known
        for key in self._named(found):
            if key in known:
                continue
            self._seen += 1
            if self._seen > _MOST_REFERENCES:
                raise Unreadable(f"its schema refers to more than {_MOST_REFERENCES} others")
            try:
                below = self.get(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}")
            except _Missing:
                raise _Missing(f"version {key[1]} of {key[0]}") from None
            self.references(below, known)
            known[key] = self.text(below)
        return list(known.values())
