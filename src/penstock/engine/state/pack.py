"""The reading side of a stateful step: judges which rows are late, combines, and packs the rest by bucket.

A bucket's share of a task travels as one row of bytes. Spark then shuffles and sorts a few rows instead of
millions, and hands Python whole Arrow tables, where row by row it would spend most of the time converting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.state.buckets import labels
from penstock.engine.state.chunks import encode
from penstock.engine.state.counters import Counters
from penstock.kernels.base import BUCKET, NO_WATERMARK, Kernel

PACKED = "bucket int, side tinyint, rows binary"
_PACKED = pa.schema([("bucket", pa.int32()), ("side", pa.int8()), ("rows", pa.binary())])
BEFORE = "penstock.watermarkBefore"
"""Spark's local property in which a batch finds the watermark of the batch before, in milliseconds."""
_ROWS_AT_A_TIME = 1 << 18


def watermark_before(hold: int) -> int:
    """The watermark by which this batch's rows are judged late, in microseconds."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = context.getLocalProperty(BEFORE) if context is not None else None
    return micros(int(text) if text else 0, hold)


def micros(watermark_ms: int, hold: int) -> int:
    """A watermark of Spark's as kernels know it; Spark says 0 when there is none yet."""
    return watermark_ms * 1000 - hold if watermark_ms > 0 else NO_WATERMARK


def packer(
    kernel: Kernel, side: int, hold: int, buckets: int, counters: Counters | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that packs the rows of one input, for `mapInArrow`."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watermark = watermark_before(hold)
        for rows in in_portions(batches):
            late = kernel.late(side, rows, watermark)
            if counters is not None:
                counters.add_late(late, rows)
            if late.dropped.any():
                rows = rows.filter(pa.array(~late.dropped))
            if rows.num_rows:
                yield _packed(side, kernel.prepare(side, rows), buckets)

    return pack


def in_portions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a task, so many at a time that combining pays and memory stays bounded."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_A_TIME:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _packed(side: int, rows: pa.Table, buckets: int) -> pa.RecordBatch:
    found: list[tuple[int, bytes]] = list(_split(rows, buckets))
    columns: list[Any] = [[bucket for bucket, _ in found], [side] * len(found), [data for _, data in found]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, _PACKED.types, strict=True)], schema=_PACKED
    )


def _split(rows: pa.Table, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The rows of each bucket that has any, under its label."""
    numbers = rows.column(BUCKET).to_numpy().astype(np.int16 if buckets < 1 << 15 else np.int32)
    rest = rows.drop_columns([BUCKET])
    order = np.argsort(numbers, kind="stable")
    ordered = rest.take(pa.array(order)).combine_chunks()
    edges = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for bucket, label in enumerate(labels(buckets)):
        start, end = int(edges[bucket]), int(edges[bucket + 1])
        if end > start:
            yield label, encode(ordered.slice(start, end - start))
