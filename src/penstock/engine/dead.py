"""Dead letters: rows that could not be read, kept with their text, the reason, and where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.components.base import HEARTBEAT, PLACE, RAW, ReadContext, Refused, Sink, Source
from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.event_time import event_time_of, micros_of
from penstock.components.shared.kernel_inputs import REPLAYED
from penstock.components.sinks.files import Files
from penstock.engine.frames import is_ahead, is_readable
from penstock.kernels.base import NO_WATERMARK, TIME, Kernel
from penstock.spec.fields import Config
from penstock.spec.pipeline import EventTime

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

SINK = "dead_letters"
COLUMNS = {
    "pipeline": "string",
    "source": "string",
    "stage": "string",
    "batch_id": "bigint",
    "error": "string",
    "raw": "string",
    "place": "string",
    "seen_at": "timestamp",
}
"""The one schema of all dead letters."""


def dead_letter_sink(declared: Config | None, folder: Path) -> Sink:
    """The sink of the pipeline file, or JSON files in the state folder."""
    if isinstance(declared, Sink):
        return declared
    return Files(path=str(folder), format="json")


def dead_rows(
    rows: DataFrame,
    source: Source,
    context: ReadContext,
    event_time: EventTime | None,
    pipeline: str,
    batch: int,
    now_ms: int,
) -> DataFrame:
    """The rows of a source's batch that cannot be used, as dead letters; `rows` are as the source gave them.

    `now_ms` is the clock by which the batch judged which times are believable.
    """
    from pyspark.sql import functions as F

    now = F.timestamp_millis(F.lit(now_ms))
    useless = ~is_readable(rows, event_time, now)
    if HEARTBEAT in rows.columns:
        useless = useless & ~F.coalesce(F.col(HEARTBEAT), F.lit(False))
    text = _as_json(rows, [name for name in rows.columns if name not in (RAW, HEARTBEAT, PLACE)])
    malformed = F.lit(False)
    reason = _about_time(event_time, now)
    if RAW in rows.columns:
        explained = source.explain_malformed(context)
        malformed = F.col(RAW).isNotNull()
        reason = F.when(malformed, explained if explained is not None else F.lit("malformed")).otherwise(reason)
        text = F.coalesce(F.col(RAW), text)
    place = F.col(PLACE) if PLACE in rows.columns else source.place()
    return rows.where(useless).select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(context.node).alias("source"),
        F.when(malformed, F.lit("parse")).otherwise(F.lit("event time")).alias("stage"),
        F.lit(batch).cast("bigint").alias("batch_id"),
        reason.alias("error"),
        text.alias("raw"),
        (place if place is not None else F.lit(None).cast("string")).alias("place"),
        F.current_timestamp().alias("seen_at"),
    )


def _as_json(rows: DataFrame, names: Sequence[str]) -> Column:
    """A row as text that can be read back as it was: Spark alone would cut times to milliseconds."""
    from pyspark.sql import functions as F

    times = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), times)


def _about_time(event_time: EventTime | None, now: Column) -> Column:
    from pyspark.sql import functions as F

    if event_time is None:
        return F.lit("event time is null")
    missing = F.lit(f"event time '{event_time.column}' is null")
    if event_time.max_ahead is None:
        return missing
    ahead = F.lit(f"event time '{event_time.column}' is more than {event_time.max_ahead} ahead of the clock")
    return F.when(is_ahead(event_time, now), ahead).otherwise(missing)


def dead_of_step(rows: DataFrame, kernel: Kernel, side: int, step: str, pipeline: str, batch: int) -> DataFrame:
    """The rows of a step's input that its kernel cannot use, as dead letters."""
    from pyspark.sql import functions as F

    column = event_time_of(rows)
    assert column is not None
    names = [name for name in rows.columns if name != REPLAYED]
    timed = rows.withColumn(TIME, micros_of(rows, column))
    text = _as_json(rows, names)
    marked = in_arrow(timed.withColumn(RAW, text), _pick_dead(kernel, side), f"`{RAW}` string")
    return marked.select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(step).alias("source"),
        F.lit("step").alias("stage"),
        F.lit(batch).cast("bigint").alias("batch_id"),
        F.lit(kernel.cannot_use).alias("error"),
        F.col(RAW).alias("raw"),
        F.lit(None).cast("string").alias("place"),
        F.current_timestamp().alias("seen_at"),
    )


def dead_of_sieve(rows: DataFrame, node: str, stage: str, reason: Column, pipeline: str, batch: int) -> DataFrame:
    """Rows that a step has sifted out, as dead letters."""
    from pyspark.sql import functions as F

    text = F.col(RAW) if RAW in rows.columns else _as_json(rows, [name for name in rows.columns if name != REPLAYED])
    return rows.select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(node).alias("source"),
        F.lit(stage).alias("stage"),
        F.lit(batch).cast("bigint").alias("batch_id"),
        reason.alias("error"),
        text.alias("raw"),
        F.lit(None).cast("string").alias("place"),
        F.current_timestamp().alias("seen_at"),
    )


def dead_of_sink(spark: SparkSession, refused: Sequence[Refused], sink: str, pipeline: str, batch: int) -> DataFrame:
    """The rows that a sink did not take, as dead letters."""
    from pyspark.sql import functions as F

    rows = pa.table({"error": [item.error for item in refused], "raw": [item.row for item in refused]})
    return spark.createDataFrame(rows).select(
        F.lit(pipeline).alias("pipeline"),
        F.lit(sink).alias("source"),
        F.lit("sink").alias("stage"),
        F.lit(batch).cast("bigint").alias("batch_id"),
        F.col("error"),
        F.col("raw"),
        F.lit(None).cast("string").alias("place"),
        F.current_timestamp().alias("seen_at"),
    )


def _pick_dead(kernel: Kernel, side: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            dead = kernel.late(side, pa.Table.from_batches([batch]), NO_WATERMARK).dead
            if dead is not None:
                yield batch.select([RAW]).filter(pa.array(dead))

    return pick
