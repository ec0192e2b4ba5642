"""How many rows the next batch may take in: pure arithmetic, without Spark."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_ROWS = 1_000
"""With what an adaptive source begins, and below which it is never taken."""
_LIMITED = 0.9
_FASTER, _SLOWER = 2.0, 0.5
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


def adapted(allowed: int, seen: Seen, goal_seconds: float, least: int = FIRST_ROWS) -> int:
    """What is allowed next: about as much as can be done in the time, found step by step.

    Halved when a sink was in trouble. Raised at most twofold, and only if the batch used what was allowed; a batch
    that took too long lowers it, at most by half, so that one slow batch does not stop everything.
    """
    if seen.troubled:
        return max(int(allowed * _SLOWER), least)
    limited = seen.rows >= allowed * _LIMITED
    if seen.rows <= 0 or seen.seconds <= 0 or (not limited and seen.seconds <= goal_seconds):
        return max(allowed, least)
    fitting = seen.rows * goal_seconds / seen.seconds
    highest = allowed * _FASTER if limited else allowed
    return max(int(min(max(fitting, allowed * _SLOWER), highest)), least)
