"""Rolling aggregates: every row leaves once, with aggregates over the trailing interval of its key.

Rows wait until the watermark has reached them; then all rows of their interval are there, and the answer no longer
depends on how rows arrived. Rows that have left are kept, as far as intervals to come reach back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.base import (
    NO_WATERMARK,
    TIME,
    Kernel,
    Late,
    Result,
    State,
    changed_types,
    columns_of,
    differing,
    late_by_time,
    with_columns,
)
from penstock.kernels.rolling_history import Layout, Part, instants, joined, single
from penstock.kernels.rolling_runs import Shelf
from penstock.kernels.shown import EVENT_TIME, flags, laid_out, nulls, picked
from penstock.kernels.shown import instants as as_instants
from penstock.kernels.trailing import Bools, Ints, intervals, last_of_pairs, most_keys, time_order
from penstock.kernels.trailing_columns import CODED, PRESENT, Argument, Codes, aggregated, kept_as, result_type

_LEFT = 0
"""The chunk with the time up to which waiting rows have left, if some of them are still in their runs."""
_WAITING, _HISTORY = 1, 2
_SEGMENTS = 16
"""How many segments of time an interval has; a run lives longer than needed by one segment at most."""
_LEAST_WIDTH = 1000
"""Of a segment, in microseconds."""
_MANY = 3
"""From so many times as many rows in all as are asked about on, those of other keys are sorted out first."""
_WORN = 8
"""A run of which less than one part in so many is still needed is written anew."""


@dataclass
class _Change:
    """What an advance does to the state."""

    put: dict[int, pa.Table] = field(default_factory=dict)
    drop: set[int] = field(default_factory=set)
    wakes: list[int] = field(default_factory=list)

    def replace(self, number: int, run: pa.Table, merged: Sequence[int]) -> None:
        self.drop |= set(merged)
        self.drop.discard(number)
        for gone in merged:
            self.put.pop(gone, None)
        self.put[number] = run


@dataclass(frozen=True)
class Rolling(Kernel):
    """Each row with aggregates over the rows of its key in (t − over, t], itself and others of its time included."""

    input: pa.Schema
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    over: int
    """The length of the interval in microseconds."""
    passed: tuple[str, ...]
    """The columns of the input that leave with the row."""
    at_once: bool = False
    """Rows leave in the batch they came in, with the answer for all rows seen by then."""

    @cached_property
    def output(self) -> pa.Schema:
        made = [pa.field(each.name, result_type(each, self.input)) for each in self.aggregates]
        return pa.schema([*(self.input.field(name) for name in self.passed), *made])

    @cached_property
    def _layout(self) -> Layout:
        ways = kept_as(self.input, self.aggregates)
        keys = {_key_column(name): (name, CODED) for name in self.keys}
        return Layout({**keys, **{name: (source, ways[source]) for name, source in self._arguments.items()}})

    @cached_property
    def _arguments(self) -> dict[str, str]:
        """Under what name a column that aggregates read is kept."""
        return {f"of {name}": name for name in kept_as(self.input, self.aggregates)}

    @cached_property
    def _only_distinct(self) -> bool:
        return bool(self.aggregates) and all(each.function == "count_distinct" for each in self.aggregates)

    @cached_property
    def _waiting(self) -> Shelf:
        return Shelf(_WAITING, max(self.over // _SEGMENTS, _LEAST_WIDTH))

    @cached_property
    def _history(self) -> Shelf:
        return Shelf(_HISTORY, max(self.over // _SEGMENTS, _LEAST_WIDTH))

    def layout(self) -> dict[str, Any]:
        return {
            "kernel": "Rolling",
            "keys": [[name, str(self.input.field(name).type)] for name in self.keys],
            "over": self.over,
            "at_once": self.at_once,
            "last_only": self._only_distinct,
            "values": {name: way for name, (_, way) in self._layout.columns.items()},
            "columns": columns_of(self.input),
        }

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        """Of rows that are known, what was kept must be enough; values that are new are null in them."""
        now = self.layout()
        free = {name: now[name] for name in ("last_only", "values", "columns")}
        if before.get("kernel") != "Rolling":
            return differing(before, now)
        if before.get("last_only") and not self._only_distinct:
            return "only the last row with each different value was kept"
        ways = before["values"]
        if any(ways.get(name) == PRESENT and way != PRESENT for name, way in now["values"].items()):
            return "of values that were only counted nothing else is known"
        return differing({**before, **free}, now) or changed_types(before["columns"], now["columns"])

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        if number == _LEFT:
            return chunk
        return with_columns(chunk, self.input) if self._waiting.on([number]) else self._layout.fitted(chunk, self.input)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        return late_by_time(rows, watermark)

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        change = _Change()
        new = pa.concat_tables([self.input.empty_table(), *(table.select(self.input.names) for table in rows[0])])
        due = new.combine_chunks() if self.at_once else self._due(state, new, watermark, change)
        change.drop |= {run for run in self._history.on(state) if self._history.end(run) + self.over <= watermark}
        main = self._enriched(state, due, watermark, change) if due.num_rows else self.output.empty_table()
        left = self._history.on({*state, *change.put} - change.drop)
        change.wakes += [self._history.end(run) + self.over for run in left[:1]]
        return Result(main, put=change.put, drop=sorted(change.drop), wake=min(change.wakes, default=None))

    @property
    def reach(self) -> tuple[int | None, int]:
        return self.over, 0

    @property
    def waits(self) -> bool:
        return not self.at_once

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """Rows that wait, whole, and of those that have left what later intervals need.

        Of a value that is only counted it is known whether it was there.
        """
        chunks = {number: self.fitted(number, state[number]) for number in state}
        waiting = pa.concat_tables(
            [self.input.empty_table(), *(chunks[run].select(self.input.names) for run in self._waiting.on(chunks))]
        )
        waiting = waiting.filter(pa.array(instants(waiting) > watermark)).combine_chunks()
        runs = [chunks[run] for run in self._history.on(chunks)]
        parts, nothing, dictionaries = self._layout.read(runs, self.input.empty_table())
        kept = joined([*parts, nothing])[0].since(watermark + 1 - self.over)
        if self._only_distinct:
            kept = kept.pick(self._last_occurrences(kept, dictionaries, watermark))
        return pa.concat_tables([self._shown_waiting(waiting), self._shown_kept(kept, dictionaries)])

    @cached_property
    def _shown_arguments(self) -> dict[str, str]:
        """Kept arguments by the names they are shown under."""
        ways = {name: way for name, (_, way) in self._layout.columns.items()}
        named = {f"{source} is there" if ways[name] == PRESENT else source: name
                 for name, source in self._arguments.items()}  # fmt: skip
        return {shown: name for shown, name in named.items() if shown not in self.keys}

    def _shown_waiting(self, rows: pa.Table) -> pa.Table:
        arguments = {
            shown: single(rows.column(self._arguments[name])).is_valid()
            if self._layout.columns[name][1] == PRESENT
            else single(rows.column(self._arguments[name]))
            for shown, name in self._shown_arguments.items()
        }
        columns = {**picked(rows, self.keys), **arguments, **picked(rows, self.passed, [*self.keys, *arguments])}
        told = {"waits": flags(True, rows.num_rows), EVENT_TIME: as_instants(rows.column(TIME))}
        return laid_out(told, columns)

    def _shown_kept(self, part: Part, dictionaries: Mapping[str, pa.Array]) -> pa.Table:
        rows, run = len(part.time), self._layout.write(part, dictionaries)
        keys = {name: single(run.column(_key_column(name))) for name in self.keys}
        arguments = {shown: single(run.column(name)) for shown, name in self._shown_arguments.items()}
        columns = {**keys, **arguments, **nulls(self.input, self.passed, rows, [*keys, *arguments])}
        told = {"waits": flags(False, rows), EVENT_TIME: as_instants(run.column(TIME))}
        return laid_out(told, columns)

    def _due(self, state: State, new: pa.Table, watermark: int, change: _Change) -> pa.Table:
        """The rows that leave now. Others wait in the run they came with; what has left of it stays in it for a while.

        So that rows are not written again and again while they wait, rows that have left are told by their time.
        """
        left = state[_LEFT].column(TIME)[0].as_py() if _LEFT in state else NO_WATERMARK
        coming = instants(new) > watermark
        due = [new.filter(pa.array(~coming))]
        waiting: dict[int, tuple[pa.Table, Bools]] = {}
        for number in self._waiting.on(state):
            run = state[number]
            time = instants(run)
            stays = time > watermark
            leaves = ~stays & (time > left)
            if leaves.any():
                due.append(run if leaves.all() else run.filter(pa.array(leaves)))
            if stays.any():
                waiting[number] = run, stays
                change.wakes.append(int(time[stays].min()))
            else:
                change.drop.add(number)
        if coming.any():
            change.wakes.append(int(instants(new)[coming].min()))
            self._await(new.filter(pa.array(coming)), waiting, watermark, change)
        worn = [number for number, (_, stays) in waiting.items() if stays.sum() * _WORN < len(stays)]
        for number in worn:
            run, stays = waiting.pop(number)
            change.put[number] = run.filter(pa.array(stays)).combine_chunks()
        if any(not stays.all() for _, stays in waiting.values()):
            if len(due) > 1:
                change.put[_LEFT] = pa.table({TIME: pa.array([watermark], pa.int64())})
        elif _LEFT in state:
            change.drop.add(_LEFT)
        return pa.concat_tables(due).combine_chunks()

    def _await(
        self, rows: pa.Table, waiting: dict[int, tuple[pa.Table, Bools]], watermark: int, change: _Change
    ) -> None:
        """Puts rows on the shelf, together with runs that are merged with them; these no longer wait on their own."""
        sizes = {number: int(stays.sum()) for number, (_, stays) in waiting.items()}
        newest = int(instants(rows).max())
        # However long rows wait, there shall be few runs.
        span = self._waiting.spread(watermark, newest)
        number, merged = self._waiting.place(newest, rows.num_rows, sizes, span)
        others = [run.filter(pa.array(stays)) for run, stays in map(waiting.pop, merged)]
        change.replace(number, pa.concat_tables([rows, *others]).combine_chunks(), merged)

    def _enriched(self, state: State, due: pa.Table, watermark: int, change: _Change) -> pa.Table:
        """The rows with their aggregates. They are added to the history as far as it will be needed."""
        expired = watermark + 1 - self.over
        since = min(expired, int(instants(due).min()) - self.over)
        numbers = [run for run in self._history.on(state) if self._history.end(run) - 1 > since]
        tables = [state[number] for number in numbers]
        parts, rows, dictionaries = self._layout.read(tables, due)
        order = time_order(rows.time)
        if order is not None:
            rows = rows.pick(order)
        columns = self._aggregated([part.since(since) for part in parts], rows, order, dictionaries)
        needed = {number: part.since(expired) for number, part in zip(numbers, parts, strict=True)}
        sizes = {number: table.num_rows for number, table in zip(numbers, tables, strict=True)}
        self._tidy(needed, sizes, dictionaries, watermark, change)
        self._keep(needed, rows.since(expired), dictionaries, watermark, change)
        passed = [due.column(name) for name in self.passed]
        return pa.Table.from_arrays([*passed, *columns], schema=self.output)

    def _aggregated(
        self, parts: Sequence[Part], rows: Part, order: Ints | None, dictionaries: Mapping[str, pa.Array]
    ) -> list[pa.Array]:
        """The columns of aggregates for `rows`, as these were before they were put in `order`."""
        every, source = joined([*parts, rows])
        source = source - (len(every.time) - len(rows.time))
        key, keys = self._key(every, dictionaries)
        if len(every.time) > _MANY * len(rows.time):
            wanted = np.zeros(keys, np.bool_)
            wanted[key[source >= 0]] = True
            concerned = wanted[key]
            every, source, key = every.pick(concerned), source[concerned], key[concerned]
        asked, columns = self._rolled(every, source, key, keys, dictionaries)
        back = np.empty(len(asked), np.int64)
        back[asked if order is None else order[asked]] = np.arange(len(asked))
        return [column.take(pa.array(back)) for column in columns]

    def _rolled(
        self, every: Part, source: Ints, key: Ints, keys: int, dictionaries: Mapping[str, pa.Array]
    ) -> tuple[Ints, list[pa.Array]]:
        """Aggregates for the rows whose number in `source` is not negative, and these numbers in the same order."""
        if keys > most_keys(every.time, self.over):
            halves = [(0, keys // 2), (keys // 2, keys)]
            chosen = [(low, high, (key >= low) & (key < high)) for low, high in halves]
            done = [
                self._rolled(every.pick(part), source[part], key[part] - low, high - low, dictionaries)
                for low, high, part in chosen
                if (source[part] >= 0).any()
            ]
            columns = zip(*(columns for _, columns in done), strict=True)
            return np.concatenate([asked for asked, _ in done]), [pa.concat_arrays(pieces) for pieces in columns]
        ranges = intervals(key, keys, every.time, source >= 0, self.over)
        arguments = {
            column: Argument(ranges, self.input.field(column).type, _column(every, name, dictionaries))
            for name, column in self._arguments.items()
        }
        return source[ranges.rows[ranges.asked]], [aggregated(each, ranges, arguments) for each in self.aggregates]

    def _key(self, part: Part, dictionaries: Mapping[str, pa.Array]) -> tuple[Ints, int]:
        """Keys as integers, and a bound for them that is not much greater than there are rows."""
        key, size = np.zeros(len(part.time), np.int64), 1
        for name in self.keys:
            codes, values = part.columns[_key_column(name)], dictionaries[_key_column(name)]
            key, size = key * len(values) + codes, size * len(values)
            if size > max(2 * len(key), 1 << 16):
                encoded = pa.array(key).dictionary_encode()
                key, size = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        return key, size

    def _tidy(
        self,
        needed: dict[int, Part],
        sizes: Mapping[int, int],
        dictionaries: Mapping[str, pa.Array],
        watermark: int,
        change: _Change,
    ) -> None:
        """Removes runs of which nothing is needed, and from those with rows far ahead what is not needed."""
        for number, part in list(needed.items()):
            if number in change.drop or not len(part.time):
                change.drop.add(number)
                del needed[number]
            elif len(part.time) * _WORN < sizes[number] and part.time[-1] > watermark:
                change.put[number] = self._layout.write(part, dictionaries)

    def _keep(
        self,
        needed: Mapping[int, Part],
        rows: Part,
        dictionaries: Mapping[str, pa.Array],
        watermark: int,
        change: _Change,
    ) -> None:
        """Adds rows to the history, given what is needed of its runs."""
        if not len(rows.time):
            return
        sizes = {number: len(part.time) for number, part in needed.items()}
        newest = int(rows.time[-1])
        crowd = self._history.crowded(newest, sizes)
        number, merged = self._history.place(newest, len(rows.time), sizes)
        added = [(number, merged, [rows])] + ([(crowd[0], crowd, [])] if crowd else [])
        for target, others, new in added:
            part, _ = joined([*(needed[other] for other in others), *new])
            if self._only_distinct:
                part = part.pick(self._last_occurrences(part, dictionaries, watermark))
            change.replace(target, self._layout.write(part, dictionaries), others)

    def _last_occurrences(self, part: Part, dictionaries: Mapping[str, pa.Array], watermark: int) -> Bools:
        """The rows that different values are still counted by: the last with each, as intervals to come all end later.

        That is not so for rows that are ahead of the watermark.
        """
        past = int(np.searchsorted(part.time, watermark, side="right"))
        key, keys = self._key(part, dictionaries)
        last = np.ones(len(key), np.bool_)
        last[:past] = False
        for name in self._arguments:
            codes = Codes(part.columns[name][:past], dictionaries[name])
            counted = last_of_pairs(key[:past], keys, codes.numbers, len(codes.values))
            last[:past] |= counted if codes.null is None else counted & (codes.numbers != codes.null)
        return last


def _key_column(name: str) -> str:
    return f"key {name}"


def _column(part: Part, name: str, dictionaries: Mapping[str, pa.Array]) -> Codes | Bools | pa.Array:
    column = part.columns[name]
    return Codes(column, dictionaries[name]) if name in dictionaries else column
