"""What savepoints are called, how old the last one is, and which of those that a pipeline took by itself are kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Protocol


class Taken(Protocol):
    """As much of a savepoint as its age and its end depend on."""

    @property
    def name(self) -> str: ...
    @property
    def created_at(self) -> dt.datetime: ...
    @property
    def automatic(self) -> bool: ...


def new_name(now: dt.datetime, known: Collection[str], *, automatic: bool = False) -> str:
    """A name that tells when it was taken and that no other has."""
    stem = f"{'auto-' if automatic else ''}{now.astimezone(dt.UTC):%Y%m%dT%H%M%SZ}"
    numbered = (f"{stem}-{number}" for number in range(2, len(known) + 3))
    return next(name for name in (stem, *numbered) if name not in known)


def age_of_last(taken: Iterable[Taken], since: dt.datetime, now: dt.datetime) -> dt.timedelta:
    """For how long the pipeline has taken none by itself, at most since it runs; of one yet to come, no time."""
    last = max((one.created_at for one in taken if one.automatic), default=since)
    return max(now - last, dt.timedelta())


def superfluous(taken: Iterable[Taken], keep: int) -> list[str]:
    """The names of those that go, the oldest first: of the pipeline's own ones all but the newest so many."""
    own = sorted((one for one in taken if one.automatic), key=lambda one: (one.created_at, one.name))
    return [one.name for one in own[: max(len(own) - keep, 0)]]
