"""`penstock doctor FILE`: whether a pipeline is ready to run for months, and what to do before it does."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, near, out, print_json

if TYPE_CHECKING:
    from penstock.doctor.diagnose import Diagnosis
    from penstock.doctor.findings import Finding
    from penstock.doctor.repair import Repair

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


class Level(StrEnum):
    """From which severity on a finding fails the command."""

    error = "error"
    warning = "warning"


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    files: Annotated[list[Path], typer.Argument(help="Pipelines: .yaml, .sql or .py files.")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the safe fixes into the file; only YAML files are changed.")
    ] = False,
    fail_on: Annotated[Level, typer.Option("--fail-on", help="From which severity on findings end with 1.")] = (
        Level.error
    ),
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Look also at this folder, where state will be.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Check whether pipelines are ready for production, without running them.

    Looks for what goes wrong after weeks rather than at once: state without a bound, rows that are skipped silently,
    secrets in files, sinks that store twice, alerts that never help. Each finding says why it matters, what was found,
    and what to do. No server is asked, and Spark is not started. Ends with 0 if nothing is as bad as `--fail-on`, with
    1 if something is, and with 2 if a file is invalid; then only the errors of `validate` are shown.
    """
    from penstock.doctor.diagnose import diagnose
    from penstock.doctor.findings import Severity
    from penstock.doctor.state_folder import look_at

    state = None if state_dir is None else look_at(state_dir)
    diagnoses = [diagnose(file, state) for file in files]
    repairs = [_repaired(diagnosis) if fix and diagnosis.valid else None for diagnosis in diagnoses]
    looked_at = list(zip(diagnoses, repairs, strict=True))
    left = [finding for diagnosis, repair in looked_at for finding in _left(diagnosis, repair)]
    if output is Format.json:
        print_json(
            [
                finding.as_dict(fixed=repair is not None and finding in repair.fixed)
                for diagnosis, repair in looked_at
                for finding in diagnosis.findings
            ]
        )
    else:
        for diagnosis, repair in looked_at:
            _print(diagnosis, repair)
    if not all(diagnosis.valid for diagnosis in diagnoses):
        raise typer.Exit(2)
    if any(finding.severity.reaches(Severity(fail_on)) for finding in left):
        raise typer.Exit(1)


def _repaired(diagnosis: Diagnosis) -> Repair:
    from penstock.doctor.repair import repair, write

    repaired = repair(diagnosis)
    write(diagnosis, repaired)
    return repaired


def _left(diagnosis: Diagnosis, repair: Repair | None) -> Sequence[Finding]:
    return [finding for finding in diagnosis.findings if repair is None or finding not in repair.fixed]


def _print(diagnosis: Diagnosis, repair: Repair | None) -> None:
    refused = {id(finding): reason for finding, reason in repair.refused} if repair is not None else {}
    for finding in diagnosis.findings:
        out.print(_text(finding, repair is not None and finding in repair.fixed, refused.get(id(finding))))
    left = _left(diagnosis, repair)
    verdict = Text(f"{diagnosis.path}: ", "bold")
    counts = [(level, sum(finding.severity == level for finding in left)) for level in _COLOURS]
    said = ", ".join(counted(count, level) for level, count in counts if count)
    verdict.append(said or "nothing found", f"bold {_colour(left)}")
    if diagnosis.ignored:
        verdict.append(f", {diagnosis.ignored:,} ignored")
    if repair is not None and repair.fixed:
        verdict.append(f", {len(repair.fixed):,} fixed")
    elif any(finding.edit is not None for finding in left):
        verdict.append(f"; --fix writes {sum(finding.edit is not None for finding in left):,} of the fixes")
    out.print(verdict)


def _colour(findings: Sequence[Finding]) -> str:
    return next((colour for level, colour in _COLOURS.items() if any(f.severity == level for f in findings)), "green")


def _text(finding: Finding, fixed: bool, refused: str | None) -> Text:
    colour, place = _COLOURS[finding.severity], finding.location
    text = Text()
    text.append(f"{near(place.file)}:{place.line}:{place.column}: ", "bold")
    text.append(f"{finding.severity}", f"bold {colour}")
    text.append(f"[{finding.code}] ", colour)
    text.append(finding.message)
    if finding.why:
        text.append(f"\n    Why: {finding.why}", "dim")
    if finding.fix:
        text.append(f"\n    Fix: {finding.fix}", "dim")
    if fixed:
        text.append("\n    Fixed.", "green")
    if refused is not None:
        text.append(f"\n    Not fixed: {refused}.", "yellow")
    return text
