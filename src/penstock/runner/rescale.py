"""Divides the state of a pipeline into other partitions: a savepoint first, then the work, then the swap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.evolution.rescale import Rescaled, partitions_before
from penstock.engine.evolution.rescale import rescale as divide_anew
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.standing import note_standing
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.reports.state_folder import state_partitions
from penstock.runner.savepoints import session_for, take_here
from penstock.runner.unfinished import as_it_ran, finish_batch
from penstock.spec.location import PipelineFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Done:
    """What was done, and the savepoint from before it; None if the state was divided like that already."""

    rescaled: Rescaled
    savepoint: str | None


def rescale(
    file: PipelineFile, path: Path, partitions: int, progress: Progress = quiet, spark: SparkSession | None = None
) -> Done:
    """Divides a state that no run holds; if anything fails, it is as it was. Starts Spark unless it is given one."""
    name = file.pipeline.name
    refuse_foreign(path, name)
    if read_identity(path) is None:
        raise PenstockError.of("STATE_MISSING", path=path, name=name)
    with StateDir(path, name) as state:
        if pending(path) is not None:
            raise PenstockError.of("RESTORE_UNFINISHED", path=path)
        if state_partitions(state.checkpoint) == partitions:
            return Done(Rescaled(partitions, partitions, -1, 0), None)
        log = state.logs / "rescale.log"
        with session_for(file.pipeline, log, spark) as session:
            finish_batch(session, file, state, log)
            before = partitions_before(state)
            wish = Wish(note=f"before rescaling from {before} to {partitions} partitions")
            taken, moment = take_here(as_it_ran(state, file), state, wish, progress, session)
            rescaled = divide_anew(session, state, partitions, taken.savepoint.name)
        note_standing(state.path, state.identity.lineage, replace(moment, batch=rescaled.batch))
        return Done(rescaled, taken.savepoint.name)
