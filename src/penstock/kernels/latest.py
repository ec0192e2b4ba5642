"""The last row of each key, as a stream of changes for sinks that replace rows by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.base import (
    BUCKET,
    TIME,
    Kernel,
    Late,
    Result,
    State,
    changed_types,
    columns_of,
    differing,
    timely,
    with_columns,
)
from penstock.kernels.shown import EVENT_TIME, instants, laid_out, picked
from penstock.kernels.slots import best_rows, key_codes, matched, slot_of, sort_keys, together

_DIRECTORY = -1
_OLDEST = pa.schema([("slot", pa.int64()), ("oldest", pa.int64())])


@dataclass(frozen=True)
class Latest(Kernel):
    """After each batch gives the last row of each key whose last row is another one than before.

    Which row is last is told by the columns of `order` (the first deciding first, nulls before all values), then by
    time, then by comparing all columns that are kept: so it does not matter when rows come, and no row comes too late.
    Only when keys are forgotten, rows so old that their key may have been forgotten are late: they could bring back
    what was replaced long ago.

    A key is forgotten when the watermark has gone more than `forget` beyond the time of its last row; the next row of
    it is a first one. Forgotten rows are cleared out of the state now and then, not in each batch.

    Rows are kept in slots by a hash of their key; slots without new rows are neither read nor written.
    """

    input: pa.Schema
    keys: tuple[str, ...]
    passed: tuple[str, ...]
    """The columns to give."""
    order: tuple[str, ...] | None = None
    """The columns that say which row is newer; event time if none."""
    forget: int | None = None
    """How far the watermark is beyond a key's last row when the key is forgotten; never, if None."""
    deleted: str | None = None
    """A boolean column: where it is true, the row says that its key is gone. The last row is given and kept like any
    other, so that an older row cannot bring the key back. The column is always given."""
    slots: int = 32

    @property
    def output(self) -> pa.Schema:
        return pa.schema([self.input.field(name) for name in self._given])

    @property
    def _given(self) -> tuple[str, ...]:
        extra = (self.deleted,) if self.deleted is not None else ()
        return tuple(dict.fromkeys((*self.passed, *extra)))

    @property
    def _order(self) -> tuple[str, ...]:
        return (TIME,) if self.order is None else self.order

    @property
    def _kept(self) -> list[str]:
        """The columns of state; rows that are the same in them need not be told apart."""
        return list(dict.fromkeys((*self.keys, TIME, *self._order, *self._given)))

    @property
    def _stored(self) -> pa.Schema:
        return pa.schema([self.input.field(name) for name in self._kept])

    @property
    def _slack(self) -> int:
        """How long forgotten rows may stay in the state."""
        return (self.forget or 0) // 8

    def layout(self) -> dict[str, Any]:
        return {
            "kernel": "Latest",
            "keys": columns_of(pa.schema([self.input.field(name) for name in self.keys])),
            "order": columns_of(pa.schema([self.input.field(name) for name in self._order])),
            "deleted": self.deleted,
            "forgets": self.forget is not None,
            "slots": self.slots,
            "columns": columns_of(self._stored),
        }

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        """A column that is new is null in the rows that are known."""
        now = self.layout()
        return differing({**before, "columns": now["columns"]}, now) or changed_types(before["columns"], now["columns"])

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        return chunk if number == _DIRECTORY else with_columns(chunk, self._stored)

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        if self.forget is None:
            return timely(rows)
        late = rows.column(TIME).to_numpy() < watermark - self.forget
        return Late(late.astype(np.int64), late)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        return self._last_rows(rows.select([*self._kept, BUCKET]))

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        if before is None and self.forget is not None:
            raise ValueError("which keys are forgotten is told by the watermark by which the rows were judged")
        directory = _read_directory(state)
        new = self._last_rows(together(self._stored, rows[0]))
        slots = slot_of(new, self.keys, self.slots)
        order = np.argsort(slots, kind="stable")
        new, slots = new.take(pa.array(order)), slots[order]
        known = {slot: state[slot] for slot in np.unique(slots).tolist() if slot in state}
        stays, changed = self._compared(together(self._stored, known.values()), new, before)
        new, slots = new.filter(pa.array(changed)), slots[changed]
        written = self._merged(known, stays, new, slots)
        for slot in self._overdue(directory, watermark):
            if slot not in written:
                written[slot] = state[slot]
        put = {slot: self._remembered(table, watermark).combine_chunks() for slot, table in written.items()}
        return self._result(state, new.select(self._given).cast(self.output), put, directory)

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """The last row of each key that is remembered."""
        tables = [self.fitted(number, state[number]) for number in state if number != _DIRECTORY]
        rows = self._remembered(together(self._stored, tables), watermark)
        columns = {**picked(rows, self.keys), **picked(rows, [*self._order, *self._given], [*self.keys, TIME])}
        return laid_out({EVENT_TIME: instants(rows.column(TIME))}, columns)

    def _last_rows(self, rows: pa.Table) -> pa.Table:
        """The last row of each key."""
        return rows.take(pa.array(self._last_places(rows, key_codes(rows, self.keys))))

    def _last_places(self, rows: pa.Table, codes: np.ndarray) -> np.ndarray:
        """Where the last row of each code is, in the order of the codes; among equal rows the foremost."""
        names = dict.fromkeys((*self._order, TIME))
        keys = [key for name in names for key in sort_keys(rows.column(name), descending=True)]
        return best_rows(rows, codes, keys, self._kept, descending=True)[0]

    def _compared(self, known: pa.Table, new: pa.Table, before: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Which known rows are not replaced, and which of the new ones, each the only one of its key, are last now."""
        codes = matched(known, new, self.keys)
        places = np.flatnonzero((codes >= 0) & self._is_remembered(known, before))
        both = pa.concat_tables([known.take(pa.array(places)), new])
        last = self._last_places(both, np.concatenate([codes[places], np.arange(new.num_rows)]))
        changed = last >= len(places)
        stays = np.ones(known.num_rows, bool)
        stays[places] = ~changed[codes[places]]
        return stays, changed

    def _merged(
        self, known: dict[int, pa.Table], stays: np.ndarray, new: pa.Table, slots: np.ndarray
    ) -> dict[int, pa.Table]:
        """The slots that have new rows, with those of the known rows that stay; both are in the order of slots."""
        begins = dict(zip(known, np.cumsum([0, *(table.num_rows for table in known.values())]).tolist(), strict=False))
        merged: dict[int, pa.Table] = {}
        for slot in np.unique(slots).tolist():
            begin, end = np.searchsorted(slots, [slot, slot + 1]).tolist()
            parts = [new.slice(begin, end - begin)]
            if slot in known:
                table = known[slot]
                parts.append(table.filter(pa.array(stays[begins[slot] : begins[slot] + table.num_rows])))
            merged[slot] = pa.concat_tables(parts)
        return merged

    def _is_remembered(self, table: pa.Table, watermark: int | None) -> np.ndarray:
        if self.forget is None or watermark is None:
            return np.ones(table.num_rows, bool)
        return np.asarray(table.column(TIME).to_numpy() + self.forget >= watermark)

    def _remembered(self, table: pa.Table, watermark: int) -> pa.Table:
        stays = self._is_remembered(table, watermark)
        return table if stays.all() else table.filter(pa.array(stays))

    def _overdue(self, directory: dict[int, int], watermark: int) -> list[int]:
        """The slots in which there is something to clear out."""
        if self.forget is None:
            return []
        return [slot for slot, oldest in directory.items() if oldest + self.forget + self._slack < watermark]

    def _result(self, state: State, main: pa.Table, put: dict[int, pa.Table], directory: dict[int, int]) -> Result:
        drop = [slot for slot, table in put.items() if not table.num_rows and slot in state]
        put = {slot: table for slot, table in put.items() if table.num_rows}
        if self.forget is None:
            return Result(main, put=put, drop=drop)
        oldest = {slot: int(table.column(TIME).to_numpy().min()) for slot, table in put.items()}
        after = {slot: time for slot, time in (directory | oldest).items() if slot not in drop}
        if after and after != directory:
            put[_DIRECTORY] = pa.table([list(after), list(after.values())], schema=_OLDEST)
        elif not after and directory:
            drop.append(_DIRECTORY)
        wake = min(after.values()) + self.forget + self._slack + 1 if after else None
        return Result(main, put=put, drop=drop, wake=wake)


def _read_directory(state: State) -> dict[int, int]:
    """The time of the oldest row of each slot; empty when nothing is forgotten."""
    if _DIRECTORY not in state:
        return {}
    table = state[_DIRECTORY]
    return dict(zip(table.column("slot").to_pylist(), table.column("oldest").to_pylist(), strict=True))
