"""A pipeline that runs, with savepoints taken of it: prints how long its batches and the savepoints took, as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.pipelines import MEMORY
from penstock.engine.savepoints.take import Taken

EVERY = 4
"""Every so many batches a savepoint is asked for, while the batch is at work."""
_PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: saved}}
spec:
  sources:
    views:
      generator: {{dataset: page_views, rows: {rows}, rate: 2000, seed: 1, keys: 5000, maxRowsPerBatch: {each}}}
      eventTime: {{column: ts, maxDelay: 5 seconds}}
  steps:
    recent: {{from: views, rolling: {{by: [user], over: 7 days, values: {{seen: count(*)}}}}}}
  sinks:
    out: {{from: recent, files: {{path: ./out}}}}
"""


def measure(folder: Path, batches: int, each: int) -> dict[str, Any]:
    from penstock.components.shared import crashpoints
    from penstock.engine.analyse import analyse
    from penstock.engine.query import RunningPipeline
    from penstock.engine.savepoints.take import Wish, take
    from penstock.engine.session import Session, SessionOptions
    from penstock.engine.state.buckets import buckets_of
    from penstock.engine.statedir import StateDir
    from penstock.frontends.yaml import parse_yaml
    from penstock.graph.build import build

    folder.mkdir(parents=True)
    options = SessionOptions(master="local[2]", driver_memory=MEMORY, conf={"spark.sql.shuffle.partitions": "2"})
    session = Session(options)
    graph = build(parse_yaml(_PIPELINE.format(rows=batches * each, each=each), folder / "pipeline.yaml"))
    savepoints: list[tuple[int, Taken, float]] = []
    takers: list[threading.Thread] = []
    with StateDir(folder / "state", "saved") as state:
        analysed = analyse(session.spark, graph, state.spool, buckets_of(session.spark, state))
        analysed.raise_errors()
        running = RunningPipeline(session.spark, graph, analysed, state)

        def taking(batch: int) -> None:
            began = time.monotonic()
            taken = take(state.path, state.identity, graph.file, running.paused, Wish(f"after-{batch}"))
            # The wait for the batch that was at work is not part of it.
            savepoints.append((batch, taken, time.monotonic() - began))

        def hook(point: str, batch: int) -> None:
            if point == "batch.start" and batch % EVERY == EVERY - 1 and not any(one.is_alive() for one in takers):
                takers.append(threading.Thread(target=taking, args=(batch,)))
                takers[-1].start()

        crashpoints.install(hook)
        running.start(once=True)
        reports = []
        while not running.wait(0.2):
            reports += running.new_reports()
        for taker in takers:
            taker.join()
        reports += running.new_reports()
        running.close()
    session.stop()
    return {"batches": {one.batch: one.duration_ms for one in reports}, "savepoints": _told(savepoints)}


def _told(savepoints: list[tuple[int, Taken, float]]) -> list[dict[str, Any]]:
    known: set[str] = set()
    found = []
    for batch, taken, seconds in savepoints:
        files = taken.savepoint.files
        found.append(
            {
                "batch": batch,
                "held_seconds": taken.held_seconds,
                "seconds": seconds,
                "bytes": taken.savepoint.bytes,
                "new_bytes": sum(file.bytes for file in files if file.sha256 not in known),
            }
        )
        known |= {file.sha256 for file in files}
    return found


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
