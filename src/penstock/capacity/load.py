"""A day of load against a capacity: what waits, for how long, and how an outage is worked off.

Rows are a fluid: they come at the rate of the time of day, wait in one queue, and leave at the capacity. Rows of
windows that close come all at once, as work that stands in the same queue. Every day is like the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

DAY = 86_400.0
MOST_DAYS = 30
"""A backlog that is still there after so many days counts as never worked off."""
_MOST_STARTS = 48
"""At how many times of the day an outage is tried."""
_SPREAD = 60.0
"""Bursts that are closer together than these seconds are spread evenly over time."""
_NOTHING = 1e-6


@dataclass(frozen=True)
class Profile:
    """Rates of a day: each holds from its second of the day until the next one begins, the first from 0."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def peak(self) -> float:
        return max(self.rates)

    @property
    def mean(self) -> float:
        ends = (*self.starts[1:], DAY)
        return sum(rate * (end - start) for rate, start, end in zip(self.rates, self.starts, ends, strict=True)) / DAY


def steady(rate: float) -> Profile:
    return Profile((0.0,), (rate,))


def hourly(rates: Sequence[float]) -> Profile:
    """Rates of parts of equal length of a day, such as its 24 hours."""
    return Profile(tuple(DAY * at / len(rates) for at in range(len(rates))), tuple(rates))


@dataclass(frozen=True)
class Burst:
    """Work that comes all at once, every so many seconds: what a window gives out when it ends."""

    every: float
    rows: float
    """As many rows of the source as would take the same time."""


@dataclass(frozen=True)
class Outage:
    start: float
    """Second of the day."""
    length: float


@dataclass(frozen=True)
class Course:
    """What a day is like."""

    peak_backlog: float
    """Rows."""
    peak_lag: float
    """Seconds that the row with the longest wait has to wait."""
    peak_at: float
    """The second of the day at which that row comes."""
    longest_wait: float
    """Seconds of the longest time in which something waits without a break."""
    over_limit: float
    """Seconds of the longest time without a break in which rows wait longer than the limit."""
    caught_up: float | None
    """Seconds from the end of the outage until nothing waits any more; None if that never happens."""


def load_of(profile: Profile, bursts: Sequence[Burst]) -> float:
    """Work in a second, on average."""
    return profile.mean + sum(burst.rows / burst.every for burst in bursts)


def course(
    profile: Profile,
    capacity: float,
    bursts: Sequence[Burst] = (),
    *,
    limit: float = float("inf"),
    outage: Outage | None = None,
) -> Course | None:
    """A day as it is once all days are alike, or the day of an outage and those after it; None if the backlog grows
    from day to day. Windows longer than a day end at its midnight."""
    if load_of(profile, bursts) >= capacity:
        return None
    queue = _Queue(capacity, limit)
    # From an empty queue the second day is like all later ones: what waits goes back less than a day.
    _run_day(queue, profile, bursts)
    queue.forget()
    if outage is None:
        _run_day(queue, profile, bursts, rare=True)
        return queue.course()
    queue.outage = (DAY + outage.start, DAY + outage.start + outage.length)
    for day in range(1, MOST_DAYS + 1):
        _run_day(queue, profile, bursts, rare=day == 1)
        if queue.caught_up is not None and day * DAY > outage.start + outage.length:
            break
    return queue.course()


def worst_outage(profile: Profile, capacity: float, length: float, bursts: Sequence[Burst] = ()) -> Outage:
    """The outage of this length after which it takes longest until nothing waits."""

    def caught_up(start: float) -> float:
        found = course(profile, capacity, bursts, outage=Outage(start, length))
        if found is None or found.caught_up is None:
            return float("inf")
        return found.caught_up

    starts = sorted({at % DAY for start in profile.starts for at in (start, start - length)})
    chosen = starts[:: max(1, -(-len(starts) // _MOST_STARTS))]
    return Outage(max(chosen, key=caught_up), length)


class _Queue:
    """What waits, moved from event to event."""

    def __init__(self, capacity: float, limit: float) -> None:
        self.capacity, self.limit = capacity, limit
        self.now = 0.0
        self.backlog = 0.0
        self.outage: tuple[float, float] | None = None
        self.noted = 0.0
        self.waits_since: float | None = None
        self.over_since: float | None = None
        self.forget()

    def forget(self) -> None:
        """Begins to measure from here; what waits already has waited since before."""
        self.peak_backlog, self.peak_lag, self.peak_at = self.backlog, self.lag(), self.now
        self.longest_wait = self.over_limit = 0.0
        self.caught_up: float | None = None

    def lag(self) -> float:
        """How long a row that comes now waits."""
        if self.outage is not None and self.outage[0] <= self.now < self.outage[1]:
            return self.outage[1] - self.now + self.backlog / self.capacity
        return self.backlog / self.capacity

    def add(self, rows: float) -> None:
        self.backlog += rows
        self._note()

    def until(self, end: float, rate: float) -> None:
        """Moves on with one rate, past the ends of the outage."""
        for stop in (*(at for at in (self.outage or ()) if self.now < at < end), end):
            self._piece(stop, rate)

    def _piece(self, end: float, rate: float) -> None:
        stands = self.outage is not None and self.outage[0] <= self.now < self.outage[1]
        growth = rate - (0.0 if stands else self.capacity)
        self._note()
        length = end - self.now
        # The moments within the piece at which something changes: nothing waits any more, or the limit is passed.
        moments = set[float]()
        empty = self.now - self.backlog / growth if growth < 0 and self.backlog + growth * length <= 0 else None
        if empty is not None:
            moments.add(empty)
        slope = (growth / self.capacity) - (1.0 if stands else 0.0)
        if slope and self.limit < float("inf"):
            moments.add(self.now + (self.limit - self.lag()) / slope)
        begin, backlog = self.now, self.backlog
        for moment in (*sorted(at for at in moments if begin < at < end), end):
            left = 0.0 if empty is not None and moment >= empty else backlog + growth * (moment - begin)
            self.now, self.backlog = moment, max(left, 0.0)
            self._note()

    def _note(self) -> None:
        lag = self.lag()
        self.peak_backlog = max(self.peak_backlog, self.backlog)
        if lag > self.peak_lag:
            self.peak_lag, self.peak_at = lag, self.now
        waits = self.backlog > _NOTHING
        if self.waits_since is not None:
            self.longest_wait = max(self.longest_wait, self.now - self.waits_since)
        self.waits_since = (self.waits_since if self.waits_since is not None else self.noted) if waits else None
        if self.over_since is not None:
            self.over_limit = max(self.over_limit, self.now - self.over_since)
        over = lag > self.limit * (1 + 1e-12)
        self.over_since = (self.over_since if self.over_since is not None else self.noted) if over else None
        if self.outage is not None and self.caught_up is None and self.now >= self.outage[1] and not waits:
            self.caught_up = self.now - self.outage[1]
        # What begins between two notes begins at the earlier one: there are notes wherever something changes.
        self.noted = self.now

    def course(self) -> Course:
        return Course(
            self.peak_backlog,
            self.peak_lag,
            self.peak_at % DAY,
            self.longest_wait,
            self.over_limit,
            self.caught_up,
        )


def _run_day(queue: _Queue, profile: Profile, bursts: Sequence[Burst], *, rare: bool = False) -> None:
    """One day with its rates, and with a burst at the end of each window; `rare`: of those longer than a day too."""
    begin = queue.now
    spread = sum(burst.rows / burst.every for burst in bursts if burst.every < _SPREAD)
    added: dict[float, float] = {}
    for burst in bursts:
        if burst.every > DAY:
            added[begin] = added.get(begin, 0.0) + burst.rows * rare
        elif burst.every >= _SPREAD:
            for at in _ends(burst, begin, begin + DAY):
                added[at] = added.get(at, 0.0) + burst.rows
    changes = {begin + at: rate for at, rate in zip(profile.starts, profile.rates, strict=True)}
    rate = profile.rates[0]
    for at, following in pairwise(sorted({*changes, *added, begin + DAY})):
        rate = changes.get(at, rate)
        if at in added:
            queue.add(added[at])
        queue.until(following, rate + spread)


def _ends(burst: Burst, begin: float, end: float) -> Iterator[float]:
    count = -(-begin // burst.every)
    while count * burst.every < end:
        yield count * burst.every
        count += 1
