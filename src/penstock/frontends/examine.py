"""Reads a pipeline as far as it can be read, and says everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, Problem, Severity
from penstock.frontends.assemble import InvalidPipeline
from penstock.frontends.load import load
from penstock.graph.build import build, build_partly
from penstock.graph.nodes import Graph
from penstock.graph.validate import World, check
from penstock.spec.location import PipelineFile


@dataclass(frozen=True)
class Examined:
    """What could be read (nodes that are broken, or depend on broken ones, left out) and what is wrong."""

    graph: Graph | None
    problems: tuple[Problem, ...]


def examine(path: Path) -> Examined:
    """All problems of a file that show without Spark, and the graph of what is sound, for Spark to look at."""
    return examined(lambda: load(path))


def examined(read: Callable[[], PipelineFile], world: World = World.OPEN) -> Examined:
    """The same for a pipeline that is read in any way, and with as much of the world as may be looked at."""
    try:
        file, broken, problems = read(), frozenset[str](), list[Problem]()
    except InvalidPipeline as error:
        problems = list(error.problems)
        if error.sound is None:
            return Examined(None, tuple(problems))
        file, broken = error.sound, error.broken
    except PenstockError as error:
        return Examined(None, error.problems)
    graph, found = build_partly(file, broken)
    whole = not problems and not found
    problems += found
    known = {(problem.code, problem.location, str(problem.params)) for problem in problems}
    problems += [
        problem
        for problem in check(graph, world, whole=whole)
        if (problem.code, problem.location, str(problem.params)) not in known
    ]
    if whole and not (file.pipeline.sources and file.pipeline.sinks):
        missing = "sources" if not file.pipeline.sources else "sinks"
        problems += [Problem("PIPELINE_EMPTY", {"kind": missing}, file.places.of("spec"))]
    return Examined(graph, tuple(problems))


def load_checked(path: Path, world: World = World.OPEN) -> Graph:
    """The graph of a sound pipeline; raises everything that is wrong."""
    graph = build(load(path))
    errors = [problem for problem in check(graph, world) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    return graph
