"""Runs several pipelines in one process, each to the point where it is to die; it kills itself once all are there.

python -m tests.faults.herd_run '["sink.in_transaction@1@row_files", ...]' FILE...
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from penstock.components.shared import crashpoints
from penstock.engine.progress import Status
from penstock.engine.session import Session, SessionOptions
from penstock.engine.statedir import StateDir
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.course import Course
from penstock.runner.loop import RunOptions, state_path


class Gate:
    """Holds each pipeline at its place until all have come."""

    def __init__(self, places: Sequence[str]) -> None:
        self.missing = Counter(places)
        self.lock = threading.Lock()

    def reached(self, point: str, batch: int) -> None:
        place = f"{point}@{batch}"
        with self.lock:
            found = next(
                (name for name in (f"{place}@{crashpoints.current_sink()}", place) if self.missing[name]), None
            )
            if found is None:
                return
            self.missing[found] -= 1
            if not self.missing.total():
                os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


def main() -> None:
    gate = Gate(json.loads(sys.argv[1]))
    files = [load(Path(name)) for name in sys.argv[2:]]
    crashpoints.install(gate.reached)
    conf = {"spark.sql.shuffle.partitions": "2"}
    session = Session(SessionOptions(master="local[2]", conf=conf, quick=True, log=files[0].folder / "herd.spark.log"))

    def run(number: int) -> None:
        file = files[number]
        try:
            with StateDir(state_path(file, RunOptions()), file.pipeline.name) as state:
                status = Status(file.pipeline.name, "starting", dt.datetime.now(dt.UTC))
                spark, stop = session.spark.newSession(), threading.Event()
                Course(spark, build(file), state, lambda _: None, status, stop, session.log).through(once=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        if gate.missing.total():
            print(f"a pipeline has ended; not reached: {dict(gate.missing)}")
            os._exit(3)
    session.stop()


if __name__ == "__main__":
    main()
