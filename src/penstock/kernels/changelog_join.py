"""Joins two streams of changes into the changes of one table, without windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from penstock.kernels.changelog_table import (
    CATALOG,
    HASH,
    KEY,
    Input,
    Layout,
    Pool,
    catalog_table,
    read_catalog,
    settled_rows,
)
from penstock.kernels.columns import plain
from penstock.kernels.matching import expanded, places_of, present, same_rows, take_or_null
from penstock.kernels.shown import EVENT_TIME, instants, laid_out, words


@dataclass(frozen=True)
class ChangelogJoin(Kernel):
    """The table `left JOIN right`, kept up to date while both sides change row by row.

    A row of an input is the new state of its primary key. The greatest version counts, in whatever order changes come;
    among equal versions the later event time, then a deletion, then the greatest row, column by column in the order of
    the input, null being least. Where the deletion column is true, the row is gone: a tombstone stays for a while and
    keeps older changes from bringing it back.

    Each left row has at most one right row: the join columns must be the right side's whole primary key. And they must
    be among the left side's primary key, so that a left row never changes its partner's key: rows are spread by the
    join columns, and no one would tell the old place of a row that it has moved.

    Out come changes by the left side's primary key: at most one per key and batch, and only what differs from what was
    given before. Applied in order, they make the join of the two tables as they are. A deletion has the key, and null
    elsewhere.
    """

    left: pa.Schema
    right: pa.Schema
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    on: tuple[tuple[str, str], ...]
    """Pairs of a left and a right column."""
    how: str
    left_out: tuple[tuple[str, str], ...]
    right_out: tuple[tuple[str, str], ...]
    """Columns of the output: the name in the input, the name in the output. The left key must be among them."""
    version: tuple[str, str] = (TIME, TIME)
    deleted: tuple[str | None, str | None] = (None, None)
    deleted_out: str = "deleted"
    tombstones: int | None = None
    """Tombstones are forgotten when the watermark is so many microseconds past their event time; else never."""
    slots: int = 64
    """Chunks per side and bucket. What is kept depends on it: it may not change."""
    recent_rows: int = 1_024
    """So many changes may be kept together, beside the slots, whatever the size of the table."""

    def __post_init__(self) -> None:
        if self.how not in ("inner", "left"):
            raise ValueError(f"no such join of changes: {self.how!r}")
        if not self.on or sorted(right for _, right in self.on) != sorted(self.right_key):
            raise ValueError("the right columns of the join must be the primary key of the right side")
        if not {left for left, _ in self.on} <= set(self.left_key):
            raise ValueError("the left columns of the join must be part of the primary key of the left side")
        if not set(self.left_key) <= {name for name, _ in self.left_out}:
            raise ValueError("the output needs the primary key of the left side")
        for left, right in self.on:
            if self.left.field(left).type != self.right.field(right).type:
                raise ValueError(f"{left!r} and {right!r} have different types")
        for schema, version, deleted in zip((self.left, self.right), self.version, self.deleted, strict=True):
            if pa.types.is_nested(schema.field(version).type):
                raise ValueError(f"{version!r} has no order")
            if deleted is not None and schema.field(deleted).type != pa.bool_():
                raise ValueError(f"{deleted!r} is not boolean")
        if self.slots < 1 or (self.tombstones is not None and self.tombstones < 0):
            raise ValueError("slots must be at least one, and tombstones kept for no less than no time")

    @cached_property
    def inputs(self) -> tuple[Input, Input]:
        lefts, rights = tuple(left for left, _ in self.on), tuple(right for _, right in self.on)
        return (
            Input(0, self.left, self.left_key, lefts, self.version[0], self.deleted[0], self.left_out),
            Input(1, self.right, self.right_key, rights, self.version[1], self.deleted[1], self.right_out),
        )

    @property
    def output(self) -> pa.Schema:
        columns = [(out, side.schema.field(name).type) for side in self.inputs for name, out in side.out]
        return pa.schema([*columns, (self.deleted_out, pa.bool_())])

    def layout(self) -> dict[str, Any]:
        sides = {f"columns_{side.number}": columns_of(side.empty().schema) for side in self.inputs}
        return {
            "kernel": "ChangelogJoin",
            "keys": [list(self.left_key), list(self.right_key)],
            "on": [list(pair) for pair in self.on],
            "version": list(self.version),
            "deleted": list(self.deleted),
            "slots": self.slots,
            "how": self.how,
            **sides,
        }

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        """A column that is new is null in the rows that are known."""
        now = self.layout()
        sides = [name for name in now if name.startswith("columns_")]
        found = differing({**before, **{name: now[name] for name in sides}}, now)
        return found or next(filter(None, (changed_types(before[name], now[name]) for name in sides)), None)

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        if number == CATALOG:
            return chunk
        side = self.inputs[(number - 1) % 2]
        hashes = [name for name in chunk.schema.names if name in (HASH, KEY)]
        return with_columns(chunk, pa.schema([*side.empty().schema, *(chunk.schema.field(name) for name in hashes)]))

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        """Nothing is late: versions decide."""
        return timely(rows)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        """Leaves out columns nobody needs, and rows that a null keeps from joining, unless they are given alone."""
        rows = rows.select([*self.inputs[side].columns, BUCKET])
        if side == 1 or self.how == "inner":
            full = present([rows.column(name) for name in self.inputs[side].join])
            rows = rows if full.all() else rows.filter(pa.array(full))
        return rows

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        layout = Layout(self.slots, self.recent_rows, self.tombstones)
        catalog = read_catalog(state)
        fresh = [side.fresh(rows[side.number]) for side in self.inputs]
        touched = np.unique(np.concatenate([table.column(HASH).to_numpy() for table in fresh]))
        left, right = (
            Pool(side, layout, state, catalog, table, touched, watermark)
            for side, table in zip(self.inputs, fresh, strict=True)
        )
        put: dict[int, pa.Table] = {}
        now = dict(catalog)
        left.write(now, put)
        right.write(now, put)
        drop = [number for number in catalog if number not in now]
        if catalog and not now:
            drop.append(CATALOG)
        elif now != catalog:
            put[CATALOG] = catalog_table(now)
        wake = min((entry.due for entry in now.values() if entry.due is not None), default=None)
        return Result(main=self._changes(left, right), put=put, drop=drop, wake=wake)

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.on)

    def shown(self, state: State, watermark: int) -> pa.Table:
        """The row that counts for each key of either side, and deletions that are remembered."""
        closed = None if self.tombstones is None else watermark - self.tombstones
        chunks = {number: self.fitted(number, state[number]) for number in state}
        return pa.concat_tables([self._shown_side(side, settled_rows(side, chunks, closed)) for side in self.inputs])

    def _shown_side(self, side: Input, rows: pa.Table) -> pa.Table:
        told = {
            "side": words("right" if side.number else "left", rows.num_rows),
            EVENT_TIME: instants(rows.column(TIME)),
            self.deleted_out: pa.array(~side.live(rows)),
        }
        columns = {shown: plain(rows.column(name)) for shown, name in zip(self.shown_keys, side.join, strict=True)}
        for other in self.inputs:
            for name, shown in other.out:
                if shown not in columns:
                    kind = other.schema.field(name).type
                    here = other.number == side.number
                    columns[shown] = plain(rows.column(name)) if here else pa.nulls(rows.num_rows, kind)
        return laid_out(told, columns)

    def _changes(self, left: Pool, right: Pool) -> pa.Table:
        """What is different in the joined table: for each left key that may be touched, how it was and how it is."""
        if not len(left.after) and not len(right.after):
            return self.output.empty_table()
        was, change = (_partners(left, right, rows) for rows in (np.arange(right.stored), right.after))
        is_now = was.copy()
        changed = change >= 0
        was[changed], is_now[changed] = right.before[change[changed]], right.after[change[changed]]
        others, moved = self._beside(left, right)
        before, after = np.concatenate([left.before, others]), np.concatenate([left.after, others])
        was = np.concatenate([was, right.before[moved]])
        is_now = np.concatenate([is_now, right.after[moved]])
        was, is_now = (np.where(right.lives(rows), rows, -1) for rows in (was, is_now))
        there, here = left.lives(before), left.lives(after)
        if self.how == "inner":
            there, here = there & (was >= 0), here & (is_now >= 0)
        both = np.flatnonzero(there & here)
        same = left.same(before[both], after[both]) & right.same(was[both], is_now[both])
        changed = here.copy()
        changed[both[same]] = False
        gone = there & ~here
        given = changed | gone
        return self._given(left, after[given], right, is_now[given], gone[given])

    def _beside(self, left: Pool, right: Pool) -> tuple[np.ndarray, np.ndarray]:
        """Left rows that stay as they are while their right row changes: the row, and which change it is."""
        unchanged = np.ones(left.stored, bool)
        unchanged[left.before[left.before >= 0]] = False
        candidates = np.flatnonzero(unchanged)
        candidates = candidates[np.argsort(left.hash[candidates], kind="stable")]
        hashes, wanted = left.hash[candidates], right.hash[right.after]
        starts = np.searchsorted(hashes, wanted, "left")
        counts = np.searchsorted(hashes, wanted, "right") - starts
        rows, changes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        theirs, mine = right.columns(right.side.join), left.columns(left.side.join)
        for which, place in expanded(starts, counts):
            found = candidates[place]
            same = same_rows(theirs, right.after[which], mine, found)
            rows.append(found[same])
            changes.append(which[same])
        return np.concatenate(rows), np.concatenate(changes)

    def _given(self, left: Pool, rows: np.ndarray, right: Pool, partners: np.ndarray, gone: np.ndarray) -> pa.Table:
        alive = np.where(gone, -1, rows)
        columns = [
            take_or_null(left.rows.column(name), rows if name in self.left_key else alive) for name, _ in self.left_out
        ]
        partners = np.where(gone, -1, partners)
        columns += [take_or_null(right.rows.column(name), partners) for name, _ in self.right_out]
        return pa.table([*columns, pa.array(gone)], schema=self.output)


def _partners(left: Pool, right: Pool, rows: np.ndarray) -> np.ndarray:
    """For each changed left row the place among some right rows of the one with the same join columns, or -1."""
    mine, theirs = left.columns(left.side.join, left.after), right.columns(right.side.join, rows)
    return places_of(mine, left.hash[left.after], theirs, right.hash[rows])
