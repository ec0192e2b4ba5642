"""How many rows the next batch may take in: pure arithmetic, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_ROWS = 1_000
"""With what an adaptive source begins, and below which it is never taken."""
_LIMITED = 0.9
_FASTER, _SLOWER = 2.0, 0.5
_FORGETTING = 0.7
_ALIKE = 0.05
_FIRST_SHARE = 0.2
_FIXED_SHARE = 3.0
"""How many times as long as its fixed costs a batch may take, if that is longer than the goal."""
LEAST_SECONDS = 1.0
"""Batches are not cut shorter than this: what each costs besides its rows would outweigh them."""


@dataclass(frozen=True)
class Seen:
    """What became of a batch."""

    rows: int
    """Or files, if that is what is counted."""
    seconds: float
    troubled: bool
    """Whether a sink had to try again."""


def paced(rows_per_second: int, trigger_seconds: float, last_seconds: float) -> int:
    """The rows of the next batch, such that with its time they are at most so many a second.

    The next batch comes when the trigger's time has passed, or at once if the last one took longer.
    """
    return max(int(rows_per_second * max(trigger_seconds, last_seconds)), 1)


@dataclass(frozen=True)
class Pace:
    """How many rows are allowed, and what is known of the time they take: some for each row, and some for a batch."""

    allowed: int
    least: int = FIRST_ROWS
    per_row: float | None = None
    """Seconds; None before anything was seen."""
    weight: float = 0.0
    sums: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Of rows, seconds, rows squared, and rows times seconds; what is older counts less."""

    def after(self, seen: Seen, goal_seconds: float) -> Pace:
        """What is allowed next: about as much as takes the time aimed at, found step by step.

        Halved when a sink was in trouble. Raised at most twofold, and only if the batch used what was allowed; lowered
        at most by half, so that one slow batch does not stop everything. Where a batch costs much besides its rows,
        the time aimed at is so long that most of it goes into rows.
        """
        if seen.troubled:
            return replace(self, allowed=max(int(self.allowed * _SLOWER), self.least))
        if seen.rows <= 0 or seen.seconds <= 0:
            return self
        known = self._learnt(seen)
        limited = seen.rows >= self.allowed * _LIMITED
        if not limited and seen.seconds <= goal_seconds:
            return known
        assert known.per_row is not None
        fixed = max(seen.seconds - known.per_row * seen.rows, 0.0)
        target = max(goal_seconds, _FIXED_SHARE * fixed)
        lowest, highest = self.allowed * _SLOWER, self.allowed * (_FASTER if limited else 1.0)
        wanted = (target - fixed) / known.per_row if known.per_row > 0 else highest
        return replace(known, allowed=max(int(min(max(wanted, lowest), highest)), self.least))

    def _learnt(self, seen: Seen) -> Pace:
        """With the time of a row as the batches seen so far tell it, the last ones above all."""
        rows, seconds = float(seen.rows), seen.seconds
        weight = self.weight * _FORGETTING + 1.0
        new = (rows, seconds, rows * rows, rows * seconds)
        sums = tuple(old * _FORGETTING + value for old, value in zip(self.sums, new, strict=True))
        mean_rows, mean_seconds = sums[0] / weight, sums[1] / weight
        spread = sums[2] / weight - mean_rows**2
        if spread > (_ALIKE * mean_rows) ** 2:
            slope = (sums[3] / weight - mean_rows * mean_seconds) / spread
            per_row = min(max(slope, 0.0), seconds / rows)
        else:
            # Batches of one size do not tell what a row costs. At first most is taken to be the batch's own.
            per_row = min(_FIRST_SHARE * seconds / rows if self.per_row is None else self.per_row, seconds / rows)
        return replace(self, per_row=per_row, weight=weight, sums=(sums[0], sums[1], sums[2], sums[3]))
