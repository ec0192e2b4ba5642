"""`penstock doctor FILE|NAME`: whether a pipeline is ready to run for months, and what to do before it does."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, near, out, print_json

if TYPE_CHECKING:
    from penstock.cli.client import Client
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
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Pipelines: .yaml, .sql or .py files, or names of pipelines on the server."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All pipelines of the server that are meant to run.", show_default=False)
    ] = False,
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
    """Check whether pipelines are ready for production, and how those on the server run.

    Looks for what goes wrong after weeks rather than at once: state without a bound, rows that are skipped silently,
    secrets in files, sinks that store twice, alerts that never help. Each finding says why it matters, what was found,
    and what to do. For a file no server is asked, and Spark is not started. For a pipeline on the server, its file as
    the server has it is checked, and how it runs: lag, growing state, slow checkpoints, rows that do not add up.

    Ends with 0 if nothing is as bad as `--fail-on`, with 1 if something is, and with 2 if a file is invalid; then only
    the errors of `validate` are shown.
    """
    from penstock.doctor.findings import Severity

    diagnoses = _diagnoses(files or [], all_=all_, fix=fix, state_dir=state_dir)
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


def _diagnoses(files: Sequence[Path], *, all_: bool, fix: bool, state_dir: Path | None) -> list[Diagnosis]:
    from penstock.cli.client import connected, name_of_a_server
    from penstock.doctor.diagnose import diagnose
    from penstock.doctor.state_folder import look_at
    from penstock.errors import PenstockError

    if not files and not all_:
        advice = "Name files or pipelines, or give --all for all pipelines of the server."
        raise PenstockError.of("USAGE", reason="nothing to check", advice=advice)
    state = None if state_dir is None else look_at(state_dir)
    names = [name_of_a_server(file) for file in files]
    if fix and (all_ or any(names)):
        reason = "--fix writes into files, and a pipeline on the server has none here"
        raise PenstockError.of("USAGE", reason=reason, advice="Fix its file, and apply it.")
    client = connected() if all_ or any(names) else None
    found = []
    for file, name in zip(files, names, strict=True):
        found.append(diagnose(file, state) if client is None or name is None else _on_server(client, name))
    if client is not None and all_:
        from penstock.cli.doctor_running import names_of_all

        found += [_on_server(client, name) for name in names_of_all(client) if name not in names]
    return found


def _on_server(client: Client, name: str) -> Diagnosis:
    from penstock.cli.doctor_running import diagnose_on_server
    from penstock.cli.listing import utc_now

    return diagnose_on_server(client, name, utc_now())


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
    where = f"{near(place.file)}:{place.line}:{place.column}: " if place.line else f"{place.file}: "
    text.append(where, "bold")
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
