"""How many rows a second are needed, term by term, and how many cores give them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.figures import length, number


@dataclass(frozen=True)
class Rules:
    """How a pipeline is scaled. Times are in seconds."""

    least: int
    """Cores."""
    most: int
    busy: float = 0.7
    """The share of the time in which cores should be busy; the rest is for what the last minutes did not show."""
    band: float = 0.2
    """By how much the share may be more or less before anything is changed."""
    catch_up: float = 1800.0
    """In which time what waits should be worked off."""
    restart: float = 60.0
    """How long nothing is processed while the number of cores changes."""
    window: float = 300.0
    """Over which time the load is observed."""
    stabilisation: float = 300.0
    """How long a change is left alone, so that its effect can be seen."""
    up_delay: float = 120.0
    """How long more cores must have been needed before they are given."""
    down_delay: float = 3600.0
    """How long fewer cores must have been enough before they are taken away."""
    most_per_day: int = 8
    """Changes in 24 hours. The last two are kept for more cores."""
    caught_up: float = 60.0
    """While more waits than comes in this time, it is catching up."""
    excluded: tuple[tuple[float, float], ...] = ()
    """Times of day, in seconds from midnight in UTC, in which nothing is changed; one may go over midnight."""


@dataclass(frozen=True)
class Evaluation:
    """The formula with its terms. All rates are rows in a second."""

    at: float
    cores: int
    load: float
    lag: float
    busy: float
    catch_up: float
    restart: float
    by_load: float
    """The load, divided by the share of the time that cores may be busy."""
    by_lag: float
    """What waits, divided by the time in which it should be worked off."""
    by_restart: float
    """What comes while the pipeline restarts, divided by the same time."""
    capacity: float
    """What the cores give now."""
    capacity_then: float
    """What the cores that are needed would give."""
    needed: int
    """Cores, within the limits of the rules."""
    unbounded: int | None
    """Cores without those limits; None if no number is enough."""
    catching_up: bool

    @property
    def wanted(self) -> float:
        return self.by_load + self.by_lag + self.by_restart

    @property
    def in_words(self) -> str:
        """`load 3,200/s ÷ 0.7 + lag 1.2 M ÷ 30 min + restart 40 s → 5,300/s; 2 cores give 2,900/s → 4 cores`."""
        terms = [f"load {_rate(self.load)} ÷ {self.busy:g}"]
        if self.lag >= 1:
            terms.append(f"lag {_rows(self.lag)} ÷ {length(self.catch_up)}")
        if self.by_restart:
            terms.append(f"restart {length(self.restart)}")
        limit = ""
        if self.unbounded is None:
            limit = ", and no number of cores is enough"
        elif self.unbounded != self.needed:
            limit = f", within the limits; without them {_cores(self.unbounded)}"
        gives = f"{_cores(self.cores)} give{'s' if self.cores == 1 else ''} {_rate(self.capacity)}"
        return f"{' + '.join(terms)} → {_rate(self.wanted)}; {gives} → {_cores(self.needed)}{limit}"


def evaluate(observed: Observed, rules: Rules, scaling: float = 1.0) -> Evaluation:
    """`scaling` is how much of what more cores promise has come true: 1 is all of it."""
    by_lag = observed.lag / rules.catch_up
    by_restart = observed.load * rules.restart / rules.catch_up
    wanted = observed.load / rules.busy + by_lag + by_restart
    unbounded = _fewest(observed, wanted, scaling)
    needed = min(max(unbounded or rules.most, rules.least), rules.most)
    return Evaluation(
        at=observed.at,
        cores=observed.cores,
        load=observed.load,
        lag=observed.lag,
        busy=rules.busy,
        catch_up=rules.catch_up,
        restart=rules.restart,
        by_load=observed.load / rules.busy,
        by_lag=by_lag,
        by_restart=by_restart,
        capacity=observed.capacity,
        capacity_then=_scaled(observed, needed, scaling),
        needed=needed,
        unbounded=unbounded,
        catching_up=observed.lag > observed.load * rules.caught_up,
    )


def too_little(found: Evaluation, rules: Rules) -> bool:
    """Whether cores are busier than the band allows; a restart that is not yet needed does not count."""
    return found.load / min(1.0, rules.busy + rules.band) + found.by_lag > found.capacity


def too_much(found: Evaluation, rules: Rules) -> bool:
    return found.load / max(0.05, rules.busy - rules.band) + found.by_lag + found.by_restart < found.capacity


def _scaled(observed: Observed, cores: int, scaling: float) -> float:
    """What a number of cores would give, if more of them bring only a part of what they should."""
    if cores <= observed.cores:
        return observed.capacity_of(cores)
    return observed.capacity + scaling * (observed.capacity_of(cores) - observed.capacity)


def _fewest(observed: Observed, wanted: float, scaling: float) -> int | None:
    low, high = 0, 1
    while _scaled(observed, high, scaling) < wanted:
        low, high = high, high * 2
        if high > 1 << 20:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _scaled(observed, middle, scaling) >= wanted else (middle, high)
    return high


def _rate(value: float) -> str:
    return f"{number(_rounded(value))}/s"


def _rows(value: float) -> str:
    return f"{number(value / 1e6)} M" if value >= 1e6 else number(_rounded(value))


def _rounded(value: float) -> float:
    """To two digits from a hundred on: a load is not known to the row."""
    digits = max(0, math.floor(math.log10(value)) - 1) if value >= 100 else 0
    return round(value, -digits)


def _cores(count: int) -> str:
    return f"{count:,} core{'' if count == 1 else 's'}"
