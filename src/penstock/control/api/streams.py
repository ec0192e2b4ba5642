"""Server-sent events: what is new is looked for every second, and the token that asked must stay valid."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from penstock.control.api.guard import bearer, caller_of
from penstock.control.api.queues import Kind
from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant
from penstock.errors import PenstockError

EVERY = 1.0
_CHECKED_SECONDS = 30.0
_SEND_SECONDS = 30.0
"""A client that takes nothing for so long is cut off."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True)
class News:
    """One event of a stream."""

    kind: str
    data: Any
    id: str | None = None

    def event(self) -> ServerSentEvent:
        return ServerSentEvent(json.dumps(self.data, default=str, ensure_ascii=False), event=self.kind, id=self.id)


def streamed(
    request: Request, services: Services, grant: Grant, look: Callable[[], Iterable[News]]
) -> EventSourceResponse:
    """A stream of what `look` finds new each time; raises REFUSED if too many are open."""
    open_ones, limits, caller = _open_streams(request), services.config.limits, caller_of(grant)
    if open_ones.total() >= limits.streams or open_ones[caller] >= limits.streams_each:
        whose = "" if open_ones[caller] < limits.streams_each else " with this token"
        raise PenstockError.of(
            "REFUSED", reason=f"too many streams are open{whose}", advice="Close some, or try later."
        )
    token, _ = bearer(request)
    events = _events(request, services, token, caller, look)
    return EventSourceResponse(events, ping=15, send_timeout=_SEND_SECONDS)


async def _events(
    request: Request, services: Services, token: str, caller: str, look: Callable[[], Iterable[News]]
) -> AsyncIterator[ServerSentEvent]:
    checked = time.monotonic()
    queue = services.queues[Kind.STREAMS]
    async with _counted(request, caller):
        while not await request.is_disconnected():
            if time.monotonic() - checked >= _CHECKED_SECONDS:
                if not await queue.run(caller, lambda: _still_valid(services, token)):
                    return
                checked = time.monotonic()
            for news in await queue.run(caller, lambda: _looked(look)):
                yield news.event()
            await anyio.sleep(EVERY)


@asynccontextmanager
async def _counted(request: Request, caller: str) -> AsyncIterator[None]:
    open_ones = _open_streams(request)
    open_ones[caller] += 1
    try:
        yield
    finally:
        open_ones[caller] -= 1
        if not open_ones[caller]:
            del open_ones[caller]


def _open_streams(request: Request) -> Counter[str]:
    """How many each caller has open."""
    found: Counter[str] = request.app.state.streams
    return found


def _still_valid(services: Services, token: str) -> bool:
    try:
        services.doorman.authenticate(token, services.now())
    except PenstockError as error:
        # A store that does not answer has not taken the token back.
        return error.code != "UNAUTHENTICATED"
    return True


def _looked(look: Callable[[], Iterable[News]]) -> list[News]:
    try:
        return list(look())
    except PenstockError as error:
        return [News("trouble", error.problems[0].as_dict())]
