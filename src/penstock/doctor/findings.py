"""What the doctor finds: a rule that a pipeline breaks, where, what was seen there, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.errors import Location, Problem
from penstock.spec.location import Path_


class Severity(StrEnum):
    """How much a finding matters, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def reaches(self, level: Severity) -> bool:
        """Whether it is at least as bad as a level."""
        order = list(Severity)
        return order.index(self) <= order.index(level)


@dataclass(frozen=True)
class Edit:
    """One change of a pipeline file: the key at a path gets a value, given as YAML in one line."""

    path: Path_
    value: str


@dataclass(frozen=True)
class Finding:
    """One rule that a pipeline breaks at one place."""

    code: str
    severity: Severity
    message: str
    why: str
    fix: str
    location: Location
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The values that were found, by the keys they stand under."""
    edit: Edit | None = None
    """The change that `--fix` writes; None if somebody has to decide."""

    def as_dict(self, *, fixed: bool = False) -> dict[str, Any]:
        """As it is printed with `-o json`."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "file": self.location.file,
            "line": self.location.line,
            "column": self.location.column,
            "message": self.message,
            "why": self.why,
            "evidence": dict(self.evidence),
            "fix": self.fix,
            "fixable": self.edit is not None,
            "fixed": fixed,
        }


def of_problem(problem: Problem, file: str) -> Finding:
    """A problem that `validate` found, in the same form."""
    location = problem.location or Location(file)
    severity = Severity(str(problem.severity))
    return Finding(problem.code, severity, problem.message, "", problem.hint, location)
