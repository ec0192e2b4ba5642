"""The session kernel: aggregates per key over stretches of event time without a gap between rows.

State is made of fragments: parts of a session that came together, with partial aggregates. A fragment has a home, which
is the time of the last row then known of its session, and is kept in the runs of that time. When the watermark has
passed its home by the gap, either its session is closed, or newer fragments have continued it, and then it moves in
with the newest. So runs are dropped whole when their time is over, and what has not changed stays where it is.
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
from penstock.kernels.base import (
    BUCKET,
    NO_WATERMARK,
    TIME,
    Kernel,
    Late,
    Result,
    State,
    changed_types,
    columns_of,
    differing,
)
from penstock.kernels.columns import Codes, changes, key_codes, key_fields, numbers, sort_order
from penstock.kernels.runs import META, Runs
from penstock.kernels.spans import Spans

_START, _LAST, _HOME = "_start", "_last", "_home"


@dataclass(frozen=True)
class Session(Kernel):
    """Aggregates over sessions: rows of a key, each at most `gap` microseconds after the one before.

    A session ends `gap` after its last row, and its result is given when the watermark has passed that.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    gap: int

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise ValueError(f"sessions need a gap, not one of {self.gap} µs")

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @cached_property
    def aggregation(self) -> Aggregation:
        return Aggregation(self.aggregates, self.input)

    @cached_property
    def output(self) -> pa.Schema:
        """The key columns, the bounds of the session, and the aggregates."""
        return output_schema(self.input, self.keys, self.aggregation)

    @cached_property
    def _state(self) -> pa.Schema:
        times = [pa.field(name, pa.int64()) for name in (_START, _LAST, _HOME)]
        return pa.schema([*times, *key_fields(self.input, self.keys), *self.aggregation.kept])

    @cached_property
    def _kept(self) -> list[str]:
        return [field.name for field in self.aggregation.kept]

    @property
    def _place(self) -> int:
        """How long the places are by which the state is kept."""
        return max(self.gap // 8, 1)

    def layout(self) -> dict[str, Any]:
        return {
            "kernel": "Session",
            "keys": columns_of(pa.schema(key_fields(self.input, self.keys))),
            "gap": self.gap,
            "values": self.aggregation.parts,
        }

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        now = self.layout()
        return differing({**before, "values": now["values"]}, now) or changed_types(before["values"], now["values"])

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        return chunk if number == META else self.aggregation.fitted(chunk, self._state)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        """A row is late if a session of it alone would have been closed."""
        late = numbers(rows.column(TIME)) + self.gap <= watermark
        return Late(late.astype(np.int64), late)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        """Fragments, each with its first and its last time."""
        codes, time = key_codes(rows, self.keys), numbers(rows.column(TIME))
        chains = _chains(codes, time, time, self.gap)
        bucket = numbers(rows.column(BUCKET))[chains.order[chains.spans.lo]]
        columns = [pa.array(part) for part in (bucket, chains.start, chains.last)]
        kept = self.aggregation.start(rows, chains)
        names = [BUCKET, _START, _LAST, *self.keys, *self._kept]
        return pa.table([*columns, *codes.keys(chains.codes), *kept], names=names)

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        due, done = _noted(state)
        arrived = self._arrived(rows[0])
        if arrived.num_rows:
            due = min(due, int(numbers(arrived.column(_HOME)).min()) + self.gap)
        if due > watermark:
            runs = Runs(state, lambda table: self._merged(self._alive(table, done)), self._places)
            runs.store(self._merged(arrived) if len(rows[0]) > 1 else arrived)
            return Result(self.output.empty_table(), None, self._with_note(runs, due, done), sorted(runs.drop), due)
        runs = Runs(state, lambda table: self._merged(self._alive(table, watermark)), self._places)
        return self._close(runs, arrived, watermark, done)

    @property
    def waits(self) -> bool:
        return True

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """The sessions that have not ended, as they are; each ends a gap after its last row unless another comes."""
        _, done = _noted(state)
        tables = [self.fitted(number, state[number]) for number in state if number != META]
        table = self._alive(pa.concat_tables([self._state.empty_table(), *tables]), done).combine_chunks()
        codes = key_codes(table, self.keys)
        chains = _chains(codes, numbers(table.column(_START)), numbers(table.column(_LAST)), self.gap)
        return self._results(table, codes, chains, chains.last + self.gap > watermark)

    def _close(self, runs: Runs, arrived: pa.Table, watermark: int, done: int) -> Result:
        """Gives the sessions that have ended, and moves fragments of others that are due."""
        known = self._alive(pa.concat_tables([self._state.empty_table(), *runs.read_all()]), done)
        table = pa.concat_tables([known, arrived]).combine_chunks()
        codes = key_codes(table, self.keys)
        chains = _chains(codes, numbers(table.column(_START)), numbers(table.column(_LAST)), self.gap)
        ended = chains.last + self.gap <= watermark
        main = self._results(table, codes, chains, ended)
        home = numbers(table.column(_HOME))[chains.order]
        going_on = np.repeat(~ended, chains.spans.sizes)
        due = home + self.gap <= watermark
        moved = np.where(due, np.repeat(chains.last, chains.spans.sizes), home)
        runs.forget((watermark - self.gap + 1) // self._place)
        stored = going_on & (due | (chains.order >= known.num_rows))
        chain = np.repeat(np.arange(len(chains.spans)), chains.spans.sizes)[stored]
        runs.store(self._as_one(table, codes, chains.order[stored], moved[stored], Spans.of_equal(chain)))
        wake = int(moved[going_on].min()) + self.gap if going_on.any() else None
        if wake is None:
            runs.forget_all()
            drop = sorted({*runs.drop, *([META] if META in runs.state else [])})
            return Result(main, None, {}, drop, None)
        return Result(main, None, self._with_note(runs, wake, watermark), sorted(runs.drop), wake)

    def _results(self, table: pa.Table, codes: Codes, chains: _Chains, ended: np.ndarray) -> pa.Table:
        spans = Spans(chains.spans.lo[ended], chains.spans.hi[ended], chains.spans.rows)
        start, end, keys = chains.start[ended], chains.last[ended] + self.gap, chains.codes[ended]
        kept = table.select(self._kept).take(pa.array(chains.order))
        batches = []
        for which, columns in self.aggregation.results(kept, spans):
            bounds = (pa.array(bound[which]).cast(INSTANT) for bound in (start, end))
            arrays = [*codes.keys(keys[which]), *bounds, *columns]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.output))
        return pa.Table.from_batches(batches, schema=self.output)

    def _arrived(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Prepared fragments as the state has them."""
        if not tables:
            return self._state.empty_table()
        table = pa.concat_tables(tables)
        return table.append_column(_HOME, table.column(_LAST)).select(self._state.names)

    def _alive(self, table: pa.Table, done: int) -> pa.Table:
        """Fragments that had not been due when the state was last gone through."""
        alive = numbers(table.column(_HOME)) + self.gap > done
        return table if alive.all() else table.filter(pa.array(alive))

    def _merged(self, table: pa.Table) -> pa.Table:
        """One fragment for those that belong to one session."""
        if not table.num_rows:
            return table
        codes = key_codes(table, self.keys)
        chains = _chains(codes, numbers(table.column(_START)), numbers(table.column(_LAST)), self.gap)
        home = numbers(table.column(_HOME))[chains.order]
        return self._as_one(table, codes, chains.order, home, chains.spans)

    def _as_one(self, table: pa.Table, codes: Codes, order: np.ndarray, home: np.ndarray, spans: Spans) -> pa.Table:
        """One fragment for each span of some rows, which are in this order and have these homes."""
        start, last = (numbers(table.column(name))[order] for name in (_START, _LAST))
        times = (spans.least(start), spans.greatest(last), spans.greatest(home))
        kept = self.aggregation.merge(table.select(self._kept).take(pa.array(order)), spans)
        keys = codes.keys(codes.codes[order][spans.lo])
        return pa.Table.from_arrays([*map(pa.array, times), *keys, *kept], schema=self._state)

    def _places(self, table: pa.Table) -> np.ndarray:
        return numbers(table.column(_HOME)) // self._place

    def _with_note(self, runs: Runs, due: int, done: int) -> dict[int, pa.Table]:
        return {**runs.put, META: pa.table({"due": pa.array([due]), "done": pa.array([done])})}


def _noted(state: State) -> tuple[int, int]:
    """When the next fragment is due, and up to which watermark those that were due have been dealt with."""
    if META not in state:
        return 1 << 62, NO_WATERMARK
    note = state[META].to_pylist()[0]
    return int(note["due"]), int(note["done"])


@dataclass(frozen=True)
class _Chains:
    """Fragments in the order of keys and time, and which of them make one session."""

    order: np.ndarray
    spans: Spans
    codes: np.ndarray
    """The key of each chain."""
    start: np.ndarray
    last: np.ndarray

    @cached_property
    def sizes(self) -> np.ndarray:
        return self.spans.sizes


def _chains(codes: Codes, start: np.ndarray, last: np.ndarray, gap: int) -> _Chains:
    order = np.argsort(start, kind="stable")
    order = order[sort_order(codes.codes[order], codes.count)]
    key, start, last = codes.codes[order], start[order], last[order]
    new = changes(key)
    new[1:] |= start[1:] > _reach(key, last)[:-1] + gap
    spans = Spans.of_equal(np.cumsum(new))
    return _Chains(order, spans, key[spans.lo], start[spans.lo], spans.greatest(last))


def _reach(key: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For each fragment the greatest last time among those of its key up to it. Keys ascend."""
    if not len(last) or (np.diff(last) >= 0)[key[1:] == key[:-1]].all():
        return last
    axis, rank = np.unique(last, return_inverse=True)
    return np.asarray(axis[np.maximum.accumulate(key * len(axis) + rank) % len(axis)])
