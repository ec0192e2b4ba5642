"""Whether the server is ready, found out in a thread of its own, so that no other request delays the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread

from penstock.errors import PenstockError

_KNOWN_SECONDS = 1.0
_PATIENCE = 0.05
"""Seconds that a probe waits for the store; after that it gets what is known."""
_TOO_OLD_SECONDS = 15.0
"""A store that has not answered for so long does not answer."""
NO_STORE = "the store does not answer"


class Readiness:
    """Asks the store at most once at a time and once a second, however many probes come."""

    def __init__(self, check: Callable[[], None], troubles: Callable[[], list[str]]) -> None:
        self._check = check
        self._troubles = troubles
        self._lock = Lock()
        self._known: tuple[list[str], float] | None = None
        self._asking: Future[list[str]] | None = None

    async def troubles(self) -> list[str]:
        """Why the server is not ready; none if it is."""
        known = self._known
        if known is None or time.monotonic() - known[1] >= _KNOWN_SECONDS:
            asking = asyncio.wrap_future(self._ask())
            # The first probe has nothing to fall back on.
            patience = _TOO_OLD_SECONDS if known is None else _PATIENCE
            try:
                return await asyncio.wait_for(asyncio.shield(asking), patience)
            except TimeoutError:
                known = known or ([NO_STORE], 0.0)
        return known[0] if time.monotonic() - known[1] < _TOO_OLD_SECONDS else [NO_STORE]

    def _ask(self) -> Future[list[str]]:
        with self._lock:
            if self._asking is None:
                self._asking = Future()
                Thread(target=self._look, args=(self._asking,), name="readiness", daemon=True).start()
            return self._asking

    def _look(self, asking: Future[list[str]]) -> None:
        found: list[str] = []
        try:
            self._check()
        except PenstockError:
            # What exactly is nobody's business who has no token.
            found.append(NO_STORE)
        found += self._troubles()
        with self._lock:
            self._known, self._asking = (found, time.monotonic()), None
        asking.set_result(found)
