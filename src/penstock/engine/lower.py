"""From a graph to one Spark query.

One streaming query computes the *trunk*: the node (or nodes) at which everything stateful is done and from which
all sinks can be fed. What follows the trunk is stateless and runs on each batch. A pipeline with one sink is all
trunk, so Catalyst sees it whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.markers import walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAG = "_penstock_output"
STATEFUL = {
    "Aggregate": "aggregate",
    "Join": "join",
    "Deduplicate": "dedupe",
    "DeduplicateWithinWatermark": "dedupe",
    "Distinct": "dedupe",
    "FlatMapGroupsWithState": "custom state",
    "FlatMapGroupsInPandasWithState": "custom state",
    "TransformWithState": "custom state",
    "TransformWithStateInPySpark": "custom state",
}
"""What keeps state in a streaming plan, in words."""


def is_stateful(plan: Any) -> bool:
    """Whether a node of a plan keeps state; a stream that is joined with a table does not."""
    name = plan.nodeName()
    if name not in STATEFUL or not plan.isStreaming():
        return False
    return name != "Join" or all(plan.children().apply(index).isStreaming() for index in range(plan.children().size()))


def keeps_state(frame: DataFrame) -> bool:
    """Whether computing the rows of a stream changes state."""
    return states_in(frame) > 0


def states_in(frame: DataFrame) -> int:
    """How many operators keep state for the rows of a stream."""
    return sum(is_stateful(node) for node in walk(frame._jdf.queryExecution().analyzed()))


def trunk_frame(frames: dict[str, DataFrame], trunk: tuple[str, ...]) -> DataFrame:
    """The frame of the one query: the trunk itself, or all its nodes side by side with a tag that tells them apart."""
    if len(trunk) == 1:
        return frames[trunk[0]]
    from functools import reduce

    from pyspark.sql import functions as F

    def tagged(index: int, name: str) -> DataFrame:
        whole = F.struct(*(F.col(f"`{column}`") for column in frames[name].columns))
        return frames[name].select(F.lit(index).alias(TAG), whole.alias(f"{TAG}_{index}"))

    parts = [tagged(index, name) for index, name in enumerate(trunk)]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def split_trunk(batch: DataFrame, trunk: tuple[str, ...]) -> dict[str, DataFrame]:
    """The rows of each trunk node in one batch."""
    if len(trunk) == 1:
        return {trunk[0]: batch}
    from pyspark.sql import functions as F

    return {name: batch.where(F.col(TAG) == index).select(f"{TAG}_{index}.*") for index, name in enumerate(trunk)}
