"""How often an address may fail to log in."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from threading import Lock

_MOST_ADDRESSES = 10_000


@dataclass
class FailedLogins:
    """Counts failures of the last while by address; the clock is passed in, and memory is bounded."""

    limit: int = 10
    window: dt.timedelta = dt.timedelta(minutes=1)
    _failures: OrderedDict[str, deque[dt.datetime]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def note(self, address: str, now: dt.datetime) -> None:
        with self._lock:
            times = self._failures.setdefault(address, deque(maxlen=self.limit))
            times.append(now)
            self._failures.move_to_end(address)
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def wait(self, address: str, now: dt.datetime) -> int:
        """Seconds until a further failure is answered; 0 if it may be tried."""
        with self._lock:
            times = self._failures.get(address)
            if times is None or len(times) < self.limit:
                return 0
            left = (times[0] + self.window - now).total_seconds()
            return max(0, -int(-left // 1))
