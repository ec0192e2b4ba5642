"""Clocks that tests turn."""

from __future__ import annotations

import datetime as dt
import time

from penstock.control.clock import Clock


class TurnedClock(Clock):
    """Time goes on by itself and as far as a test says; the time of day can be set apart from that."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._set = dt.timedelta(0)
        super().__init__(self._time_of_day, self._seconds)

    def _seconds(self) -> float:
        return time.monotonic() + self._skipped

    def _time_of_day(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self._skipped) + self._set

    def skip(self, seconds: float) -> None:
        """So much time goes by."""
        self._skipped += seconds

    def set(self, seconds: float) -> None:
        """Somebody sets the time of day forward, or back."""
        self._set += dt.timedelta(seconds=seconds)


class HandClock(Clock):
    """Time goes on only as a test says, from a time of day on."""

    def __init__(self, now: dt.datetime) -> None:
        self.time_of_day = now
        self.seconds = 1000.0
        super().__init__(lambda: self.time_of_day, lambda: self.seconds)

    def skip(self, seconds: float) -> None:
        self.seconds += seconds
        self.time_of_day += dt.timedelta(seconds=seconds)

    def set(self, seconds: float) -> None:
        self.time_of_day += dt.timedelta(seconds=seconds)
