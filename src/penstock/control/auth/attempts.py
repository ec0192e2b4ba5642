"""How often an address may fail to log in."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

_MOST_ADDRESSES = 10_000


@dataclass
class FailedLogins:
    """Counts failures of the last while by address. The clock is a steady one, so that setting the time of day neither
    locks anybody out for longer nor lets anybody try more often; memory is bounded."""

    limit: int = 10
    window: float = 60.0
    """Seconds."""
    clock: Callable[[], float] = time.monotonic
    _failures: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def note(self, address: str) -> None:
        with self._lock:
            times = self._failures.setdefault(address, deque(maxlen=self.limit))
            times.append(self.clock())
            self._failures.move_to_end(address)
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def wait(self, address: str) -> int:
        """Seconds until a further failure is answered; 0 if it may be tried."""
        with self._lock:
            times = self._failures.get(address)
            if times is None or len(times) < self.limit:
                return 0
            return max(0, math.ceil(times[0] + self.window - self.clock()))
