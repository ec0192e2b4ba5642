"""Makes the stage of a pipeline that was analysed for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.again import pseudo_node
from penstock.engine.analyse import Analysed
from penstock.engine.stage.builder import StageBuilder
from penstock.engine.stage.query_frame import QueryFrame, query_frame
from penstock.engine.stage.stage import KernelStage
from penstock.engine.statedir import StateDir
from penstock.graph.nodes import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def staged_query(graph: Graph, analysed: Analysed, first_mark: int) -> QueryFrame | None:
    """The query that ends below the kernels; None if the pipeline was analysed for another."""
    builder = analysed.builder
    if not isinstance(builder, StageBuilder):
        return None
    again = {name: analysed.frames[name] for node in graph.nodes if (name := pseudo_node(node)) in analysed.frames}
    return query_frame(builder, builder.plan(analysed.frames), analysed.frames, again, first_mark)


def make_stage(
    spark: SparkSession, analysed: Analysed, query: QueryFrame | None, state: StateDir, committed: int
) -> KernelStage | None:
    """Opens the state of a pipeline whose kernels run on the batch."""
    builder = analysed.builder
    if query is None or not isinstance(builder, StageBuilder):
        return None
    return KernelStage(spark, builder, builder.plan(analysed.frames), analysed.frames, query, state, committed)
