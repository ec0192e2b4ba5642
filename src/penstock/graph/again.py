"""Whether the state of a step can be made anew by reading again what was read before."""

from __future__ import annotations

from penstock.components.base import Source
from penstock.graph.nodes import Graph
from penstock.spec.pipeline import Source as SourceSpec


def why_not_again(graph: Graph, step: str) -> str | None:
    """Why not, if it cannot be; that a source has not kept its rows is seen only when they are read."""
    for name in (node for node in graph.nodes if node in graph.ancestors(step)):
        node = graph.nodes[name]
        if not isinstance(node.component, Source):
            continue
        if not node.component.read_through.repeatable:
            return f"source '{name}' ({node.component.name}) gives its rows once"
        if isinstance(node.spec, SourceSpec) and node.spec.bootstrap is not None:
            return f"source '{name}' had a history, which is not kept"
        if getattr(node.component, "archive_to", None) is not None:
            return f"source '{name}' moves files away once they are read"
    return None
