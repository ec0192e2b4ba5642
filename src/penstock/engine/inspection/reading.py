"""Reads state through Spark, some partitions at a time, and shows it as the kernel that owns it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.checkpoint_cut import CHUNKS
from penstock.engine.inspection.copies import Copy, Held
from penstock.engine.inspection.described import Described, read_described
from penstock.engine.inspection.keys import bucket_of, parsed_key, partition_of, rows_of_key
from penstock.engine.state.chunk_cache import BucketChunks, ChunkCache
from penstock.engine.state.chunk_store import FOLDER, read_index
from penstock.engine.state.chunks import Kept, StoredChunks, decode, encode
from penstock.engine.state.pack import micros
from penstock.errors import PenstockError
from penstock.kernels.shown import EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[int, int], None]
"""Told how many partitions have been read, and of how many."""
Batches = Iterator[pa.RecordBatch]

_PACKED = "partition int, rows bigint, data binary"
_PACKED_ARROW = pa.schema([("partition", pa.int32()), ("rows", pa.int64()), ("data", pa.binary())])
_PIECE = 1 << 16
_JOIN = "symmetricHashJoin"
_CUSTOM = "transformWithState"


def quiet(done: int, total: int) -> None:
    """For who need not know."""


def schema_of(spark: SparkSession, copy: Copy, step: str) -> pa.Schema:
    """The columns in which the state of a step is shown."""
    return _reader(spark, copy, step).schema


def rows_of(
    spark: SparkSession, copy: Copy, step: str, key: Sequence[str] | None = None, progress: Progress = quiet
) -> Iterator[pa.Table]:
    """The state of a step, as tables that come one after the other; with a key, only that."""
    reader = _reader(spark, copy, step)
    wanted = None if key is None else parsed_key(step, reader.keys, key)
    parts = list(range(copy.partitions))
    if isinstance(reader, _ChunkReader):
        parts = sorted(reader.state)
        if wanted is not None:
            parts = [bucket_of(spark, step, reader.described, wanted, copy.buckets)]
    elif wanted is not None and reader.described is not None:
        parts = [partition_of(spark, step, reader.described, wanted, copy.buckets, copy.partitions)]
    for table in reader.tables(parts, progress):
        yield table if wanted is None else rows_of_key(table, wanted)


def count_of(spark: SparkSession, copy: Copy, step: str, progress: Progress = quiet) -> int:
    """How many rows would be shown; they are counted where they are read."""
    return _reader(spark, copy, step).count(progress)


class _Reader:
    """The state of a step: frames that give it packed, partition by partition."""

    def __init__(self, spark: SparkSession, frames: Sequence[DataFrame], schema: pa.Schema, keys: pa.Schema) -> None:
        self.spark = spark
        self.frames = frames
        self.schema = schema
        self.keys = keys
        self.described: Described | None = None

    def tables(self, parts: Sequence[int], progress: Progress) -> Iterator[pa.Table]:
        at_once = max(self.spark.sparkContext.defaultParallelism, 1)
        done, total = 0, len(parts) * len(self.frames)
        progress(done, total)
        for frame in self.frames:
            for start in range(0, len(parts), at_once):
                some = list(parts[start : start + at_once])
                for row in self.spark.sparkContext.runJob(frame.rdd, lambda rows: list(rows), some):
                    assert row["partition"] in some, "Spark reads partitions in another order than it numbers them"
                    yield decode(bytes(row["data"]))
                done += len(some)
                progress(done, total)

    def count(self, progress: Progress) -> int:
        progress(0, len(self.frames))
        total = 0
        for done, frame in enumerate(self.frames, 1):
            found = frame.groupBy().sum("rows").first()
            assert found is not None
            total += int(found[0] or 0)
            progress(done, len(self.frames))
        return total


class _ChunkReader:
    """The state of a step in chunk files, read bucket by bucket; that takes no Spark."""

    def __init__(self, copy: Copy, step: str, described: Described) -> None:
        self.folder = copy.checkpoint / FOLDER
        self.state = read_index(self.folder, copy.batch).steps[step]
        self.described = described
        self.watermark = micros(copy.watermark_ms, described.hold)
        self.schema = described.shown({}, self.watermark).schema
        self.keys = described.keys

    def tables(self, parts: Sequence[int], progress: Progress) -> Iterator[pa.Table]:
        order = _order(self.schema, self.keys.names)
        progress(0, len(parts))
        for done, bucket in enumerate(parts, 1):
            state = self.state.get(bucket)
            if state is not None:
                chunks = BucketChunks(self.folder, state, ChunkCache(0), self.described.kernel.fitted)
                table = self.described.shown(chunks, self.watermark)
                yield table.sort_by(order) if order else table
            progress(done, len(parts))

    def count(self, progress: Progress) -> int:
        return sum(table.num_rows for table in self.tables(sorted(self.state), progress))


def _reader(spark: SparkSession, copy: Copy, step: str) -> _Reader | _ChunkReader:
    held = copy.steps[step]
    description = {} if copy.version is None else copy.version.kernels.get(step, {})
    if held.kind == CHUNKS:
        return _ChunkReader(copy, step, _understood(copy, step, description))
    if held.kind.startswith(_CUSTOM):
        return _of_kernel(spark, copy, held, _understood(copy, step, description))
    return _of_spark(spark, copy, held)


def _understood(copy: Copy, step: str, description: Mapping[str, Any]) -> Described:
    if not description:
        reason = f"it is not noted how '{step}' keeps it; run the pipeline once with this Penstock"
        raise PenstockError.of("STATE_UNREADABLE", path=copy.pipeline, reason=reason)
    try:
        return read_described(description)
    except ValueError as error:
        raise PenstockError.of("STATE_UNREADABLE", path=copy.pipeline, reason=error) from None


# --- steps with a kernel -----------------------------------------------------------------------------------------


def _of_kernel(spark: SparkSession, copy: Copy, held: Held, described: Described) -> _Reader:
    """A query may compute a step several times, each with a state of its own; they hold the same."""
    from pyspark.sql import functions as F

    stored = _stored(spark, copy, held.operators[0], {"stateVarName": "chunks"}).select(
        F.col("partition_id").alias("partition"),
        F.col("key.bucket").alias("bucket"),
        F.col("user_map_key.number").alias("number"),
        F.col("user_map_value.data").alias("data"),
    )
    watermark = micros(copy.watermark_ms, described.hold)
    keys = described.keys
    order = _order(described.shown({}, watermark).schema, keys.names)

    def shown(batches: Batches) -> Batches:
        for partition, chunks in _by_bucket(batches):
            state = StoredChunks(_Fetched(chunks), "shown", 0, Kept(0), described.kernel.fitted)
            table = described.shown(state, watermark)
            yield from _packed(partition, table.sort_by(order) if order else table)

    packed = stored.mapInArrow(shown, _PACKED)
    reader = _Reader(spark, [packed], described.shown({}, watermark).schema, keys)
    reader.described = described
    return reader


def _by_bucket(batches: Batches) -> Iterator[tuple[int, dict[int, bytes]]]:
    """The chunks of each bucket; Spark keeps those of one together."""
    seen: set[int] = set()
    bucket: int | None = None
    partition, chunks = 0, dict[int, bytes]()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("partition", "bucket", "number"))
        for place, (part, label, number) in enumerate(zip(*columns, strict=True)):
            if label != bucket:
                if bucket is not None:
                    yield partition, chunks
                if label in seen:
                    raise RuntimeError(f"the chunks of bucket {label} are not kept together")
                seen.add(label)
                bucket, chunks = label, {}
            partition = part
            chunks[number] = batch.column("data")[place].as_py()
    if bucket is not None:
        yield partition, chunks


class _Fetched:
    """Chunks that were read, in the shape of Spark's map state."""

    def __init__(self, chunks: Mapping[int, bytes]) -> None:
        self.chunks = chunks

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        found = self.chunks.get(key[0])
        return None if found is None else (found,)


def _order(schema: pa.Schema, keys: Iterable[str]) -> list[tuple[str, str]]:
    """By what rows are sorted: the key, and then time."""
    names = [*keys, *(name for name in ("window_start", "rank", EVENT_TIME) if name in schema.names)]
    return [(name, "ascending") for name in dict.fromkeys(names) if not pa.types.is_nested(schema.field(name).type)]


def _packed(partition: int, table: pa.Table) -> Batches:
    for start in range(0, table.num_rows, _PIECE):
        piece = table.slice(start, _PIECE).combine_chunks()
        yield pa.RecordBatch.from_pydict(
            {"partition": [partition], "rows": [piece.num_rows], "data": [encode(piece)]}, schema=_PACKED_ARROW
        )


# --- Spark's own operators ---------------------------------------------------------------------------------------


def _of_spark(spark: SparkSession, copy: Copy, held: Held) -> _Reader:
    """What an operator of Spark's keeps, with the names that it has for it."""
    from pyspark.sql import functions as F

    sides: Sequence[str | None] = ("left", "right") if held.kind == _JOIN else (None,)
    frames, schemas, keys = [], [], pa.schema([])
    for side in sides:
        stored = _stored(spark, copy, held.operators[0], {} if side is None else {"joinSide": side})
        inside = [(part, name) for part in ("key", "value") for name in stored.select(f"{part}.*").columns]
        columns = [F.col(f"{part}.`{name}`").alias(_named(part, name, inside)) for part, name in inside]
        told = [] if side is None else [F.lit(side).alias("side")]
        flat = stored.select(F.col("partition_id").alias("_partition"), *told, *columns)
        schema = _arrow_schema(flat)
        keys = pa.schema([schema.field(_named("key", name, inside)) for part, name in inside if part == "key"])
        frames.append(flat.mapInArrow(_packed_as_they_are, _PACKED))
        schemas.append(pa.schema([item for item in schema if item.name != "_partition"]))
    return _Reader(spark, frames, pa.unify_schemas(schemas), keys)


def _named(part: str, name: str, inside: Sequence[tuple[str, str]]) -> str:
    return f"{part}_{name}" if sum(other == name for _, other in inside) > 1 else name


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([pa.field(item.name, item.type) for item in to_arrow_schema(frame.schema, timezone="UTC")])


def _packed_as_they_are(batches: Batches) -> Batches:
    for batch in batches:
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            yield from _packed(table.column("_partition")[0].as_py(), table.drop_columns(["_partition"]))


def _stored(spark: SparkSession, copy: Copy, operator: int, options: Mapping[str, str]) -> DataFrame:
    reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", copy.batch)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(copy.checkpoint))
