"""Looks at one pipeline file: what `validate` has against it, and if that is nothing, which rules it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Finding, Severity, of_problem
from penstock.doctor.ignored import ignored_rules
from penstock.doctor.registry import rules
from penstock.doctor.state_folder import StateFolder
from penstock.errors import PenstockError
from penstock.errors import Severity as ProblemSeverity
from penstock.frontends.document import read_text
from penstock.frontends.examine import Examined, examined
from penstock.frontends.load import load
from penstock.frontends.yaml import parse_yaml
from penstock.graph.nodes import Graph
from penstock.graph.validate import World

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Diagnosis:
    """What was found in one file."""

    path: Path
    valid: bool
    """Whether the file can be run as far as reading it tells; otherwise only what is wrong with it is listed."""
    findings: tuple[Finding, ...]
    text: str | None = None
    """What was read, if it is YAML."""
    ignored: int = 0
    """How many findings a comment in the file accepts; they are not among the others."""


def diagnose(path: Path, state: StateFolder | None = None) -> Diagnosis:
    """Reads a file and applies all rules. Asks no server, no broker, and no secret; nothing is run."""
    text, examination = _examined(path)
    return _diagnosis(path, text, examination, state)


def diagnose_text(text: str, path: Path, state: StateFolder | None = None) -> Diagnosis:
    """The same for a YAML text that stands, or would stand, at a path."""
    return _diagnosis(path, text, _of_text(text, path), state)


def _diagnosis(path: Path, text: str | None, examination: Examined, state: StateFolder | None) -> Diagnosis:
    # Two checks may find the same mistake.
    said = {(problem.code, problem.location, problem.message): problem for problem in examination.problems}
    problems = [of_problem(problem, str(path)) for problem in said.values()]
    invalid = any(problem.severity is ProblemSeverity.ERROR for problem in examination.problems)
    if invalid or examination.graph is None:
        return Diagnosis(path, False, _in_order(problems), text)
    accepted = ignored_rules(text if text is not None else read_text(path))
    found = check(examination.graph, state)
    left = [finding for finding in found if finding.code not in accepted.get(finding.location.line, ())]
    return Diagnosis(path, True, _in_order([*problems, *left]), text, len(found) - len(left))


def check(graph: Graph, state: StateFolder | None = None) -> list[Finding]:
    """All rules that a sound pipeline breaks."""
    checkup = Checkup(graph, state)
    return [finding for rule in rules().values() for finding in rule.findings(checkup)]


def _examined(path: Path) -> tuple[str | None, Examined]:
    if path.suffix.lower() not in YAML_SUFFIXES or not path.is_file():
        return None, examined(lambda: load(path), World.CLOSED)
    try:
        text = read_text(path)
    except PenstockError as error:
        return None, Examined(None, error.problems)
    return text, _of_text(text, path)


def _of_text(text: str, path: Path) -> Examined:
    return examined(lambda: parse_yaml(text, path), World.CLOSED)


def _in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(
        sorted(
            findings,
            key=lambda finding: (
                finding.location.line, finding.location.column, order.index(finding.severity), finding.code,
            ),
        )
    )  # fmt: skip
