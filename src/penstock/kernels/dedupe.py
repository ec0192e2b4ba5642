"""Rows without the repetitions that follow them within some time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.base import BUCKET, TIME, Kernel, Late, Result, State, late_by_time
from penstock.kernels.shown import EVENT_TIME, flags, instants, laid_out, nulls, picked
from penstock.kernels.slots import Logs, best_rows, key_codes, matched, starts, together

_KEPT, _WAITING = 0, 1


@dataclass(frozen=True)
class Dedupe(Kernel):
    """Of each key keeps the first row, drops those up to `within` after it, keeps the first one after that, and so on.

    `exact`: rows of a key are taken in the order of their times; of several at one time the least in the columns given
    counts, nulls last. Rows wait until the watermark has reached them, so that the answer is that of a computation over
    all rows at once, in whichever order they come.

    Otherwise rows leave at once, first come, first kept: a row is dropped if one of its key is kept already whose time
    is not more than `within` before or after it. Rows that come in one batch are taken in the order of their times.

    Rows are late by their own time, as what they would have replaced may be forgotten.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    within: int
    passed: tuple[str, ...]
    """The columns to give."""
    exact: bool = True

    @property
    def output(self) -> pa.Schema:
        return pa.schema([self.input.field(name) for name in self.passed])

    @property
    def _rows(self) -> pa.Schema:
        return pa.schema([self.input.field(name) for name in dict.fromkeys((TIME, *self.keys, *self.passed))])

    @property
    def _times(self) -> pa.Schema:
        return pa.schema([self.input.field(name) for name in dict.fromkeys((TIME, *self.keys))])

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        return late_by_time(rows, watermark)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        return rows.select([*self._rows.names, BUCKET])

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        logs = Logs(state, TIME)
        due = together(self._rows, rows[0])
        if self.exact:
            early = _times(due) > watermark
            waited = [due.filter(pa.array(~early)), *logs.released(_WAITING, watermark)]
            logs.append(_WAITING, due.filter(pa.array(early)), watermark)
            due = together(self._rows, waited)
        given = due.take(pa.array(self._first_rows(due, logs))) if due.num_rows else due
        logs.expire(_KEPT, watermark - self.within)
        remembered = given.select(self._times.names)
        stays = pa.array(_times(remembered) > watermark - self.within)
        logs.append(_KEPT, remembered.filter(stays), watermark - self.within)
        wakes = [*logs.firsts(_WAITING), *(last + self.within for last in logs.lasts(_KEPT))]
        main = given.select(self.passed).cast(self.output)
        return Result(main, put=logs.put(), drop=logs.drop(), wake=min(wakes, default=None))

    @property
    def waits(self) -> bool:
        return self.exact

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """Rows that wait, whole, and the keys and times of those that have left and keep repetitions back."""
        logs = Logs({number: self.fitted(number, state[number]) for number in state}, TIME)
        waiting = together(self._rows, logs.after(_WAITING, watermark))
        kept = together(self._times, logs.after(_KEPT, watermark - self.within))
        parts = []
        for waits, rows in ((True, waiting), (False, kept)):
            told = {"waits": flags(waits, rows.num_rows), EVENT_TIME: instants(rows.column(TIME))}
            others = (
                picked(rows, self.passed, self.keys)
                if waits
                else nulls(self.input, self.passed, rows.num_rows, self.keys)
            )
            parts.append(laid_out(told, {**picked(rows, self.keys), **others}))
        return pa.concat_tables(parts)

    def _first_rows(self, rows: pa.Table, logs: Logs) -> np.ndarray:
        """The rows to keep, by number."""
        times = _times(rows)
        _, firsts, codes = np.unique(key_codes(rows, self.keys), return_index=True, return_inverse=True)
        known = together(
            self._times, logs.between(_KEPT, int(times.min()) - self.within, int(times.max()) + self.within)
        )
        if known.num_rows:
            known_codes = matched(known, rows.take(pa.array(firsts)), self.keys)
            found = known_codes >= 0
            free = np.flatnonzero(_free(codes, times, known_codes[found], _times(known)[found], self.within))
        else:
            free = np.arange(rows.num_rows)
        order = free[np.lexsort((times[free], codes[free]))]
        codes, times = codes[order], times[order]
        kept = _chained(times, starts([codes]), self.within)
        runs = starts([codes, times])
        here = kept[runs][np.cumsum(runs) - 1]
        if here.sum() == kept.sum():
            return np.asarray(order[kept])
        some = order[here]
        best, _ = best_rows(rows.take(pa.array(some)), np.cumsum(runs)[here], [], self.passed)
        return np.asarray(some[best])


def _times(table: pa.Table) -> np.ndarray:
    return np.asarray(table.column(TIME).to_numpy())


def _free(
    codes: np.ndarray, times: np.ndarray, known_codes: np.ndarray, known_times: np.ndarray, within: int
) -> np.ndarray:
    """Which rows have none of the known ones of their code within some time before or after them."""
    both, when = np.concatenate([codes, known_codes]), np.concatenate([times, known_times])
    known = np.arange(len(both)) >= len(codes)
    order = np.lexsort((when, both))
    both, when, known = both[order], when[order], known[order]
    near = np.zeros(len(order), bool)
    for towards in (slice(None), slice(None, None, -1)):
        place = np.maximum.accumulate(np.where(known[towards], np.arange(len(order)), -1))
        same = (place >= 0) & (both[towards] == both[towards][place])
        near[towards] |= same & (np.abs(when[towards] - when[towards][place]) <= within)
    free = np.empty(len(order), bool)
    free[order] = ~near
    return free[: len(codes)]


def _chained(times: np.ndarray, new: np.ndarray, within: int) -> np.ndarray:
    """Which places are kept: the first of each run, then always the next one more than `within` after the last kept.

    Times ascend in each run. From each place leads a jump to the one that is next if it is kept. The jumps are
    followed from all starts at once, and doubled each time: a chain of any length is done in few rounds.
    """
    count = len(times)
    kept = new.copy()
    kept[1:] |= times[1:] - times[:-1] > within
    if kept.all():
        return kept
    jumps = np.append(_next_places(times, new, within), count)
    while True:
        reached = jumps[:-1][kept]
        reached = reached[reached < count]
        reached = reached[~kept[reached]]
        if not len(reached):
            return kept
        kept[reached] = True
        jumps = jumps[jumps]


def _next_places(times: np.ndarray, new: np.ndarray, within: int) -> np.ndarray:
    """For each place the first one in its run that is more than `within` later, or the start of the next run."""
    bounds = np.append(np.flatnonzero(new), len(times))
    low = np.arange(1, len(times) + 1)
    high = bounds[np.cumsum(new)]
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        beyond = times[middle] - times[open_] > within
        high[open_[beyond]] = middle[beyond]
        low[open_[~beyond]] = middle[~beyond] + 1
        open_ = open_[low[open_] < high[open_]]
    return low
