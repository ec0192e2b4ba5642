"""Whether the counts of a batch add up: every row that came in was stored, dropped on purpose, or set aside.

What a step gives can be told from what it was given only where each row goes on or is dropped. Behind a window or a
query it cannot; there the counts of late and dead rows are all there is to check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.components.base import Step
from penstock.components.steps.route import Route
from penstock.engine.ledger import BatchEntry
from penstock.graph.nodes import Graph, Node


@dataclass(frozen=True)
class Imbalance:
    """A place whose rows are not as many as they must be."""

    node: str
    expected: int
    found: int

    def __str__(self) -> str:
        return f"'{self.node}' has {self.found:,} rows, {self.expected:,} were expected"


def imbalances(graph: Graph, entry: BatchEntry) -> list[Imbalance]:
    """What does not add up in a batch; empty if all does that can be told."""
    return [*_at_sinks(graph, entry), *_at_routes(graph, entry)]


def stored(entry: BatchEntry, sink: str) -> int:
    """The rows that reached a sink: those it took, and those it refused."""
    return entry.rows_out.get(sink, 0) + entry.rows_dead.get(sink, 0)


def expected(graph: Graph, entry: BatchEntry, name: str) -> int | None:
    """How many rows a source or step gave in a batch; None if that does not follow from what came in."""
    node = graph.nodes[name]
    if node.kind == "source":
        return entry.rows_in.get(name, 0) - entry.rows_dead.get(name, 0)
    if node.part_of is not None or not isinstance(node.component, Step) or node.component.passes == "other":
        return None
    given = [expected(graph, entry, below) for below in node.inputs]
    known = [count for count in given if count is not None]
    lost = entry.filtered.get(name, 0) + entry.rows_dead.get(name, 0) - entry.replayed.get(name, 0)
    return sum(known) - lost if len(known) == len(given) else None


def _at_sinks(graph: Graph, entry: BatchEntry) -> Iterator[Imbalance]:
    for sink in graph.of_kind("sink"):
        given = expected(graph, entry, sink.inputs[0])
        count = None if given is None else given + entry.replayed.get(sink.name, 0)
        if count is not None and count != stored(entry, sink.name):
            yield Imbalance(sink.name, count, stored(entry, sink.name))


def _at_routes(graph: Graph, entry: BatchEntry) -> Iterator[Imbalance]:
    """A route that gives each row to one output gives as many as it was given, where sinks show all of them."""
    for node in graph.of_kind("step"):
        if not isinstance(node.component, Route) or node.component.each != "first":
            continue
        count = expected(graph, entry, node.name)
        shown = [_shown(graph, entry, output) for output in graph.nodes.values() if output.part_of == node.name]
        known = [rows for rows in shown if rows is not None]
        if count is not None and len(known) == len(shown) and sum(known) != count:
            yield Imbalance(node.name, count, sum(known))


def _shown(graph: Graph, entry: BatchEntry, output: Node) -> int | None:
    return next((stored(entry, reader.name) for reader in graph.readers(output.name) if reader.kind == "sink"), None)
