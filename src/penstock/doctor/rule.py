"""What a rule of the doctor is: a function over a checkup, with its id, its severity and its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.doctor.checkup import Checkup
from penstock.doctor.findings import Edit, Finding, Severity
from penstock.spec.location import Path_


@dataclass(frozen=True)
class Found:
    """One place where a rule is broken."""

    path: Path_
    """Of the value in the file, or of what is nearest to it."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What was seen; the texts of the rule are filled in with it."""
    edit: Edit | None = None
    key: bool = False
    """Whether the place is the key rather than its value."""


Check = Callable[[Checkup], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule. `message` and `fix` are templates over the evidence."""

    id: str
    severity: Severity
    message: str
    why: str
    fix: str
    production_only: bool
    """Whether it says nothing about trials: pipelines that only read made-up rows or files beside them."""
    fixable: bool
    """Whether `--fix` can do something about it."""
    check: Check

    def findings(self, checkup: Checkup) -> Iterator[Finding]:
        if self.production_only and not checkup.production:
            return
        for found in self.check(checkup):
            places = checkup.graph.file.places
            place = places.of_key(*found.path) if found.key else places.of(*found.path)
            yield Finding(
                self.id,
                self.severity,
                self.message.format_map(found.evidence),
                self.why,
                self.fix.format_map(found.evidence),
                place,
                found.evidence,
                found.edit,
            )


def rule(
    id: str,
    severity: Severity,
    *,
    message: str,
    why: str,
    fix: str,
    production_only: bool = False,
    fixable: bool = False,
) -> Callable[[Check], Rule]:
    """Declares a function as a rule; the registry finds it by scanning the package."""

    def declared(check: Check) -> Rule:
        return Rule(id, severity, message, why, fix, production_only, fixable, check)

    return declared
