"""Chooses how the kernels of a pipeline are carried: on chunk files, or on Spark's state store as its state is.

Kernels run on the batch, after the streaming query, so nothing that Spark itself keeps state for may stand above or
beside them. Pipelines with such steps, and those whose state lies in Spark's state store, stay there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.analyse import Analysed, analyse
from penstock.engine.history import History
from penstock.engine.stage.builder import StageBuilder
from penstock.engine.state.buckets import buckets_of
from penstock.engine.state.chunk_store import in_chunks
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError, Problem
from penstock.graph.nodes import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WANTED = "PENSTOCK_STATE_STORE"
"""Set to `chunks`, new states are made in chunk files where they can be, whatever pipeline files say; for tests."""


def analyse_on(
    spark: SparkSession,
    graph: Graph,
    state: StateDir,
    histories: Mapping[str, History] | None = None,
    *,
    careful: bool = False,
) -> Analysed:
    """What is known of a pipeline on this state, carried as the state is laid out; a new state gets its layout."""
    buckets = buckets_of(spark, state)
    wanted = graph.file.pipeline.state.store
    there = in_chunks(state.checkpoint)
    # A pipeline that keeps nothing has no store yet.
    if state.identity.operators and wanted is not None and (wanted == "chunks") != there:
        place = graph.file.places.of("spec", "state", "store")
        raise PenstockError.of("STATE_STORE_FIXED", place, found="chunks" if there else "spark", wanted=wanted)
    asked = wanted == "chunks" or (wanted is None and os.environ.get(_WANTED) == "chunks")
    if there or (state.is_new and asked):
        found = analyse(spark, graph, state.spool, buckets, histories, careful=careful, builder_class=StageBuilder)
        native = kept_by_spark(found)
        if there or (has_kernels(found) and not native):
            if native:
                raise PenstockError.of("STATE_STORE_SPARK", graph.location(native[0]), node=native[0])
            return found
        if native and wanted == "chunks":
            raise PenstockError.of("STATE_STORE_SPARK", graph.location(native[0]), node=native[0])
    return analyse(spark, graph, state.spool, buckets, histories, careful=careful)


def analyse_declared(spark: SparkSession, graph: Graph, spool: Path) -> Analysed:
    """What is known of a pipeline without a state, carried as its file says."""
    if graph.file.pipeline.state.store != "chunks":
        return analyse(spark, graph, spool)
    found = analyse(spark, graph, spool, builder_class=StageBuilder)
    native = kept_by_spark(found)
    if not native:
        return found
    refused = Problem("STATE_STORE_SPARK", {"node": native[0]}, graph.location(native[0]))
    return replace(found, problems=(*found.problems, refused))


def refuse_chunks(checkpoint: Path, what: str) -> None:
    """Raises if a state is in chunk files, with which something cannot be done yet."""
    if in_chunks(checkpoint):
        raise PenstockError.of("STATE_STORE_UNSUPPORTED", what=what)


def has_kernels(analysed: Analysed) -> bool:
    return any(facts.kernel for facts in analysed.analysis.facts.values())


def kept_by_spark(analysed: Analysed) -> list[str]:
    """The steps whose state Spark's own operators keep."""
    return [name for name, facts in analysed.analysis.facts.items() if facts.stateful and not facts.kernel]
