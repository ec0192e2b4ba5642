"""How the rows of a join's sides are kept: in sorted runs, cut into chunks that can be found without being read.

A run holds rows of one side, sorted by the hash of their keys and then by time. It is cut into pieces of bounded size,
each a chunk of the state. A catalog, itself one small chunk, says of every piece which hashes and which times are in
it, so that new rows read only the pieces where partners can be. Whether a row has found a partner is kept in a chunk
of its own beside each piece (one bit per row): it changes where the row does not.

Runs are merged as they grow, so that there are few of them and a row is rewritten a few times at most. Small runs are
merged with each other whatever their times; larger ones only within a segment of time, so that whole runs fall out
when their time is over.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.kernels.base import TIME, State
from penstock.kernels.matching import expanded, lower_bound, same_rows
from penstock.kernels.stable_hash import key_hash

HASH = "_hash"
MATCHED = "matched"
CATALOG = 0
"""The number of the catalog's chunk. Piece n has its rows in chunk 2n and its flags, if any are set, in 2n + 1."""

_CATALOG = pa.schema(
    [
        ("number", pa.int64()),
        ("run", pa.int64()),
        ("side", pa.int64()),
        ("rows", pa.int64()),
        ("least", pa.int64()),
        ("most", pa.int64()),
        ("first", pa.uint64()),
        ("last", pa.uint64()),
        ("pure", pa.bool_()),
        ("pending", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Side:
    """What is asked of the rows of one input."""

    number: int
    keys: tuple[str, ...]
    reach: tuple[int, int]
    """The time of a partner is a row's own plus something between these."""
    outer: bool
    """Rows without a partner are given too."""

    def closed(self, watermark: int) -> int:
        """Rows up to this time have met all partners they will ever meet: those to come are after the watermark."""
        return watermark - self.reach[1]


@dataclass
class Block:
    """Rows of a side in the order of (hash, time)."""

    side: Side
    rows: pa.Table
    hash: np.ndarray
    time: np.ndarray
    matched: np.ndarray
    pure: bool
    """No two keys have the same hash."""

    def __len__(self) -> int:
        return len(self.time)

    def keys(self) -> list[pa.ChunkedArray]:
        return [self.rows.column(key) for key in self.side.keys]

    def part(self, start: int, stop: int) -> Block:
        """Some rows on end; flags set there are set here."""
        return replace(
            self,
            rows=self.rows.slice(start, stop - start),
            hash=self.hash[start:stop],
            time=self.time[start:stop],
            matched=self.matched[start:stop],
        )

    def only(self, mask: np.ndarray) -> Block:
        """The rows of a mask, as a block of its own."""
        if mask.all():
            return self
        return replace(
            self,
            rows=self.rows.filter(pa.array(mask)),
            hash=self.hash[mask],
            time=self.time[mask],
            matched=self.matched[mask],
        )


def fresh_block(side: Side, rows: pa.Table) -> Block:
    """New rows, none with a null key."""
    hashes = key_hash([rows.column(key) for key in side.keys])
    return _ordered(side, rows.append_column(HASH, pa.array(hashes)), np.zeros(len(hashes), bool))


def merged(blocks: Sequence[Block]) -> Block:
    rows = pa.concat_tables([block.rows for block in blocks])
    return _ordered(blocks[0].side, rows, np.concatenate([block.matched for block in blocks]))


def _ordered(side: Side, rows: pa.Table, matched: np.ndarray) -> Block:
    hashes, times = rows.column(HASH).to_numpy(), rows.column(TIME).to_numpy()
    order = np.lexsort((times, hashes))
    rows = rows.combine_chunks().take(pa.array(order))
    hashes = hashes[order]
    keys = [rows.column(key) for key in side.keys]
    again = np.flatnonzero(hashes[1:] == hashes[:-1])
    pure = bool(same_rows(keys, again, keys, again + 1).all())
    return Block(side, rows, hashes, times[order], matched[order], pure)


def meetings(one: Block, other: Block) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows that are partners, as positions in both blocks, a bounded number at a time."""
    if len(one) > len(other):
        for found, rows in meetings(other, one):
            yield rows, found
        return
    low, high = one.side.reach
    start = np.searchsorted(other.hash, one.hash, "left")
    stop = np.searchsorted(other.hash, one.hash, "right")
    rows = np.flatnonzero(start < stop)
    if not len(rows):
        return
    if other.pure:
        rows = rows[same_rows(one.keys(), rows, other.keys(), start[rows])]
    start, stop, times = start[rows], stop[rows], one.time[rows]
    start = lower_bound(other.time, start, stop, times + low)
    stop = lower_bound(other.time, start, stop, times + (high + 1))
    for which, found in expanded(start, stop - start):
        mine = rows[which]
        if not other.pure:
            same = same_rows(one.keys(), mine, other.keys(), found)
            mine, found = mine[same], found[same]
        yield mine, found


@dataclass(frozen=True)
class Piece:
    """What the catalog says of a piece."""

    number: int
    run: int
    side: int
    rows: int
    least: int
    most: int
    """The times in it."""
    first: int
    last: int
    """The hashes in it."""
    pure: bool
    pending: int | None
    """The least time of a row that is still to be given for want of a partner; rows before are done with."""


class Shelf:
    """The runs of both sides while an advance is under way: reads pieces when they are needed, notes what changes."""

    def __init__(self, state: State, sides: Sequence[Side], width: int, small: int, chunk: int) -> None:
        self._state = state
        self._sides = sides
        self._width = width
        self._small = small
        self._chunk = chunk
        listed = state[CATALOG].to_pylist() if CATALOG in state else []
        self._before = {row["number"]: Piece(**row) for row in listed}
        self._now = dict(self._before)
        self._blocks: dict[int, Block] = {}
        self._next = max(self._before, default=0) + 1
        self._put: dict[int, pa.Table] = {}

    def partners(self, side: Side, block: Block) -> Iterator[tuple[Block, Block]]:
        """The pieces of a side in which partners of the block's rows can be, each with the rows in question.

        What is flagged in the pieces meanwhile is noted.
        """
        low, high = block.side.reach
        for piece in self._of(side) if len(block) else ():
            start = np.searchsorted(block.hash, np.uint64(piece.first), "left")
            stop = np.searchsorted(block.hash, np.uint64(piece.last), "right")
            times = block.time[start:stop]
            if len(times) and times.min() + low <= piece.most and times.max() + high >= piece.least:
                stored = self._load(piece)
                flags = int(stored.matched.sum())
                yield stored, block.part(int(start), int(stop))
                if side.outer and int(stored.matched.sum()) > flags:
                    self._put[2 * piece.number + 1] = pa.table({MATCHED: pa.array(stored.matched)})
                    self._set_pending(piece, stored, piece.pending)

    def close(self, side: Side, watermark: int) -> Iterator[pa.Table]:
        """Rows of a side that stay without partner, and forgets all whose time is over."""
        closed = side.closed(watermark)
        for piece in self._of(side):
            if piece.pending is not None and piece.pending <= closed:
                stored = self._load(piece)
                lonely = ~stored.matched & (stored.time >= piece.pending) & (stored.time <= closed)
                yield stored.rows.filter(pa.array(lonely))
                self._set_pending(piece, stored, closed + 1)
            if piece.most <= closed:
                self._forget(piece)

    def kept(self, side: Side, closed: int) -> Iterator[Block]:
        """The rows of a side that are later than a time."""
        for piece in self._of(side):
            block = self._load(piece)
            yield block.only(block.time > closed)

    def add(self, block: Block, watermark: int) -> None:
        """Keeps rows, in runs of their own or merged with what is there."""
        waiting = self._cut(block)
        closed = block.side.closed(watermark)
        while waiting:
            part = waiting.pop()
            taken, total = [part], len(part)
            for pieces in self._runs(part):
                rows = sum(piece.rows for piece in pieces)
                if rows > total:
                    break
                taken += [self._load(piece) for piece in pieces]
                total += rows
                for piece in pieces:
                    self._forget(piece)
            if len(taken) == 1:
                self._write(part)
                continue
            whole = merged(taken)
            whole = whole.only(whole.time > closed)
            if len(part) < self._small <= len(whole):
                waiting += self._cut(whole)
            else:
                self._write(whole)

    def finish(self) -> tuple[dict[int, pa.Table], list[int]]:
        """What is to be written and removed."""
        if self._now != self._before and self._now:
            listed = [vars(piece) for piece in self._now.values()]
            self._put[CATALOG] = pa.Table.from_pylist(listed, schema=_CATALOG)
        gone = [number for piece in self._before.keys() - self._now.keys() for number in (2 * piece, 2 * piece + 1)]
        if not self._now:
            gone.append(CATALOG)
        return self._put, [number for number in gone if number in self._state]

    def wake(self) -> int | None:
        """The least watermark at which a row is to be given or a piece to be forgotten."""
        return min((self._due(piece) for piece in self._now.values()), default=None)

    def _due(self, piece: Piece) -> int:
        time = piece.most if piece.pending is None else piece.pending
        return time + self._sides[piece.side].reach[1]

    def _of(self, side: Side) -> list[Piece]:
        return [piece for piece in self._now.values() if piece.side == side.number]

    def _load(self, piece: Piece) -> Block:
        if piece.number not in self._blocks:
            rows = self._state[2 * piece.number].combine_chunks()
            matched = np.zeros(piece.rows, bool)
            if 2 * piece.number + 1 in self._state:
                matched = self._state[2 * piece.number + 1].column(MATCHED).to_numpy().copy()
            hashes, times = rows.column(HASH).to_numpy(), rows.column(TIME).to_numpy()
            self._blocks[piece.number] = Block(self._sides[piece.side], rows, hashes, times, matched, piece.pure)
        return self._blocks[piece.number]

    def _set_pending(self, piece: Piece, block: Block, since: int | None) -> None:
        self._now[piece.number] = replace(piece, pending=_pending(block, since))

    def _forget(self, piece: Piece) -> None:
        del self._now[piece.number]
        for number in (2 * piece.number, 2 * piece.number + 1):
            self._put.pop(number, None)

    def _home(self, rows: int, most: int) -> int | None:
        """The segment of time a run belongs to; none as long as it is small."""
        return None if rows < self._small else most // self._width

    def _runs(self, block: Block) -> list[list[Piece]]:
        """The runs that a new one may be merged with, the smallest first."""
        home = self._home(len(block), int(block.time.max()))
        runs: dict[int, list[Piece]] = {}
        for piece in self._of(block.side):
            runs.setdefault(piece.run, []).append(piece)
        sizes = {run: sum(piece.rows for piece in pieces) for run, pieces in runs.items()}
        return [
            runs[run]
            for run in sorted(runs, key=lambda run: (sizes[run], run))
            if self._home(sizes[run], max(piece.most for piece in runs[run])) == home
        ]

    def _cut(self, block: Block) -> list[Block]:
        """Parts by segments of time, the newest first; segments with few rows stay together."""
        if len(block) <= self._small:
            return [block] if len(block) else []
        segments = block.time // self._width
        names, counts = np.unique(segments, return_counts=True)
        names, ends = names[::-1], np.cumsum(counts[::-1])
        parts, first, done = [], 0, 0
        while first < len(names):
            last = min(int(np.searchsorted(ends, done + self._small)), len(names) - 1)
            parts.append(block.only((segments <= names[first]) & (segments >= names[last])))
            first, done = last + 1, int(ends[last])
        return parts

    def _write(self, block: Block) -> None:
        if not len(block):
            return
        run = self._next
        count = -(-len(block) // self._chunk)
        cuts = [len(block) * cut // count for cut in range(count + 1)]
        for start, stop in itertools.pairwise(cuts):
            part = block.part(start, stop)
            number, self._next = self._next, self._next + 1
            self._put[2 * number] = part.rows
            if block.side.outer and part.matched.any():
                self._put[2 * number + 1] = pa.table({MATCHED: pa.array(part.matched)})
            self._blocks[number] = part
            self._now[number] = Piece(
                number=number,
                run=run,
                side=block.side.number,
                rows=len(part),
                least=int(part.time.min()),
                most=int(part.time.max()),
                first=int(part.hash[0]),
                last=int(part.hash[-1]),
                pure=part.pure,
                pending=_pending(part, None),
            )


def _pending(block: Block, since: int | None) -> int | None:
    if not block.side.outer:
        return None
    lonely = block.time[~block.matched]
    if since is not None:
        lonely = lonely[lonely >= since]
    return int(lonely.min()) if len(lonely) else None
