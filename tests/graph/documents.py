"""Pipelines as texts, read the way a user's file is read."""

from __future__ import annotations

import textwrap
from pathlib import Path

from penstock.errors import Location, PenstockError, Problem
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.spec.location import PipelineFile

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
"""


def read(body: str, folder: Path = Path()) -> PipelineFile:
    """The pipeline whose `spec` is the body; its first line is line 5 of the file."""
    return parse_yaml(HEAD + textwrap.indent(textwrap.dedent(body).lstrip("\n"), "  "), folder / "p.yaml")


def graph_of(body: str, folder: Path = Path()) -> Graph:
    return build(read(body, folder))


def refusals(body: str) -> tuple[Problem, ...]:
    try:
        graph_of(body)
    except PenstockError as error:
        return error.problems
    return ()


def at(problem: Problem) -> tuple[str, int, int]:
    """Code, line and column of a problem."""
    place = problem.location or Location("", 0, 0)
    return problem.code, place.line, place.column
