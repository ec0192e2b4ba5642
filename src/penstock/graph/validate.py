"""What can be told of a graph without Spark: what is unused, what needs event time, and what the world lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Any

from penstock.components.base import CheckContext, Component, LookContext
from penstock.components.base import Sink as SinkComponent
from penstock.components.base import Source as SourceComponent
from penstock.components.base import Step as StepComponent
from penstock.errors import PenstockError, Problem, Severity, did_you_mean
from penstock.graph.nodes import Graph, Node
from penstock.spec.location import Path_
from penstock.spec.pipeline import LatePolicy, Source, Step
from penstock.spec.resolve import misplaced_secrets, with_secrets
from penstock.spec.secrets import SecretRef, references, texts, well_formed

DEAD_LETTERS = "dead_letters"
"""The name under which the sink of unreadable rows is checked; it is no node of the graph."""
LATE = "late"
"""The name under which sinks of late rows are checked."""
_RUN_BY_SPARK = "sql"
"""The step whose state Spark may keep, so that only the analysis of the query tells what becomes of late rows."""


class World(StrEnum):
    """How much of what a pipeline names may be looked at: files, servers and the values of secrets."""

    OPEN = "open"
    """All of it, on the machine that will run it."""
    STEPS = "steps"
    """What steps name. Tests replace sources and sinks."""
    CLOSED = "closed"
    """Nothing: only what is written is checked, as by a server that must not be made to reach out."""


def check(graph: Graph, world: World = World.OPEN, *, whole: bool = True) -> list[Problem]:
    """Errors and warnings beyond those of `build`, in the order of the file.

    A graph that is not `whole` lacks broken nodes, so it cannot be told what is unused or unknown to tests.
    """
    problems = [*_without_event_time(graph), *_late_not_supported(graph)]
    if whole:
        problems += [*_unused(graph), *_tests(graph), *_batches_too_large(graph)]
    problems += _secret_labels(graph)
    for part in _parts(graph):
        seen = world is World.OPEN or (world is World.STEPS and not part.outside)
        found = _seen(graph, part) if seen else _read(graph, part)
        # Several steps may name one sink for their late rows, and what is wrong with it is said once.
        problems.extend(problem for problem in found if problem not in problems)
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


def _secret_labels(graph: Graph) -> Iterator[Problem]:
    for key, value in graph.file.pipeline.labels.items():
        for reference in well_formed(value):
            place = graph.file.places.of("metadata", "labels", key)
            yield Problem("SECRET_NOT_HERE", {"where": f"label '{key}'", "reference": reference}, place)


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


def _batches_too_large(graph: Graph) -> Iterator[Problem]:
    """Sinks to which their sources may give more rows at once than they store as one batch.

    A batch is planned before anybody has counted its rows, and is then the same whenever it is tried again: so this is
    told of the limits of the sources, before the first batch.
    """
    for sink in graph.of_kind("sink"):
        limit = sink.component.largest_batch if isinstance(sink.component, SinkComponent) else None
        if limit is None:
            continue
        most = {name: _most_rows(graph.nodes[name]) for name in sorted(graph.ancestors(sink.name))}
        counted = {name: rows for name, rows in most.items() if rows is not None}
        total = sum(counted.values())
        if total > limit:
            named = [name for name, rows in counted.items() if rows == inf] or list(counted)
            shown = "any number of rows" if total == inf else f"{total:,.0f}"
            params = {"node": sink.name, "limit": f"{limit:,}", "sources": ", ".join(named), "rows": shown}
            yield Problem("SINK_BATCH_TOO_LARGE", params, graph.location(sink.name))


def _most_rows(node: Node) -> float | None:
    """How many rows one batch of a source may have; None where that is not counted in rows, or kept low in time."""
    if not isinstance(node.component, SourceComponent) or not isinstance(node.spec, Source):
        return None
    source, throttle = node.component.read_through, node.spec.throttle
    if source.batch_limit != "max_rows_per_batch" or throttle.adaptive or throttle.rows_per_second is not None:
        return None
    rows = getattr(source, source.batch_limit)
    return inf if rows is None else float(rows)


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


def _seen(graph: Graph, part: _Part) -> Iterator[Problem]:
    """What is wrong with a component and what it names; without its secrets, what is wrong with what is written."""
    secret, malformed = _references(graph, part)
    misplaced = any(misplaced_secrets(part.component))
    values, missing = ({}, []) if misplaced else _look_up(graph, part, secret)
    if malformed or missing or misplaced:
        yield from _read(graph, part)
        yield from missing
        return
    for problem in _told(_with_a_look(with_secrets(part.component), part.node, graph)):
        yield _placed(graph, part, replace(problem, params=_hidden(problem.params, values)))


def _with_a_look(component: Component, node: str, graph: Graph) -> Iterator[Problem]:
    written = list(component.check(CheckContext(node)))
    yield from written
    if not any(problem.severity is Severity.ERROR for problem in written):
        yield from component.look(LookContext(node, graph.file.folder))


def _read(graph: Graph, part: _Part) -> Iterator[Problem]:
    """What is wrong with what is written, as far as it can be told without the values of secrets."""
    secret, malformed = _references(graph, part)
    yield from malformed
    for path, found in misplaced_secrets(part.component):
        place = graph.file.places.of(*part.path, *path)
        where = f"{part.component.name} of '{part.node}'"
        yield from (Problem("SECRET_NOT_HERE", {"where": where, "reference": each}, place) for each in found)
    hidden = {path for path, found in secret.items() if found}
    for problem in _told(part.component.check(CheckContext(part.node))):
        if not any(_meets(problem.at, path) for path in hidden):
            yield _placed(graph, part, problem)


def _meets(at: Path_, path: Path_) -> bool:
    """Whether one is the other or lies in it."""
    return bool(at) and at[: len(path)] == path[: len(at)]


def _told(problems: Iterator[Problem]) -> Iterator[Problem]:
    try:
        yield from problems
    except PenstockError as error:
        yield from error.problems


def _placed(graph: Graph, part: _Part, problem: Problem) -> Problem:
    place = problem.location or graph.file.places.of(*part.path, *problem.at)
    return Problem(problem.code, problem.params, place)


_References = Mapping[Path_, list[SecretRef]]
"""By where they stand inside a component."""


def _references(graph: Graph, part: _Part) -> tuple[_References, list[Problem]]:
    """The secrets that a component refers to, none where a reference cannot be read, which is told."""
    found: dict[Path_, list[SecretRef]] = {}
    malformed: list[Problem] = []
    for path, text in texts(part.component.model_dump(by_alias=True)):
        try:
            found[path] = references(text)
        except PenstockError as error:
            malformed += (_placed(graph, part, replace(problem, at=path)) for problem in error.problems)
    return found, malformed


def _look_up(graph: Graph, part: _Part, secret: _References) -> tuple[dict[str, str], list[Problem]]:
    """The values of secrets by reference, and those that are not set."""
    values: dict[str, str] = {}
    missing: list[Problem] = []
    for path, found in secret.items():
        for reference in dict.fromkeys(found):
            try:
                values[str(reference)] = reference.value()
            except PenstockError as error:
                missing += (_placed(graph, part, replace(problem, at=path)) for problem in error.problems)
    return values, missing


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
