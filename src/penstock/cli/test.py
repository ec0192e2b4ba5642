"""`penstock test FILE`: runs the tests written in a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, err, out, print_json, working
from penstock.errors import PenstockError


def register(app: typer.Typer) -> None:
    app.command("test")(run_tests)


def run_tests(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file.")],
    select: Annotated[str, typer.Option("--select", "-k", help="Only tests whose name contains this.")] = "",
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Run the tests in a pipeline file: given these rows, expect those.

    Sources are replaced by the given rows and sinks by memory; everything between runs on real Spark.
    """
    from penstock.frontends.examine import load_checked
    from penstock.graph.validate import World
    from penstock.testing.cases import run_cases

    graph = load_checked(file, World.STEPS)
    cases = [case for case in graph.file.pipeline.tests if select in case.name]
    if not cases:
        raise PenstockError.of("TESTS_MISSING", path=file)
    results = []
    with working(f"running {counted(len(cases), 'test')}", out if output is Format.text else err):
        for result in run_cases(graph.file, lambda name: select in name):
            results.append(result)
            if output is Format.text:
                mark = ("PASS", "bold green") if result.passed else ("FAIL", "bold red")
                out.print(Text.assemble(mark, f" {result.name}", (f"  {result.seconds:.1f} s", "dim")))
                for node, lines in result.differences.items():
                    for line in lines:
                        out.print(Text(f"     {node}: {line}"))
    failed = sum(not result.passed for result in results)
    if output is Format.json:
        found = [
            {"name": r.name, "passed": r.passed, "seconds": r.seconds, "differences": r.differences} for r in results
        ]
        print_json({"passed": len(results) - failed, "failed": failed, "tests": found})
    else:
        out.print(Text(f"{len(results) - failed} passed, {failed} failed", "bold red" if failed else "bold green"))
    if failed:
        raise typer.Exit(1)
