"""Advances the kernel of a step by one batch, a bucket at a time, on chunk files: on the driver or in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.engine.state.chunk_cache import BucketChunks, ChunkCache
from penstock.engine.state.chunk_store import BucketState, ChunkWriter
from penstock.engine.state.chunks import encode
from penstock.kernels.base import BUCKET, Kernel

Parts = Sequence[Sequence[pa.Table]]
"""The prepared rows of a bucket, for each input of the kernel."""


@dataclass(frozen=True)
class Watermarks:
    """The watermarks of a batch as a kernel knows them, in microseconds of its input's event time."""

    before: int
    """By which the rows of the batch are judged late."""
    after: int
    """By which results are closed, once the rows of the batch are in."""


@dataclass(frozen=True)
class Advanced:
    """What one bucket gave."""

    state: BucketState
    main: pa.Table | None
    corrections: pa.Table | None


def advance_bucket(
    step: str,
    kernel: Kernel,
    folder: Path,
    before: BucketState,
    parts: Parts,
    watermarks: Watermarks,
    writer: ChunkWriter,
    cache: ChunkCache,
) -> Advanced:
    """One step of a bucket. Raises OverflowError, naming the step, if a value has no place in its type."""
    chunks = BucketChunks(folder, before, cache, kernel.fitted)
    try:
        result = kernel.advance(chunks, parts, watermarks.after, watermarks.before)
    except OverflowError as error:
        raise OverflowError(f"step '{step}': {error}") from None
    state = BucketState(dict(before.chunks), result.wake)
    for number in result.drop:
        if number not in result.put:
            gone = state.chunks.pop(number, None)
            if gone is not None:
                cache.forget(gone)
    for number, table in result.put.items():
        if number in state.chunks:
            cache.forget(state.chunks[number])
        state.chunks[number] = place = writer.add(encode(table))
        cache.put(place, table)
    return Advanced(state, _some(result.main), _some(result.corrections))


def _some(rows: pa.Table | None) -> pa.Table | None:
    return rows if rows is not None and rows.num_rows else None


def split_by_bucket(rows: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has any, without the column that names it."""
    numbers = rows.column(BUCKET).to_numpy().astype(np.int16 if buckets < 1 << 15 else np.int32)
    rest = rows.drop_columns([BUCKET])
    order = np.argsort(numbers, kind="stable")
    ordered = rest.take(pa.array(order)).combine_chunks()
    edges = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for bucket in np.flatnonzero(np.diff(edges)).tolist():
        start, end = int(edges[bucket]), int(edges[bucket + 1])
        yield bucket, ordered.slice(start, end - start)


def together(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """All of them as one table of the schema."""
    return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()


def by_bucket(found: Mapping[int, Parts], due: Sequence[int], sides: int) -> dict[int, Parts]:
    """What each bucket gets that has rows or something to do without them."""
    nothing: Parts = [[] for _ in range(sides)]
    return {**dict.fromkeys(due, nothing), **found}
