"""All that is said of a running pipeline from its history: what its batches cost, what it can take, and its size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.capacity.figures import byte_size, length, number
from penstock.capacity.fit import CostModel, MeasuredBatch, countable, fit
from penstock.capacity.forecast import (
    AtLoad,
    BatchCost,
    CoresNeeded,
    Running,
    Share,
    after_outage,
    at_load,
    batch_cost,
    cores_for,
    most_within,
    running,
    shares,
)
from penstock.capacity.least_squares import least_squares
from penstock.capacity.load import Course
from penstock.errors import PenstockError

DAY = 86_400.0
_MOST_OVERHEAD, _OVERHEAD = 0.3, 0.2
"""Above the first share of the trigger the fixed part of a batch is too much; a trigger is chosen for the second."""
_FAR = 3.0
"""A prediction for batches larger than this many times the largest one that was seen is said to be far off."""
_TRIGGERS = (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
_MONTH = 30.0
_LEAST_GROWTH_SPAN = 3600.0


@dataclass(frozen=True)
class Asked:
    """What is to be answered."""

    factor: float = 3.0
    """A load of so many times today's."""
    outage: float = 7200.0
    freshness: float = 60.0
    busy: float = 0.7
    """The share of the time in which cores may be busy; the rest is to catch up with."""
    catch_up: float | None = None
    """How long the outage may take to be caught up."""
    rate: float | None = None
    """The load, instead of today's."""


@dataclass(frozen=True)
class Known:
    """Values that the history does not hold and the user has given."""

    trigger: float
    batch_limit: int | None = None
    cores: int | None = None
    partitions: int | None = None
    disk_free: int | None = None


@dataclass(frozen=True)
class Limit:
    """The rate at which something is used up."""

    resource: str
    rate: float
    why: str


@dataclass(frozen=True)
class Growth:
    """By how much something has grown in a day, as a straight line through the history."""

    now: float
    per_day: float


@dataclass(frozen=True)
class Advice:
    what: str
    now: str
    advice: str
    why: str


@dataclass(frozen=True)
class Fitted:
    name: str
    asked: Asked
    known: Known
    model: CostModel
    running: Running
    cost: BatchCost
    loads: tuple[AtLoad, ...]
    """Today's, and as many times as was asked."""
    limits: tuple[Limit, ...]
    """The one that is reached first comes first."""
    shares: tuple[Share, ...]
    outage: Course | None
    cores: tuple[CoresNeeded, ...]
    """For today's load and for that many times it; none if it is not known how many there are now."""
    state: Growth | None
    """Rows of state."""
    state_bytes: Growth | None
    commit_share: float
    """Of the time of batches, what goes into Spark's logs of offsets and commits."""
    advice: tuple[Advice, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def margin(self) -> float:
        """How many times today's load goes through before the first limit."""
        return self.limits[0].rate / self.running.rate if self.running.rate else math.inf

    @property
    def keeps_goals(self) -> bool:
        """Whether all loads that were asked for are fresh enough, and an outage is caught up in time."""
        fresh = all(load.keeps_up and load.freshness <= self.asked.freshness for load in self.loads)
        caught_up = None if self.outage is None else self.outage.caught_up
        return fresh and caught_up is not None and caught_up <= (self.asked.catch_up or math.inf)


def fitted(name: str, history: Sequence[MeasuredBatch], known: Known, asked: Asked) -> Fitted:
    """Raises HISTORY_TOO_SHORT or HISTORY_TOO_EVEN."""
    model = fit(history, name)
    used = countable(history)
    now = running(used, known.trigger, known.batch_limit, known.cores)
    if asked.rate is not None:
        now = Running(**{**vars(now), "rate": asked.rate})
    cost = batch_cost(model, now)
    loads = tuple(at_load(model, now, now.rate * factor) for factor in (1.0, asked.factor))
    cores = tuple(_cores(cost, now, asked, factor) for factor in (1.0, asked.factor)) if now.cores is not None else ()
    state = growth([(batch.at, batch.state_rows) for batch in used])
    state_bytes = growth([(batch.at, batch.state_bytes) for batch in used])
    found = Fitted(
        name=name,
        asked=asked,
        known=known,
        model=model,
        running=now,
        cost=cost,
        loads=loads,
        limits=_limits(cost, now, asked),
        shares=shares(model, now, now.rate),
        outage=after_outage(cost, now, asked.outage),
        cores=cores,
        state=state,
        state_bytes=state_bytes,
        commit_share=sum(batch.commit_seconds for batch in used) / sum(batch.seconds for batch in used),
        advice=(),
        warnings=(),
        assumptions=tuple(_assumptions(model, now, asked)),
    )
    more = {"advice": tuple(_advice(found)), "warnings": tuple(_warnings(found))}
    return Fitted(**{**vars(found), **more})


def _cores(cost: BatchCost, now: Running, asked: Asked, factor: float) -> CoresNeeded:
    catch_up = None if asked.catch_up is None else (asked.outage, asked.catch_up)
    return cores_for(cost, now, now.rate * factor, freshness=asked.freshness, busy=asked.busy, catch_up=catch_up)


def _limits(cost: BatchCost, now: Running, asked: Asked) -> tuple[Limit, ...]:
    each = f"{number(cost.row * 1e6)} µs for each row"
    found = [
        Limit("cores", 1 / cost.row, f"1 ÷ {each}"),
        Limit(
            "freshness",
            most_within(cost, now, asked.freshness),
            f"rows are stored within {length(asked.freshness)}: two batches, or the trigger and a batch",
        ),
        Limit(
            "trigger",
            max(0.0, (now.trigger - cost.fixed) / (cost.row * now.trigger)),
            f"a batch takes {length(now.trigger)}, as long as the trigger; larger batches follow after that",
        ),
    ]
    if now.batch_limit is not None:
        why = f"batches of {now.batch_limit:,} rows, which take {length(cost.seconds(now.batch_limit))} each"
        # What cannot be processed is not fresh either; the limit is the reason for both.
        found.insert(0, Limit("batch limit", cost.most(now.batch_limit), why))
    # A trigger that is passed breaks nothing by itself.
    hard = sorted((limit for limit in found if limit.resource != "trigger"), key=lambda limit: limit.rate)
    return (*hard, *(limit for limit in found if limit.resource == "trigger"))


def growth(points: Sequence[tuple[float, int | None]]) -> Growth | None:
    """None if that cannot be told from less than an hour, or if there is nothing."""
    known = [(at, float(value)) for at, value in points if value is not None]
    if len(known) < 2 or known[-1][0] - known[0][0] < _LEAST_GROWTH_SPAN or not any(value for _, value in known):
        return None
    end = known[-1][0]
    found = least_squares(
        [(1.0, (at - end) / DAY) for at, _ in known], [value for _, value in known], [1.0] * len(known)
    )
    return None if found is None else Growth(max(found.coefficients[0], 0.0), found.coefficients[1])


def _advice(found: Fitted) -> Iterator[Advice]:
    yield _trigger(found)
    if found.cores:
        yield from _size(found)
    if found.state_bytes is not None:
        yield _memory(found.state_bytes)


def _trigger(found: Fitted) -> Advice:
    now, fixed = found.running.trigger, found.cost.fixed
    share = fixed / now
    says = f"{length(fixed)} for each batch before its first row"
    longest = found.asked.freshness / 2
    better = next((each for each in _TRIGGERS if fixed <= each * _OVERHEAD and each <= longest), None)
    if share <= _MOST_OVERHEAD:
        return Advice("trigger", length(now), "keep it", f"{says}, {share:.0%} of the trigger")
    if better is None or better <= now:
        why = f"{says}, and a longer trigger leaves no time for a freshness of {length(found.asked.freshness)}"
        return Advice("trigger", length(now), "keep it", why)
    return Advice(
        "trigger", length(now), length(better), f"{says}, {share:.0%} of the trigger; then {fixed / better:.0%}"
    )


def _size(found: Fitted) -> Iterator[Advice]:
    now = found.running.cores
    assert now is not None
    needed = found.cores[-1]
    load = f"{number(found.asked.factor)} times the load"
    cores = f"{now} core{'' if now == 1 else 's'}"
    if needed.cores is None:
        yield Advice("target", cores, "more cores do not help", f"for {load}: {needed.reason}")
        return
    busy = found.loads[-1].rate * found.cost.row * now / needed.cores
    why = f"for {load}: {needed.reason}; {busy:.0%} of {needed.cores} cores are busy then"
    yield Advice("target", cores, "keep it" if needed.cores <= now else f"{needed.cores} cores", why)
    partitions = found.known.partitions or now
    if not found.running.state_rows:
        return
    wanted = -(-max(needed.cores, now) // now) * now
    advice = "keep them" if wanted <= partitions else f"{wanted}"
    why = f"a core works on one partition at a time, and {load} takes {needed.cores}; `penstock rescale` changes them"
    yield Advice("partitions", f"{partitions}", advice, why)


def _memory(held: Growth) -> Advice:
    later = held.now + max(held.per_day, 0.0) * _MONTH
    why = f"{byte_size(max(held.per_day, 0.0))} a day more: {byte_size(later)} in {_MONTH:.0f} days"
    return Advice("memory of RocksDB", byte_size(held.now), f"at least {byte_size(later)}", why)


def _warnings(found: Fitted) -> Iterator[str]:
    for load in found.loads:
        if not load.keeps_up:
            yield f"{number(load.rate)} rows/s are more than it can process: the backlog grows for ever"
        elif load.extrapolated > _FAR:
            yield (
                f"batches at {number(load.rate)} rows/s are {number(load.extrapolated)} times the largest one of the "
                "history, and that far nothing is known"
            )
    if found.outage is None or found.outage.caught_up is None:
        yield f"an outage of {length(found.asked.outage)} is never caught up"
    if found.model.explained < 0.5:
        yield f"batches of the same size take differently long: {1 - found.model.explained:.0%} is not explained"
    full = _days_to_full(found)
    if full is not None and full < _MONTH:
        yield f"the disk is full in {number(full)} days if state keeps growing at this rate"


def _days_to_full(found: Fitted) -> float | None:
    growth, free = found.state_bytes, found.known.disk_free
    return None if growth is None or free is None or growth.per_day <= 0 else free / growth.per_day


def _assumptions(model: CostModel, now: Running, asked: Asked) -> Iterator[str]:
    yield "rows cost as much at any load, and state stays as large as it is"
    if now.cores is not None:
        yield "with more cores rows take less time in proportion, and the fixed part of a batch stays"
        yield f"cores may be busy for {asked.busy:.0%} of the time"
    else:
        yield "it is not known how many cores there are: give --cores to see how many are needed"
    if now.batch_limit is None:
        yield "batches may grow as large as it takes"


def refuse_unusual(asked: Asked) -> None:
    """Raises USAGE for what cannot be answered."""
    for value, flag in ((asked.factor, "--factor"), (asked.freshness, "--max-lag"), (asked.outage, "--outage")):
        if not value > 0 or math.isinf(value):
            reason = f"{flag} must be more than 0"
            raise PenstockError.of("USAGE", reason=reason, advice="Leave it out for the default.")
    if not 0 < asked.busy <= 1:
        raise PenstockError.of("USAGE", reason="--margin must leave something to work with", advice="Write `30%`.")
