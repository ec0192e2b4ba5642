"""The window kernel: aggregates per key over tumbling and sliding windows of event time.

State is kept per pane and key, never per row and window. A window is closed when the watermark has passed its end, and
its results are merged from its panes then; or results are given after each batch for all windows that may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.aggregates import INSTANT, Aggregation, output_schema
from penstock.kernels.base import BUCKET, TIME, Kernel, Late, Result, State, changed_types, columns_of, differing
from penstock.kernels.columns import Codes, key_codes, key_fields, numbers, placed, plain
from penstock.kernels.panes import PaneRows, Panes, touched_windows
from penstock.kernels.runs import Runs
from penstock.kernels.spans import Groups, Spans

REPLAYED = "_replayed"
"""The column that says of a row whether it came too late before and is sent in again; bool."""
_PANE = "_pane"
_SINCE = "_since"
"""The column of the first window a kept row counts in."""


@dataclass(frozen=True)
class Window(Kernel):
    """Aggregates over windows of `size` microseconds, a new one each `slide`, aligned to 1970."""

    input: pa.Schema
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    size: int
    slide: int | None = None
    """None for windows that follow each other without overlap."""
    emit: str = "close"
    """`close`: a row when the watermark has passed the window's end; `update`: after each batch what may be new."""
    allowed: int = 0
    """How long after its end a window still takes late rows; what they change leaves as corrections."""
    retained: int = 0
    """How long after its end a window still takes replayed rows."""

    def __post_init__(self) -> None:
        if not 0 < self.panes.slide <= self.size:
            raise ValueError(f"windows of {self.size} µs cannot slide by {self.panes.slide} µs")
        if self.emit not in ("close", "update"):
            raise ValueError(f"windows emit on 'close' or on 'update', not on '{self.emit}'")
        if self.allowed < 0 or self.retained < 0:
            raise ValueError("windows cannot be kept for less than no time")

    @cached_property
    def panes(self) -> Panes:
        return Panes(self.size, self.size if self.slide is None else self.slide)

    @cached_property
    def aggregation(self) -> Aggregation:
        return Aggregation(self.aggregates, self.input)

    @cached_property
    def output(self) -> pa.Schema:
        """The key columns, the bounds of the window, and the aggregates."""
        return output_schema(self.input, self.keys, self.aggregation)

    @cached_property
    def _replays(self) -> bool:
        return REPLAYED in self.input.names

    @property
    def _kept(self) -> int:
        """How long after its end the state of a window is kept."""
        return max(self.allowed, self.retained)

    @cached_property
    def _tells_since(self) -> bool:
        """Whether rows of one pane and key may count in different ones of the windows that are kept."""
        return self.retained > self.allowed and self.panes.per_window > 1

    @cached_property
    def _state(self) -> pa.Schema:
        since = [pa.field(_SINCE, pa.int64())] if self._tells_since else []
        keys = key_fields(self.input, self.keys)
        return pa.schema([pa.field(_PANE, pa.int64()), *since, *keys, *self.aggregation.kept])

    def layout(self) -> dict[str, Any]:
        return {
            "kernel": "Window",
            "keys": columns_of(pa.schema(key_fields(self.input, self.keys))),
            "size": self.size,
            "slide": self.panes.slide,
            "emit": self.emit,
            "since": self._tells_since,
            "values": self.aggregation.parts,
        }

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        """Other values are merged from now on. Windows that were to be given when they close would never be given."""
        now = self.layout()
        if (before.get("emit"), self.emit) == ("close", "update"):
            return "windows that are open would not be given unless further rows come for them"
        free = {"values": now["values"], "emit": now["emit"]}
        return differing({**before, **free}, now) or changed_types(before["values"], now["values"])

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        return self.aggregation.fitted(chunk, self._state)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        """A row has missed the windows that by the watermark can no longer change."""
        pane = numbers(rows.column(TIME)) // self.panes.width
        first, last = self.panes.first_window(pane), self.panes.last_window(pane)
        missed = np.clip(self._open_since(rows, watermark) - first, 0, last - first + 1)
        return Late(missed, missed == last - first + 1)

    def _open_since(self, rows: pa.Table, watermark: int) -> np.ndarray:
        """For each row the first window that could take it if its time were right."""
        since = np.full(rows.num_rows, self.panes.closed_by(watermark - self.allowed) + 1)
        if self._replays:
            since[_replayed(rows)] = self.panes.closed_by(watermark - self._kept) + 1
        return since

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        """Partial aggregates per pane and key."""
        codes = key_codes(rows, self.keys)
        numbered = {_PANE: numbers(rows.column(TIME)) // self.panes.width}
        if self._replays:
            numbered[REPLAYED] = _replayed(rows).astype(np.int64)
        groups, columns = _grouped(codes, numbered)
        key = groups.numbers % codes.count
        bucket = np.zeros(codes.count, np.int32)
        bucket[codes.codes] = numbers(rows.column(BUCKET))
        named = {BUCKET: bucket[key], **columns}
        names = [*named, *self.keys, *(field.name for field in self.aggregation.kept)]
        return pa.table(
            [*map(pa.array, named.values()), *codes.keys(key), *self.aggregation.start(rows, groups)], names=names
        )

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        """Windows up to `before` were closed by earlier batches, also where this bucket had nothing to do in them."""
        if before is None:
            raise ValueError("windows must be told by which watermark the rows were judged")
        closed = self.panes.closed_by(before)
        alive = self.panes.panes_of(self.panes.closed_by(watermark - self._kept) + 1)[0]
        runs = Runs(state, lambda table: self._merged(_within(table, alive, None)), _pane)
        arrived = self._arrived(rows[0], before)
        if self.emit == "close":
            main = self._closing(runs, arrived, closed + 1, self.panes.closed_by(watermark))
        else:
            main = self._touched(runs, arrived, closed + 1, None)
        corrections = self._touched(runs, arrived, self.panes.closed_by(before - self._kept) + 1, closed)
        runs.forget(alive)
        self._store(runs, _within(arrived, alive, None))
        corrected = self._output(corrections) if self._kept else None
        return Result(self._output(main), corrected, runs.put, sorted(runs.drop), self._wake(runs, watermark, alive))

    @property
    def reach(self) -> tuple[int | None, int]:
        return self.size, 0

    @property
    def waits(self) -> bool:
        return self.emit == "close"

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """The windows that can still change, as they are: those that are open, and those kept for late rows."""
        first = self.panes.closed_by(watermark - self._kept) + 1
        tables = [self.fitted(number, state[number]) for number in state]
        table = pa.concat_tables([self._state.empty_table(), *tables]).combine_chunks()
        table = _within(table, self.panes.panes_of(first)[0], None)
        if not table.num_rows:
            return self.output.empty_table()
        codes = key_codes(table, self.keys)
        ordered = PaneRows.sorted(self.panes, codes.codes, codes.count, _pane(table))
        spans, windows = ordered.all_windows(first, self.panes.last_window(int(_pane(table).max())))
        keys, kept = ordered.codes[spans.lo], self._taken(table, ordered.order)
        if self._tells_since:
            kept, spans = _counted(kept, spans, windows)
            filled = spans.sizes > 0
            spans = Spans(spans.lo[filled], spans.hi[filled], spans.rows)
            keys, windows = keys[filled], windows[filled]
        return self._output(self._results(kept, spans, codes, keys, windows))

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def _arrived(self, tables: Sequence[pa.Table], before: int) -> pa.Table:
        """Prepared rows as the state has them."""
        if not tables:
            return self._state.empty_table()
        table = pa.concat_tables(tables).combine_chunks()
        if self._tells_since:
            first = self.panes.first_window(_pane(table))
            table = table.append_column(_SINCE, pa.array(np.maximum(self._open_since(table, before), first)))
        return table.select(self._state.names)

    def _closing(self, runs: Runs, arrived: pa.Table, first: int, last: int) -> list[pa.RecordBatch]:
        """The results of all windows from `first` to `last`."""
        table = self._rows_of(runs, arrived, first, last) if first <= last else arrived.slice(0, 0)
        if not table.num_rows:
            return []
        codes = key_codes(table, self.keys)
        ordered = PaneRows.sorted(self.panes, codes.codes, codes.count, _pane(table))
        spans, windows = ordered.all_windows(first, last)
        kept = self._taken(table, ordered.order)
        return self._results(kept, spans, codes, ordered.codes[spans.lo], windows)

    def _touched(self, runs: Runs, arrived: pa.Table, first: int, last: int | None) -> list[pa.RecordBatch]:
        """The results of those windows from `first` to `last` that new rows are in."""
        if last is not None and last < first:
            return []
        pane = _pane(arrived)
        inside = self.panes.last_window(pane) >= first
        if last is not None:
            inside &= self.panes.first_window(pane) <= last
        if not inside.any():
            return []
        touching, pane = arrived.filter(pa.array(inside)), pane[inside]
        latest = self.panes.last_window(int(pane.max()))
        earliest = max(first, self.panes.first_window(int(pane.min())))
        table = self._rows_of(runs, arrived, earliest, latest if last is None else min(last, latest))
        codes = key_codes(pa.concat_tables([touching, table]), self.keys)
        since = np.full(len(pane), first)
        if self._tells_since:
            since = np.maximum(since, numbers(touching.column(_SINCE)))
        keys, windows = touched_windows(self.panes, codes.codes[: len(pane)], pane, since, last)
        concerned = np.zeros(codes.count, bool)
        concerned[keys] = True
        rows = np.flatnonzero(concerned[codes.codes[len(pane) :]])
        key, pane = codes.codes[len(pane) :][rows], _pane(table)[rows]
        ordered = PaneRows.sorted(self.panes, key, codes.count, pane)
        table, spans = self._taken(table, rows[ordered.order]), ordered.windows(keys, windows)
        if self._tells_since:
            table, spans = _counted(table, spans, windows)
        return self._results(table, spans, codes, keys, windows)

    def _rows_of(self, runs: Runs, arrived: pa.Table, first: int, last: int) -> pa.Table:
        """All rows of the panes of some windows."""
        low, high = self.panes.panes_of(first, last)
        return _within(pa.concat_tables([arrived, *runs.read(low, high)]).combine_chunks(), low, high)

    def _taken(self, table: pa.Table, rows: np.ndarray) -> pa.Table:
        """Rows in some order, without what is known of them already."""
        names = [name for name in self._state.names if name != _PANE and name not in self.keys]
        return table.select(names).take(pa.array(rows))

    def _results(
        self, kept: pa.Table, spans: Spans, codes: Codes, keys: np.ndarray, windows: np.ndarray
    ) -> list[pa.RecordBatch]:
        """Finished rows for spans of sorted rows, each with its key and its window."""
        batches = []
        start = windows * self.panes.slide
        for which, columns in self.aggregation.results(kept, spans):
            bounds = [pa.array(start[which]), pa.array(start[which] + self.size)]
            arrays = [*codes.keys(keys[which]), *(bound.cast(INSTANT) for bound in bounds), *columns]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.output))
        return batches

    def _output(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, schema=self.output)

    def _merged(self, table: pa.Table) -> pa.Table:
        """One row for each pane and key, by pane."""
        codes = key_codes(table, self.keys)
        numbered = [_PANE, _SINCE] if self._tells_since else [_PANE]
        groups, columns = _grouped(codes, {name: numbers(table.column(name)) for name in numbered})
        merged = self.aggregation.merge(self._taken(table, groups.order), groups.spans)
        arrays = [*map(pa.array, columns.values()), *codes.keys(groups.numbers % codes.count), *merged]
        return pa.Table.from_arrays(arrays, schema=self._state)

    def _store(self, runs: Runs, arrived: pa.Table) -> None:
        if arrived.num_rows:
            runs.store(self._merged(arrived))

    def _wake(self, runs: Runs, watermark: int, alive: int) -> int | None:
        """When the next window may close, or the next run may be dropped."""
        due: list[int] = []
        closed = self.panes.closed_by(watermark)
        for low, high in runs.extents(alive):
            first, last = self.panes.first_window(low), self.panes.last_window(high)
            due.append(self.panes.end(last) + self._kept)
            if self.emit == "close" and last > closed:
                due.append(self.panes.end(max(first, closed + 1)))
        return min(due, default=None)


def _replayed(rows: pa.Table) -> np.ndarray:
    return numbers(plain(rows.column(REPLAYED)).cast(pa.bool_()).fill_null(False))


def _grouped(codes: Codes, numbered: dict[str, np.ndarray]) -> tuple[Groups, dict[str, np.ndarray]]:
    """Groups by some numbers and the key, and those numbers for each group. A group's number ends with its key's."""
    packed, bound = np.zeros(len(codes.codes), np.int64), 1
    axes = []
    for values in numbered.values():
        axis, places = placed(values)
        axes.append(axis)
        packed, bound = packed * len(axis) + places, bound * len(axis)
    groups = Groups(packed * codes.count + codes.codes, bound * codes.count)
    rest, columns = groups.numbers // max(codes.count, 1), {}
    for name, axis in reversed(list(zip(numbered, axes, strict=True))):
        columns[name] = axis[rest % len(axis)]
        rest = rest // len(axis)
    return groups, {name: columns[name] for name in numbered}


def _pane(table: pa.Table) -> np.ndarray:
    return numbers(table.column(_PANE))


def _within(table: pa.Table, low: int, high: int | None) -> pa.Table:
    """The rows of panes from `low` up to, not with, `high`."""
    pane = _pane(table)
    inside = pane >= low
    if high is not None:
        inside &= pane < high
    return table if inside.all() else table.filter(pa.array(inside))


def _counted(table: pa.Table, spans: Spans, windows: np.ndarray) -> tuple[pa.Table, Spans]:
    """Rows written out for each of the windows they count in."""
    rows, results = spans.spread
    counts = numbers(table.column(_SINCE))[rows] <= windows[results]
    ends = np.cumsum(np.bincount(results[counts], minlength=len(spans)))
    sizes = np.diff(ends, prepend=0)
    return table.take(pa.array(rows[counts])), Spans(ends - sizes, ends, int(counts.sum()))
