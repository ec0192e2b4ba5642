"""Drives a kernel as the engine does, without Spark: buckets, chunks as bytes, late rows, wake-ups."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.kernels.base import BUCKET, NO_WATERMARK, TIME, Kernel, Result

CASES = 500 * int(os.environ.get("PENSTOCK_CASES", "1"))
"""Generated cases per operator."""

Row = dict[str, Any]


def encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decoded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


class Chunks(dict[int, bytes]):
    """A bucket's state as the engine keeps it: bytes by number."""

    def tables(self) -> dict[int, pa.Table]:
        return {number: decoded(data) for number, data in self.items()}


@dataclass
class Driver:
    """Feeds batches to a kernel. Each batch is cut at random into several reading tasks, like Spark's partitions."""

    kernel: Kernel
    schemas: Sequence[pa.Schema]
    """The columns of each input, `TIME` among them."""
    keys: Sequence[Sequence[str]]
    """For each input the columns by which rows meet."""
    max_delay: int = 0
    buckets: int = 3
    seed: int = 0
    state: dict[int, Chunks] = field(default_factory=dict)
    wakes: dict[int, int | None] = field(default_factory=dict)
    newest: int | None = None
    watermark: int = NO_WATERMARK
    before: int = NO_WATERMARK
    main: list[Row] = field(default_factory=list)
    corrections: list[Row] = field(default_factory=list)
    by_batch: list[list[Row]] = field(default_factory=list)
    missed: list[tuple[int, Row, int]] = field(default_factory=list)
    """Late rows: which input, the row, and how many results it missed."""
    written: list[int] = field(default_factory=list)
    """Bytes written per batch."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def batch(self, *inputs: Sequence[Row]) -> None:
        """One batch of rows for each input. The watermark moves after it, as Spark's does."""
        out: list[Row] = []
        sent: dict[int, list[list[pa.Table]]] = {}
        for side, rows in enumerate(inputs):
            for part in self._cut(rows):
                self._read(side, part, sent)
        written = 0
        for bucket in range(self.buckets):
            wake = self.wakes.get(bucket)
            if bucket not in sent and (wake is None or wake > self.watermark):
                continue
            parts = sent.get(bucket, [[] for _ in self.schemas])
            result = self._advance(bucket, parts)
            out += result.main.to_pylist()
            self.corrections += result.corrections.to_pylist() if result.corrections is not None else []
            written += sum(table.nbytes for table in result.put.values())
        self.main += out
        self.by_batch.append(out)
        self.written.append(written)
        self._move_watermark(inputs)

    def finish(self, far: int) -> None:
        """Moves the watermark to `far` and lets everything come out, as the end of a test does."""
        self.watermark = max(self.watermark, far)
        self.batch(*([] for _ in self.schemas))

    def _cut(self, rows: Sequence[Row]) -> list[list[Row]]:
        parts: list[list[Row]] = [[] for _ in range(self.random.randint(1, 2))]
        for row in rows:
            self.random.choice(parts).append(row)
        return [part for part in parts if part]

    def _read(self, side: int, rows: list[Row], sent: dict[int, list[list[pa.Table]]]) -> None:
        table = pa.Table.from_pylist(rows, schema=self.schemas[side])
        late = self.kernel.late(side, table, self.before)
        assert len(late.missed) == len(late.dropped) == len(rows)
        self.missed += [(side, row, int(n)) for row, n in zip(rows, late.missed, strict=True) if n]
        keep = [index for index, gone in enumerate(late.dropped) if not gone]
        if not keep:
            return
        numbers = [self._bucket(tuple(rows[index][key] for key in self.keys[side])) for index in keep]
        table = table.take(keep).append_column(BUCKET, pa.array(numbers, pa.int32()))
        prepared = self.kernel.prepare(side, table)
        for bucket in set(prepared.column(BUCKET).to_pylist()):
            mask = [number == bucket for number in prepared.column(BUCKET).to_pylist()]
            part = prepared.filter(pa.array(mask)).drop_columns([BUCKET])
            sent.setdefault(bucket, [[] for _ in self.schemas])[side].append(decoded(encoded(part)))

    def _bucket(self, key: tuple[Any, ...]) -> int:
        return sum(map(ord, repr(key))) % self.buckets

    def _advance(self, bucket: int, parts: list[list[pa.Table]]) -> Result:
        chunks = self.state.setdefault(bucket, Chunks())
        tables = {number: self.kernel.fitted(number, table) for number, table in chunks.tables().items()}
        result = self.kernel.advance(tables, parts, self.watermark, self.before)
        assert result.main.schema.equals(self.kernel.output), (result.main.schema, self.kernel.output)
        for number in result.drop:
            del chunks[number]
        for number, table in result.put.items():
            chunks[number] = encoded(table)
        if result.wake is not None:
            assert result.wake > self.watermark, "asks to be woken for what it could have done"
        self.wakes[bucket] = result.wake
        return result

    def _move_watermark(self, inputs: Sequence[Sequence[Row]]) -> None:
        times = [row[TIME] for rows in inputs for row in rows]
        self.newest = max([*times, *([] if self.newest is None else [self.newest])], default=None)
        self.before = self.watermark
        if self.newest is not None:
            # Spark keeps watermarks in whole milliseconds.
            self.watermark = max(self.watermark, (self.newest // 1000) * 1000 - self.max_delay)

    def chunk_count(self) -> int:
        return sum(len(chunks) for chunks in self.state.values())
