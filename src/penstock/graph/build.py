"""From a pipeline as written to its graph: every input exists, and rows flow one way only."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import cast

from penstock.components.base import Component
from penstock.components.base import Step as StepComponent
from penstock.errors import Location, PenstockError, Problem, did_you_mean
from penstock.graph.nodes import Graph, Node
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import Kind, Pipeline, Sink, Source, Step

_MOST_SUGGESTIONS = 50
"""To look for similar names takes time."""
_NUMBERS = {0: "none", 1: "one"}


def build(file: PipelineFile) -> Graph:
    """The graph, nodes in the order of the file as far as each may follow its inputs; raises all problems at once."""
    graph, problems = build_partly(file)
    if not problems:
        problems = list(_empty_sections(file))
    if problems:
        raise PenstockError(sorted(problems, key=_line))
    return graph


def build_partly(file: PipelineFile, broken: frozenset[str] = frozenset()) -> tuple[Graph, list[Problem]]:
    """The graph of what is sound and the problems of the rest; `broken` names exist but could not be read."""
    nodes = _nodes(file.pipeline)
    problems = [
        *_repeated_names(file),
        *(problem for problem in _unknown_inputs(file, nodes) if problem.params["name"] not in broken),
        *_repeated_inputs(file, nodes),
        *_wrong_counts(file, nodes),
        *_cycles(file, nodes),
    ]
    wrong = {str(problem.params["node"]) for problem in problems if "node" in problem.params}
    sound = {name: node for name, node in nodes.items() if name not in wrong}
    while dangling := [node.name for node in sound.values() if not _readable(node, sound)]:
        sound = {name: node for name, node in sound.items() if name not in dangling}
    return Graph(file, {name: sound[name] for name in _ordered(sound)}), problems


def _readable(node: Node, nodes: Mapping[str, Node]) -> bool:
    return all(name in nodes and nodes[name].kind != "sink" for name in node.inputs)


def _line(problem: Problem) -> tuple[int, int]:
    return (problem.location.line, problem.location.column) if problem.location else (0, 0)


def _kind(spec: Source | Step | Sink) -> Kind:
    return "source" if isinstance(spec, Source) else "step" if isinstance(spec, Step) else "sink"


def _nodes(pipeline: Pipeline) -> dict[str, Node]:
    """Nodes in the order of the file; of several with one name the first."""
    found: dict[str, Node] = {}
    for spec in pipeline.nodes():
        inputs = () if isinstance(spec, Source) else _inputs(spec) if isinstance(spec, Step) else (spec.input,)
        component = cast(Component, spec.component)
        found.setdefault(spec.name, Node(spec.name, _kind(spec), component, inputs, spec))
        if isinstance(component, StepComponent):
            for output, part in component.outputs().items():
                name = f"{spec.name}.{output}"
                found.setdefault(name, Node(name, "step", part, (spec.name,), spec, part_of=spec.name))
    return found


def _inputs(step: Step) -> tuple[str, ...]:
    """What a step reads: what `from` names, then what its component does."""
    further = step.component.further_inputs() if isinstance(step.component, StepComponent) else ()
    return (*step.inputs, *(name for name in further if name not in step.inputs))


def _empty_sections(file: PipelineFile) -> Iterator[Problem]:
    for section, content in (("sources", file.pipeline.sources), ("sinks", file.pipeline.sinks)):
        if not content:
            yield Problem("PIPELINE_EMPTY", {"kind": section}, file.places.of_key("spec", section))


def _repeated_names(file: PipelineFile) -> Iterator[Problem]:
    first: dict[str, Location] = {}
    for spec in file.pipeline.nodes():
        place = file.places.of_key("spec", f"{_kind(spec)}s", spec.name)
        if spec.name in first:
            yield Problem("SPEC_DUPLICATE_NAME", {"name": spec.name, "first": first[spec.name]}, place)
        first.setdefault(spec.name, place)


def _place(file: PipelineFile, node: Node, index: int) -> Location:
    """Where the file names one input of a node; a `from` with a single name has no list around it."""
    return file.places.of(*node.path, "from", index)


def _unknown_inputs(file: PipelineFile, nodes: Mapping[str, Node]) -> Iterator[Problem]:
    count = 0
    for node in nodes.values():
        for index, name in enumerate(node.inputs):
            if name not in nodes or nodes[name].kind == "sink":
                count += 1
                suggestion = _suggestion(node, name, nodes) if count <= _MOST_SUGGESTIONS else ""
                params = {"node": node.name, "name": name, "suggestion": suggestion}
                yield Problem("INPUT_UNKNOWN", params, _place(file, node, index))


def _suggestion(node: Node, name: str, nodes: Mapping[str, Node]) -> str:
    if name not in nodes:
        readable = (other.name for other in nodes.values() if other.kind != "sink" and other.name != node.name)
        return did_you_mean(name, readable)
    if name == node.name:
        return "A sink reads a source or a step, not itself."
    (stored,) = nodes[name].inputs
    return f"'{name}' is a sink, and nothing can be read from a sink; read what it stores: '{stored}'."


def _repeated_inputs(file: PipelineFile, nodes: Mapping[str, Node]) -> Iterator[Problem]:
    for node in nodes.values():
        reported: set[str] = set()
        seen: set[str] = set()
        for index, name in enumerate(node.inputs):
            if name in seen and name not in reported:
                reported.add(name)
                yield Problem("INPUT_REPEATED", {"node": node.name, "name": name}, _place(file, node, index))
            seen.add(name)


def _wrong_counts(file: PipelineFile, nodes: Mapping[str, Node]) -> Iterator[Problem]:
    for node in nodes.values():
        if not isinstance(node.component, StepComponent):
            continue
        least, most = node.component.inputs_expected
        found = len(set(node.inputs))
        if least <= found <= most:
            continue
        bound = least if found < least else most
        quantity = "" if least == most else "at least " if found < least else "at most "
        expected = f"{quantity}{_NUMBERS.get(bound, bound)} input{'' if bound == 1 else 's'}"
        params = {"node": node.name, "component": node.component.name, "expected": expected}
        place = file.places.of(*node.path, "from")
        yield Problem("INPUT_COUNT", {**params, "found": _NUMBERS.get(found, found)}, place)


def _known_inputs(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """For each node the existing nodes it reads, each once; sinks give nothing to read."""
    return {
        node.name: [name for name in dict.fromkeys(node.inputs) if name in nodes and nodes[name].kind != "sink"]
        for node in nodes.values()
    }


def _cycles(file: PipelineFile, nodes: Mapping[str, Node]) -> Iterator[Problem]:
    """One problem for each circle, circles that share a step counted once."""
    inputs = _known_inputs(nodes)
    while circle := _circle(inputs):
        start = min(range(len(circle)), key=lambda index: list(nodes).index(circle[index]))
        steps = [*circle[start:], *circle[:start]]
        node = nodes[steps[0]]
        place = _place(file, node, node.inputs.index(steps[-1]))
        yield Problem("GRAPH_CYCLE", {"cycle": " → ".join([*steps, steps[0]])}, place)
        rest = inputs.keys() - set(steps)
        inputs = {name: [other for other in reads if other in rest] for name, reads in inputs.items() if name in rest}


def _circle(inputs: Mapping[str, list[str]]) -> list[str]:
    """Steps that feed each other in a circle, each the input of the next; empty if there is none."""
    left = {name: set(reads) for name, reads in inputs.items()}
    while ready := [name for name, reads in left.items() if not reads & left.keys()]:
        for name in ready:
            del left[name]
    if not left:
        return []
    # Whatever is left reads something that is left, so going backwards must come round.
    walked = [next(iter(left))]
    while True:
        before = next(name for name in inputs[walked[-1]] if name in left)
        if before in walked:
            return [*reversed(walked[walked.index(before) :])]
        walked.append(before)


def _ordered(nodes: Mapping[str, Node]) -> list[str]:
    """Names so that each follows all it reads, otherwise in the order of the file."""
    position = {name: index for index, name in enumerate(nodes)}
    names = list(nodes)
    waiting = {name: len(node.inputs) for name, node in nodes.items()}
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for name in node.inputs:
            readers[name].append(node.name)
    ready = [position[name] for name, count in waiting.items() if count == 0]
    ordered: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        ordered.append(name)
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, position[reader])
    return ordered
