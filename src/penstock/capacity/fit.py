"""What a batch costs, from batches that were run: a cost for each batch, row, kept row and byte, with error bars.

The time of a batch is taken to be a sum of these costs. Batches that took unusually long, such as during a long garbage
collection, count for less. A term of which nothing can be told apart from the others is left out, and it is said why.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.capacity.least_squares import least_squares
from penstock.errors import PenstockError

LEAST_BATCHES = 30
"""With rows, after the warm-up; fewer say little of what a batch costs and nothing of how sure that is."""
WARM_UP = 60.0
"""Seconds at the beginning of a run in which Java still compiles and caches are empty; they do not count."""
LEAST_SPREAD = 1.5
"""The largest batches must have this many times the rows of the smallest, or cost per batch and per row are one."""
BARS = 1.96
"""How many standard errors an error bar reaches to each side: 95 % of the time the truth is within."""
_ROUNDS = 20
_HUBER = 1.345
_FLAT = 0.01
_ALIKE = 0.98
_LEAST_T = 2.0


@dataclass(frozen=True)
class MeasuredBatch:
    """One batch that was run."""

    run: str
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    rows: int
    rows_out: int = 0
    state_rows: int | None = None
    """Rows of state that were kept after it."""
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    """Bytes of state that it wrote into the checkpoint."""
    commit_seconds: float = 0.0
    """Of its time, what went into Spark's own logs of offsets and commits."""
    sink_seconds: Mapping[str, float] | None = None
    cores: int | None = None


@dataclass(frozen=True)
class Cost:
    """Seconds that one of something adds to a batch; `bar` is how far the truth may be off, with 95 % confidence."""

    term: str
    seconds: float
    bar: float


@dataclass(frozen=True)
class LeftOut:
    term: str
    reason: str


@dataclass(frozen=True)
class CostModel:
    """The time of a batch as a sum of costs."""

    costs: tuple[Cost, ...]
    covariance: tuple[tuple[float, ...], ...]
    left_out: tuple[LeftOut, ...]
    scatter: float
    """By how much a single batch differs from its sum: the standard deviation, as a share of the sum."""
    explained: float
    """How much of the differences between batches the sum explains; 1 is all."""
    batches: int
    skipped: int
    """Batches of warm-ups, and without rows."""
    span: float
    """Seconds from the first batch to the last."""
    smallest: int
    largest: int
    """Rows of the smallest and of the largest batch."""

    def cost(self, term: str) -> float:
        return next((cost.seconds for cost in self.costs if cost.term == term), 0.0)

    def bar(self, amounts: Mapping[str, float]) -> float:
        """How far the mean time of such batches may be off."""
        taken = [amounts.get(cost.term, 0.0) for cost in self.costs]
        variance = sum(
            one * other * self.covariance[i][j] for i, one in enumerate(taken) for j, other in enumerate(taken)
        )
        return BARS * math.sqrt(max(variance, 0.0))

    def seconds(self, amounts: Mapping[str, float]) -> float:
        return sum(cost.seconds * amounts.get(cost.term, 0.0) for cost in self.costs)


BATCH, ROW, ROW_OUT, STATE_ROW, CHECKPOINT_BYTE = "batch", "row", "row out", "row of state", "checkpoint byte"
_TERMS: Mapping[str, Callable[[MeasuredBatch], float | None]] = {
    BATCH: lambda batch: 1.0,
    ROW: lambda batch: float(batch.rows),
    ROW_OUT: lambda batch: float(batch.rows_out),
    STATE_ROW: lambda batch: None if batch.state_rows is None else float(batch.state_rows),
    CHECKPOINT_BYTE: lambda batch: None if batch.checkpoint_bytes is None else float(batch.checkpoint_bytes),
}


def fit(history: Sequence[MeasuredBatch], name: str) -> CostModel:
    """The costs that explain a history best. Raises HISTORY_TOO_SHORT or HISTORY_TOO_EVEN."""
    used = countable(history)
    _refuse_short(used, history, name)
    _refuse_even(used, name)
    terms, left_out = _candidates(used)
    while True:
        found = _fitted(used, terms)
        weakest = None if found is None else _weakest(found, terms)
        if found is not None and weakest is None:
            break
        dropped = weakest or terms[-1]
        if dropped == ROW:
            raise PenstockError.of("HISTORY_TOO_EVEN", name=name, why="rows explain nothing of how long batches took")
        left_out.append(LeftOut(dropped, "no cost of its own can be seen"))
        terms = [term for term in terms if term != dropped]
    return replace(found.model, left_out=tuple(left_out), skipped=len(history) - len(used))


def countable(history: Sequence[MeasuredBatch]) -> list[MeasuredBatch]:
    """The batches with rows that were run by a program that was warm, with the cores of today, in the order of time."""
    begun: dict[str, float] = {}
    for batch in history:
        begun[batch.run] = min(begun.get(batch.run, batch.at), batch.at)
    cores = max(history, key=lambda batch: batch.at).cores if history else None
    warm = [batch for batch in history if batch.rows and batch.seconds > 0 and batch.at - begun[batch.run] >= WARM_UP]
    return sorted((batch for batch in warm if batch.cores == cores), key=lambda batch: batch.at)


def _refuse_short(used: Sequence[MeasuredBatch], history: Sequence[MeasuredBatch], name: str) -> None:
    if len(used) >= LEAST_BATCHES:
        return
    with_rows = sorted(batch.at for batch in history if batch.rows)
    pace = (with_rows[-1] - with_rows[0]) / (len(with_rows) - 1) if len(with_rows) > 1 else 0.0
    missing = LEAST_BATCHES - len(used)
    wait = f"{missing} more batches with rows"
    if pace:
        left = missing * pace + (0.0 if used else max(0.0, WARM_UP - (with_rows[-1] - with_rows[0])))
        wait += f", about {max(1, round(left))} seconds at the pace so far"
    raise PenstockError.of("HISTORY_TOO_SHORT", name=name, found=len(used), least=LEAST_BATCHES, wait=wait)


def _refuse_even(used: Sequence[MeasuredBatch], name: str) -> None:
    """The tenth of the batches at each end does not count, so that one odd batch is not taken for a change of load."""
    rows = sorted(batch.rows for batch in used)
    low, high = rows[len(rows) // 10], rows[-1 - len(rows) // 10]
    if high < low * LEAST_SPREAD:
        why = f"nearly all batches had between {low:,} and {high:,} rows"
        raise PenstockError.of("HISTORY_TOO_EVEN", name=name, why=why)


def _candidates(used: Sequence[MeasuredBatch]) -> tuple[list[str], list[LeftOut]]:
    """The terms that vary, and not in step with the rows."""
    terms, left_out = [BATCH, ROW], []
    rows = [float(batch.rows) for batch in used]
    for term in (ROW_OUT, STATE_ROW, CHECKPOINT_BYTE):
        amounts = [_TERMS[term](batch) for batch in used]
        known = [amount for amount in amounts if amount is not None]
        if len(known) < len(amounts):
            left_out.append(LeftOut(term, "the history does not say how many there were"))
        elif not any(known):
            left_out.append(LeftOut(term, "there were none"))
        elif statistics.pstdev(known) <= _FLAT * statistics.fmean(known):
            left_out.append(LeftOut(term, "there were always as many; their cost is part of the cost of a batch"))
        elif abs(statistics.correlation(rows, known)) >= _ALIKE:
            left_out.append(
                LeftOut(term, "they went up and down with the rows; their cost is part of the cost of a row")
            )
        else:
            terms.append(term)
    return terms, left_out


@dataclass(frozen=True)
class _Fitted:
    model: CostModel
    errors: tuple[float, ...]


def _fitted(used: Sequence[MeasuredBatch], terms: Sequence[str]) -> _Fitted | None:
    """Weights and coefficients in turns: an error is a share of the time of a batch, and outliers count for less."""
    rows = [[_TERMS[term](batch) or 0.0 for term in terms] for batch in used]
    seconds = [batch.seconds for batch in used]
    floor = statistics.median(seconds) / 10
    sums = [statistics.median(seconds)] * len(used)
    doubt = [1.0] * len(used)
    solution = None
    for _ in range(_ROUNDS):
        weights = [trust / max(total, floor) ** 2 for trust, total in zip(doubt, sums, strict=True)]
        solution = least_squares(rows, seconds, weights)
        if solution is None:
            return None
        before, sums = sums, [
            sum(part * value for part, value in zip(solution.coefficients, row, strict=True)) for row in rows
        ]  # fmt: skip
        off = [(took - total) / max(total, floor) for took, total in zip(seconds, sums, strict=True)]
        usual = statistics.median(abs(share) for share in off) / 0.6745 or 1e-12
        doubt = [min(1.0, _HUBER * usual / abs(share)) if share else 1.0 for share in off]
        if max(abs(now - then) / max(now, floor) for now, then in zip(sums, before, strict=True)) < 1e-9:
            break
    assert solution is not None
    return _judged(used, terms, solution.coefficients, solution.covariance, sums, off, doubt)


def _judged(
    used: Sequence[MeasuredBatch],
    terms: Sequence[str],
    coefficients: Sequence[float],
    covariance: Sequence[Sequence[float]],
    sums: Sequence[float],
    off: Sequence[float],
    doubt: Sequence[float],
) -> _Fitted:
    free = max(len(used) - len(terms), 1)
    variance = sum(trust * share * share for trust, share in zip(doubt, off, strict=True)) / free
    variance *= _inflation(off)
    scaled = tuple(tuple(value * variance for value in row) for row in covariance)
    errors = tuple(math.sqrt(scaled[place][place]) for place in range(len(terms)))
    seconds = [batch.seconds for batch in used]
    middle = statistics.median(seconds)
    spread = sum(abs(took - middle) for took in seconds)
    unexplained = sum(abs(took - total) for took, total in zip(seconds, sums, strict=True))
    model = CostModel(
        costs=tuple(
            Cost(term, part, BARS * error) for term, part, error in zip(terms, coefficients, errors, strict=True)
        ),
        covariance=scaled,
        left_out=(),
        scatter=math.sqrt(sum(trust * share * share for trust, share in zip(doubt, off, strict=True)) / free),
        explained=max(0.0, 1 - unexplained / spread) if spread else 0.0,
        batches=len(used),
        skipped=0,
        span=used[-1].at - used[0].at,
        smallest=min(batch.rows for batch in used),
        largest=max(batch.rows for batch in used),
    )
    return _Fitted(model, errors)


def _inflation(off: Sequence[float]) -> float:
    """By how much errors are less certain than they look, as batches after one another tend to be off alike."""
    total = sum(share * share for share in off)
    alike = sum(one * other for one, other in pairwise(off)) / total if total else 0.0
    alike = min(max(alike, 0.0), 0.9)
    return (1 + alike) / (1 - alike)


def _weakest(found: _Fitted, terms: Sequence[str]) -> str | None:
    """The term that says least, if one says too little; nothing costs less than nothing."""
    strength = {
        term: cost.seconds / error if error else math.copysign(math.inf, cost.seconds)
        for term, cost, error in zip(terms, found.model.costs, found.errors, strict=True)
    }
    weak = {term: value for term, value in strength.items() if value < (0.0 if term == BATCH else _LEAST_T)}
    return min(weak, key=lambda term: (term in (BATCH, ROW), weak[term])) if weak else None
