"""Aggregates over trailing intervals of sorted columns: for a row at time t, over all rows of its key in (t − over, t].

Everything is done for all rows at once. Rows are brought together by key, in time order, so that each interval is a
range of places; what an aggregate needs from a range is then a difference of running totals, or the least of a range.
No step costs more for a key with many rows than for many keys with few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.columns import sort_order

Ints = NDArray[Any]
"""Integers of any width."""
Bools = NDArray[np.bool_]


def time_order(times: Ints) -> Ints | None:
    """The order that sorts times, equal ones as they come; None if they are sorted."""
    if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
        return None
    least = int(times.min())
    span = int(times.max()) - least + 1
    return sort_order(times - least, span)


@dataclass(frozen=True)
class Intervals:
    """Rows by key and time, and for some of them, those asked about, the range of places of their interval."""

    over: int
    rows: Ints
    """At each place the number of the row there: first by key, then by time."""
    axis: NDArray[np.int64]
    """At each place its time on one axis for all keys, on which different keys are at least `over` apart."""
    asked: Ints
    """The places of the rows asked about, ascending."""
    first: Ints
    """For each row asked about, the first place of its interval."""
    end: Ints
    """For each row asked about, the place after the last of its interval."""

    @cached_property
    def moments(self) -> Ints:
        """The first place of each run of rows with the same key and time."""
        return np.flatnonzero(np.append(True, self.axis[1:] != self.axis[:-1]))


def most_keys(time: Ints, over: int) -> int:
    """How many keys may be looked at together; times are sorted."""
    return max(((1 << 62) - 1) // (int(time[-1]) - int(time[0]) + over), 1)


def intervals(key: Ints, keys: int, time: Ints, asked: Bools, over: int) -> Intervals:
    """The intervals of the rows asked about; rows come in time order, with keys as integers in [0, keys)."""
    rows = sort_order(key, keys)
    length = int(time[-1]) - int(time[0]) + over
    axis = (key.astype(np.int64) * length + (time - time[0]))[rows]
    places = np.flatnonzero(asked[rows])
    own = axis[places]
    first, end = np.searchsorted(axis, own - over, side="right"), np.searchsorted(axis, own, side="right")
    return Intervals(over, rows, axis, places, first, end)


def running(values: NDArray[np.int64] | Bools) -> NDArray[np.int64]:
    """Totals of the values before each place, and of all."""
    totals = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=totals[1:])
    return totals


def trailing_sum(ranges: Intervals, values: NDArray[np.int64] | Bools) -> NDArray[np.int64]:
    """The sum of integers by place over each interval, exact as long as it fits 64 bits."""
    totals = running(values)
    return totals[ranges.end] - totals[ranges.first]


def trailing_count(ranges: Intervals, valid: Bools | None) -> NDArray[np.int64]:
    """How many valid rows each interval has."""
    return (ranges.end - ranges.first).astype(np.int64) if valid is None else trailing_sum(ranges, valid)


def trailing_least(ranges: Intervals, values: Ints) -> Ints:
    """The least of the values by place over each interval.

    The least of 1, 2, 4, … values from each place on, step by step; an interval is covered by two of the longest that
    fit into it.
    """
    length = ranges.end - ranges.first
    level = np.frexp(length.astype(np.float64))[1] - 1
    result = np.empty(len(length), values.dtype)
    step = 1
    for reached in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == reached)
        if len(chosen):
            result[chosen] = np.minimum(values[ranges.first[chosen]], values[ranges.end[chosen] - step])
        values = np.minimum(values[:-step], values[step:])
        step *= 2
    return result


def trailing_first(ranges: Intervals, values: Ints, valid: Bools | None) -> Ints:
    """The value by place of the oldest valid row of each interval, the least among rows of the same time."""
    return _at_moment(ranges, values, valid, latest=False)


def trailing_last(ranges: Intervals, values: Ints, valid: Bools | None) -> Ints:
    """The value by place of the newest valid row of each interval, the greatest among rows of the same time."""
    return _at_moment(ranges, values, valid, latest=True)


def _at_moment(ranges: Intervals, values: Ints, valid: Bools | None, *, latest: bool) -> Ints:
    """An interval is made of whole moments: the first or last with a valid row decides. Any value if there is none."""
    moments = ranges.moments
    if valid is not None:
        limits = np.iinfo(values.dtype)
        values = np.where(valid, values, limits.min if latest else limits.max)
    deciding = (np.maximum if latest else np.minimum).reduceat(values, moments)
    place = ranges.end - 1 if latest else ranges.first
    moment = np.searchsorted(moments, place, side="right") - 1
    if valid is not None:
        known = np.logical_or.reduceat(valid, moments)
        numbers = np.arange(len(moments))
        if latest:
            nearest = np.maximum.accumulate(np.where(known, numbers, 0))
        else:
            nearest = np.minimum.accumulate(np.where(known, numbers, len(moments) - 1)[::-1])[::-1]
        moment = nearest[moment]
    return deciding[moment]


def trailing_distinct(ranges: Intervals, codes: Ints, size: int, valid: Bools | None) -> NDArray[np.int64]:
    """How many different values each interval has, given them by place as integers in [0, size).

    A value of a key counts from each occurrence on, as long as the interval is. Occurrences closer than that make one
    span; so many different values are there at a time as spans have begun, less those that have ended. A span begins
    at the place of its first occurrence, and has ended for intervals that begin behind its last.
    """
    if valid is None:
        chain = sort_order(codes, size)
    else:
        places = np.flatnonzero(valid)
        codes = codes[places]
        chain = places[sort_order(codes, size)]
    begun, ended = (np.zeros(len(ranges.axis) + 1, np.bool_) for _ in range(2))
    if len(chain):
        moment = ranges.axis[chain]
        apart = moment[1:] - moment[:-1] >= ranges.over
        # Where one value's occurrences end and those of the next begin.
        bounds = np.cumsum(np.bincount(codes, minlength=size))
        apart[bounds[(bounds > 0) & (bounds < len(chain))] - 1] = True
        begun[chain[0] + 1] = ended[chain[-1] + 1] = True
        begun[chain[1:][apart] + 1] = True
        ended[chain[:-1][apart] + 1] = True
    # Keys need no care: all spans of the keys before have begun and ended, which makes no difference.
    result: NDArray[np.int64] = np.cumsum(begun)[ranges.end] - np.cumsum(ended)[ranges.first]
    return result


def last_of_pairs(key: Ints, keys: int, codes: Ints, size: int) -> Bools:
    """Which rows, in time order, are the last with their key and value."""
    order = sort_order(codes, size)
    order = order[sort_order(key[order], keys)]
    last = np.ones(len(codes), np.bool_)
    last[order[:-1]] = (codes[order[1:]] != codes[order[:-1]]) | (key[order[1:]] != key[order[:-1]])
    return last
