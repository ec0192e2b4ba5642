"""How rows flow before and after a change, as lines that people compare."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.graph.nodes import Graph


def flow_lines(before: Graph, after: Graph, renamed: Mapping[str, str]) -> list[str]:
    """How rows flow, as lines that are there before, after, or both."""
    new_names = {old: new for new, old in renamed.items()}
    old, new = [_flows(graph, names) for graph, names in ((before, new_names), (after, {}))]
    lines = [f"- {line}" for line in old if line not in new]
    lines += [f"+ {line}" if line not in old else f"  {line}" for line in new]
    return lines if old != new else []


def _flows(graph: Graph, names: Mapping[str, str]) -> list[str]:
    found = []
    for node in graph.nodes.values():
        if node.inputs:
            inputs = ", ".join(names.get(name, name) for name in node.inputs)
            found.append(f"{inputs} → {names.get(node.name, node.name)} ({node.component.name})")
    return found
