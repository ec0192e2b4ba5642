"""Overhead: JSON files are read, filtered and written as Parquet, by Penstock and by a hand-written script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.contender import serve
from benchmarks.views import SCHEMA

FILES_PER_BATCH = 10
MEMORY = "2g"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: passthrough}}
spec:
  sources:
    views:
      files: {{path: "{data}", maxFilesPerBatch: {files}}}
      format: {{json: {{schema: "{schema}"}}}}
  steps:
    long:
      from: views
      filter: ms > 100
  sinks:
    out: {{from: long, files: {{path: ./out}}}}
"""


def penstock(data: Path) -> Callable[[Path], None]:
    from penstock.engine.analyse import analyse
    from penstock.engine.query import RunningPipeline
    from penstock.engine.session import Session, SessionOptions
    from penstock.engine.statedir import StateDir
    from penstock.frontends.yaml import parse_yaml
    from penstock.graph.build import build

    session = Session(
        SessionOptions(master="local[2]", driver_memory=MEMORY, conf={"spark.sql.shuffle.partitions": "2"})
    )
    text = PIPELINE.format(data=data, files=FILES_PER_BATCH, schema=SCHEMA)

    def run(folder: Path) -> None:
        graph = build(parse_yaml(text, folder / "pipeline.yaml"))
        with StateDir(folder / "state", "passthrough") as state:
            analysed = analyse(session.spark, graph, state.spool)
            analysed.raise_errors()
            running = RunningPipeline(session.spark, graph, analysed, state)
            running.start(once=True)
            running.wait(600)
            running.close()

    return run


def by_hand(data: Path) -> Callable[[Path], None]:
    """What one would write without Penstock: no account of rows, malformed ones become nulls."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", MEMORY)
        .config("spark.log.level", "ERROR")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )

    def run(folder: Path) -> None:
        views = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).json(str(data))
        query = (
            views.where("ms > 100")
            .writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


if __name__ == "__main__":
    contender = {"penstock": penstock, "by hand": by_hand}[sys.argv[1]]
    serve(lambda: contender(Path(sys.argv[2])))
