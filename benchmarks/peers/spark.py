"""The jobs in plain PySpark, as one would write them without Penstock.

The session has what Penstock's has: memory, garbage collector, partitions, state in RocksDB with a log of changes.
Rolling values per row cannot be written this way: Spark has no window functions over streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.contender import serve
from benchmarks.views import SCHEMA

MEMORY = "2g"
STATE = "spark.sql.streaming.stateStore"
CONF = {
    "spark.driver.memory": MEMORY,
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


def passthrough(views: DataFrame) -> DataFrame:
    """No account of rows; malformed ones become nulls."""
    return views.where("ms > 100")


def reporting(views: DataFrame) -> DataFrame:
    counted = views.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "1 minute"), "user").count()
    return counted.select(F.col("window.start").alias("window_start"), "user", F.col("count").alias("n"))


def sliding(views: DataFrame) -> DataFrame:
    counted = views.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "1 hour", "1 minute"), "user").count()
    return counted.select(F.col("window.start").alias("window_start"), "user", F.col("count").alias("n"))


JOBS = {"passthrough": passthrough, "reporting": reporting, "sliding": sliding}


def prepare(job: str, files_per_batch: int) -> Callable[[Path, Path], None]:
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def run(data: Path, folder: Path) -> None:
        views = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch).json(str(data))
        query = (
            JOBS[job](views)
            .writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1], int(sys.argv[2])))
