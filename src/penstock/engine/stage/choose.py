"""Chooses how the kernels of a pipeline are carried: on chunk files, or on Spark's state store as its state is.

Kernels run on the batch, after the streaming query, so nothing that Spark itself keeps state for may stand above or
beside them. Pipelines with such steps, and those whose state lies in Spark's state store, stay there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.engine.analyse import Analysed, analyse
from penstock.engine.history import History
from penstock.engine.stage.builder import StageBuilder
from penstock.engine.state.buckets import buckets_of
from penstock.engine.statedir import StateDir
from penstock.graph.nodes import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNKS = "chunks"
"""The layout of a state in chunk files."""
_WANTED = "PENSTOCK_STATE_LAYOUT"
"""Set to `chunks`, new states are made in chunk files."""


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
    if state.identity.layout == CHUNKS or (state.is_new and os.environ.get(_WANTED) == CHUNKS):
        found = analyse(spark, graph, state.spool, buckets, histories, careful=careful, builder_class=StageBuilder)
        if can_be_staged(found):
            return found
    return analyse(spark, graph, state.spool, buckets, histories, careful=careful)


def can_be_staged(analysed: Analysed) -> bool:
    """Whether all state is that of kernels, and there is some."""
    stateful = [facts for facts in analysed.analysis.facts.values() if facts.stateful]
    return bool(stateful) and all(facts.kernel for facts in stateful)
