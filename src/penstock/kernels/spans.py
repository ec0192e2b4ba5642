"""Results made of neighbouring rows: groups after sorting, and windows that share rows with each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from penstock.kernels.columns import changes, ranges, sort_order

_PIECE = 1 << 20


@dataclass(frozen=True)
class Spans:
    """Result i is made of rows `lo[i]` up to, not with, `hi[i]`. Both ascend; a row may be in many results or none."""

    lo: np.ndarray
    hi: np.ndarray
    rows: int
    """How many rows there are."""

    @classmethod
    def of_equal(cls, values: np.ndarray) -> Spans:
        """A span for each run of equal values."""
        lo = np.flatnonzero(changes(values))
        return cls(lo, np.append(lo[1:], len(values))[: len(lo)], len(values))

    def __len__(self) -> int:
        return len(self.lo)

    @cached_property
    def apart(self) -> bool:
        """Whether every row is in exactly one result."""
        if not len(self):
            return not self.rows
        whole = self.lo[0] == 0 and self.hi[-1] == self.rows
        return bool(whole and np.array_equal(self.lo[1:], self.hi[:-1]))

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.asarray(self.hi - self.lo)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sums of integers. A total over all rows may go round; a sum that fits is right all the same."""
        running = np.zeros(self.rows + 1, np.int64)
        np.cumsum(values, out=running[1:])
        return np.asarray(running[self.hi] - running[self.lo])

    def sum_floats(self, values: np.ndarray) -> np.ndarray:
        return self._reduced(np.add, values)

    def least(self, values: np.ndarray) -> np.ndarray:
        return self._reduced(np.minimum, values)

    def greatest(self, values: np.ndarray) -> np.ndarray:
        return self._reduced(np.maximum, values)

    def _reduced(self, operation: np.ufunc, values: np.ndarray) -> np.ndarray:
        if not len(self):
            return values[:0]
        if self.apart:
            return np.asarray(operation.reduceat(values, self.lo))
        # Every second result is of what lies between two spans and is thrown away; a place after the last row must be.
        bounds = np.empty(2 * len(self), np.int64)
        bounds[0::2], bounds[1::2] = self.lo, self.hi
        return np.asarray(operation.reduceat(np.append(values, values[-1:]), bounds)[0::2])

    @cached_property
    def spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Every pair of a row and a result it is in, by result: the rows, and the results."""
        results = np.repeat(np.arange(len(self)), self.sizes)
        return (np.arange(self.rows) if self.apart else ranges(self.lo, self.hi)), results

    @cached_property
    def results_of_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """For each row the first result it is in, and the one after the last."""
        rows = np.arange(self.rows)
        return np.searchsorted(self.hi, rows, side="right"), np.searchsorted(self.lo, rows, side="right")

    def pieces(self, weights: np.ndarray | None = None) -> Iterator[tuple[slice, slice, Spans]]:
        """Cuts into parts that fit into memory: which results, which rows, and the spans among them.

        `weights` are the costs of the rows, for what has to be spread over results.
        """
        if not len(self):
            return
        cost = np.arange(1, len(self) + 1) if weights is None else np.cumsum(self.sum(weights) + 1)
        start = 0
        while start < len(self):
            before = int(cost[start - 1]) if start else 0
            stop = max(int(np.searchsorted(cost, before + _PIECE, side="right")), start + 1)
            first, last = int(self.lo[start]), int(self.hi[stop - 1])
            spans = Spans(self.lo[start:stop] - first, self.hi[start:stop] - first, last - first)
            yield slice(start, stop), slice(first, last), spans
            start = stop


class Grouped(Protocol):
    """Rows by group."""

    @property
    def order(self) -> np.ndarray:
        """The rows, by group."""

    @property
    def spans(self) -> Spans:
        """The groups among the ordered rows."""

    @property
    def sizes(self) -> np.ndarray:
        """How many rows each group has."""


class Groups:
    """Rows by a number each, from 0 up to `bound`. Groups are in the order of their numbers."""

    def __init__(self, packed: np.ndarray, bound: int) -> None:
        self._packed = packed
        self._bound = bound
        if bound <= 8 * len(packed) + 1024:
            counts = np.bincount(packed, minlength=1)
            self.numbers = np.flatnonzero(counts)
            self.sizes = counts[self.numbers]
        else:
            ordered = packed[self.order]
            starts = np.flatnonzero(changes(ordered))
            self.numbers = ordered[starts]
            self.sizes = np.diff(np.append(starts, len(packed)))

    @cached_property
    def order(self) -> np.ndarray:
        """The rows, by group."""
        return sort_order(self._packed, self._bound)

    @cached_property
    def spans(self) -> Spans:
        """The groups among the ordered rows."""
        ends = np.cumsum(self.sizes)
        return Spans(ends - self.sizes, ends, len(self._packed))
