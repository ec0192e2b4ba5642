"""How rows flow through the one query of a pipeline: where it ends, which streams it reads, and what keeps state in it.

Spark wants each source named once in a query, so a node that shares a source with one before it is built on a copy of
the source. Copies are named by the way rows take, so that a name stays the same while other parts change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from penstock.components.base import Step, stream_name
from penstock.graph.nodes import Graph

OUT = "OUT"
"""Where all rows go."""


def choose_trunk(graph: Graph, stateful: Collection[str], *, early: bool = False) -> tuple[str, ...]:
    """Where the streaming query ends: one node if all sinks pass through it, else every node a sink reads.

    It ends as late as possible, so that Catalyst sees much of it; or `early`, right after what keeps state.
    """
    ends = list(dict.fromkeys(sink.inputs[0] for sink in graph.of_kind("sink")))
    if len(ends) <= 1 and not early:
        return tuple(ends)
    for candidate in graph.nodes if early else reversed(list(graph.nodes)):
        if graph.nodes[candidate].kind != "sink" and _carries_all(graph, candidate, ends, stateful):
            return (candidate,)
    return tuple(ends)


def _carries_all(graph: Graph, candidate: str, ends: list[str], stateful: Collection[str]) -> bool:
    """Whether every sink's rows come through the candidate alone, and nothing after it keeps state."""
    for end in ends:
        waiting, seen = [end], set()
        while waiting:
            name = waiting.pop()
            if name == candidate or name in seen:
                continue
            seen.add(name)
            node = graph.nodes[name]
            if node.kind == "source" or name in stateful:
                return False
            waiting.extend(node.inputs)
    return True


def sifts_results(graph: Graph, stateful: Collection[str]) -> bool:
    """Whether rules are applied to what a stateful step gives: rows it gave cannot be had from it a second time."""
    sifting = (node for node in graph.of_kind("step") if isinstance(node.component, Step) and node.component.rules())
    return any(graph.ancestors(node.name) & set(stateful) for node in sifting)


@dataclass(frozen=True)
class Stream:
    """A source as the query reads it, maybe one of several copies."""

    name: str
    source: str
    consumers: frozenset[str]
    """Whose rows depend on how far it was read: the first steps above it that keep state, or else sinks."""


@dataclass(frozen=True)
class Flow:
    operators: tuple[str, ...]
    """The steps that keep state, from the end of the query down; one that is built twice comes twice."""
    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class _Tree:
    node: str
    stream: str = ""
    below: tuple[_Tree, ...] = ()


def flow(graph: Graph, stateful: Collection[str], *, once: bool = False) -> Flow:
    """How rows flow if these steps keep state; with `once`, as where kernels run on the batch."""
    if once:
        return _flow_once(graph, set(stateful))
    trunk = choose_trunk(graph, stateful, early=sifts_results(graph, stateful))
    building = _Building(graph)
    ends = building.apart(trunk, (OUT,))
    operators = tuple(tree.node for end in ends for tree in _walk(end) if tree.node in stateful)
    streams = [stream for end in ends for stream in _streams(graph, end, set(stateful), _sinks(graph, end.node))]
    return Flow(operators, tuple(streams))


def _flow_once(graph: Graph, stateful: set[str]) -> Flow:
    """Each source is read once, and state is found by the name of its step, so that their order says nothing."""
    used = {name for sink in graph.of_kind("sink") for name in graph.ancestors(sink.name)}
    streams = []
    for source in graph.of_kind("source"):
        if source.name in used:
            steps = {name for name in used & stateful if source.name in graph.ancestors(name)}
            streams.append(Stream(stream_name(source.name), source.name, frozenset(steps) | _sinks(graph, source.name)))
    return Flow(tuple(sorted(used & stateful)), tuple(streams))


def _walk(tree: _Tree) -> Iterator[_Tree]:
    yield tree
    for below in tree.below:
        yield from _walk(below)


def _streams(graph: Graph, tree: _Tree, stateful: set[str], above: frozenset[str]) -> Iterator[Stream]:
    consumers = frozenset({tree.node}) if tree.node in stateful else above
    if tree.stream:
        yield Stream(tree.stream, tree.node, above)
    for below in tree.below:
        yield from _streams(graph, below, stateful, consumers)


def _sinks(graph: Graph, name: str) -> frozenset[str]:
    return frozenset(sink.name for sink in graph.of_kind("sink") if name in graph.ancestors(sink.name))


class _Building:
    """Builds nodes as the engine builds their frames, as far as it matters which streams they read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.trees: dict[str, _Tree] = {}
        for name, node in graph.nodes.items():
            if node.kind == "source":
                self.trees[name] = _Tree(name, name)
            elif node.kind == "step":
                self.trees[name] = _Tree(name, "", self.apart(node.inputs, (name,)))

    def apart(self, names: tuple[str, ...], via: tuple[str, ...]) -> tuple[_Tree, ...]:
        found, taken = [], set[str]()
        for name in names:
            sources = self._sources_of(name)
            found.append(self._again(name, via, taken) if sources & taken else self.trees[name])
            taken |= sources
        return tuple(found)

    def _sources_of(self, name: str) -> set[str]:
        return {found for found in (name, *self.graph.ancestors(name)) if self.graph.nodes[found].kind == "source"}

    def _again(self, name: str, via: tuple[str, ...], taken: set[str]) -> _Tree:
        node = self.graph.nodes[name]
        if node.kind == "source":
            stream = stream_name(name, *(via if name in taken else ()))
            taken.add(name)
            return _Tree(name, stream)
        return _Tree(name, "", tuple(self._again(below, (*via, name), taken) for below in node.inputs))


def origins(before: Flow, after: Flow, names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each new stream the old ones it may go on from: those of its source that fed the same; empty if it is new.

    `names` are new names with those of before. A copy of a source that was there, for something that is new, goes on
    from where the source is.
    """
    found: dict[str, frozenset[str]] = {}
    for stream in after.streams:
        source = names.get(stream.source)
        known = [old for old in before.streams if old.source == source]
        consumers = {names[name] for name in stream.consumers if name in names}
        same = [old.name for old in known if old.consumers & consumers]
        first = [old.name for old in known if old.name == source] or [old.name for old in known[:1]]
        # Rows of one source may reach a step on several ways, each of which is a stream of its own.
        way = _name_before(stream.name, names)
        found[stream.name] = frozenset([way] if way in same else same or first)
    return found


def _name_before(stream: str, names: Mapping[str, str]) -> str:
    """What a stream was called if rows took the same way before."""
    old = {stream_name(new): stream_name(name) for new, name in names.items()}
    return "_VIA_".join(old.get(part, part) for part in stream.split("_VIA_"))


def moves(before: Flow, after: Flow, names: Mapping[str, str]) -> bool:
    """Whether state or positions must be put elsewhere before the new flow can go on from the old one."""
    if before.operators != tuple(names.get(step, step) for step in after.operators):
        return True
    return any(old and old != {stream} for stream, old in origins(before, after, names).items())
