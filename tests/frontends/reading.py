"""What the tests of the front ends share: a short pipeline, and problems as `(code, line, column)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from penstock.errors import PenstockError, Problem
from penstock.frontends.yaml import parse_yaml
from penstock.spec.location import PipelineFile

FILE = Path("p.yaml")
HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: demo}\n"
"""Three lines, so that the body of `with_body` starts on line 5 in column 3."""


def with_body(body: str) -> str:
    return f"{HEAD}spec:\n{indent(dedent(body).lstrip(chr(10)), '  ')}"


def with_source(source: str) -> str:
    """A pipeline of one source, which starts on line 6 in column 5, after its name."""
    return with_body(f"sources:\n  views: {source}\nsinks:\n  out: {{from: views, console: {{}}}}\n")


def with_step(step: str) -> str:
    """A pipeline with one step, which starts on line 8 in column 9."""
    memory = "{memory: {schema: {id: string, ms: bigint}}}"
    return with_body(f"sources:\n  views: {memory}\nsteps:\n  s: {step}\nsinks:\n  out: {{from: s, console: {{}}}}\n")


def with_alert(alert: str, more: str = "") -> str:
    """A pipeline with source `views`, sink `out` and an alert, whose keys start on line 8 in column 8."""
    ends = "sources: {views: {memory: {schema: {id: string}}}}\nsinks: {out: {from: views, console: {}}}\n"
    return with_body(f"{ends}alerts:\n  - {{{alert}}}\n{more}")


def read(text: str) -> PipelineFile:
    return parse_yaml(text, FILE)


def problems_of(call: Callable[..., Any], *arguments: Any) -> list[Problem]:
    with pytest.raises(PenstockError) as raised:
        call(*arguments)
    return list(raised.value.problems)


def places_of(problems: list[Problem]) -> list[tuple[str, int, int]]:
    return [
        (problem.code, problem.location.line, problem.location.column)
        for problem in problems
        if problem.location is not None
    ]


def mistakes(text: str) -> list[tuple[str, int, int]]:
    return places_of(problems_of(read, text))


def only_problem(text: str) -> Problem:
    (problem,) = problems_of(read, text)
    return problem
