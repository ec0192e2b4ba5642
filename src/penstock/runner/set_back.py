"""Notices that the time of day was set back, by comparing it with a clock that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST = 5.0
"""Seconds. A time service that slows the clock down moves it by less than a thousandth of that between two looks."""
_TOGETHER = 0.1
"""Seconds between two readings of one clock, within which the other one was read at the same moment."""


def seconds_up() -> float:
    """Seconds since the start of the machine, those that it slept included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SetBack:
    """By how many seconds the time of day was set back since `begin`; look every now and then.

    Spark waits between two batches for a time of day, which is now that much further off. What a clock that is set
    forward takes away again does not count. By itself, one that is set forward makes nobody wait: the time that Spark
    waits for has come.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = seconds_up) -> None:
        self._wall = wall
        self._steady = steady
        self.begin()

    def begin(self) -> None:
        """Forgets what was before."""
        self._ahead = self._difference()
        self.lost = 0.0

    def look(self) -> float:
        """The seconds; 0 if it was not set back, or by less than counts."""
        before, self._ahead = self._ahead, self._difference()
        jump = self._ahead - before
        if abs(jump) >= LEAST:
            self.lost = max(self.lost - jump, 0.0)
        return self.lost

    def _difference(self) -> float:
        """How far the time of day is ahead of the steady clock."""
        while True:
            # A process may be halted between two readings, which is not to be taken for a clock that was set.
            earlier, wall, later = self._steady(), self._wall(), self._steady()
            if later - earlier <= _TOGETHER:
                return wall - earlier
