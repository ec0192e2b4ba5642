"""What the last batches say: the load, what waits, and what the cores can process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.capacity.fit import MeasuredBatch
from penstock.capacity.forecast import BatchCost

LEAST_BATCHES = 3
_SHORT = 3
"""The load of the last third of the window counts if it is higher: more is needed sooner than less."""


@dataclass(frozen=True)
class Backlog:
    """Rows that waited at a source at a moment."""

    at: float
    rows: float


@dataclass(frozen=True)
class Observed:
    """A pipeline over a window of time that ends at a moment."""

    at: float
    cores: int
    load: float
    """Rows in a second that came in, whether they were processed or wait."""
    lag: float
    """Rows that wait now."""
    cost: BatchCost
    """Of these cores."""
    batch_limit: int | None = None
    """The most rows that a batch takes, if there is a limit."""

    @property
    def capacity(self) -> float:
        """Rows in a second that these cores process while there is enough to do."""
        return self.capacity_of(self.cores)

    def capacity_of(self, cores: int) -> float:
        return self.cost.with_cores(self.cores, cores).most(self.batch_limit)


def observe(
    batches: Sequence[MeasuredBatch],
    backlogs: Sequence[Backlog],
    *,
    now: float,
    window: float,
    cores: int,
    fixed: float = 0.0,
    batch_limit: int | None = None,
) -> Observed | None:
    """From batches of these cores that ended within the window, or from the last three; None if there are not so many.

    The oldest batch comes first. `fixed` is what a batch costs before its first row, as fitted to a longer history:
    without it a batch of few rows looks as if its cores could do no more.
    """
    own = [batch for batch in batches if batch.at + batch.seconds <= now and batch.cores in (None, cores)]
    # Where batches take minutes, a window may hold none of them; that is when it matters most.
    within = sum(batch.at + batch.seconds >= now - window for batch in own)
    recent = own[-max(within, LEAST_BATCHES) :]
    rows = sum(batch.rows for batch in recent)
    if len(recent) < LEAST_BATCHES or not rows:
        return None
    busy = sum(batch.seconds for batch in recent)
    # A fixed part that was fitted to other times must not make rows free.
    row = max(busy - fixed * len(recent), busy * 0.05) / rows
    return Observed(
        at=now,
        cores=cores,
        load=max(_load(recent, backlogs, now), _load(recent[-max(within // _SHORT, LEAST_BATCHES) :], backlogs, now)),
        lag=_newest(backlogs, now),
        cost=BatchCost(max(0.0, busy / len(recent) - row * rows / len(recent)), row),
        batch_limit=batch_limit,
    )


def _load(batches: Sequence[MeasuredBatch], backlogs: Sequence[Backlog], now: float) -> float:
    """Rows in a second that came in: those that were read, and those by which more waits now."""
    first, last = batches[0], batches[-1]
    # The rows of the first batch came before it began.
    read = sum(batch.rows for batch in batches[1:])
    looks = [each for each in backlogs if first.at <= each.at <= now]
    # No more than one batch waits: what came since the last one was cut, at a moment that is not known exactly.
    keeps_up = max((each.rows for each in looks), default=0.0) <= 2 * read / (len(batches) - 1)
    if keeps_up or len(looks) < 2 or looks[-1].at <= last.at:
        return read / (last.at - first.at) if last.at > first.at else 0.0
    return max(0.0, (read + looks[-1].rows - looks[0].rows) / (looks[-1].at - first.at))


def _newest(backlogs: Sequence[Backlog], now: float) -> float:
    return next((each.rows for each in reversed(backlogs) if each.at <= now), 0.0)
