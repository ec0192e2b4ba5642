"""Runs a pipeline in this process and takes a savepoint while it is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.components.shared import crashpoints
from penstock.engine.analyse import analyse
from penstock.engine.query import RunningPipeline
from penstock.engine.savepoints.restore import examine, restore
from penstock.engine.savepoints.take import Moment, Taken, Wish, take
from penstock.engine.state.buckets import buckets_of
from penstock.engine.statedir import StateDir
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.testing import shared_session

Meanwhile = Callable[[Moment], None]


def run_through(
    pipeline: Path,
    state_dir: Path,
    *,
    at: int | None = None,
    wish: Wish | None = None,
    meanwhile: Meanwhile = lambda moment: None,
) -> Taken | None:
    """Runs to the end; a savepoint is asked for while batch `at` is at work. `meanwhile` is called as it is taken."""
    graph, spark, taken = build(load(pipeline)), shared_session(), list[Taken]()
    with StateDir(state_dir, graph.file.pipeline.name) as state:
        analysed = analyse(spark, graph, state.spool, buckets_of(spark, state))
        analysed.raise_errors()
        running = RunningPipeline(spark, graph, analysed, state)

        @contextmanager
        def hold() -> Iterator[Moment]:
            with running.paused() as moment:
                meanwhile(moment)
                yield moment

        def taking() -> None:
            taken.append(take(state.path, state.identity, graph.file, hold, wish or Wish("middle")))

        taker = threading.Thread(target=taking)

        def hook(point: str, batch: int) -> None:
            if (point, batch) == ("batch.start", at):
                taker.start()

        crashpoints.install(hook)
        try:
            running.start(once=True)
            running.wait(120)
            if taker.ident is not None:
                taker.join(60)
        finally:
            crashpoints.install(None)
            running.stop()
            running.close()
    assert (at is None) or taken, "no savepoint was taken"
    return taken[0] if taken else None


def put_back(pipeline: Path, state_dir: Path, folder: Path, *, fork: bool = False) -> None:
    name = load(pipeline).pipeline.name
    savepoint = examine(folder, name, fork=fork)
    with StateDir(state_dir, name, mend=True) as state:
        restore(state, folder, savepoint, fork=fork)
