"""What the streaming query of a pipeline computes, and what runs on each of its batches.

The query ends at a *floor*: the last nodes that every source has to itself, so that each source is read once however
many steps it feeds. Everything above it, kernels included, runs on the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.graph.nodes import Graph


@dataclass(frozen=True)
class StagePlan:
    floor: tuple[str, ...]
    """Where the query ends."""
    kernels: tuple[str, ...]
    """The steps with a kernel, inputs before those that read them."""
    direct: frozenset[str]
    """Kernels that read nothing but the floor, each input from another node of it."""
    rows: frozenset[str]
    """Nodes of the floor whose rows are needed by others than these."""


def stage_plan(graph: Graph, kernels: Collection[str], indirect: Collection[str] = ()) -> StagePlan:
    """`indirect` are kernels whose input has to be computed on the batch all the same."""
    needed = {name for sink in graph.of_kind("sink") for name in graph.ancestors(sink.name)}
    used = [node for node in graph.nodes.values() if node.name in needed or node.kind == "sink"]
    readers: dict[str, set[str]] = {name: set() for name in needed}
    for node in used:
        for name in node.inputs:
            readers[name].add(node.name)
    floor = [node.name for node in used if node.kind == "source"]
    for node in used:
        own = all(name in floor and readers[name] == {node.name} for name in node.inputs)
        if node.kind == "step" and node.name not in kernels and node.inputs and own:
            floor = [name for name in floor if name not in node.inputs] + [node.name]
    ordered = tuple(node.name for node in used if node.name in kernels)
    direct = frozenset(
        name
        for name in ordered
        if name not in indirect
        and set(graph.nodes[name].inputs) <= set(floor)
        and len(set(graph.nodes[name].inputs)) == len(graph.nodes[name].inputs)
    )
    rows = frozenset(name for name in floor if readers[name] - direct)
    return StagePlan(tuple(floor), ordered, direct, rows)
