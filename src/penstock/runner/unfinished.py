"""The batch in which the last run of a pipeline died: it is finished before anything else is done to the state.

Sinks may have stored it, so it must come again just as it was planned, in the version that had planned it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.history import pending
from penstock.engine.query import RunningPipeline
from penstock.engine.savepoints.standing import note_standing
from penstock.engine.stage.choose import analyse_on
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.earlier import declared
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.runner.course import may_be_a_row
from penstock.spec.location import PipelineFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def unfinished_batch(state: Path) -> int | None:
    """The batch that is planned and was not committed, if there is one."""
    planned = last_number(state / "checkpoint" / "offsets")
    return planned if planned > last_committed(state / "checkpoint") else None


def as_it_ran(state: StateDir, file: PipelineFile) -> PipelineFile:
    """The pipeline as it was when it last ran, whatever its file says by now, as far as that is known."""
    version = state.identity.version
    earlier = None if version is None else declared(version.document, file)
    return file if earlier is None else earlier.file


def finish_batch(spark: SparkSession, file: PipelineFile, state: StateDir, log: Path) -> int | None:
    """Finishes the batch in which the last run died, if it did; its number. Raises if that is not possible."""
    batch = unfinished_batch(state.path)
    if batch is None:
        return None
    graph = build(as_it_ran(state, file))
    try:
        try:
            _run(spark, graph, state, log, careful=False)
        except PenstockError as error:
            if not may_be_a_row(error, graph):
                raise
            _run(spark, graph, state, log, careful=True)
    except PenstockError as error:
        reason = error.problems[0].message
        raise PenstockError.of("CHANGE_UNFINISHED_BATCH", path=state.path, batch=batch, reason=reason) from error
    return batch


def _run(spark: SparkSession, graph: Graph, state: StateDir, log: Path, *, careful: bool) -> None:
    histories = pending(graph, state.spool)
    analysed = analyse_on(spark, graph, state, histories, careful=careful)
    analysed.raise_errors()
    running = RunningPipeline(spark, graph, analysed, state, log)
    try:
        running.run_one()
        # Without it sinks are opened once more to be asked.
        with suppress(Exception), running.paused() as moment:
            if not moment.unfinished:
                note_standing(state.path, state.identity.lineage, moment)
    finally:
        running.stop()
        running.close()
