"""Restores a savepoint to its end: the state is put back, and sinks go back at once instead of with the next run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.batch import BatchHandler
from penstock.engine.evolution.going_on import go_on
from penstock.engine.savepoints.journal import pending, undo
from penstock.engine.savepoints.places import read_savepoint
from penstock.engine.savepoints.restore import examine, restore
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.stage.choose import analyse_on
from penstock.engine.statedir import StateDir, refuse_foreign
from penstock.errors import PenstockError
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.reports.savepoints import Savepoint
from penstock.spec.location import PipelineFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], AbstractContextManager["SparkSession"]]


def go_back_to(
    file: PipelineFile,
    path: Path,
    folder: Path,
    session: Session,
    *,
    keep_rows: bool = False,
    progress: Progress = quiet,
) -> Savepoint:
    """Puts a savepoint in place of a state that no run holds; if a sink cannot go back, the state is as it was.

    One that was interrupted is gone on with.
    """
    graph, name = build(file), file.pipeline.name
    refuse_foreign(path, name, mend=True)
    found = read_savepoint(folder)
    with StateDir(path, name, mend=True) as state:
        begun = pending(path)
        if begun is None or begun.savepoint != found.name:
            found = examine(folder, name, fork=False, progress=progress)
            restore(state, folder, found, keep_rows=keep_rows, progress=progress)
        try:
            with session() as spark:
                _open_sinks(spark, graph, state)
        except PenstockError:
            undo(path)
            raise
    return found


def _open_sinks(spark: SparkSession, graph: Graph, state: StateDir) -> None:
    """Opening them lets them go back."""
    analysed = analyse_on(spark, graph, state)
    analysed.raise_errors()
    go_on(state, graph, analysed)
    BatchHandler(spark, graph, analysed, state).close()
