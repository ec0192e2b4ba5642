"""The state of a pipeline that has seen nothing: run once over no rows, beside everything.

It shows which operator keeps the state of which step, and gives empty state in just the shape that Spark expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.base import ReadContext
from penstock.engine.analyse import analyse
from penstock.engine.frames import FrameBuilder, steps_in
from penstock.engine.lower import trunk_frame
from penstock.engine.markers import execution
from penstock.graph.nodes import Graph, Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
VERSION = 2
"""The version of the state that a seed has: one for its batch, one for dividing it."""


@dataclass(frozen=True)
class Seed:
    checkpoint: Path
    steps: Mapping[int, str]
    """The steps whose state is kept, by the number of the operator."""
    version: int = VERSION
    """The version of its state."""


def grow(spark: SparkSession, graph: Graph, folder: Path, partitions: int, buckets: int) -> Seed:
    """Runs the pipeline once over no rows, with its own state folder and without sinks."""
    checkpoint = folder / "checkpoint"
    before = spark.conf.get(_PARTITIONS)
    # State is written as a whole when it is divided; the run itself leaves a log of changes from nothing on.
    spark.conf.set(_PARTITIONS, "2" if partitions == 1 else "1")
    try:
        analysed = analyse(spark, graph, folder / "spool", buckets, builder_class=_Unfed)
        analysed.raise_errors()
        query = (
            trunk_frame(analysed.frames, analysed.analysis.trunk)
            .writeStream.foreachBatch(evaluate)
            .outputMode(analysed.analysis.output_mode)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        steps = steps_in(execution(query).executedPlan(), analysed.builder)
    finally:
        spark.conf.set(_PARTITIONS, str(before))
    spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
    return Seed(checkpoint, steps)


def evaluate(rows: DataFrame, batch: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


class _Unfed(FrameBuilder):
    """Frames over sources that have the right columns and one row, which goes nowhere."""

    def _read(self, node: Node, via: tuple[str, ...]) -> tuple[DataFrame, str]:
        from pyspark.sql import functions as F

        context: ReadContext = self.read_context(node, via)
        schema: Any = self.live(node, via).schema
        place = self.spool / "unfed" / context.stream
        if not place.exists():
            self.spark.range(1).select(*(F.lit(None).cast(item.dataType).alias(item.name) for item in schema)).coalesce(
                1
            ).write.parquet(str(place))
        rows = self.spark.readStream.name(context.stream).schema(schema).parquet(str(place))
        return rows.where(F.spark_partition_id() < F.lit(0)), context.stream
