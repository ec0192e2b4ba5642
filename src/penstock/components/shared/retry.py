"""When to try again after a lost connection or a deadlock, and when to give up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Patience:
    """Each wait is twice as long as the one before it."""

    attempts: int = 9
    seconds: float = 60.0
    """Counted from the first failure: what took long before it failed is tried again all the same."""
    first: float = 0.1
    longest: float = 10.0

    def wait(self, attempt: int, elapsed: float) -> float | None:
        """Seconds to wait after an attempt, counted from 1, has failed; None to give up.

        `elapsed` is the time since the first one failed.
        """
        delay = min(self.first * 2.0 ** (attempt - 1), self.longest)
        return None if attempt >= self.attempts or elapsed + delay > self.seconds else delay


def persist(
    action: Callable[[], _T],
    passes: Callable[[Exception], bool],
    patience: Patience,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """What the action gives, tried anew after errors that pass; the last error once patience has ended."""
    failed: float | None = None
    attempt = 0
    while True:
        attempt += 1
        try:
            return action()
        except Exception as error:
            failed = clock() if failed is None else failed
            delay = patience.wait(attempt, clock() - failed) if passes(error) else None
            if delay is None:
                raise
        sleep(delay)
