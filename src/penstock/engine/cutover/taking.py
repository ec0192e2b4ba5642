"""Puts the state of a new version in the place of a pipeline's own, at the end of the pipeline's last batch.

Positions, commits and the watermark are those of the pipeline; only what steps remember is the new version's. Both have
read the same rows by then, and at the same watermark, so what the pipeline has given out the new version will not give
out again, and what it has not the new version will. Sinks know the pipeline by its lineage and the numbers of batches,
which go on.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import Sink, SinkContext
from penstock.components.shared.crashpoints import reach
from penstock.engine.analyse import Analysed
from penstock.engine.checkpoint import last_committed
from penstock.engine.checkpoint_cut import divided, files_until, operators
from penstock.engine.checkpoint_paths import may_hold_paths, with_place, without_place
from penstock.engine.evolution.contents import contents
from penstock.engine.evolution.going_on import Verdict
from penstock.engine.evolution.graft import known_as, place_streams
from penstock.engine.evolution.working_copy import put_in_place, replace_text, working_copy
from penstock.engine.savepoints.trees import files_below, link_all
from penstock.engine.statedir import Identity, StateDir, identity_text
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph
from penstock.reports.state_folder import state_partitions
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_VERSIONED = re.compile(r"\d+\.(zip|changelog)")


@dataclass(frozen=True)
class Taken:
    batch: int
    """The last batch now."""
    rows: int
    """Rows of state that the new version goes on with."""


def take_over(
    spark: SparkSession, state: StateDir, new: Path, identity: Identity, verdict: Verdict, savepoint: str
) -> Taken:
    """Lets the new version, whose state folder is `new`, go on in an open state folder. Both must stand at one point.

    If anything fails the state is as it was.
    """
    batch, own = last_committed(state.checkpoint), last_committed(new / "checkpoint")
    with working_copy(state, batch) as parts:
        copy = parts / "checkpoint"
        place_streams(parts, state, verdict)
        _place_state(copy, new, own)
        renumber(copy / "state", own + 1, batch + 1)
        _place_identity(parts, new, state, identity, verdict)
        _place_partitions(copy, new, batch)
        rows = _verified(spark, copy, batch, new / "checkpoint", own)
        reach("cutover.built", 0)
        put_in_place(state, parts, batch, savepoint)
    state.adopt()
    return Taken(batch, rows)


def refuse_unwilling(spark: SparkSession, state: StateDir, graph: Graph, analysed: Analysed, verdict: Verdict) -> None:
    """Raises if a sink would not take the new version's rows: its table may lack a column. New ones are made."""
    names, identity = known_as(state, verdict), state.identity
    for node in graph.of_kind("sink"):
        assert isinstance(node.component, Sink)
        columns = dict(analysed.analysis.facts[node.name].columns)
        name = names.get(node.name, node.name)
        context = SinkContext(spark, name, graph.file.folder, identity.name, identity.lineage, identity.epoch, columns)
        with_secrets(node.component).open(context).close()


def _place_state(copy: Path, new: Path, own: int) -> None:
    """Links the new version's state after its last batch."""
    shutil.rmtree(copy / "state", ignore_errors=True)
    checkpoint = new / "checkpoint"

    def wanted() -> list[str]:
        return [name for name in files_until(checkpoint, own, planned=False) if name.startswith("state/")]

    for name in link_all(checkpoint, wanted, copy):
        if may_hold_paths(name):
            replace_text(copy / name, lambda text: with_place(without_place(text, new), copy.parent))


def renumber(state: Path, version: int, wanted: int) -> None:
    """Lets state that was stored as a whole be that of another version."""
    for name in files_below(state) if wanted != version else ():
        file = state / name
        if file.name == f"{version}.zip":
            file.rename(file.with_name(f"{wanted}.zip"))
        elif _VERSIONED.fullmatch(file.name):
            raise PenstockError.of("CUTOVER_FAILED", reason=f"the state in {file.parent} was not stored as a whole")


def _place_identity(parts: Path, new: Path, state: StateDir, identity: Identity, verdict: Verdict) -> None:
    metadata = parts / "checkpoint" / "metadata"
    metadata.unlink()
    metadata.with_name(".metadata.crc").unlink(missing_ok=True)
    shutil.copy2(new / "checkpoint" / "metadata", metadata)
    version = replace(verdict.now, sinks=known_as(state, verdict))
    found = replace(
        state.identity,
        query_id=identity.query_id,
        buckets=identity.buckets,
        version=version,
        operators=identity.operators,
    )
    (parts / "pipeline.json").write_text(identity_text(found), "utf-8")


def _place_partitions(copy: Path, new: Path, batch: int) -> None:
    wanted = state_partitions(new / "checkpoint")
    if wanted is not None and wanted != state_partitions(copy):
        replace_text(copy / "offsets" / str(batch), lambda text: divided(text, wanted))


def _verified(spark: SparkSession, copy: Path, last: int, checkpoint: Path, own: int) -> int:
    """Raises unless the copy holds what the new version's state holds; its rows."""
    if not operators(checkpoint):
        return 0
    try:
        held, found = contents(spark, checkpoint, own), contents(spark, copy, last)
    except Exception as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise PenstockError.of("CUTOVER_FAILED", reason=reason) from error
    differing = [variable for variable in {**held, **found} if held.get(variable) != found.get(variable)]
    if differing:
        one = min(differing)
        reason = f"'{one.name}' of operator {one.operator} holds {found.get(one)} instead of {held.get(one)}"
        raise PenstockError.of("CUTOVER_FAILED", reason=reason)
    return sum(content.rows for content in found.values())
