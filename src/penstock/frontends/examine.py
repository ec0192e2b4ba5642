"""Reads a pipeline as far as it can be read, and says everything that is wrong with it at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, Problem, Severity
from penstock.frontends.assemble import InvalidPipeline
from penstock.frontends.load import load
from penstock.graph.build import build, build_partly
from penstock.graph.nodes import Graph
from penstock.graph.validate import check


@dataclass(frozen=True)
class Examined:
    """What could be read (nodes that are broken, or depend on broken ones, left out) and what is wrong."""

    graph: Graph | None
    problems: tuple[Problem, ...]


def examine(path: Path) -> Examined:
    """All problems that show without Spark, and the graph of what is sound, for Spark to look at."""
    try:
        file, broken, problems = load(path), frozenset[str](), list[Problem]()
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
    problems += check(graph, whole=whole)
    if whole and not (file.pipeline.sources and file.pipeline.sinks):
        problems += [Problem("PIPELINE_EMPTY", {"kind": "sources" if not file.pipeline.sources else "sinks"})]
    return Examined(graph, tuple(problems))


def load_checked(path: Path, *, outside: bool = True) -> Graph:
    """The graph of a sound pipeline; raises everything that is wrong. `outside` includes paths and secrets."""
    graph = build(load(path))
    errors = [problem for problem in check(graph, outside=outside) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    return graph
