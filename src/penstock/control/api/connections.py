"""Connections that send or take nothing are closed, and the ones idle longest make room when there are too many."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEADER_SECONDS = 10.0
"""How long the head of a request may take, from the first byte or, on a new connection, from its beginning."""
STALLED_SECONDS = 30.0
"""A client that takes nothing of its answer for so long is cut off."""
_MOST = 1_000


class BoundedConnection(H11Protocol):
    """A connection of HTTP/1.1 with limits to how long it may hold resources without using them."""

    most = max(16, min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._waiting: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self._wait_for_head()
        super().data_received(data)
        if not self.idle:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_flush(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.idle:
            self.transport.abort()

    def _watch_flush(self, before: int | None) -> None:
        """Ends a connection that is closing but whose client does not take the rest of the answer."""
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        elif left:
            self.loop.call_later(STALLED_SECONDS, self._watch_flush, left)

    def _make_room(self) -> None:
        others = [
            one for one in self.connections if isinstance(one, BoundedConnection) and one.idle and one is not self
        ]
        if others:
            min(others, key=lambda one: one._since).transport.abort()
