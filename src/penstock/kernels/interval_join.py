"""Joins two streams on keys, where the times of partners are no further apart than an interval allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.kernels.base import BUCKET, TIME, Kernel, Late, Result, State, late_by_time
from penstock.kernels.columns import plain
from penstock.kernels.join_runs import Block, Shelf, Side, fresh_block, meetings
from penstock.kernels.matching import present, take_or_null
from penstock.kernels.shown import EVENT_TIME, instants, laid_out, words

SEGMENTS = 8
"""So many segments make up the time for which rows are kept."""
LEAST_SEGMENT = 1_000_000


@dataclass(frozen=True)
class IntervalJoin(Kernel):
    """Pairs of a left and a right row with equal keys and `right time - left time` in [lower, upper].

    A pair is given once, in the batch in which the second of its rows comes. Rows without partner, on the sides that
    `how` keeps, are given once, in the batch whose watermark rules out that a partner comes: from `left time + upper`
    and `right time - lower` on, since rows to come are after the watermark. A null in a key equals nothing; such rows
    are without partner from the start, and given or dropped at once.

    Rows are kept until no partner can come any more.
    """

    not_kept: ClassVar[tuple[str, ...]] = ("small_run", "chunk_rows")

    left: pa.Schema
    right: pa.Schema
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: str
    lower: int
    upper: int
    left_out: tuple[tuple[str, str], ...]
    right_out: tuple[tuple[str, str], ...]
    """Columns of the output: the name in the input, the name in the output."""
    small_run: int = 4_096
    """Up to so many rows are kept together whatever their times."""
    chunk_rows: int = 32_768

    def __post_init__(self) -> None:
        if self.how not in ("inner", "left", "right", "full"):
            raise ValueError(f"no such join: {self.how!r}")
        if self.lower > self.upper:
            raise ValueError(f"the interval ends before it starts: {self.lower} > {self.upper}")
        if not self.left_keys or len(self.left_keys) != len(self.right_keys):
            raise ValueError("each key column of one side needs one of the other")
        for left, right in zip(self.left_keys, self.right_keys, strict=True):
            if self.left.field(left).type != self.right.field(right).type:
                raise ValueError(f"{left!r} and {right!r} have different types")

    @property
    def output(self) -> pa.Schema:
        return pa.schema(
            [(out, self.left.field(name).type) for name, out in self.left_out]
            + [(out, self.right.field(name).type) for name, out in self.right_out]
        )

    @property
    def hold(self) -> int:
        """How far the event time of a given row can be behind the watermark of the batch before.

        Its event time is that of the left row, or of the right one if there is no left. Every row given is later than
        that watermark less this, and one microsecond less would not do.
        """
        return max(0, self.upper, -self.lower if self.how in ("right", "full") else 0)

    @property
    def sides(self) -> tuple[Side, Side]:
        return (
            Side(0, self.left_keys, (self.lower, self.upper), self.how in ("left", "full")),
            Side(1, self.right_keys, (-self.upper, -self.lower), self.how in ("right", "full")),
        )

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        return late_by_time(rows, watermark)

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        """Leaves out columns nobody needs, and rows that can neither match nor be given."""
        rows = rows.select([*self._needed(side), BUCKET])
        wanted = self.sides[side]
        if not wanted.outer:
            full = present([rows.column(key) for key in wanted.keys])
            rows = rows if full.all() else rows.filter(pa.array(full))
        return rows

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        left, right = self.sides
        shelf = Shelf(state, (left, right), self._segment(), self.small_run, self.chunk_rows)
        given: list[pa.Table] = []
        fresh_left, fresh_right = (self._fresh(side, rows[side.number], given) for side in (left, right))
        for stored, part in shelf.partners(right, fresh_left):
            self._join(part, stored, given)
        for stored, part in shelf.partners(left, fresh_right):
            self._join(stored, part, given)
        self._join(fresh_left, fresh_right, given)
        for fresh in (fresh_left, fresh_right):
            side = fresh.side
            given += [self._alone(side, lonely) for lonely in shelf.close(side, watermark)]
            over = fresh.time <= side.closed(watermark)
            if side.outer:
                given.append(self._alone(side, fresh.rows.filter(pa.array(over & ~fresh.matched))))
            shelf.add(fresh.only(~over), watermark)
        put, drop = shelf.finish()
        given = [table for table in given if table.num_rows]
        main = pa.concat_tables(given).combine_chunks() if given else self.output.empty_table()
        return Result(main=main, put=put, drop=drop, wake=shelf.wake())

    @property
    def reach(self) -> tuple[int | None, int]:
        before = self.upper if self.how in ("right", "full") else 0
        return max(0, -self.lower, before), self.hold

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.left_keys

    def shown(self, state: State, watermark: int) -> pa.Table:
        """Rows of both sides that may still find a partner; whether they have found one is kept of outer sides only."""
        shelf = Shelf(state, self.sides, self._segment(), self.small_run, self.chunk_rows)
        parts = [self._shown_side(side, shelf.kept(side, side.closed(watermark))) for side in self.sides]
        return pa.concat_tables(parts)

    def _shown_side(self, side: Side, blocks: Iterable[Block]) -> pa.Table:
        needed = self._needed(side.number)
        empty = pa.schema([self._schema(side.number).field(name) for name in needed]).empty_table()
        found = list(blocks)
        rows = pa.concat_tables([empty, *(block.rows.select(needed) for block in found)]).combine_chunks()
        matched = np.concatenate([np.zeros(0, bool), *(block.matched for block in found)])
        told = {
            "side": words("right" if side.number else "left", len(matched)),
            "matched": pa.array(matched) if side.outer else pa.nulls(len(matched), pa.bool_()),
            EVENT_TIME: instants(rows.column(TIME)),
        }
        keys = {shown: plain(rows.column(key)) for shown, key in zip(self.left_keys, side.keys, strict=True)}
        columns = dict(keys)
        for number, out in enumerate((self.left_out, self.right_out)):
            for name, shown in out:
                if shown not in keys:
                    there = number == side.number
                    kind = self._schema(number).field(name).type
                    columns[shown] = plain(rows.column(name)) if there else pa.nulls(len(matched), kind)
        return laid_out(told, columns)

    def _schema(self, side: int) -> pa.Schema:
        return self.right if side else self.left

    def _needed(self, side: int) -> list[str]:
        out = self.right_out if side else self.left_out
        keys = self.right_keys if side else self.left_keys
        return list(dict.fromkeys([TIME, *keys, *(name for name, _ in out)]))

    def _segment(self) -> int:
        kept = max(self.upper - self.lower, self.upper, -self.lower)
        return max(kept // SEGMENTS, LEAST_SEGMENT)

    def _fresh(self, side: Side, tables: Sequence[pa.Table], given: list[pa.Table]) -> Block:
        """The new rows of a side; those with a null key are given at once if at all."""
        needed = self._needed(side.number)
        empty = pa.schema([self._schema(side.number).field(name) for name in needed]).empty_table()
        rows = pa.concat_tables([table.select(needed) for table in tables]) if tables else empty
        full = present([rows.column(key) for key in side.keys])
        if not full.all():
            if side.outer:
                given.append(self._alone(side, rows.filter(pa.array(~full))))
            rows = rows.filter(pa.array(full))
        return fresh_block(side, rows)

    def _join(self, left: Block, right: Block, given: list[pa.Table]) -> None:
        for mine, found in meetings(left, right):
            left.matched[mine] = True
            right.matched[found] = True
            given.append(self._given(left.rows, mine, right.rows, found))

    def _alone(self, side: Side, rows: pa.Table) -> pa.Table:
        """Rows of one side with nulls for the other."""
        all_rows, none = np.arange(rows.num_rows), np.full(rows.num_rows, -1)
        if side.number:
            return self._given(self.left.empty_table(), none, rows, all_rows)
        return self._given(rows, all_rows, self.right.empty_table(), none)

    def _given(self, left: pa.Table, mine: np.ndarray, right: pa.Table, found: np.ndarray) -> pa.Table:
        columns = [take_or_null(left.column(name), mine) for name, _ in self.left_out]
        columns += [take_or_null(right.column(name), found) for name, _ in self.right_out]
        return pa.table(columns, schema=self.output)
