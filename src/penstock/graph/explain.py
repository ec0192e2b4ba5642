"""Shows a graph with what the analyser found, for a terminal, for programs and for documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.errors import Problem
from penstock.graph.nodes import Analysis, Graph, Node, NodeFacts, Stateful, Watermark
from penstock.spec.units import Duration

_MARKS = {"source": "●", "step": "○", "sink": "■"}
_MODES = {
    "append": "append: rows leave when they are final",
    "update": "update: a later row replaces an earlier one with the same key",
}
_KEPT_BY = {True: "(Penstock kernel)", False: "(Spark's own operator)"}
_TRACED = ("sql", "select")
"""Components whose lineage is worth a line; the others pass columns on under their own name."""
_SHAPES = {"source": ('(["', '"])'), "step": ('["', '"]'), "sink": ('[("', '")]')}


# --- for a terminal ----------------------------------------------------------------------------------------


def as_text(graph: Graph, analysis: Analysis, problems: Sequence[Problem] = (), width: int = 100) -> str:
    """The graph from sources to sinks, a line of rails for each stream of rows beside what is known of each node."""
    rails = _Rails(graph)
    drawn = [rails.draw(node) for node in graph.nodes.values()]
    room = max((len(head) for head, _ in drawn), default=0)
    lines = [_title(graph), ""]
    for node, (head, below) in zip(graph.nodes.values(), drawn, strict=True):
        beside = below.ljust(room + 2)
        lines.append(f"{head.ljust(room)}{_heading(node)}")
        lines.extend(f"{beside}{detail}" for detail in _details(node, graph, analysis, width - len(beside)))
        lines.append(below)
    lines.append(_query_line(analysis))
    if problems:
        lines.extend(["", *(str(problem) for problem in problems)])
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _title(graph: Graph) -> str:
    pipeline = graph.file.pipeline
    counts = (("source", pipeline.sources), ("step", pipeline.steps), ("sink", pipeline.sinks))
    return f"{pipeline.name}: {', '.join(_count(len(entries), kind) for kind, entries in counts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _heading(node: Node) -> str:
    read = f" ← {', '.join(node.inputs)}" if node.inputs else ""
    return f"{node.name}  [{node.kind} {node.component.name}]{read}"


def _details(node: Node, graph: Graph, analysis: Analysis, width: int) -> Iterator[str]:
    facts = analysis.facts.get(node.name)
    if facts is None:
        yield "columns: unknown"
    else:
        yield from _wrapped("columns: ", [f"{name} {kind}" for name, kind in facts.columns.items()] or ["none"], width)
        if facts.watermark is not None:
            yield f"watermark: {_watermark(facts.watermark)}"
        for state in facts.stateful:
            yield from _wrapped("keeps state: ", [f"{_state(state)} {_KEPT_BY[facts.kernel]}"], width)
    if node.component.name in _TRACED:
        yield from _lineage(analysis.lineage.get(node.name, {}), width)
    if node.name in analysis.trunk:
        yield _end_of_query(graph, analysis, node)
    if node.name in analysis.passes:
        yield from _wrapped("═ one pass over its rows for: ", analysis.passes[node.name], width)


def _lineage(traced: Mapping[str, tuple[str, ...]], width: int) -> Iterator[str]:
    """A line for each computed column, and one for all columns that come as they are from one input."""
    passed: dict[str, list[str]] = {}
    for column, inputs in traced.items():
        table, _, same = inputs[0].partition(".") if len(inputs) == 1 else ("", "", None)
        if same == column:
            passed.setdefault(table, []).append(column)
        else:
            yield from _wrapped(f"{column} ← ", list(inputs) or ["no column"], width)
    for table, columns in passed.items():
        yield from _wrapped(f"as in {table}: ", columns, width)


def _end_of_query(graph: Graph, analysis: Analysis, node: Node) -> str:
    follows = any(reader.kind != "sink" for reader in graph.readers(node.name))
    others = [name for name in analysis.trunk if name != node.name]
    also = f" (and at {', '.join(others)})" if others else ""
    return f"═ the streaming query ends here{also}{'; what follows runs on its batches' if follows else ''}"


def _query_line(analysis: Analysis) -> str:
    ends = ", ".join(analysis.trunk) or "unknown"
    return (
        f"one streaming query, ends at: {ends}\noutput mode: {_MODES.get(analysis.output_mode, analysis.output_mode)}"
    )


def _wrapped(label: str, items: Sequence[str], width: int) -> Iterator[str]:
    """Items after a label, broken between items; an item is never broken."""
    line, indent = label, " " * len(label)
    for index, item in enumerate(items):
        text = item + ("," if index < len(items) - 1 else "")
        if line.strip() and line not in (label, indent):
            if len(line) + 1 + len(text) > width:
                yield line
                line = indent + text
                continue
            line += " "
        line += text
    yield line


def _watermark(watermark: Watermark) -> str:
    return f"{watermark.column} − {Duration(watermark.delay_millis)}"


def _state(state: Stateful) -> str:
    return f"{state.operator} by {', '.join(state.keys)}" if state.keys else state.operator


class _Rails:
    """Draws, node after node, the lines on which rows flow down to their readers.

    A rail belongs to the node whose rows it carries, and ends at the last node that reads them; that node goes on
    in its place. A rail is two characters wide.
    """

    def __init__(self, graph: Graph) -> None:
        self.rails: list[str | None] = []
        self.unread = {name: {reader.name for reader in graph.readers(name)} for name in graph.nodes}

    def draw(self, node: Node) -> tuple[str, str]:
        """What stands left of the node's name, and left of what is said below it."""
        own = self._own_rail(node)
        cells = self._cells(node, own)
        self._move_on(node, own)
        below = "".join("│ " if rail is not None else "  " for rail in self.rails)
        return f"{cells} ", below

    def _own_rail(self, node: Node) -> int:
        """The place of the node: that of an input which ends here, else a free one to the right of its inputs."""
        for name in node.inputs:
            self.unread[name].discard(node.name)
        ending = [self.rails.index(name) for name in node.inputs if not self.unread[name]]
        if ending:
            return min(ending)
        free = [index for index, rail in enumerate(self.rails) if rail is None]
        right = [index for index in free if all(index > self.rails.index(name) for name in node.inputs)]
        if right:
            return right[0]
        self.rails.append(None)
        return len(self.rails) - 1

    def _cells(self, node: Node, own: int) -> str:
        inputs = [self.rails.index(name) for name in node.inputs]
        left, right = min([own, *inputs]), max([own, *inputs])
        text = ""
        for index, rail in enumerate(self.rails):
            inside = left <= index < right
            if index == own:
                cell = _MARKS[node.kind]
            elif index in inputs:
                cell = self._joint(str(rail), index, left, right)
            elif rail is not None:
                cell = "│"
            else:
                cell = "─" if left < index < right else " "
            text += cell + ("─" if inside else " ")
        return text

    def _joint(self, name: str, index: int, left: int, right: int) -> str:
        """Where an input's rail meets the line to its reader; it goes on below if it has further readers."""
        goes_on = bool(self.unread[name])
        if index == left:
            return "├" if goes_on else "╰"
        if index == right:
            return "┤" if goes_on else "╯"
        return "┼" if goes_on else "┴"

    def _move_on(self, node: Node, own: int) -> None:
        self.rails = [None if rail in node.inputs and not self.unread[rail] else rail for rail in self.rails]
        self.rails[own] = node.name if self.unread[node.name] else None
        while self.rails and self.rails[-1] is None:
            self.rails.pop()


# --- for programs ------------------------------------------------------------------------------------------


def as_json(graph: Graph, analysis: Analysis, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    """The same as plain data; what could not be analysed is null."""
    return {
        "pipeline": graph.file.pipeline.name,
        "outputMode": analysis.output_mode,
        "queryEndsAt": list(analysis.trunk),
        "passes": {name: list(steps) for name, steps in analysis.passes.items()},
        "nodes": [_node_as_json(node, graph, analysis) for node in graph.nodes.values()],
        "problems": [problem.as_dict() for problem in problems],
        "plan": analysis.plan or None,
    }


def _node_as_json(node: Node, graph: Graph, analysis: Analysis) -> dict[str, Any]:
    facts = analysis.facts.get(node.name)
    traced = analysis.lineage.get(node.name)
    place = graph.location(node.name)
    return {
        "name": node.name,
        "kind": node.kind,
        "component": node.component.name,
        "from": list(node.inputs),
        "columns": None if facts is None else [{"name": name, "type": kind} for name, kind in facts.columns.items()],
        "watermark": None if facts is None else _watermark_as_json(facts.watermark),
        "state": None if facts is None else [{"operator": s.operator, "keys": list(s.keys)} for s in facts.stateful],
        "kernel": None if facts is None else facts.kernel,
        "lineage": None if traced is None else {column: list(inputs) for column, inputs in traced.items()},
        "location": {"file": place.file, "line": place.line, "column": place.column},
    }


def _watermark_as_json(watermark: Watermark | None) -> dict[str, Any] | None:
    if watermark is None:
        return None
    delay = str(Duration(watermark.delay_millis))
    return {"column": watermark.column, "delay": delay, "delayMillis": watermark.delay_millis}


# --- for documents -----------------------------------------------------------------------------------------


def as_mermaid(graph: Graph, analysis: Analysis) -> str:
    """A Mermaid flowchart; thick arrows leave the nodes at which the streaming query ends."""
    lines = ["flowchart LR", *(f"    {line}" for line in _mermaid_lines(graph, analysis))]
    return "".join(f"{line}\n" for line in lines)


def _mermaid_lines(graph: Graph, analysis: Analysis) -> Iterable[str]:
    for node in graph.nodes.values():
        opening, closing = _SHAPES[node.kind]
        facts = analysis.facts.get(node.name)
        parts = [node.name, node.component.name, *(_state(state) for state in (facts.stateful if facts else ()))]
        yield f"{_identifier(node.name)}{opening}{'<br/>'.join(_escaped(part) for part in parts)}{closing}"
    for node in graph.nodes.values():
        for name in node.inputs:
            arrow = "==>" if name in analysis.trunk else "-->"
            label = _escaped(_edge(analysis.facts.get(name)))
            yield f'{_identifier(name)} {arrow}|"{label}"| {_identifier(node.name)}'


def _edge(facts: NodeFacts | None) -> str:
    if facts is None:
        return "unknown"
    columns = _count(len(facts.columns), "column")
    return f"{columns}, {_watermark(facts.watermark)}" if facts.watermark else columns


def _identifier(name: str) -> str:
    """Mermaid has words of its own, such as `end`; with a prefix no name is one."""
    return f"n_{name}"


def _escaped(text: str) -> str:
    special = {"#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "`": "#96;", "|": "#124;"}
    return "".join(special.get(char, " " if char in "\r\n" else char) for char in text)
