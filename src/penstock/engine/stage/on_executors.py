"""A batch of many rows: tasks prepare rows where they are read, and advance the buckets that are dealt to them.

The rows of a bucket travel as bytes, as its chunks do, so Spark shuffles a few rows instead of millions. A task writes
the chunks it changes into one file, and says in a row of its own what has become of its buckets; the driver makes the
index of that. Nothing of a task that failed is in the index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.stage.query_frame import Piece
from penstock.engine.state.bucket_advance import Parts, Watermarks, advance_bucket, split_by_bucket
from penstock.engine.state.chunk_cache import ChunkCache
from penstock.engine.state.chunk_store import BucketState, ChunkPlace, ChunkWriter
from penstock.engine.state.chunks import decode, encode
from penstock.engine.state.counters import Counters
from penstock.engine.state.pack import in_portions
from penstock.kernels.base import Kernel

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

PACKED = "slot int, step int, bucket int, side tinyint, rows binary"
_PACKED = pa.schema(
    [("slot", pa.int32()), ("step", pa.int32()), ("bucket", pa.int32()), ("side", pa.int8()), ("rows", pa.binary())]
)
_DUE = -1
"""The side of a row that only says that a bucket has something to do."""
_STEP, _NOTE = "step", "note"
_ROWS_OUT = 1 << 17


@dataclass(frozen=True)
class StepTask:
    """A kernel as tasks run it."""

    step: str
    kernel: Kernel
    sides: int
    watermarks: Watermarks
    counters: Counters


@dataclass(frozen=True)
class BatchTask:
    """What tasks need to know of a batch."""

    steps: tuple[StepTask, ...]
    buckets: int
    folder: Path
    batch: int
    epoch: int

    def slot(self, step: int, bucket: int) -> int:
        """A number that deals the buckets of all steps evenly."""
        return step * self.buckets + bucket


def packed(rows: DataFrame, pieces: Sequence[tuple[Piece, int]], task: BatchTask) -> DataFrame:
    """The rows of struct columns, each with the number of its step, judged, combined and packed by bucket."""
    columns = [piece.column for piece, _ in pieces]
    return rows.select(*columns).mapInArrow(_packer([(step, piece) for piece, step in pieces], task), PACKED)


def _packer(
    pieces: Sequence[tuple[int, Piece]], task: BatchTask
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in in_portions(batches):
            for number, (step, piece) in enumerate(pieces):
                assert piece.side is not None
                yield from _packed(step, piece.side, struct_rows(rows.column(number)), task)

    return pack


def struct_rows(column: pa.ChunkedArray) -> pa.Table:
    """The rows of a struct column, without those that are null."""
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    if found.null_count:
        found = found.drop_null()
    names = [found.type.field(index).name for index in range(found.type.num_fields)]
    return pa.Table.from_arrays(found.flatten(), names=names)


def _packed(step: int, side: int, rows: pa.Table, task: BatchTask) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    own = task.steps[step]
    late = own.kernel.late(side, rows, own.watermarks.before)
    own.counters.add_late(late, rows)
    if late.dropped.any():
        rows = rows.filter(pa.array(~late.dropped))
    if not rows.num_rows:
        return
    found = list(split_by_bucket(own.kernel.prepare(side, rows), task.buckets))
    columns: list[Any] = [
        [task.slot(step, bucket) for bucket, _ in found],
        [step] * len(found),
        [bucket for bucket, _ in found],
        [side] * len(found),
        [encode(part) for _, part in found],
    ]
    yield pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, _PACKED.types, strict=True)], schema=_PACKED
    )


def due_rows(spark: SparkSession, due: Mapping[int, Sequence[int]], task: BatchTask) -> DataFrame | None:
    """Rows that call for buckets which have something to do without rows; `due` are buckets by number of the step."""
    found = [(task.slot(step, bucket), step, bucket, _DUE, None) for step, numbers in due.items() for bucket in numbers]
    return spark.createDataFrame(found, PACKED) if found else None


def advanced_rows(
    spark: SparkSession,
    rows: DataFrame,
    task: BatchTask,
    states: Mapping[int, Mapping[int, BucketState]],
    partitions: int,
) -> tuple[DataFrame, Broadcast[Any]]:
    """What the steps give, tagged by the number of the step, and a note of each task on what it has written.

    Also what was sent to all tasks, to be destroyed when the rows are needed no more.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    outputs = [from_arrow_schema(step.kernel.output, prefer_timestamp_ntz=True) for step in task.steps]
    fields = [StructField(_STEP, IntegerType()), StructField(_NOTE, BinaryType())]
    fields += [StructField(output_column(number), kind) for number, kind in enumerate(outputs)]
    sent = spark.sparkContext.broadcast(states)
    advance = _advancer(task, sent)
    dealt = rows.repartitionById(partitions, F.pmod(F.col("slot"), F.lit(partitions)).cast("int"))
    return dealt.mapInArrow(advance, StructType(fields)), sent


def output_column(step: int) -> str:
    return f"step_{step}"


def rows_of(found: DataFrame, step: int) -> DataFrame:
    """What one step gave."""
    return found.where(found[_STEP] == step).select(f"{output_column(step)}.*")


def notes_of(found: DataFrame) -> list[dict[int, dict[int, BucketState]]]:
    """What each task has written, by number of the step and bucket. Computes the rows, if they are kept."""
    notes = found.where(found[_NOTE].isNotNull()).select(_NOTE).toArrow().column(0).to_pylist()
    return [_noted(note) for note in notes]


def _advancer(task: BatchTask, states: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    schema = pa.schema(
        [
            (_STEP, pa.int32()),
            (_NOTE, pa.binary()),
            *((output_column(number), pa.struct(list(step.kernel.output))) for number, step in enumerate(task.steps)),
        ]
    )

    def advance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[tuple[int, int], list[list[pa.Table]]] = {}
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("step", "bucket", "side", "rows"))
            for step, bucket, side, data in zip(*columns, strict=True):
                sides = parts.setdefault((step, bucket), [[] for _ in range(task.steps[step].sides)])
                if side != _DUE:
                    sides[side].append(decode(data))
        if not parts:
            return
        writer = ChunkWriter(task.folder, task.batch, task.epoch)
        known = states.value
        changed: dict[int, dict[int, BucketState]] = {}
        for (step, bucket), rows in sorted(parts.items()):
            own = task.steps[step]
            before = known.get(step, {}).get(bucket) or BucketState()
            found: Parts = rows
            done = advance_bucket(own.step, own.kernel, task.folder, before, found, own.watermarks, writer, _CACHE)
            changed.setdefault(step, {})[bucket] = done.state
            if done.corrections is not None:
                own.counters.corrections.add(done.corrections.num_rows)
                yield from _tagged(schema, step, done.corrections)
            if done.main is not None:
                yield from _tagged(schema, step, done.main)
        writer.close()
        yield _note(schema, changed)

    return advance


_CACHE = ChunkCache()
"""One for the process: a worker serves many tasks, one at a time."""


def _tagged(schema: pa.Schema, step: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, _ROWS_OUT):
        part = rows.slice(start, _ROWS_OUT).combine_chunks()
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in part.columns]
        struct = pa.StructArray.from_arrays(arrays, fields=list(schema.field(output_column(step)).type))
        columns = [
            pa.array([step] * part.num_rows, pa.int32()),
            pa.nulls(part.num_rows, pa.binary()),
            *(
                struct if item.name == output_column(step) else pa.nulls(part.num_rows, item.type)
                for item in list(schema)[2:]
            ),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _note(schema: pa.Schema, changed: Mapping[int, Mapping[int, BucketState]]) -> pa.RecordBatch:
    note = json.dumps(
        [
            [step, bucket, state.wake, [[number, *place] for number, place in state.chunks.items()]]
            for step, buckets in changed.items()
            for bucket, state in buckets.items()
        ]
    ).encode()
    columns = [pa.nulls(1, pa.int32()), pa.array([note], pa.binary())]
    return pa.RecordBatch.from_arrays([*columns, *(pa.nulls(1, item.type) for item in list(schema)[2:])], schema=schema)


def _noted(note: bytes) -> dict[int, dict[int, BucketState]]:
    found: dict[int, dict[int, BucketState]] = {}
    for step, bucket, wake, chunks in json.loads(note):
        places = {number: ChunkPlace(*place) for number, *place in chunks}
        found.setdefault(step, {})[bucket] = BucketState(places, wake)
    return found
