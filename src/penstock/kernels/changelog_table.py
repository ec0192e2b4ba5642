"""How a table of changes is kept: the row that counts for each key, spread over slots by hash.

Each side has slots, which are ranges of the hash of the join columns and chunks of the state, and one chunk of recent
rows. A change goes to the recent rows, where it hides what is in the slot; when there are many of them, they are moved
to their slots. So a batch reads the slots of its keys and writes little: some recent rows each time, a whole table
now and then. A catalog, one more chunk, has the size of each chunk and when its first tombstone is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.base import TIME, State
from penstock.kernels.matching import dense_codes, expanded, ordinals, places_of, same_rows
from penstock.kernels.stable_hash import key_hash

HASH = "_hash"
"""The hash of the join columns, by which rows of both sides are kept and found."""
KEY = "_key"
"""The hash of the primary key, where that is more than the join columns."""
CATALOG = 0
"""The number of the catalog's chunk. Recent rows of a side are in chunk 1 + side, slot n in 3 + 2n + side."""

_CATALOG = pa.schema([("number", pa.int64()), ("rows", pa.int64()), ("due", pa.int64())])


@dataclass(frozen=True)
class Entry:
    """What the catalog says of a chunk."""

    rows: int
    due: int | None
    """The watermark at which the first tombstone in it is forgotten."""


Catalog = dict[int, Entry]


@dataclass(frozen=True)
class Layout:
    """How rows are spread over chunks."""

    slots: int
    recent: int
    """As long as there are no more recent rows than this, they stay."""
    tombstones: int | None

    def slot(self, hashes: np.ndarray) -> np.ndarray:
        """Slots are ranges of hashes, so that rows in the order of their hashes are in the order of slots too."""
        return ((hashes >> np.uint64(32)) * np.uint64(self.slots) >> np.uint64(32)).astype(np.int64)

    def number(self, side: int, slot: int) -> int:
        return 3 + 2 * slot + side

    def is_crowded(self, recent: int, fresh: int, kept: int) -> bool:
        """Whether recent rows are to be moved: writing them again and again would cost more than moving them."""
        return recent > self.recent and recent * recent > 2 * kept * fresh


@dataclass(frozen=True)
class Input:
    """One of the two streams."""

    number: int
    schema: pa.Schema
    key: tuple[str, ...]
    join: tuple[str, ...]
    """The columns of the join, in the order of their pairs."""
    version: str
    deleted: str | None
    out: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """What is kept of a row, in the order of the input."""
        needed = {TIME, *self.key, self.version, self.deleted, *(name for name, _ in self.out)}
        return [name for name in self.schema.names if name in needed]

    @property
    def key_hash(self) -> str:
        """The column that has the hash of the primary key."""
        return HASH if set(self.key) == set(self.join) else KEY

    def fresh(self, tables: Sequence[pa.Table]) -> pa.Table:
        """New rows with their hashes."""
        rows = pa.concat_tables([table.select(self.columns) for table in tables]) if tables else self.empty()
        rows = rows.append_column(HASH, pa.array(key_hash([rows.column(name) for name in self.join])))
        if self.key_hash == KEY:
            rows = rows.append_column(KEY, pa.array(key_hash([rows.column(name) for name in self.key])))
        return rows

    def empty(self) -> pa.Table:
        return pa.schema([self.schema.field(name) for name in self.columns]).empty_table()

    def live(self, rows: pa.Table) -> np.ndarray:
        """Which rows are no tombstones."""
        if self.deleted is None:
            return np.ones(rows.num_rows, bool)
        return ~np.asarray(rows.column(self.deleted).fill_null(False))


class Pool:
    """Rows of a side that a batch may touch, each key once, and the new rows after them; and which keys change.

    `before` and `after` are rows by changed key: the one that was there, or -1, and the one that takes its place.
    """

    def __init__(
        self,
        side: Input,
        layout: Layout,
        state: State,
        catalog: Mapping[int, Entry],
        fresh: pa.Table,
        touched: np.ndarray,
        watermark: int,
    ) -> None:
        """`touched` are the hashes of the join columns of all that is new on either side, in order."""
        self.side = side
        self._layout = layout
        self._closed = watermark - layout.tombstones if layout.tombstones is not None else None
        recent = state[1 + side.number] if 1 + side.number in state else fresh.slice(0, 0)
        self._moving = self._moved_slots(catalog, recent, fresh, watermark)
        slotted = _unhidden(side, self._settled(state, touched) or fresh.slice(0, 0), recent)
        self._slotted = slotted.num_rows
        self.stored = self._slotted + recent.num_rows
        self.rows = pa.concat_tables([slotted, recent, fresh]).combine_chunks()
        self.hash = self.rows.column(HASH).to_numpy()
        self.time = self.rows.column(TIME).to_numpy()
        self.live = side.live(self.rows)
        self.before, self.after = self._changed()

    def columns(self, names: Sequence[str], rows: np.ndarray | slice = slice(None)) -> list[pa.ChunkedArray]:
        columns = [self.rows.column(name) for name in names]
        return columns if isinstance(rows, slice) else [column.take(rows) for column in columns]

    def lives(self, rows: np.ndarray) -> np.ndarray:
        """Which rows are there and not deleted; -1 is none."""
        return np.asarray(np.append(self.live, False)[rows])

    def same(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Whether rows look the same in the output."""
        same: np.ndarray = rows == others
        unsure = np.flatnonzero(~same)
        columns = self.columns([name for name, _ in self.side.out])
        same[unsure] = same_rows(columns, rows[unsure], columns, others[unsure])
        return same

    def write(self, catalog: Catalog, put: dict[int, pa.Table]) -> None:
        """Notes the chunks that change, and what the catalog says of them; those without rows leave it."""
        staying = np.ones(self.stored, bool)
        staying[self.before[self.before >= 0]] = False
        rows = np.concatenate([np.flatnonzero(staying), self.after])
        slots = self._layout.slot(self.hash[rows])
        moving = np.isin(slots, self._moving)
        recent = rows[~moving & (rows >= self._slotted)]
        if len(self.after) or len(recent) < self.stored - self._slotted:
            self._put(1 + self.side.number, self.rows.take(pa.array(recent)), catalog, put)
        if not len(self._moving):
            return
        rows = rows[moving]
        if self._closed is not None:
            rows = rows[self.live[rows] | (self.time[rows] > self._closed)]
        rows = rows[np.argsort(self.hash[rows], kind="stable")]
        table, slots = self.rows.take(pa.array(rows)), self._layout.slot(self.hash[rows])
        starts, stops = np.searchsorted(slots, self._moving, "left"), np.searchsorted(slots, self._moving, "right")
        for slot, start, stop in zip(self._moving.tolist(), starts.tolist(), stops.tolist(), strict=True):
            self._put(self._layout.number(self.side.number, slot), table.slice(start, stop - start), catalog, put)

    def _put(self, number: int, rows: pa.Table, catalog: Catalog, put: dict[int, pa.Table]) -> None:
        catalog.pop(number, None)
        if rows.num_rows:
            put[number] = rows
            catalog[number] = Entry(rows.num_rows, self._due(rows))

    def _due(self, rows: pa.Table) -> int | None:
        if self._layout.tombstones is None or self.side.deleted is None:
            return None
        times = rows.column(TIME).to_numpy()[~self.side.live(rows)]
        return int(times.min()) + self._layout.tombstones if len(times) else None

    def _moved_slots(
        self, catalog: Mapping[int, Entry], recent: pa.Table, fresh: pa.Table, watermark: int
    ) -> np.ndarray:
        """The slots to which recent and new rows go in this batch.

        Those with a tombstone that is due are among them: it can only go together with what it hides.
        """
        mine = {number: entry for number, entry in catalog.items() if number and (number - 1) % 2 == self.side.number}
        slots = self._layout.slot(np.concatenate([table.column(HASH).to_numpy() for table in (recent, fresh)]))
        if self._layout.is_crowded(len(slots), fresh.num_rows, sum(entry.rows for entry in mine.values())):
            moving = slots
        elif self._closed is not None and self.side.deleted is not None:
            times = np.concatenate([table.column(TIME).to_numpy() for table in (recent, fresh)])
            dead = np.concatenate([~self.side.live(table) for table in (recent, fresh)])
            moving = slots[dead & (times <= self._closed)]
        else:
            moving = slots[:0]
        due = [
            (number - 3) // 2 for number, e in mine.items() if number > 2 and e.due is not None and e.due <= watermark
        ]
        return np.unique(np.concatenate([moving, np.array(due, np.int64)]))

    def _settled(self, state: State, touched: np.ndarray) -> pa.Table | None:
        """Rows in slots: those that the new rows are about, and all where recent rows move to."""
        slots = np.union1d(self._layout.slot(touched), self._moving)
        numbers = [self._layout.number(self.side.number, slot) for slot in slots.tolist()]
        chunks = [state[number] for number in numbers if number in state]
        if not chunks:
            return None
        rows = pa.concat_tables(chunks).combine_chunks()
        hashes = rows.column(HASH).to_numpy()
        wanted = np.isin(self._layout.slot(hashes), self._moving) if len(self._moving) else np.zeros(len(hashes), bool)
        starts, stops = (np.searchsorted(hashes, touched, end) for end in ("left", "right"))
        for _, found in expanded(starts, stops - starts):
            wanted[found] = True
        return rows.take(pa.array(np.flatnonzero(wanted)))

    def _changed(self) -> tuple[np.ndarray, np.ndarray]:
        keys = self.rows.column(self.side.key_hash).to_numpy()
        asked = np.unique(keys[self.stored :])
        if not len(asked):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(asked, keys[: self.stored]), len(asked) - 1)
        known = np.flatnonzero(asked[place] == keys[: self.stored])
        rows = np.concatenate([known, np.arange(self.stored, len(keys))])
        codes = dense_codes(self.columns(self.side.key, rows), keys[rows])
        before = np.full(int(codes.max()) + 1, -1)
        before[codes[: len(known)]] = known
        after = rows[self._greatest(rows, codes)]
        changed = before != after
        return before[changed], after[changed]

    def _greatest(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """For each code the position of the row that counts. Only rows with equal versions are looked at as a whole."""
        versions, times = ordinals(self.columns([self.side.version], rows)[0]), self.time[rows]
        greatest = _lasts(np.lexsort((times, versions, codes)), codes)
        best = greatest[codes]
        tied = (versions == versions[best]) & (times == times[best])
        tied &= np.bincount(codes, tied)[codes] > 1
        again = np.flatnonzero(tied)
        if len(again):
            equal = rows[again]
            content = [ordinals(column) for column in self.columns(self.side.columns[::-1], equal)]
            order = np.lexsort((-equal, *content, ~self.live[equal], codes[again]))
            lasts = again[_lasts(order, codes[again])]
            greatest[codes[lasts]] = lasts
        return greatest


def _unhidden(side: Input, slotted: pa.Table, recent: pa.Table) -> pa.Table:
    """What of the slots is not replaced by recent rows."""
    if not slotted.num_rows or not recent.num_rows:
        return slotted
    keys = [[table.column(name) for name in side.key] for table in (slotted, recent)]
    hashes = [table.column(side.key_hash).to_numpy() for table in (slotted, recent)]
    hidden = places_of(keys[0], hashes[0], keys[1], hashes[1]) >= 0
    return slotted.filter(pa.array(~hidden)) if hidden.any() else slotted


def settled_rows(side: Input, state: State, closed: int | None) -> pa.Table:
    """All rows of a side, each key once; deletions up to the time `closed` are forgotten."""
    recent = state[1 + side.number] if 1 + side.number in state else side.fresh([])
    slots = [state[number] for number in sorted(state) if number > 2 and (number - 3) % 2 == side.number]
    slotted = pa.concat_tables([recent.slice(0, 0), *slots]).combine_chunks()
    rows = pa.concat_tables([_unhidden(side, slotted, recent), recent]).combine_chunks()
    if closed is None:
        return rows
    return rows.filter(pa.array(side.live(rows) | (rows.column(TIME).to_numpy() > closed)))


def _lasts(order: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The last of each code, given an order by code first."""
    ordered = codes[order]
    return np.asarray(order[np.append(ordered[1:] != ordered[:-1], True)])


def read_catalog(state: State) -> Catalog:
    listed = state[CATALOG].to_pylist() if CATALOG in state else []
    return {row["number"]: Entry(row["rows"], row["due"]) for row in listed}


def catalog_table(catalog: Catalog) -> pa.Table:
    listed = [{"number": number, "rows": entry.rows, "due": entry.due} for number, entry in sorted(catalog.items())]
    return pa.Table.from_pylist(listed, schema=_CATALOG)
