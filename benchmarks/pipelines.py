"""The pipelines that Penstock runs, and how a process runs them again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.contender import serve
from benchmarks.views import SCHEMA

MEMORY = "2g"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {job}}}
spec:
  sources:
    views:
      files: {{path: "{data}", maxFilesPerBatch: {files}}}
      format: {{json: {{schema: "{schema}"}}}}
{event_time}
  steps:
    found: {{from: views, {step}}}
  sinks:
    out: {{from: found, files: {{path: ./out}}}}
"""
EVENT_TIME = "      eventTime: {column: ts, maxDelay: 10 seconds}"
COUNT = "by: [user], values: {n: count(*)}"
DISTINCT = "by: [user], values: {n: count(*), items: count_distinct(item)}"
STEPS = {
    "passthrough": "filter: ms > 100",
    "reporting": f"window: {{size: 1 minute, {COUNT}}}",
    "reporting-late": f"window: {{size: 1 minute, {COUNT}}}, late: side",
    "sliding": f"window: {{size: 1 hour, slide: 1 minute, {COUNT}}}",
    "rolling": f"rolling: {{over: 1 hour, {DISTINCT}}}",
    "rolling-week": f"rolling: {{over: 7 days, {DISTINCT}}}",
}


def pipeline(job: str, data: Path, files_per_batch: int) -> str:
    """The pipeline file of a job."""
    event_time = "" if job == "passthrough" else EVENT_TIME
    return PIPELINE.format(
        job=job, data=data, files=files_per_batch, schema=SCHEMA, event_time=event_time, step=STEPS[job]
    )


def prepare(job: str, files_per_batch: int) -> Callable[[Path, Path], None]:
    from penstock.engine.analyse import analyse
    from penstock.engine.query import RunningPipeline
    from penstock.engine.session import Session, SessionOptions
    from penstock.engine.state.buckets import buckets_of
    from penstock.engine.statedir import StateDir
    from penstock.frontends.yaml import parse_yaml
    from penstock.graph.build import build

    options = SessionOptions(master="local[2]", driver_memory=MEMORY, conf={"spark.sql.shuffle.partitions": "2"})
    session = Session(options)

    def run(data: Path, folder: Path) -> None:
        graph = build(parse_yaml(pipeline(job, data, files_per_batch), folder / "pipeline.yaml"))
        with StateDir(folder / "state", job) as state:
            analysed = analyse(session.spark, graph, state.spool, buckets_of(session.spark, state))
            analysed.raise_errors()
            running = RunningPipeline(session.spark, graph, analysed, state)
            running.start(once=True)
            running.wait(3600)
            running.close()

    return run


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1], int(sys.argv[2])))
