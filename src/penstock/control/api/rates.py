"""How many requests a second one token, or one address without a token, may make."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from penstock.errors import PenstockError

_BURST_SECONDS = 3.0
"""Unused requests are saved up for so long."""
_MOST = 10_000
"""Who has not asked for longest is forgotten first."""


class RequestRates:
    """A bucket of allowed requests for each caller, which fills at a steady rate. Used on the event loop only."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = rate * _BURST_SECONDS
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, caller: str) -> None:
        """Counts one request; raises TOO_MANY_REQUESTS."""
        now = self._clock()
        left, at = self._left.get(caller, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left, now)
        self._left.move_to_end(caller)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
        if not allowed:
            raise PenstockError.of("TOO_MANY_REQUESTS", seconds=max(1, ceil((1 - left) / self._rate)))
