"""Server-sent events: what is new is looked for every second, and the token that asked must stay valid."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread
from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from penstock.control.api.guard import bearer
from penstock.control.api.services import Services
from penstock.errors import PenstockError

EVERY = 1.0
_CHECKED = dt.timedelta(seconds=30)
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


def streamed(request: Request, services: Services, look: Callable[[], Iterable[News]]) -> EventSourceResponse:
    """A stream of what `look` finds new each time; raises REFUSED if too many are open."""
    if request.app.state.streams >= services.config.limits.streams:
        raise PenstockError.of("REFUSED", reason="too many streams are open", advice="Close some, or try later.")
    token, _ = bearer(request)
    return EventSourceResponse(_events(request, services, token, look), ping=15)


async def _events(
    request: Request, services: Services, token: str, look: Callable[[], Iterable[News]]
) -> AsyncIterator[ServerSentEvent]:
    checked = services.now()
    async with _counted(request):
        while not await request.is_disconnected():
            if services.now() - checked >= _CHECKED:
                if not await to_thread.run_sync(_still_valid, services, token):
                    return
                checked = services.now()
            for news in await to_thread.run_sync(_looked, look):
                yield news.event()
            await anyio.sleep(EVERY)


@asynccontextmanager
async def _counted(request: Request) -> AsyncIterator[None]:
    request.app.state.streams += 1
    try:
        yield
    finally:
        request.app.state.streams -= 1


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
