"""The pipeline as a graph, and what Spark's analyser has found out about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.components.base import Component
from penstock.errors import Location
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import Kind, Sink, Source, Step


@dataclass(frozen=True)
class Node:
    """A source, step or sink with the names it reads from."""

    name: str
    kind: Kind
    component: Component
    inputs: tuple[str, ...]
    spec: Source | Step | Sink
    part_of: str | None = None
    """The step that it is an output of."""

    @property
    def path(self) -> tuple[str, ...]:
        """Where it stands in the document."""
        return ("spec", f"{self.kind}s", self.part_of or self.name)


@dataclass(frozen=True)
class Graph:
    """Nodes by name, each after all it reads from."""

    file: PipelineFile
    nodes: Mapping[str, Node]

    def of_kind(self, kind: Kind) -> Iterator[Node]:
        return (node for node in self.nodes.values() if node.kind == kind)

    def readers(self, name: str) -> Iterator[Node]:
        return (node for node in self.nodes.values() if name in node.inputs)

    def ancestors(self, name: str) -> set[str]:
        """All nodes whose rows reach this one, without itself."""
        found: set[str] = set()
        waiting = list(self.nodes[name].inputs)
        while waiting:
            current = waiting.pop()
            if current not in found:
                found.add(current)
                waiting.extend(self.nodes[current].inputs)
        return found

    def location(self, name: str, *path: str | int) -> Location:
        """The place of a node in the file, or of a part of it."""
        node = self.nodes[name]
        if not path:
            return self.file.places.of_key(*node.path)
        return self.file.places.of(*node.path, *path)


@dataclass(frozen=True)
class Watermark:
    column: str
    delay_millis: int


@dataclass(frozen=True)
class Stateful:
    """State that a step keeps between batches."""

    operator: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class NodeFacts:
    """What the analyser found for one node: its columns, watermark and state."""

    columns: Mapping[str, str]
    watermark: Watermark | None = None
    stateful: tuple[Stateful, ...] = ()
    kernel: bool = False
    """Whether its state is kept by one of Penstock's kernels rather than by an operator of Spark's own."""


@dataclass(frozen=True)
class Analysis:
    """Facts by node; sinks have the columns they store."""

    facts: Mapping[str, NodeFacts]
    output_mode: str = "append"
    trunk: tuple[str, ...] = ()
    """Nodes at which the one streaming query ends; what follows runs on its batches."""
    passes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stateful steps whose rows are prepared in one pass over the rows of a node at which the query ends."""
    plan: str = ""
    lineage: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """For SQL steps: output column to the `input.column`s it is computed from."""
