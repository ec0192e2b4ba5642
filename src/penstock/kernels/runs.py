"""State that grows by small parts: chunks are runs of rows, each over a stretch of event time.

Event time is cut into places. A run covers 1, 2, 4, … of them, as many as it takes to have a chunk worth keeping, and
is cut in halves when it grows. A small run is merged into others of its stretch only when they are not much bigger, so
that a row is written a few times in its life and not once for each batch. A run is dropped when its stretch is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.kernels.base import State
from penstock.kernels.columns import changes

META = -(1 << 62)
"""The number of the one chunk that is no run."""
_BITS = 4
_WIDEST = (1 << _BITS) - 1
_ENOUGH = 4096
"""A run with more rows is worth being cut."""


@dataclass(frozen=True)
class Stretch:
    """Places `block` · 2^`level` up to, not with, (`block` + 1) · 2^`level`."""

    block: int
    level: int

    @property
    def start(self) -> int:
        return self.block << self.level

    @property
    def stop(self) -> int:
        return (self.block + 1) << self.level

    def number(self, rows: int) -> int:
        """The number of a chunk over it. It says how many rows there are, roughly: sizes grow by the factor four."""
        return (((self.block << _BITS) | self.level) << _BITS) | (rows.bit_length() // 2)

    @classmethod
    def of(cls, number: int) -> Stretch:
        rest = number >> _BITS
        return cls(rest >> _BITS, rest & _WIDEST)


@dataclass
class Runs:
    """The runs of a bucket during one advance: what is there, what is written, and what is dropped."""

    state: State
    merge: Callable[[pa.Table], pa.Table]
    """Makes one row of those that belong together, and leaves out those that are over."""
    place: Callable[[pa.Table], np.ndarray]
    """The places of rows."""
    put: dict[int, pa.Table] = field(default_factory=dict)
    drop: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._held: dict[Stretch, set[int]] = {}
        self._read: dict[int, pa.Table] = {}
        for number in self.state:
            if number != META:
                self._held.setdefault(Stretch.of(number), set()).add(number)

    def extents(self, since: int) -> list[tuple[int, int]]:
        """For each run the first place from `since` on and the last it has rows of, or may have if it was not read."""
        found = []
        for stretch, numbers in self._held.items():
            for number in numbers:
                if (table := self._known(number)) is None:
                    found.append((max(stretch.start, since), stretch.stop - 1))
                    continue
                place = self.place(table)
                found.append((int(place[place >= since].min()), int(place.max())))
        return found

    def read(self, low: int, high: int) -> list[pa.Table]:
        """The runs that may have rows of places from `low` up to, not with, `high`."""
        wanted = [numbers for one, numbers in self._held.items() if one.start < high and one.stop > low]
        return [self._table(number) for number in sorted(number for numbers in wanted for number in numbers)]

    def read_all(self) -> list[pa.Table]:
        return [
            self._table(number) for number in sorted(number for numbers in self._held.values() for number in numbers)
        ]

    def store(self, rows: pa.Table) -> None:
        """Adds merged rows."""
        if not rows.num_rows:
            return
        place = self.place(rows)
        order = np.argsort(place, kind="stable")
        spread = int(place[order[-1]] - place[order[0]])
        level = min(spread.bit_length(), _WIDEST)
        self._cut(rows.take(pa.array(order)), place[order], level)

    def _cut(self, rows: pa.Table, place: np.ndarray, level: int) -> None:
        blocks = place >> level
        for start, stop in pairwise([*np.flatnonzero(changes(blocks)), len(blocks)]):
            self._add(Stretch(int(blocks[start]), level), rows.slice(start, stop - start))

    def _add(self, stretch: Stretch, rows: pa.Table) -> None:
        number = stretch.number(rows.num_rows)
        while smaller := [other for other in self._held.get(stretch, ()) if other <= number]:
            rows = self.merge(
                pa.concat_tables([rows, *(self._table(other) for other in sorted(smaller))]).combine_chunks()
            )
            self._remove(smaller)
            number = stretch.number(rows.num_rows)
        if rows.num_rows > _ENOUGH and stretch.level:
            place = self.place(rows)
            order = np.argsort(place, kind="stable")
            self._cut(rows.take(pa.array(order)), place[order], stretch.level - 1)
        elif rows.num_rows:
            self._held.setdefault(stretch, set()).add(number)
            self.put[number] = rows
            self.drop.discard(number)

    def forget(self, before: int) -> None:
        """Drops the runs that, as far as is known, are only of places before one."""
        for stretch, numbers in list(self._held.items()):
            for number in list(numbers):
                table = self._known(number)
                if stretch.stop <= before or (table is not None and int(self.place(table).max()) < before):
                    self._remove([number])

    def forget_all(self) -> None:
        for numbers in list(self._held.values()):
            self._remove(list(numbers))

    def _known(self, number: int) -> pa.Table | None:
        return self.put[number] if number in self.put else self._read.get(number)

    def _table(self, number: int) -> pa.Table:
        table = self._known(number)
        if table is None:
            table = self._read[number] = self.state[number]
        return table

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            stretch = Stretch.of(number)
            self._held[stretch].discard(number)
            if not self._held[stretch]:
                del self._held[stretch]
            self.put.pop(number, None)
            if number in self.state:
                self.drop.add(number)
