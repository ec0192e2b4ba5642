"""Two clocks: the time of day, which is written down for people, and a steady one, by which the server decides.

The time of day may be set at any moment, by hand or by a time service that has lost touch. The steady clock counts
from the start of the machine, so nobody sets it. A server remembers when the two were set against each other, also
that its predecessor saw it, and can tell for how long something has lasted that is only known by its time of day.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.control.supervisor.ports import Notice, Operation, Run
from penstock.reports import processes

JUMP = 1.0
"""Seconds by which the two clocks may drift apart before that counts as the time of day having been set."""
_REMEMBERED = 7 * 86_400.0
_MOST = 1000
_ROUNDED = 0.001
"""A time of day has microseconds, and the difference of two large numbers has fewer."""
_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def time_of_day() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def seconds_up() -> float:
    """Seconds since the start of the machine, those that it slept included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class _Era:
    """From when on the steady clock the time of day was so far ahead of it, in seconds."""

    begun: float
    ahead: float


class Clock:
    """Both clocks. `file` keeps what is known of them for the next server on the same machine."""

    def __init__(
        self,
        wall: Callable[[], dt.datetime] = time_of_day,
        ticks: Callable[[], float] = seconds_up,
        file: Path | None = None,
    ) -> None:
        self._wall = wall
        self._ticks = ticks
        self._file = file
        self._lock = threading.Lock()
        self._eras: list[_Era] = [] if file is None else _read(file)
        self._look()

    def now(self) -> dt.datetime:
        """The time of day, for what is written down."""
        return self._look()[0]

    def steady(self) -> dt.datetime:
        """A time that nobody sets. Only differences between two of them mean anything."""
        return _moment(self._look()[1])

    def both(self) -> tuple[dt.datetime, dt.datetime]:
        """The time of day and the steady time of the same moment."""
        wall, ticks = self._look()
        return wall, _moment(ticks)

    def moment(self, label: dt.datetime) -> dt.datetime:
        """When, on the steady clock, it was this time of day; never later than now.

        When the clock was set back the same time of day came twice: the later one is meant.
        """
        _, now = self._look()
        with self._lock:
            # Before the first it was as in the first, as far as anybody knows.
            begins = [float("-inf"), *(era.begun for era in self._eras[1:])]
            eras = [*zip(begins, [*begins[1:], now], (era.ahead for era in self._eras), strict=True)]
        seconds = _seconds(label)
        for begun, end, ahead in reversed(eras):
            if begun - _ROUNDED <= seconds - ahead <= end + JUMP:
                return _moment(min(seconds - ahead, end))
        # It never was this time: it was left out when the clock was set forward, or has not come yet.
        return _moment(next(end for begun, end, ahead in reversed(eras) if seconds - ahead >= begun - _ROUNDED))

    def ahead(self) -> dt.timedelta:
        """How far the time of day is ahead of the steady clock: added to a moment it gives its time of day."""
        self._look()
        return dt.timedelta(seconds=self._eras[-1].ahead)

    def corrected(self, label: dt.datetime) -> dt.datetime:
        """A time of day that was written down, as the clock would have shown it that is right now."""
        return self.moment(label) + self.ahead()

    def earliest(self, last: dt.timedelta) -> dt.datetime:
        """No time of day that it has been within this time is earlier."""
        _, now = self._look()
        since = now - last.total_seconds()
        return _moment(since + min(era.ahead for era in self._within(since)))

    def cautious(self, wait: dt.timedelta = dt.timedelta(days=1)) -> dt.datetime:
        """The time of day for what deletes by age: after the clock was set forward the earlier one counts for a day,
        so that a mistake that is corrected within the day deletes nothing."""
        return self.earliest(wait) + wait

    def _within(self, since: float) -> list[_Era]:
        with self._lock:
            ends = [*(era.begun for era in self._eras[1:]), float("inf")]
            return [era for era, end in zip(self._eras, ends, strict=True) if end >= since]

    def _look(self) -> tuple[dt.datetime, float]:
        """Both clocks at once; notes it when they were set against each other."""
        wall, ticks = self._wall(), self._ticks()
        ahead = _seconds(wall) - ticks
        with self._lock:
            if not self._eras or abs(ahead - self._eras[-1].ahead) >= JUMP:
                known = [*self._eras, _Era(ticks, ahead)]
                ends = [*(era.begun for era in known[1:]), float("inf")]
                kept = [era for era, end in zip(known, ends, strict=True) if end > ticks - _REMEMBERED]
                self._eras = kept[-_MOST:]
                self._write()
        return wall, ticks

    def _write(self) -> None:
        if self._file is None:
            return
        text = json.dumps({"boot": processes.boot(), "eras": [[era.begun, era.ahead] for era in self._eras]})
        # Without it the next server takes the time of day as it is.
        with suppress(OSError):
            hidden = self._file.with_name(f".{self._file.name}.tmp")
            hidden.write_text(text + "\n", "utf-8")
            hidden.replace(self._file)


class Moments:
    """When things happened on the steady clock, that the store knows by the time of day only.

    What is seen for the first time is looked up by the time of day; from then on it stays where it is, however often
    the clock is set.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._known: dict[tuple[str, dt.datetime], dt.datetime] = {}

    def of(self, thing: str, label: dt.datetime) -> dt.datetime:
        known = self._known.get((thing, label))
        if known is None:
            known = self._known[thing, label] = self.clock.moment(label)
        return known

    def note(self, thing: str, label: dt.datetime, moment: dt.datetime) -> None:
        """What somebody has seen happen."""
        self._known[thing, label] = moment

    def keep(self, things: Collection[str]) -> None:
        """Forgets all others."""
        self._known = {key: moment for key, moment in self._known.items() if key[0] in things}

    def run(self, run: Run) -> Run:
        """A run with steady times in place of its times of day."""
        return replace(run, **self._times(run.id, run, "started_at", "stop_asked_at", "kill_asked_at", "ended_at"))

    def operation(self, operation: Operation) -> Operation:
        return replace(operation, **self._times(operation.id, operation, "asked_at", "begun_at", "ended_at"))

    def notice(self, notice: Notice) -> Notice:
        """A notice whose deadline is steady; one that has passed when it is first heard was told by another clock."""
        if notice.deadline is None:
            return notice
        key = (notice_key(notice), notice.deadline)
        if key not in self._known:
            now, moment = self.clock.both()
            left = notice.deadline - now
            self._known[key] = moment + left if left > dt.timedelta(0) else dt.datetime.max.replace(tzinfo=dt.UTC)
        return replace(notice, deadline=self._known[key])

    def _times(self, thing: str, value: object, *names: str) -> dict[str, Any]:
        labels = ((name, getattr(value, name)) for name in names)
        return {name: None if label is None else self.of(thing, label) for name, label in labels}


def notice_key(notice: Notice) -> str:
    """Under which the moments of a notice are kept."""
    return f"notice {notice.target}"


def _read(file: Path) -> list[_Era]:
    """What a server noted before since the start of the machine; nothing if there is none, or it cannot be read."""
    try:
        found = json.loads(file.read_text("utf-8"))
        if found["boot"] != processes.boot():
            return []
        return [_Era(float(begun), float(ahead)) for begun, ahead in found["eras"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _seconds(label: dt.datetime) -> float:
    return (label - _ZERO).total_seconds()


def _moment(ticks: float) -> dt.datetime:
    # Thousandths only, so that two ways of computing a moment give the same.
    return _ZERO + dt.timedelta(milliseconds=round(ticks * 1000))
