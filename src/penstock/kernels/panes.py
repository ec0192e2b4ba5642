"""Windows over panes: event time is cut into panes so fine that every window is made of whole ones.

Windows and panes are numbered from 1970 on: window k starts at k · slide, pane p at p · width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from penstock.kernels.columns import placed, ranges, sort_order
from penstock.kernels.spans import Groups, Spans

Number = TypeVar("Number", int, np.ndarray)


@dataclass(frozen=True)
class Panes:
    """Windows of one size, in microseconds, a new one each `slide`."""

    size: int
    slide: int

    @property
    def width(self) -> int:
        """How long a pane is."""
        return math.gcd(self.size, self.slide)

    @property
    def per_window(self) -> int:
        return self.size // self.width

    @property
    def step(self) -> int:
        """How many panes lie between the starts of two windows."""
        return self.slide // self.width

    def first_window(self, pane: Number) -> Number:
        """The first window that has a pane."""
        return (pane - self.per_window) // self.step + 1

    def last_window(self, pane: Number) -> Number:
        return pane // self.step

    def closed_by(self, watermark: int) -> int:
        """The last window that has ended by a watermark."""
        return (watermark - self.size) // self.slide

    def end(self, window: int) -> int:
        return window * self.slide + self.size

    def panes_of(self, first: int, last: int | None = None) -> tuple[int, int]:
        """The first pane of a window, and the one after the last pane of that or of a later window."""
        last = first if last is None else last
        return first * self.step, last * self.step + self.per_window


@dataclass(frozen=True)
class PaneRows:
    """Rows by key and pane, several may be of one pane."""

    panes: Panes
    codes: np.ndarray
    pane: np.ndarray
    order: np.ndarray
    """Where the rows were before they were sorted."""
    axis: np.ndarray
    """The panes there are, and maybe more."""
    packed: np.ndarray
    """Key and pane in one ascending number."""

    @classmethod
    def sorted(cls, panes: Panes, codes: np.ndarray, keys: int, pane: np.ndarray) -> PaneRows:
        axis, places = placed(pane)
        packed = codes * (len(axis) + 1) + places
        order = sort_order(packed, keys * (len(axis) + 1))
        return cls(panes, codes[order], pane[order], order, axis, packed[order])

    def all_windows(self, first: int, last: int) -> tuple[Spans, np.ndarray]:
        """The windows from `first` to `last` that have rows, by key and window: their rows, and their numbers."""
        begin = np.maximum(self.panes.first_window(self.pane), first)
        end = np.minimum(self.panes.last_window(self.pane), last) + 1
        same = self.codes[1:] == self.codes[:-1]
        # A row is the first one of the windows that the row before is not in, and the last one likewise.
        starts, stops = begin.copy(), end.copy()
        before = self.panes.last_window(self.pane[:-1]) + 1
        starts[1:] = np.where(same, np.maximum(begin[1:], before), begin[1:])
        after = self.panes.first_window(self.pane[1:])
        stops[:-1] = np.where(same, np.minimum(end[:-1], after), end[:-1])
        rows = np.arange(len(self.pane))
        lo = np.repeat(rows, np.maximum(end - starts, 0))
        hi = np.repeat(rows + 1, np.maximum(stops - begin, 0))
        return Spans(lo, hi, len(rows)), ranges(starts, end)

    def windows(self, codes: np.ndarray, windows: np.ndarray) -> Spans:
        """The rows of some windows of some keys. They must be sorted by key and window, and have rows."""
        width, first = len(self.axis) + 1, windows * self.panes.step
        lo, hi = (
            np.searchsorted(self.packed, codes * width + np.searchsorted(self.axis, pane))
            for pane in (first, first + self.panes.per_window)
        )
        return Spans(lo, hi, len(self.pane))


def touched_windows(
    panes: Panes, codes: np.ndarray, pane: np.ndarray, since: np.ndarray, last: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The windows rows are in, each row from its window `since` on, none after `last`: keys and windows, sorted."""
    begin = np.maximum(panes.first_window(pane), since)
    end = panes.last_window(pane) + 1
    if last is not None:
        end = np.minimum(end, last + 1)
    keys = np.repeat(codes, np.maximum(end - begin, 0))
    axis, places = placed(ranges(begin, end))
    width = max(len(axis), 1)
    pairs = Groups(keys * width + places, (int(codes.max(initial=0)) + 1) * width).numbers
    return pairs // width, axis[pairs % width]
