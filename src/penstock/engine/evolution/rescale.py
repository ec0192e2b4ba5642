"""Divides the state of a pipeline that does not run into another number of partitions.

The work is done on a copy and compared before it takes the place of what was there. It uses up the number of one
batch, of which sinks and ledger know only that it has no rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.shared.crashpoints import reach
from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.checkpoint_cut import divided, operators
from penstock.engine.evolution.contents import Content, Variable, contents
from penstock.engine.evolution.working_copy import put_in_place, replace_text, use_up, working_copy
from penstock.engine.savepoints.trees import refuse_without_space
from penstock.engine.state.chunk_store import in_chunks
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.reports.state_folder import state_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Rescaled:
    before: int
    after: int
    batch: int
    """The last batch now: one that it has used up, if there was state to be moved."""
    rows: int
    """Rows of state that were moved."""


def partitions_before(state: StateDir) -> int:
    """Into how many partitions a state is divided; raises if it cannot be rescaled as it is."""
    committed, planned = last_committed(state.checkpoint), last_number(state.checkpoint / "offsets")
    if committed < 0:
        raise PenstockError.of("SAVEPOINT_NOTHING", name=state.identity.name)
    found = state_partitions(state.checkpoint)
    assert found is not None
    if planned > committed:
        reason = "it has to come again first"
        raise PenstockError.of("CHANGE_UNFINISHED_BATCH", path=state.path, batch=planned, reason=reason)
    return found


def rescale(spark: SparkSession, state: StateDir, partitions: int, savepoint: str) -> Rescaled:
    """Divides an open state anew. `savepoint` is the one to go back to by hand, taken just before."""
    before = partitions_before(state)
    batch = last_committed(state.checkpoint)
    with working_copy(state, batch) as new:
        copy = new / "checkpoint"
        reach("rescale.copied", 0)
        # Chunk files are dealt to tasks anew in each batch, so only the number has to change.
        if not operators(copy) or in_chunks(copy):
            replace_text(copy / "offsets" / str(batch), lambda text: divided(text, partitions))
            put_in_place(state, new, batch, savepoint)
            return Rescaled(before, partitions, batch, 0)
        # All of it is written anew, beside what is there.
        refuse_without_space(new, sum(file.stat().st_size for file in (copy / "state").rglob("*") if file.is_file()))
        held = contents(spark, copy, batch)
        _repartition(spark, copy, partitions, state.path)
        _refuse_other_contents(held, contents(spark, copy, batch + 1), state.path)
        reach("rescale.repartitioned", 0)
        use_up(state, new, batch + 1)
        put_in_place(state, new, batch + 1, savepoint)
    return Rescaled(before, partitions, batch + 1, sum(content.rows for content in held.values()))


def _repartition(spark: SparkSession, copy: Path, partitions: int, state: Path) -> None:
    try:
        spark._streamingCheckpointManager.repartition(str(copy), partitions)
    except Exception as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise PenstockError.of("RESCALE_FAILED", path=state, reason=reason) from error


def _refuse_other_contents(before: dict[Variable, Content], after: dict[Variable, Content], state: Path) -> None:
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if differing:
        one = min(differing)
        reason = (
            f"'{one.name}' of operator {one.operator} holds {after.get(one)} after it, and {before.get(one)} before"
        )
        raise PenstockError.of("RESCALE_FAILED", path=state, reason=reason)
