"""Queues of requests: each kind of work has threads of its own, a bounded queue, and a share for each token.

Requests that start a process or parse files can take every thread of their own kind, but none of another kind, and one
token cannot take all threads of a kind. Who finds a queue full gets an answer at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from penstock.errors import PenstockError

_T = TypeVar("_T")


class Kind(StrEnum):
    """What a request makes the server do."""

    LOOK = "look"
    """Reads the store, or writes a little to it."""
    BODIES = "bodies"
    """Parses the JSON of a large request."""
    FILES = "files"
    """Reads pipeline files."""
    BENCH = "bench"
    """Asks the process that tries out pipelines, which runs Spark."""
    STATE = "state"
    """Starts a process that reads the state of a pipeline, some with Spark."""
    LOGIN = "login"
    """Looks up a token that the server has not seen, or asks the issuer; counted by address."""
    STREAMS = "streams"
    """Looks for what is new for open streams."""


@dataclass(frozen=True)
class Size:
    """How many requests of a kind run at once and wait, in all and for one token."""

    threads: int
    of_token: int
    waiting: int
    waiting_of_token: int
    seconds: float
    """How long a request waits for its turn."""
    retry: int = 1
    """Seconds after which it is worth another try."""


SIZES = {
    Kind.LOOK: Size(4, 3, 400, 200, 10),
    Kind.BODIES: Size(1, 1, 32, 8, 10),
    Kind.FILES: Size(2, 1, 12, 4, 60, retry=2),
    Kind.BENCH: Size(2, 1, 6, 2, 30, retry=2),
    Kind.STATE: Size(3, 2, 9, 3, 20, retry=3),
    Kind.LOGIN: Size(4, 2, 64, 32, 10),
    Kind.STREAMS: Size(2, 1, 10_000, 1_000, 60),
}


@dataclass(eq=False)
class _Ticket:
    token: str
    turn: Future[None] = field(default_factory=Future)
    runs: bool = False


class RequestQueue:
    """Runs work of one kind in threads. Of those who wait, the first whose token has a thread left comes next."""

    def __init__(self, kind: Kind, size: Size) -> None:
        self._kind = kind
        self._size = size
        self._lock = Lock()
        self._running: Counter[str] = Counter()
        self._waiting: deque[_Ticket] = deque()
        self._waiting_of: Counter[str] = Counter()

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self, token: str, work: Callable[[], _T]) -> _T:
        """What the work returns; raises SERVER_BUSY, or TOO_MANY_REQUESTS if the token has too many open."""
        ticket = self._enter(token)
        try:
            if not ticket.runs:
                await self._wait(ticket)
            return await to_thread.run_sync(work, limiter=CapacityLimiter(1))
        finally:
            self._leave(ticket)

    def _enter(self, token: str) -> _Ticket:
        ticket = _Ticket(token)
        with self._lock:
            if self._has_thread(token):
                self._start(ticket)
            elif self._waiting_of[token] >= self._size.waiting_of_token:
                raise PenstockError.of("TOO_MANY_REQUESTS", seconds=self._size.retry)
            elif len(self._waiting) >= self._size.waiting:
                raise self._busy()
            else:
                self._waiting.append(ticket)
                self._waiting_of[token] += 1
        return ticket

    async def _wait(self, ticket: _Ticket) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ticket.turn)), self._size.seconds)
        except TimeoutError:
            with self._lock:
                if ticket.runs:
                    return
            raise self._busy() from None

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket.runs:
                self._count(self._running, ticket.token, -1)
            else:
                self._waiting.remove(ticket)
                self._count(self._waiting_of, ticket.token, -1)
            following = [*self._next_ones()]
        for one in following:
            one.turn.set_result(None)

    def _next_ones(self) -> Iterator[_Ticket]:
        for one in [*self._waiting]:
            if self._running.total() >= self._size.threads:
                return
            if self._has_thread(one.token):
                self._waiting.remove(one)
                self._count(self._waiting_of, one.token, -1)
                self._start(one)
                yield one

    def _has_thread(self, token: str) -> bool:
        return self._running.total() < self._size.threads and self._running[token] < self._size.of_token

    def _start(self, ticket: _Ticket) -> None:
        ticket.runs = True
        self._running[ticket.token] += 1

    @staticmethod
    def _count(counter: Counter[str], token: str, by: int) -> None:
        counter[token] += by
        if counter[token] <= 0:
            del counter[token]

    def _busy(self) -> PenstockError:
        return PenstockError.of("SERVER_BUSY", kind=self._kind, seconds=self._size.retry)


class Queues:
    """One queue for each kind."""

    def __init__(self) -> None:
        self._queues = {kind: RequestQueue(kind, size) for kind, size in SIZES.items()}

    def __getitem__(self, kind: Kind) -> RequestQueue:
        return self._queues[kind]
