"""How far a polled table has been read, and what one more look at it changes: pure functions over places and digests.

Rows are read in the order of a time or a number, but become visible when their transactions commit, which may be
later. So a position is a lower bound and the rows read at or above it: a look takes all rows from the bound on and
leaves out those it knows. The bound follows the rows that are *settled*, which means that no transaction can add
any before them: they are older than the newest row by more than the overlap.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from penstock.components.shared.sql_poll_query import Bound, Place, Value
from penstock.components.shared.sql_tables import Order
from penstock.components.shared.sql_values import utc

DIGEST = 16
BEFORE_ALL = dt.datetime.min  # noqa: DTZ901 - times are in UTC here, without saying so
_SPACING = 20
"""Into how many parts an overlap is divided by the looks that are remembered."""


@dataclass(frozen=True)
class Position:
    """How far a table has been read."""

    order: tuple[str, ...]
    """The columns its values belong to."""
    identity: tuple[str, ...]
    """The columns of which digests are made."""
    low: Bound | None = None
    """All rows before it are read, and there will be no more of them. None if nothing is known yet."""
    at: Place | None = None
    """Behind it no row has been read, but for some that are dated in the future."""
    looks: tuple[tuple[float, Value], ...] = ()
    """For an order by number: when the table was looked at, in seconds, and the greatest number then."""
    seen: Counter[bytes] = field(default_factory=Counter)
    """Digests of the rows at or behind the bound that are read, with how many there are of each."""


@dataclass(frozen=True)
class Seen:
    """One row as it was found: all that matters of it here."""

    place: Place
    digest: bytes
    beyond: bool
    """Whether it stands behind the position's `at`."""
    settled: bool
    future: bool


@dataclass(frozen=True)
class Sifted:
    """Which of the rows found are new."""

    new: tuple[int, ...]
    end: int
    """Rows from here on were not taken, as there are enough."""
    left: Counter[bytes]
    """What is remembered and was not found."""

    def cut(self, rows: Sequence[Seen]) -> bool:
        return self.end < len(rows)


def digest(values: Sequence[Any]) -> bytes:
    """A row in sixteen bytes."""
    return hashlib.blake2b(repr(tuple(values)).encode(errors="surrogatepass"), digest_size=DIGEST).digest()


def sift(digests: Sequence[bytes], seen: Counter[bytes], most: int | None) -> Sifted:
    """Tells new rows from known ones, in order, until there are enough; equal rows count one by one."""
    left, new = Counter(seen), list[int]()
    for number, found in enumerate(digests):
        if left[found] > 0:
            left[found] -= 1
        elif most is not None and len(new) >= most:
            return Sifted(tuple(new), number, +left)
        else:
            new.append(number)
    return Sifted(tuple(new), len(digests), +left)


def advanced(position: Position, rows: Sequence[Seen], sifted: Sifted, settled: Value | None, order: Order) -> Position:
    """The position after the rows before the end are read; `settled` is the value before which all is settled."""
    cut = sifted.cut(rows)
    taken = rows[: sifted.end]
    at = next((row.place for row in reversed(taken) if row.beyond and not row.future), position.at)
    # Before the first row that was not taken, all are read; without one, all that there are.
    edge = rows[sifted.end].place[0] if cut and rows[sifted.end].settled else None
    wanted = settled if edge is None else edge
    low, kept = position.low, taken
    if wanted is not None and (low is None or rank(wanted, order) > rank(low.values[0], order)):
        low = Bound((wanted,))
        kept = [row for row in taken if (not row.settled if edge is None else row.place[0] == edge)]
    seen = Counter(row.digest for row in kept)
    # What was not found is gone, unless it lies behind the end.
    return replace(position, low=low, at=at, seen=seen + sifted.left if cut else seen)


def rank(value: Value, order: Order) -> Any:
    """A value of the first column of the order as it can be compared here."""
    if order == "number":
        return Decimal(str(value))
    try:
        return utc(str(value))
    except ValueError:
        # Databases have times that Python has not; those that are not in the future come before all others.
        return BEFORE_ALL


def earlier(newest: str, overlap: dt.timedelta) -> str:
    """The time that is older than another by the overlap, written in the same way; raises ValueError."""
    moment = utc(newest)
    return written(moment - overlap if moment - BEFORE_ALL > overlap else BEFORE_ALL, newest)


def written(moment: dt.datetime, like: str) -> str:
    """A moment in the way a column writes times, of which one is given.

    It is no greater than any text of that moment, so that texts compare as their times do.
    """
    if len(like) == len("2024-01-01"):
        return moment.date().isoformat()
    sign, places = "T" if like[10:11] == "T" else " ", len("2024-01-01 00:00")
    if len(like) == places:
        return moment.isoformat(sep=sign)[:places]
    return moment.isoformat(sep=sign).rstrip("0").rstrip(".") if moment.microsecond else moment.isoformat(sep=sign)


def noted(
    looks: tuple[tuple[float, Value], ...], now: float, newest: Value | None, overlap: float
) -> tuple[tuple[float, Value], ...]:
    """The looks that matter: the last one that is as old as the overlap, and younger ones."""
    if newest is not None and (not looks or now - looks[-1][0] >= overlap / _SPACING):
        looks = (*looks, (now, newest))
    old = [look for look in looks if look[0] <= now - overlap]
    return (*old[-1:], *(look for look in looks if look[0] > now - overlap))


def settled_number(looks: tuple[tuple[float, Value], ...], now: float, overlap: float) -> Value | None:
    """The greatest number when the table was looked at that long ago: who had a lower one has committed since."""
    return next((value for when, value in reversed(looks) if when <= now - overlap), None)
