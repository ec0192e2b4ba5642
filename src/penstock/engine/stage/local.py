"""A batch of few rows: kernels run on the driver, and no task has to start Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.engine.state.bucket_advance import Parts, Watermarks, advance_bucket, by_bucket, split_by_bucket, together
from penstock.engine.state.chunk_cache import ChunkCache
from penstock.engine.state.chunk_store import BucketState, ChunkWriter
from penstock.engine.state.counters import Counters
from penstock.kernels.base import Kernel


@dataclass(frozen=True)
class StepRows:
    """What a step gave in a batch."""

    rows: pa.Table
    """Corrections first, then its rows."""
    changed: Mapping[int, BucketState]
    """The buckets whose state is another now."""


def advance_step(
    step: str,
    kernel: Kernel,
    inputs: Sequence[Sequence[pa.Table]],
    state: Mapping[int, BucketState],
    due: Sequence[int],
    watermarks: Watermarks,
    buckets: int,
    counters: Counters,
    folder: Path,
    writer: ChunkWriter,
    cache: ChunkCache,
) -> StepRows:
    """One step over the rows of a batch: `inputs` are the rows of each of its inputs, with their bucket."""
    parts: dict[int, list[list[pa.Table]]] = {}
    for side, tables in enumerate(inputs):
        for table in tables:
            for bucket, rows in _prepared(kernel, side, table, watermarks.before, buckets, counters):
                parts.setdefault(bucket, [[] for _ in inputs])[side].append(rows)
    found: dict[int, Parts] = by_bucket(parts, due, len(inputs))
    main, corrections = [], []
    changed: dict[int, BucketState] = {}
    for bucket in sorted(found):
        before = state.get(bucket) or BucketState()
        done = advance_bucket(step, kernel, folder, before, found[bucket], watermarks, writer, cache)
        changed[bucket] = done.state
        if done.corrections is not None:
            corrections.append(done.corrections)
        if done.main is not None:
            main.append(done.main)
    corrected = sum(table.num_rows for table in corrections)
    if corrected:
        counters.corrections.add(corrected)
    return StepRows(together([*corrections, *main], kernel.output), changed)


def _prepared(
    kernel: Kernel, side: int, rows: pa.Table, watermark: int, buckets: int, counters: Counters
) -> list[tuple[int, pa.Table]]:
    if not rows.num_rows:
        return []
    rows = rows.combine_chunks()
    late = kernel.late(side, rows, watermark)
    counters.add_late(late, rows)
    if late.dropped.any():
        rows = rows.filter(pa.array(~late.dropped))
    return list(split_by_bucket(kernel.prepare(side, rows), buckets)) if rows.num_rows else []
