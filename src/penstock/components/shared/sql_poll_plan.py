"""Decides which rows of a polled table make the next batch.

Few rows are fetched at once, sifted and handed over. Of a large backlog only the places are asked for at which it is
cut into ranges, which tasks then read at the same time; that is for settled rows alone, which need no second look.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.components.shared.sql_database import Connection
from penstock.components.shared.sql_poll_position import (
    BEFORE_ALL,
    Position,
    Seen,
    advanced,
    digest,
    earlier,
    noted,
    rank,
    settled_number,
    sift,
    written,
)  # fmt: skip
from penstock.components.shared.sql_poll_query import Bound, Condition, Place, Query, Value
from penstock.components.shared.sql_tables import Order, clock
from penstock.components.shared.sql_values import utc

COUNTED = 1_000_000
"""Rows that wait are counted up to here."""
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times are in UTC without saying so
_NEVER = Condition("1 = 0")
_ALWAYS = Condition("1 = 1")


class Unordered(Exception):
    """Why the values of the order column cannot be used."""


class Changed(Exception):
    """Why a position no longer fits the table."""


@dataclass(frozen=True)
class Range:
    """Rows between two places, the second of which belongs to it."""

    start: Bound | None
    up_to: Place


@dataclass(frozen=True)
class Plan:
    """The rows of a batch, and the position after it."""

    position: Position
    rows: Sequence[Sequence[Any]] = ()
    ranges: tuple[Range, ...] = ()
    more: bool = False
    """Whether rows are left that could be read now."""
    waiting: int = 0

    @property
    def empty(self) -> bool:
        return not self.rows and not self.ranges


@dataclass(frozen=True)
class Moment:
    """What is known of the table when it is looked at."""

    now: dt.datetime
    newest: Value | None
    """The greatest value of the order that is not dated in the future."""
    settled: Value | None
    """Before this value no row will be added."""
    looks: tuple[tuple[float, Value], ...] = ()


_Row = tuple[Any, ...]


@dataclass(frozen=True)
class Planner:
    query: Query
    overlap: dt.timedelta
    piece_rows: int
    """How many rows a task reads of a large backlog."""
    clock: Callable[[Connection], dt.datetime] | None = None
    """For tests; the clock of the database if not given."""

    @property
    def order(self) -> Order:
        return "time" if self.query.order[0].order == "time" else "number"

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(column.name for column in (*self.query.columns, *self.query.order))

    # --- where to begin -----------------------------------------------------------------------------------

    def start(self, connection: Connection, first: str) -> Position:
        """The first position: `earliest`, `latest`, or from a value on."""
        position = Position(tuple(column.name for column in self.query.order), self.identity)
        if first == "earliest":
            return position
        moment = self._moment(connection, position)
        if first != "latest":
            value = written(utc(first), str(moment.newest or "")) if self.order == "time" else int(first)
            return replace(position, low=Bound((value,)))
        if moment.newest is None:
            return position
        found = self._found(connection, position, moment, self.query.compared(">=", moment.newest))
        known = [row for row, _ in found]
        at = next((row.place for row in reversed(known) if not row.future), None)
        return replace(position, low=Bound((moment.newest,)), at=at, seen=Counter(row.digest for row in known))

    def last(self, connection: Connection) -> Value | None:
        """The greatest value of the order that there is now, future or not."""
        return self.query.newest(connection)

    # --- the next batch -----------------------------------------------------------------------------------

    def plan(self, connection: Connection, position: Position, most: int | None, until: Value | None = None) -> Plan:
        """The next rows, at most so many and none beyond `until`; the position moves on even if there are none."""
        self._check(position)
        if not position.seen:
            position = replace(position, identity=self.identity)
        moment = self._moment(connection, position)
        position = replace(position, looks=moment.looks)
        many = self._many(connection, position, moment, COUNTED if most is None else most, until)
        return many or self._few(connection, position, moment, most, until)

    def _check(self, position: Position) -> None:
        order = tuple(column.name for column in self.query.order)
        if position.order != order:
            before, now = ", ".join(position.order), ", ".join(order)
            raise Changed(f"rows were read in the order of {before}, and now it is {now}")
        gone = set(position.identity) - set(self.identity)
        if gone and position.seen:
            raise Changed(f"column {', '.join(sorted(gone))} is no longer read, by which rows were told apart")

    def _from(self, position: Position, until: Value | None = None) -> Condition:
        where = self.query.with_order()
        where = where if position.low is None else where & self.query.since(position.low)
        return where if until is None else where & self.query.compared("<=", until)

    # --- few rows -----------------------------------------------------------------------------------------

    def _few(
        self, connection: Connection, position: Position, moment: Moment, most: int | None, until: Value | None
    ) -> Plan:
        """All rows from the bound on, but those that are known."""
        limit = None if most is None else most + position.seen.total() + 1
        found = self._found(connection, position, moment, self._from(position, until), limit)
        rows = [row for row, _ in found]
        sifted = sift([row.digest for row in rows], position.seen, most)
        new = [found[number][1] for number in sifted.new]
        after = advanced(position, rows, sifted, moment.settled, self.order)
        if not sifted.cut(rows):
            return Plan(self._renamed(after, found), new)
        behind = self.query.with_order() & self.query.behind(rows[sifted.end - 1].place)
        return Plan(after, new, more=True, waiting=self.query.count(connection, behind, COUNTED))

    def _found(
        self, connection: Connection, position: Position, moment: Moment, where: Condition, limit: int | None = None
    ) -> list[tuple[Seen, _Row]]:
        """Rows as they are, in order, with what matters of them."""
        flags = (
            _ALWAYS if position.at is None else self.query.behind(position.at),
            _NEVER if moment.settled is None else self.query.compared("<", moment.settled),
            self._in_future(moment),
        )
        columns = list(self.identity)
        taken = [columns.index(name) for name in position.identity]
        whole = taken == list(range(len(columns)))
        width = len(self.query.columns)
        found = []
        for row in self.query.rows(connection, where, flags, limit):
            values, (beyond, settled, future) = row[:-3], row[-3:]
            identity = digest(values if whole else [values[number] for number in taken])
            found.append((Seen(values[width:], identity, bool(beyond), bool(settled), bool(future)), values))
        return found

    def _renamed(self, position: Position, found: Sequence[tuple[Seen, _Row]]) -> Position:
        """The position with digests of the columns that are read now; before, there may have been others."""
        if position.identity == self.identity:
            return position
        left, seen = Counter(position.seen), Counter[bytes]()
        for row, values in reversed(found):
            if left[row.digest] > 0:
                left[row.digest] -= 1
                seen[digest(values)] += 1
        return replace(position, identity=self.identity, seen=seen)

    # --- a large backlog ----------------------------------------------------------------------------------

    def _many(
        self, connection: Connection, position: Position, moment: Moment, most: int, until: Value | None
    ) -> Plan | None:
        """Ranges of settled rows behind all that are read; None if they are few."""
        if moment.settled is None:
            return None
        ahead = self._from(position, until) & self.query.compared("<", moment.settled)
        ahead = ahead if position.at is None else ahead & self.query.behind(position.at)
        cuts, total = self.query.cuts(connection, ahead, self.piece_rows, most)
        late = self._late(connection, position, moment, most) if total >= 2 * self.piece_rows else None
        if late is None:
            return None
        rows, left = late
        if rows:
            cuts, total = self.query.cuts(connection, ahead, self.piece_rows, most - len(rows))
        if not cuts:
            return None
        first = position.low if position.at is None else Bound(position.at, after=True)
        starts = [first, *(Bound(cut, after=True) for cut in cuts[:-1])]
        ranges = tuple(
            Range(start, cut)
            for start, cut in zip(starts, cuts, strict=True)
            if start is None or start.values != cut or not start.after
        )
        waiting = 0
        if total + len(rows) >= most:
            behind = self.query.with_order() & self.query.behind(cuts[-1])
            waiting = self.query.count(connection, behind, COUNTED)
        after = replace(position, low=Bound(cuts[-1], after=True), at=cuts[-1], seen=left)
        return Plan(after, rows, ranges, more=True, waiting=waiting)

    def _late(
        self, connection: Connection, position: Position, moment: Moment, most: int
    ) -> tuple[Sequence[_Row], Counter[bytes]] | None:
        """A last look at what is read, all of which is settled now: the rows that came late, and what was not found.

        None if there are too many of them.
        """
        if position.at is None:
            return [], position.seen
        where = self._from(position) & self.query.up_to(position.at)
        found = self._found(connection, position, moment, where, most + position.seen.total() + 1)
        sifted = sift([row.digest for row, _ in found], position.seen, most)
        if sifted.end < len(found):
            return None
        return [found[number][1] for number in sifted.new], sifted.left

    # --- time ---------------------------------------------------------------------------------------------

    def _moment(self, connection: Connection, position: Position) -> Moment:
        now = clock(self.query.database, connection) if self.clock is None else self.clock(connection)
        newest = self.query.newest(connection)
        if newest is None:
            return Moment(now, None, None, position.looks)
        return (
            self._by_time(connection, now, newest) if self.order == "time" else self._by_number(position, now, newest)
        )

    def _by_number(self, position: Position, now: dt.datetime, newest: Value) -> Moment:
        try:
            finite = Decimal(str(newest)).is_finite()
        except InvalidOperation:
            finite = False
        if not finite:
            raise Unordered(f"'{newest}' in column '{self.query.order[0].name}' is no number")
        seconds, overlap = (now - _EPOCH).total_seconds(), self.overlap.total_seconds()
        looks = noted(position.looks, seconds, newest, overlap)
        return Moment(now, newest, settled_number(looks, seconds, overlap), looks)

    def _by_time(self, connection: Connection, now: dt.datetime, newest: Value) -> Moment:
        if not BEFORE_ALL < rank(newest, "time") <= now:
            newest = self.query.newest(connection, self.query.compared("<=", written(now, str(newest))))
        if newest is None:
            return Moment(now, None, None)
        try:
            return Moment(now, newest, earlier(newest, self.overlap))
        except (ValueError, TypeError):
            raise Unordered(f"'{newest}' in column '{self.query.order[0].name}' is no time in ISO 8601") from None

    def _in_future(self, moment: Moment) -> Condition:
        if self.order == "number":
            return _NEVER
        if moment.newest is None:
            return _ALWAYS
        return self.query.compared(">", written(moment.now, moment.newest))
