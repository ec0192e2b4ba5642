"""Dead letters: rows that could not be read, kept with their text, the reason, and where they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.components.base import HEARTBEAT, RAW, ReadContext, Sink, Source
from penstock.components.sinks.files import Files
from penstock.engine.frames import is_readable
from penstock.spec.fields import Config
from penstock.spec.pipeline import EventTime

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

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
    rows: DataFrame, source: Source, context: ReadContext, event_time: EventTime | None, pipeline: str, batch: int
) -> DataFrame:
    """The rows of a source's batch that cannot be used, as dead letters; `rows` are as the source gave them."""
    from pyspark.sql import functions as F

    useless = ~is_readable(rows, event_time)
    if HEARTBEAT in rows.columns:
        useless = useless & ~F.coalesce(F.col(HEARTBEAT), F.lit(False))
    visible = [F.col(f"`{name}`") for name in rows.columns if name not in (RAW, HEARTBEAT)]
    text = F.to_json(F.struct(*visible))
    malformed = F.lit(False)
    reason = F.lit("event time is null" if event_time is None else f"event time '{event_time.column}' is null")
    if RAW in rows.columns:
        explained = source.explain_malformed(context)
        malformed = F.col(RAW).isNotNull()
        reason = F.when(malformed, explained if explained is not None else F.lit("malformed")).otherwise(reason)
        text = F.coalesce(F.col(RAW), text)
    place = source.place()
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
