"""Makes the class-data archive that halves Spark's start-up: `python -m penstock.engine.warm`.

It runs a small pipeline that touches what pipelines use, and lets the JVM write down the classes it loaded. A standby
process runs the same pipeline, to be warm.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.analyse import analyse
from penstock.engine.jvm import archive_path
from penstock.engine.query import RunningPipeline
from penstock.engine.session import Session, SessionOptions
from penstock.engine.spark.local_files import local_files_jar
from penstock.engine.statedir import StateDir
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE = """
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: warm}
spec:
  sources:
    views:
      memory:
        schema: {id: string, ts: timestamp, n: int}
        rows: [{id: a, ts: "2024-01-01T00:00:00Z", n: 1}, {id: b, ts: "2024-01-01T00:02:00Z", n: 2}, "broken"]
      eventTime: {column: ts}
  steps:
    counts: {from: views, window: {size: 1 minute, by: [id], values: {n: count(*)}}}
    listed:
      from: views
      sql: SELECT window.start AS at, id, collect_list(n) AS n FROM views GROUP BY window(ts, '1 minute'), id
  sinks:
    out: {from: counts, files: {path: ./out}}
    table: {from: counts, sqlite: {path: ./out.db, table: t}}
    list: {from: listed, files: {path: ./list, format: parquet}}
"""


def run_small_pipeline(spark: SparkSession) -> None:
    """Runs a pipeline that uses what most use, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        graph = build(parse_yaml(_PIPELINE, Path(folder) / "warm.yaml"))
        with StateDir(Path(folder) / "state", "warm") as state:
            running = RunningPipeline(spark, graph, analyse(spark, graph, state.spool), state)
            running.start(once=True)
            running.wait(120)
            running.close()


def main() -> int:
    if not local_files_jar().exists():
        # The archive is to hold the classes that sessions use once the jar is there.
        Session(SessionOptions(master="local[1]", quick=True)).stop()
    target = archive_path()
    if target.exists():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}.tmp")
    # Few partitions: each keeps state of its own, and one is enough to load its classes.
    conf = {"spark.sql.shuffle.partitions": "2"}
    session = Session(SessionOptions(master="local[2]", conf=conf, archive_to=unfinished))
    try:
        run_small_pipeline(session.spark)
    finally:
        session.stop()
    if not unfinished.exists():
        print("no start-up archive was made; Spark starts without it", file=sys.stderr)
        return 1
    unfinished.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
