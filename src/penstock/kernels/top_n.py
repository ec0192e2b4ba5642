"""The first rows of each key in each window of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.base import BUCKET, TIME, Kernel, Late, Result, State
from penstock.kernels.shown import laid_out, picked
from penstock.kernels.slots import Logs, best_rows, key_codes, matched, sort_keys, together

WINDOW = "_window"
"""The column of the start of a row's window, in microseconds."""
_OPEN, _GIVEN = 0, 1
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class TopN(Kernel):
    """For each window of `size` and each key the `n` rows that come first by `order`, when the window closes.

    Windows begin at multiples of `size` since 1970 and close when the watermark reaches their end. Rows that `order`
    does not tell apart are ranked by the columns given, from the first to the last, ascending and nulls last; so ranks
    do not depend on when rows come. Equal rows count as often as they come.

    For `allowed` after its end a window may still be corrected: if a row gets into a list, the whole new list of that
    window and key leaves as a correction.

    No more rows are kept than may be in a list: `n` for each window and key, and some more where they came in several
    batches.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    n: int
    order: tuple[tuple[str, bool], ...]
    """Columns, and whether the greatest comes first. Nulls come last in either case."""
    size: int
    passed: tuple[str, ...]
    """The columns to give, besides the window's start and end and the rank."""
    allowed: int = 0

    @property
    def output(self) -> pa.Schema:
        given = [self.input.field(name) for name in self.passed]
        return pa.schema([*given, ("window_start", _INSTANT), ("window_end", _INSTANT), ("rank", pa.int64())])

    @property
    def _rows(self) -> pa.Schema:
        names = dict.fromkeys((*self.keys, *(name for name, _ in self.order), *self.passed))
        return pa.schema([pa.field(WINDOW, pa.int64()), *(self.input.field(name) for name in names)])

    @property
    def _group(self) -> tuple[str, ...]:
        return (WINDOW, *self.keys)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        late = self._windows(rows) + self.size <= watermark - self.allowed
        return Late(late.astype(np.int64), late)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        rows = rows.append_column(WINDOW, pa.array(self._windows(rows)))
        return self._pruned(rows.select([*self._rows.names, BUCKET]))

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        if before is None:
            raise ValueError("windows must be told by which watermark the rows were judged")
        logs = Logs(state, WINDOW)
        new = self._pruned(together(self._rows, rows[0]))
        closed, gone = watermark - self.size, watermark - self.size - self.allowed
        open_ = pa.array(_numbers(new, WINDOW) > closed)
        released = logs.released(_OPEN, closed)
        logs.append(_OPEN, new.filter(open_), closed, self._pruned)
        closing = new.filter(pc.invert(open_))
        given = self._given(logs, closing)
        main, corrections, added = self._lists(given, together(self._rows, [closing, *released]), before)
        logs.expire(_GIVEN, gone)
        logs.append(_GIVEN, added.filter(pa.array(_numbers(added, WINDOW) > gone)), gone, self._pruned)
        wakes = [
            *(first + self.size for first in logs.firsts(_OPEN)),
            *(last + self.size + self.allowed for last in logs.lasts(_GIVEN)),
        ]
        return Result(main, corrections, logs.put(), logs.drop(), min(wakes, default=None))

    @property
    def reach(self) -> tuple[int | None, int]:
        return self.size, 0

    @property
    def waits(self) -> bool:
        return True

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """The lists of windows that are open, or that can still be corrected, as they are."""
        logs = Logs({number: self.fitted(number, state[number]) for number in state}, WINDOW)
        closed, gone = watermark - self.size, watermark - self.size - self.allowed
        rows = together(self._rows, [*logs.after(_OPEN, closed), *logs.after(_GIVEN, gone)]).combine_chunks()
        ranks = np.zeros(0, np.int64)
        if rows.num_rows:
            best, ranks = self._best(rows, key_codes(rows, self._group))
            rows = rows.take(pa.array(best))
        windows = _numbers(rows, WINDOW)
        bounds = {"window_start": windows, "window_end": windows + self.size, "rank": ranks + 1}
        told = {name: pa.array(values).cast(self.output.field(name).type) for name, values in bounds.items()}
        columns = {**picked(rows, self.keys), **picked(rows, self.passed, self.keys)}
        return laid_out(told, columns)

    def _windows(self, rows: pa.Table) -> np.ndarray:
        return _numbers(rows, TIME) // self.size * self.size

    def _best(self, rows: pa.Table, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = [key for name, descending in self.order for key in sort_keys(rows.column(name), descending)]
        return best_rows(rows, codes, keys, self.passed, self.n)

    def _pruned(self, rows: pa.Table) -> pa.Table:
        """Only what may be in a list."""
        if not rows.num_rows:
            return rows
        return rows.take(pa.array(np.sort(self._best(rows, key_codes(rows, self._group))[0])))

    def _given(self, logs: Logs, closing: pa.Table) -> pa.Table:
        """The rows that were candidates of lists given earlier, for the windows and keys of these rows."""
        if not closing.num_rows:
            return closing
        windows = _numbers(closing, WINDOW)
        known = together(self._rows, logs.between(_GIVEN, int(windows.min()), int(windows.max())))
        if not known.num_rows:
            return known
        _, firsts = np.unique(key_codes(closing, self._group), return_index=True)
        return known.filter(pa.array(matched(known, closing.take(pa.array(firsts)), self._group) >= 0))

    def _lists(self, given: pa.Table, rows: pa.Table, before: int) -> tuple[pa.Table, pa.Table | None, pa.Table]:
        """Lists of windows that close now, changed ones of those closed `before`, and the rows that are new in them.

        `given` are candidates from earlier.
        """
        if not rows.num_rows:
            return self.output.empty_table(), None, rows
        both = together(self._rows, [given, rows])
        codes = np.unique(key_codes(both, self._group), return_inverse=True)[1]
        best, ranks = self._best(both, codes)
        new = best >= given.num_rows
        is_changed = np.zeros(codes.max() + 1, bool)
        is_changed[codes[best[new]]] = True
        listed = self._listed(both.take(pa.array(best)), ranks)
        late = _numbers(both, WINDOW)[best] + self.size <= before
        main = listed.filter(pa.array(~late))
        corrections = listed.filter(pa.array(late & is_changed[codes[best]]))
        return main, corrections if corrections.num_rows else None, both.take(pa.array(best[new]))

    def _listed(self, rows: pa.Table, ranks: np.ndarray) -> pa.Table:
        windows = _numbers(rows, WINDOW)
        columns = [
            *rows.select(self.passed).columns,
            pa.array(windows).cast(_INSTANT),
            pa.array(windows + self.size).cast(_INSTANT),
            pa.array(ranks + 1),
        ]
        return pa.table(columns, schema=self.output)


def _numbers(table: pa.Table, column: str) -> np.ndarray:
    return np.asarray(table.column(column).to_numpy())
