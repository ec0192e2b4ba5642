"""What can be told of a graph without Spark: what is unused, what needs event time, and what the world lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.components.base import CheckContext, Component
from penstock.components.base import Step as StepComponent
from penstock.errors import Location, PenstockError, Problem, did_you_mean
from penstock.graph.nodes import Graph
from penstock.spec.location import Path_
from penstock.spec.pipeline import LatePolicy, Source, Step
from penstock.spec.resolve import with_secrets
from penstock.spec.secrets import SecretRef, references, texts

DEAD_LETTERS = "dead_letters"
"""The name under which the sink of unreadable rows is checked; it is no node of the graph."""
LATE = "late"
"""The name under which sinks of late rows are checked."""
_RUN_BY_SPARK = "sql"
"""The step whose state Spark may keep, so that only the analysis of the query tells what becomes of late rows."""


def check(graph: Graph, *, outside: bool = True, whole: bool = True) -> list[Problem]:
    """Errors and warnings beyond those of `build`, in the order of the file.

    Without `outside`, sources and sinks are not asked whether what they name is there: tests replace them. A graph
    that is not `whole` lacks broken nodes, so it cannot be told what is unused or unknown to tests.
    """
    problems = [*_without_event_time(graph), *_late_not_supported(graph)]
    if whole:
        problems += [*_unused(graph), *_tests(graph)]
    for part in _parts(graph):
        if outside or not part.outside:
            # Several steps may name one sink for their late rows, and what is wrong with it is said once.
            problems.extend(problem for problem in _component(graph, part) if problem not in problems)
    return sorted(problems, key=_order)


def _order(problem: Problem) -> tuple[bool, int, int]:
    place = problem.location
    return (place is None, place.line if place else 0, place.column if place else 0)


def _unused(graph: Graph) -> Iterator[Problem]:
    used: set[str] = set()
    for sink in graph.of_kind("sink"):
        used |= graph.ancestors(sink.name)
    for node in graph.nodes.values():
        if node.kind != "sink" and node.name not in used:
            yield Problem("STEP_UNUSED", {"kind": node.kind, "name": node.name}, graph.location(node.name))


def _without_event_time(graph: Graph) -> Iterator[Problem]:
    timed = {
        node.name
        for node in graph.of_kind("source")
        if isinstance(node.spec, Source) and node.spec.event_time is not None
    }
    for node in graph.of_kind("step"):
        component = node.component
        needed = isinstance(component, StepComponent) and component.needs_event_time
        if needed and not graph.ancestors(node.name) & timed:
            params = {"node": node.name, "component": component.name}
            yield Problem("EVENT_TIME_REQUIRED", params, graph.location(node.name, component.name))


def _late_not_supported(graph: Graph) -> Iterator[Problem]:
    """Steps that keep state by event time take a policy they offer; the others take none."""
    for node in graph.of_kind("step"):
        if not isinstance(node.spec, Step) or node.component.name == _RUN_BY_SPARK:
            continue
        offered: tuple[str, ...] = getattr(node.component, "late_policies", ())
        policy = graph.file.pipeline.late_policy(node.spec).policy
        own = node.spec.late is not None
        if policy in offered or (offered and policy == "drop") or not (offered or own):
            continue
        advice = _late_advice(offered, own)
        params = {"node": node.name, "component": node.component.name, "policy": policy}
        place = graph.location(node.name, "late") if own else graph.location(node.name)
        yield Problem("LATE_NOT_SUPPORTED", {**params, "offered": ", ".join(offered), "advice": advice}, place)


def _late_advice(offered: tuple[str, ...], own: bool) -> str:
    if not offered:
        return "Remove `late`: no row comes too late for this step, as it keeps nothing by event time."
    choices = " or ".join(f"`late: {policy}`" for policy in dict.fromkeys(("drop", *offered)))
    return f"Write {choices}." if own else f"The pipeline asks for it; give the step a policy of its own: {choices}."


@dataclass(frozen=True)
class _Part:
    """A component as it stands in the file."""

    node: str
    path: Path_
    component: Component
    outside: bool
    """Whether it reaches out of the pipeline: sources with their formats, and sinks."""


def _parts(graph: Graph) -> Iterator[_Part]:
    for node in graph.nodes.values():
        yield _Part(node.name, (*node.path, node.component.name), node.component, node.kind != "step")
        if isinstance(node.spec, Source) and isinstance(node.spec.format, Component):
            format_ = node.spec.format
            yield _Part(node.name, (*node.path, "format", format_.name), format_, True)
        if isinstance(node.spec, Source) and node.spec.bootstrap is not None:
            path: Path_ = (*node.path, "bootstrap")
            for part, inside in (
                (node.spec.bootstrap.component, path),
                (node.spec.bootstrap.format, (*path, "format")),
            ):
                if isinstance(part, Component):
                    yield _Part(node.name, (*inside, part.name), part, True)
    dead_letters = graph.file.pipeline.dead_letters
    if isinstance(dead_letters, Component):
        yield _Part(DEAD_LETTERS, ("spec", "deadLetters", dead_letters.name), dead_letters, True)
    for path, policy in _late_policies(graph):
        if isinstance(policy.sink, Component):
            yield _Part(LATE, (*path, "sink", policy.sink.name), policy.sink, True)


def _late_policies(graph: Graph) -> Iterator[tuple[Path_, LatePolicy]]:
    yield ("spec", "late"), graph.file.pipeline.late
    for node in graph.of_kind("step"):
        if isinstance(node.spec, Step) and node.spec.late is not None:
            yield (*node.path, "late"), node.spec.late


def _component(graph: Graph, part: _Part) -> Iterator[Problem]:
    """Its own checks, made with the values of its secrets; they cannot be made while a secret is missing."""
    values: dict[str, str] = {}
    missing: list[Problem] = []
    for path, text in texts(part.component.model_dump(by_alias=True)):
        place = graph.file.places.of(*part.path, *path)
        missing.extend(_look_up(text, place, values))
    if missing:
        yield from missing
        return
    for problem in _own_checks(graph, part):
        place = problem.location or graph.file.places.of(*part.path, *problem.at)
        yield Problem(problem.code, _hidden(problem.params, values), place)


def _own_checks(graph: Graph, part: _Part) -> Iterator[Problem]:
    try:
        yield from with_secrets(part.component).check(CheckContext(part.node, graph.file.folder))
    except PenstockError as error:
        yield from error.problems


def _look_up(text: str, place: Location, values: dict[str, str]) -> Iterator[Problem]:
    """Notes the values of a text's secrets, by reference; gives those that are not set."""
    try:
        found: list[SecretRef] = references(text)
    except PenstockError as error:
        yield from (Problem(problem.code, problem.params, place) for problem in error.problems)
        return
    for reference in dict.fromkeys(found):
        try:
            values[str(reference)] = reference.value()
        except PenstockError as error:
            yield from (Problem(problem.code, problem.params, place) for problem in error.problems)


def _hidden(params: Mapping[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """The parameters of a problem with the reference in place of each secret's value."""
    shown = dict(params)
    for reference, value in sorted(values.items(), key=lambda item: -len(item[1])):
        for key, param in shown.items():
            if value and value in str(param):
                shown[key] = str(param).replace(value, reference)
    return shown


def _tests(graph: Graph) -> Iterator[Problem]:
    sources = [node.name for node in graph.of_kind("source")]
    for index, case in enumerate(graph.file.pipeline.tests):
        for part, named, known, expected in (
            ("given", case.given, sources, "a source"),
            ("expect", case.expect, list(graph.nodes), "a source, step or sink"),
        ):
            for name in (name for name in named if name not in known):
                suggestion = did_you_mean(name, known)
                if name in graph.nodes:
                    kind = graph.nodes[name].kind
                    suggestion = f"'{name}' is a {kind}; rows are given to sources: {', '.join(sources)}."
                params = {"test": case.name, "name": name, "part": part, "expected": expected}
                place = graph.file.places.of_key("spec", "tests", index, part, name)
                yield Problem("TEST_NODE_UNKNOWN", {**params, "suggestion": suggestion}, place)
