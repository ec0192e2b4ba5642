"""The cases of `floor` in plain PySpark: several windows are several queries of one session.

usage: floor_spark.py CASE FOLDER, with the case as JSON; or `start-up FOLDER`. As foreachBatch functions do, results go
through Python into SQLite. Writes FOLDER/ready after the first batch, and Spark's own reports into
FOLDER/batches.jsonl when it is stopped with SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.floor.cases import WINDOWS, Case, case_from
from benchmarks.peers.spark import CONF

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "ts timestamp, user string, article string, ms bigint"
# Memory and collector are Spark's own defaults: a small job says nothing of them.
OWN = {key: value for key, value in CONF.items() if not key.startswith("spark.driver.")}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for key, value in (OWN | {"spark.sql.streaming.numRecentProgressUpdates": "10000"}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rows(spark: SparkSession, case: Case, folder: Path) -> DataFrame:
    if case.kind == "idle":
        return spark.readStream.schema(SCHEMA).json(str(folder / "in"))
    made = spark.readStream.format("rate").option("rowsPerSecond", case.rate).load()
    return made.selectExpr(
        "timestamp AS ts", f"value % {case.keys} AS user", "value % 1000 AS article", "value % 997 AS ms"
    )


def results(spark: SparkSession, case: Case, folder: Path) -> list[DataFrame]:
    if case.kind == "stateless":
        return [rows(spark, case, folder).where("ms > 100")]
    return [
        rows(spark, case, folder)
        .withWatermark("ts", "2 seconds")
        .groupBy(F.window("ts", "10 seconds"), key)
        .agg(F.expr(aggregate).alias("value"))
        .select(F.col("window.start").alias("start"), key, "value")
        for key, aggregate in WINDOWS[: case.windows]
    ]


def into_sqlite(file: Path) -> Callable[[DataFrame, int], None]:
    def store(batch: DataFrame, number: int) -> None:
        found = [tuple(str(value) for value in row) for row in batch.collect()]
        with closing(sqlite3.connect(file)) as db, db:
            columns = ", ".join(f"c{place}" for place in range(len(batch.columns)))
            db.execute(f"CREATE TABLE IF NOT EXISTS results (batch, {columns})")
            marks = ", ".join("?" * (len(batch.columns) + 1))
            db.executemany(f"INSERT INTO results VALUES ({marks})", [(number, *row) for row in found])

    return store


def run(case: Case, folder: Path) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    queries: list[StreamingQuery] = [
        frame.writeStream.outputMode("append")
        .foreachBatch(into_sqlite(folder / f"out-{number}.db"))
        .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        .trigger(processingTime="1 second")
        .start()
        for number, frame in enumerate(results(session(), case, folder))
    ]
    while not all(query.lastProgress for query in queries):
        stopped.wait(0.5)
    (folder / "ready").touch()
    # Until it is told to stop it asks the JVM for nothing, as that would be counted.
    stopped.wait()
    with (folder / "batches.jsonl").open("w", encoding="utf-8") as file:
        for query in queries:
            for report in query.recentProgress:
                kept = {"at": report["timestamp"], "ms": report["durationMs"].get("triggerExecution", 0),
                        "rows": report["numInputRows"], "batch": report["batchId"]}  # fmt: skip
                file.write(json.dumps(kept) + "\n")
    for query in queries:
        query.stop()


def start_up(folder: Path) -> None:
    views = session().readStream.schema(SCHEMA).json(str(folder / "in"))
    query = (
        views.where("ms > 100")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if sys.argv[1] == "start-up":
        start_up(Path(sys.argv[2]))
    else:
        run(case_from(json.loads(sys.argv[1])), Path(sys.argv[2]))
