"""A healthy pipeline that tests break in one place, and what the doctor finds then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.doctor.diagnose import Diagnosis, diagnose_text
from penstock.doctor.findings import Finding
from penstock.doctor.state_folder import StateFolder

HEALTHY = Path(__file__).parent / "healthy.yaml"
BAD = Path(__file__).parent / "bad.yaml"
MARK = "«"
"""Stands before what a finding must point at; it is not part of the file."""


@dataclass(frozen=True)
class Break:
    """One place of the healthy pipeline, written so that a rule is broken."""

    rule: str
    old: str
    new: str
    """With a mark at the place of the finding, unless that is said by `at`."""
    at: str = ""
    """What the finding points at, if it stands elsewhere in the file: a text that is there once."""
    also: str = ""
    """A text that has to go as well, as it would be invalid without the other."""


def broken(change: Break) -> tuple[str, tuple[int, int]]:
    """The text with the change, and line and column of the finding it must lead to."""
    text = HEALTHY.read_text("utf-8")
    assert text.count(change.old) == 1, (change.old, text.count(change.old))
    text = (
        text.replace(change.old, change.new).replace(change.also, "")
        if change.also
        else text.replace(change.old, change.new)
    )
    if change.at:
        assert text.count(change.at) == 1, (change.at, text.count(change.at))
        text = text.replace(change.at, MARK + change.at)
    before, _, after = text.partition(MARK)
    assert MARK not in after
    place = before.count("\n") + 1, len(before) - before.rfind("\n")
    return before + after, place


def diagnosed(text: str, state: StateFolder | None = None) -> Diagnosis:
    return diagnose_text(text, Path("p.yaml"), state)


def places(findings: tuple[Finding, ...]) -> list[tuple[str, int, int]]:
    return [(finding.code, finding.location.line, finding.location.column) for finding in findings]
