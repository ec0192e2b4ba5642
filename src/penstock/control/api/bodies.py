"""Reads the JSON of a request within bounds, so that none keeps the event loop, on which all requests meet."""

from __future__ import annotations

import json
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request

from penstock.control.api.queues import RequestQueue
from penstock.errors import PenstockError
from penstock.spec.units import Size

_SMALL = 256_000
"""The largest body of a request that sends no files."""
_AT_ONCE = 32_000
"""What is not longer is parsed where all requests meet."""
_MOST_VALUES = 20_000


async def read_json(request: Request, queue: RequestQueue, caller: str, *, large: bool) -> None:
    """Reads the body and keeps it parsed; raises REQUEST_TOO_LARGE, what `parse` raises or what the queue raises."""
    body = await request.body()
    if len(body) > _SMALL and not large:
        raise PenstockError.of("REQUEST_TOO_LARGE", limit=Size(_SMALL))
    if body and "json" in request.headers.get("content-type", "").lower():
        parsed = parse(body) if len(body) <= _AT_ONCE else await queue.run(caller, lambda: parse(body))
        request._json = parsed


def parse(body: bytes) -> Any:
    """The value that a JSON text stands for; raises RequestValidationError, or REQUEST_INVALID."""
    if _values(body) > _MOST_VALUES:
        raise PenstockError.of("REQUEST_INVALID", reason=f"it has more than {_MOST_VALUES} values")
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _not_json(error) from None
    if b"\\ud" in body or b"\\uD" in body:
        _refuse_lone_surrogates(found)
    return found


def _values(body: bytes) -> int:
    """At least as many values as a parser makes of it, counted without a parser."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    quotes = plain.count(b'"')
    if quotes > 4 * _MOST_VALUES:
        return quotes
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value of JSON")


def _refuse_lone_surrogates(value: Any) -> None:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str):
            try:
                one.encode("utf-8")
            except UnicodeEncodeError:
                raise PenstockError.of("REQUEST_INVALID", reason="a text in it is not Unicode") from None


def _not_json(error: Exception) -> RequestValidationError:
    position = error.pos if isinstance(error, json.JSONDecodeError) else 0
    reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is no JSON that can be read"
    return RequestValidationError([{"type": "json_invalid", "loc": ("body", position), "msg": f"no JSON: {reason}"}])
