"""What a pipeline can take, from what its batches cost: other loads, an outage, a goal for freshness, and its size.

A batch holds the rows that came while the one before it ran, or since the last trigger if that is longer. Its time is a
fixed part and a part for each row. A larger machine makes rows cheaper and leaves the fixed part as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.capacity.fit import BATCH, CHECKPOINT_BYTE, ROW, ROW_OUT, STATE_ROW, CostModel, MeasuredBatch
from penstock.capacity.limits import fewest
from penstock.capacity.load import Course, Outage, course, steady

_RECENT = 600.0
"""Seconds over which today's load is taken."""


@dataclass(frozen=True)
class Running:
    """How a pipeline runs now."""

    rate: float
    """Rows in a second."""
    trigger: float
    """Seconds."""
    rows_out_per_row: float
    checkpoint_bytes_per_row: float
    state_rows: float
    batch_limit: int | None = None
    """The most rows that a batch takes, if there is a limit."""
    cores: int | None = None


@dataclass(frozen=True)
class BatchCost:
    """The time of a batch of n rows: fixed + rows × n."""

    fixed: float
    row: float

    def seconds(self, rows: float) -> float:
        return self.fixed + self.row * rows

    def with_cores(self, now: int, then: int) -> BatchCost:
        """Rows are shared by cores; planning and committing are done once, however many there are."""
        return BatchCost(self.fixed, self.row * now / then)

    def most(self, batch_limit: int | None) -> float:
        """Rows in a second when batch follows batch: as large as they get, the fixed part is spread over ever more."""
        if batch_limit is not None:
            return batch_limit / self.seconds(batch_limit)
        return 1 / self.row


@dataclass(frozen=True)
class AtLoad:
    """How batches go at a load."""

    rate: float
    keeps_up: bool
    batch_seconds: float
    bar: float
    """How far the time of a batch may be off, with 95 % confidence."""
    batch_rows: float
    every: float
    """Seconds from the start of a batch to that of the next."""
    freshness: float
    """Seconds until a row is stored that came right after a batch was cut."""
    busy: float
    """The share of the time in which a batch is at work."""
    extrapolated: float
    """How many times the largest batch of the history such a batch is."""


@dataclass(frozen=True)
class Share:
    """What part of a batch's time something takes."""

    what: str
    share: float


def running(history: Sequence[MeasuredBatch], trigger: float, batch_limit: int | None, cores: int | None) -> Running:
    """From the last minutes of a history; a batch that is followed at once by the next counts until then."""
    newest = max(batch.at + batch.seconds for batch in history)
    recent = [batch for batch in history if batch.at >= newest - _RECENT]
    first = min(recent, key=lambda batch: batch.at)
    # The rows of the first batch came before it began.
    later = [batch for batch in recent if batch is not first]
    last = max(recent, key=lambda batch: batch.at)
    rows = sum(batch.rows for batch in later)
    written = [batch.checkpoint_bytes for batch in later if batch.checkpoint_bytes is not None]
    return Running(
        rate=rows / (last.at - first.at) if last.at > first.at else 0.0,
        trigger=trigger,
        rows_out_per_row=sum(batch.rows_out for batch in later) / rows if rows else 0.0,
        checkpoint_bytes_per_row=sum(written) / rows if rows and len(written) == len(later) else 0.0,
        state_rows=float(last.state_rows or 0),
        batch_limit=batch_limit,
        cores=cores if cores is not None else last.cores,
    )


def batch_cost(model: CostModel, now: Running) -> BatchCost:
    """The model with what comes with each row: results, and bytes for the checkpoint; state stays as large as it is."""
    fixed = model.cost(BATCH) + model.cost(STATE_ROW) * now.state_rows
    row = model.cost(ROW) + model.cost(ROW_OUT) * now.rows_out_per_row
    return BatchCost(fixed, row + model.cost(CHECKPOINT_BYTE) * now.checkpoint_bytes_per_row)


def at_load(model: CostModel, now: Running, rate: float, cost: BatchCost | None = None) -> AtLoad:
    cost = cost or batch_cost(model, now)
    keeps_up = rate < cost.most(now.batch_limit)
    every = now.trigger
    if cost.seconds(rate * every) > every:
        every = cost.fixed / (1 - cost.row * rate) if cost.row * rate < 1 else math.inf
    rows = rate * every
    if now.batch_limit is not None:
        rows = min(rows, float(now.batch_limit))
    seconds = cost.seconds(rows)
    amounts = {
        BATCH: 1.0,
        ROW: rows,
        ROW_OUT: rows * now.rows_out_per_row,
        STATE_ROW: now.state_rows,
        CHECKPOINT_BYTE: rows * now.checkpoint_bytes_per_row,
    }
    # Where batches follow one another, a longer batch makes the next one larger.
    amplified = 1 / (1 - cost.row * rate) if keeps_up and every > now.trigger else 1.0
    return AtLoad(
        rate=rate,
        keeps_up=keeps_up,
        batch_seconds=seconds if keeps_up else math.inf,
        bar=model.bar(amounts) * amplified if keeps_up else math.inf,
        batch_rows=rows if keeps_up else math.inf,
        every=every if keeps_up else math.inf,
        freshness=every + seconds if keeps_up else math.inf,
        busy=min(seconds / every, 1.0) if keeps_up else 1.0,
        extrapolated=rows / model.largest if keeps_up else math.inf,
    )


def most_within(cost: BatchCost, now: Running, freshness: float) -> float:
    """The highest rate at which a row is stored in time: it waits for its batch, and then for the batch."""
    if now.trigger + cost.seconds(0.0) > freshness:
        return 0.0
    most = cost.most(now.batch_limit)
    # While a batch fits into the trigger: trigger + fixed + row × rate × trigger. After that: two batches.
    within_trigger = min((freshness - now.trigger - cost.fixed), now.trigger - cost.fixed) / (cost.row * now.trigger)
    one_after_another = (1 - 2 * cost.fixed / freshness) / cost.row
    return max(0.0, min(most, max(within_trigger, one_after_another if freshness >= 2 * now.trigger else 0.0)))


def shares(model: CostModel, now: Running, rate: float) -> tuple[Share, ...]:
    """What the time of a batch at a load is made of, the largest part first."""
    rows = at_load(model, now, rate).batch_rows
    if math.isinf(rows):
        rows = float(now.batch_limit or model.largest)
    parts = {
        "each batch": model.cost(BATCH),
        "rows": model.cost(ROW) * rows,
        "rows given out": model.cost(ROW_OUT) * rows * now.rows_out_per_row,
        "kept state": model.cost(STATE_ROW) * now.state_rows,
        "checkpoint bytes": model.cost(CHECKPOINT_BYTE) * rows * now.checkpoint_bytes_per_row,
    }
    total = sum(parts.values())
    found = [Share(what, part / total) for what, part in parts.items() if part > 0]
    return tuple(sorted(found, key=lambda share: -share.share))


def after_outage(cost: BatchCost, now: Running, seconds: float) -> Course | None:
    """How an outage is worked off at today's load, with the largest batches; None if it never is."""
    return course(steady(now.rate), cost.most(now.batch_limit), outage=Outage(0.0, seconds))


@dataclass(frozen=True)
class CoresNeeded:
    """The fewest cores for something; None if no number does it, and `reason` says why."""

    what: str
    cores: int | None
    reason: str


def cores_for(
    cost: BatchCost,
    now: Running,
    rate: float,
    *,
    freshness: float,
    busy: float,
    catch_up: tuple[float, float] | None = None,
) -> CoresNeeded:
    """For a load and a freshness, at most so busy; `catch_up`: the length of an outage, and how long it may take."""
    assert now.cores is not None
    what = f"{rate:,.0f} rows/s"

    def enough(cores: int) -> bool:
        smaller = cost.with_cores(now.cores or 1, cores)
        most = smaller.most(now.batch_limit)
        if rate > most_within(smaller, now, freshness) or rate > busy * most:
            return False
        return catch_up is None or catch_up[0] * rate <= (most - rate) * catch_up[1]

    if now.trigger + cost.fixed > freshness:
        reason = f"a trigger of {now.trigger:g} s and {cost.fixed:.2g} s for each batch are more than {freshness:g} s"
        return CoresNeeded(what, None, reason)
    if now.batch_limit is not None and rate * cost.fixed >= busy * now.batch_limit:
        return CoresNeeded(what, None, f"batches of at most {now.batch_limit:,} rows carry no more")
    found = fewest(enough)
    if found is None:
        return CoresNeeded(what, None, "the fixed part of each batch leaves too little time for rows")
    return CoresNeeded(what, found, f"{cost.row * 1e6:,.3g} µs for each row now, and {cost.fixed:.2g} s for each batch")
