"""Days of load, run batch by batch with a policy that chooses the cores: what it costs, and how long rows wait."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.capacity.autoscale.decide import Action, Decision, Memory, decide, started
from penstock.capacity.autoscale.evaluate import Rules
from penstock.capacity.autoscale.observe import Backlog, observe
from penstock.capacity.fit import MeasuredBatch
from penstock.capacity.forecast import BatchCost
from penstock.capacity.load import DAY, Profile

LOOK_EVERY = 60.0
_KEPT = 3600.0
_IDEAL_CATCH_UP = 600.0


@dataclass(frozen=True)
class Machine:
    """The pipeline as it truly is; a policy sees its batches only."""

    fixed: float
    """Seconds of a batch before its first row."""
    core_row: float
    """Seconds that one core takes for a row."""
    trigger: float = 10.0
    restart: float = 40.0
    """Seconds in which nothing is processed while the number of cores changes."""
    noise: float = 0.05
    batch_limit: int = 500_000
    """The most rows of a batch."""
    useful_cores: int | None = None
    """More cores than this change nothing, such as when a sink is the limit."""

    def cost(self, cores: int) -> BatchCost:
        return BatchCost(self.fixed, self.core_row / min(cores, self.useful_cores or cores))


@dataclass
class Seen:
    """What a policy may look at."""

    now: float
    cores: int
    batches: deque[MeasuredBatch]
    backlogs: deque[Backlog]
    started: float
    """When the run began that is running."""


Policy = Callable[[Seen], int]
"""The number of cores that it wants."""


@dataclass(frozen=True)
class Outcome:
    """What a day was like."""

    core_hours: float
    changes: int
    worst_freshness: float
    """Seconds from the coming of a row until it was stored, of the row that waited longest."""
    over: float
    """Seconds of the day in which rows were stored that had waited longer than the limit."""
    longest_over: float
    """The longest such time without a break."""
    down_while_behind: int
    """How often cores were taken away while rows waited that came more than the limit ago."""
    left: float
    """Rows that wait at the end."""


def simulate(
    profile: Profile,
    machine: Machine,
    policy: Policy,
    *,
    cores: int,
    limit: float = 300.0,
    outages: Sequence[tuple[float, float]] = (),
    days: int = 1,
    seed: int = 0,
) -> Outcome:
    """`outages`: times, from start to end, in which the pipeline stands and rows go on coming."""
    run = _Run(profile, machine, policy, cores, limit, tuple(outages), random.Random(seed))
    run.until(days * DAY)
    return run.outcome()


@dataclass
class _Run:
    profile: Profile
    machine: Machine
    policy: Policy
    cores: int
    limit: float
    outages: tuple[tuple[float, float], ...]
    chance: random.Random
    now: float = 0.0
    read: float = 0.0
    """Up to when rows have been added to what waits."""
    core_seconds: float = 0.0
    changes: int = 0
    worst: float = 0.0
    over: float = 0.0
    longest_over: float = 0.0
    over_since: float | None = None
    down_while_behind: int = 0
    waiting: deque[tuple[float, float]] = field(default_factory=deque)
    """When rows came, and how many."""
    begun: float = 0.0
    looked: float = 0.0
    batches: deque[MeasuredBatch] = field(default_factory=deque)
    backlogs: deque[Backlog] = field(default_factory=deque)

    def until(self, end: float) -> None:
        while self.now < end:
            outage = next((stop for start, stop in self.outages if start <= self.now < stop), None)
            if outage is not None:
                self._wait(outage)
                self.begun = self.now
                continue
            self._batch()
            if self.now - self.looked >= LOOK_EVERY:
                self._look()

    def _batch(self) -> None:
        self._arrive(self.now)
        oldest = self.waiting[0][0] if self.waiting else self.now
        rows = self._take(self.machine.batch_limit)
        took = self.machine.cost(self.cores).seconds(rows) * self.chance.lognormvariate(0, self.machine.noise)
        began = self.now
        self._wait(self.now + took)
        if rows >= 1:
            self._note(began, took, rows, self.now - oldest)
        self._wait(began + max(took, self.machine.trigger))

    def _take(self, most: float) -> float:
        """Takes the rows that have waited longest."""
        taken = 0.0
        while self.waiting and taken < most:
            came, rows = self.waiting.popleft()
            if taken + rows > most:
                self.waiting.appendleft((came, taken + rows - most))
                return most
            taken += rows
        return taken

    def _note(self, began: float, took: float, rows: float, waited: float) -> None:
        batch = MeasuredBatch(str(self.begun), began, took, round(rows), cores=self.cores)
        self.batches.append(batch)
        while self.batches and self.batches[0].at < self.now - _KEPT:
            self.batches.popleft()
        self.worst = max(self.worst, waited)
        if waited <= self.limit:
            self.over_since = None
            return
        self.over_since = began if self.over_since is None else self.over_since
        self.over += self.now - began
        self.longest_over = max(self.longest_over, self.now - self.over_since)

    def _look(self) -> None:
        self.looked = self.now
        self._arrive(self.now)
        waits = sum(count for _, count in self.waiting)
        self.backlogs.append(Backlog(self.now, waits))
        while self.backlogs[0].at < self.now - _KEPT:
            self.backlogs.popleft()
        wanted = self.policy(Seen(self.now, self.cores, self.batches, self.backlogs, self.begun))
        if wanted == self.cores:
            return
        behind = self.waiting and self.now - self.waiting[0][0] > self.limit
        self.down_while_behind += bool(wanted < self.cores and behind)
        self.changes += 1
        # Both the old and the new cores are there while one is exchanged for the other; the larger number is paid.
        self.cores, paid = wanted, max(wanted, self.cores)
        self.core_seconds += (paid - wanted) * self.machine.restart
        self._wait(self.now + self.machine.restart)
        self.begun = self.now

    def _wait(self, until: float) -> None:
        self.core_seconds += self.cores * (until - self.now)
        self.now = until
        self._arrive(until)

    def _arrive(self, until: float) -> None:
        """In pieces of at most ten seconds, so that a change of the rate is not missed."""
        while self.read < until:
            piece = min(10.0, until - self.read)
            rate = rate_at(self.profile, self.read)
            if rate:
                self.waiting.append((self.read, rate * piece))
            self.read += piece

    def outcome(self) -> Outcome:
        return Outcome(
            core_hours=self.core_seconds / 3600,
            changes=self.changes,
            worst_freshness=self.worst,
            over=self.over,
            longest_over=self.longest_over,
            down_while_behind=self.down_while_behind,
            left=sum(count for _, count in self.waiting),
        )


def rate_at(profile: Profile, at: float) -> float:
    return profile.rates[bisect_right(profile.starts, at % DAY) - 1]


# --- policies --------------------------------------------------------------------------------------------------


class Autoscaler:
    """Penstock's own decisions."""

    def __init__(self, rules: Rules, fixed: float = 0.0, batch_limit: int | None = None) -> None:
        self.rules, self.fixed, self.batch_limit = rules, fixed, batch_limit
        self.memory = Memory()
        self.decisions: list[Decision] = []
        self._run = -1.0

    def __call__(self, seen: Seen) -> int:
        if seen.started != self._run:
            self._run = seen.started
            self.memory = started(self.memory, self.rules, seen.started)
        observed = observe(
            seen.batches,
            seen.backlogs,
            now=seen.now,
            window=self.rules.window,
            cores=seen.cores,
            fixed=self.fixed,
            batch_limit=self.batch_limit,
        )
        decision, self.memory = decide(observed, self.memory, self.rules, seen.now)
        self.decisions.append(decision)
        return decision.after if decision.action in (Action.UP, Action.DOWN) else seen.cores


def fixed_size(cores: int) -> Policy:
    return lambda seen: cores


def ideal(profile: Profile, machine: Machine, busy: float = 1.0) -> Policy:
    """Knows the load of the next minute and what cores can do; only for a machine that restarts in no time.

    What an outage has left is worked off in ten minutes.
    """

    def cores(seen: Seen) -> int:
        load = max(rate_at(profile, seen.now), rate_at(profile, seen.now + LOOK_EVERY))
        # A batch for each trigger: what is left of it after the fixed part is for rows.
        share = busy * (1 - machine.fixed / machine.trigger)
        waits = max(0.0, seen.backlogs[-1].rows - 2 * load * machine.trigger) / _IDEAL_CATCH_UP
        return max(1, math.ceil((load + waits) * machine.core_row / share))

    return cores
