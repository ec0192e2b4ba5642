"""Rows kept in runs: chunks that are written once, and found by time without being read.

A run is filed under the segment of event time its newest row falls into, so that it can be removed whole when that
segment is over. Small runs of one segment are merged when several have gathered, and all of them when the segment is
over; a row is written a few times at most, and there are never many runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_KINDS = 4
_RUNS = 1 << 10
_GATHERED = 3
_FEW = 8


@dataclass(frozen=True)
class Shelf:
    """How the runs of one kind are numbered: by segment of time, then by a number of their own."""

    kind: int
    """Between 1 and 3. Chunk 0 is no run."""
    width: int
    """Of a segment, in microseconds."""

    def on(self, numbers: Iterable[int]) -> list[int]:
        """Those chunks that are runs of this kind, the oldest segment first."""
        return sorted(number for number in numbers if number % _KINDS == self.kind)

    def end(self, number: int) -> int:
        """A time all rows of the run are before."""
        return (_segment(number) + 1) * self.width

    def place(self, newest: int, rows: int, present: Mapping[int, int], span: int = 1) -> tuple[int, list[int]]:
        """The number of a new run with so many rows, and which of the present runs to merge into it.

        Present runs are given with how many rows they have. Those of its segment, or of the same `span` segments, are
        merged when there are several no bigger than the new one, counting in powers of four.
        """
        segment = newest // self.width
        near = {number: size for number, size in present.items() if _segment(number) // span == segment // span}
        merged: list[int] = []
        while True:
            alike = [number for number, size in near.items() if _magnitude(size) <= _magnitude(rows)]
            if len(alike) < _GATHERED:
                break
            rows += sum(near.pop(number) for number in alike)
            merged += alike
        first = max([segment, *map(_segment, merged)]) * _KINDS * _RUNS + self.kind
        free = next(number for number in range(first, first + _KINDS * _RUNS, _KINDS) if number not in near)
        return free, sorted(merged)

    def spread(self, oldest: int, newest: int) -> int:
        """How many segments to take together to have few between two times: a power of two, so as to change seldom."""
        return 1 << ((newest - oldest) // self.width // _FEW).bit_length()

    def crowded(self, newest: int, present: Iterable[int]) -> list[int]:
        """Runs of one segment that is over, if there are several: they are to be one from now on."""
        earlier: dict[int, list[int]] = {}
        for number in sorted(present):
            segment = _segment(number)
            if segment < newest // self.width:
                earlier.setdefault(segment, []).append(number)
        return next((runs for runs in earlier.values() if len(runs) > _GATHERED), [])


def _segment(number: int) -> int:
    return number // (_KINDS * _RUNS)


def _magnitude(rows: int) -> int:
    return rows.bit_length() // 2
