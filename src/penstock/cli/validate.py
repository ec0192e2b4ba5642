"""`penstock validate FILE`: all mistakes at once, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, out, print_json, print_problems, working
from penstock.errors import Problem, Severity
from penstock.graph.nodes import Graph


def register(app: typer.Typer) -> None:
    app.command("validate")(validate)


def validate(
    files: Annotated[list[Path], typer.Argument(help="Pipelines: .yaml, .sql or .py files.")],
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Whether Spark's analyser checks schemas, SQL and operators.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Check pipelines without running them.

    Finds mistakes in the file, in the graph, and, by asking Spark, in SQL, types and combinations of steps.
    """
    from penstock.frontends.examine import examine

    found = []
    for file in files:
        examined = examine(file)
        problems = list(examined.problems)
        if spark and examined.graph is not None:
            known = {problem.location for problem in problems}
            # What is wrong at a place needs saying once: Spark stumbles over a missing path too.
            problems += [problem for problem in _analysed(examined.graph) if problem.location not in known]
        problems.sort(
            key=lambda problem: (problem.location.line, problem.location.column) if problem.location else (0, 0)
        )
        found.append((file, problems))
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    failed = any(problem.severity in failing for _, problems in found for problem in problems)
    if output is Format.json:
        listed = [
            {"file": str(file), "problems": [problem.as_dict() for problem in problems]} for file, problems in found
        ]
        print_json({"valid": not failed, "files": listed})
    else:
        for file, problems in found:
            print_problems(problems)
            errors = sum(problem.severity is Severity.ERROR for problem in problems)
            warnings = len(problems) - errors
            if errors:
                verdict = Text(f"{file}: {counted(errors, 'error')}", "bold red")
            else:
                verdict = Text(f"{file}: valid", "bold green")
            out.print(verdict.append(f", {counted(warnings, 'warning')}" if warnings else ""))
    if failed:
        raise typer.Exit(2)


def _analysed(graph: Graph) -> list[Problem]:
    import tempfile

    from penstock.engine.jars import sets_for
    from penstock.engine.stage.choose import analyse_declared
    from penstock.testing.session import shared_session

    with working("asking Spark"), tempfile.TemporaryDirectory(prefix="penstock-") as spool:
        spark = shared_session(sets_for(graph.file.pipeline))
        return list(analyse_declared(spark, graph, Path(spool)).problems)
