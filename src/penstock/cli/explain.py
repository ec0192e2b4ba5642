"""`penstock explain FILE`: the graph with schemas, watermarks and state."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import print_json, working


class Shape(StrEnum):
    text = "text"
    json = "json"
    mermaid = "mermaid"


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file.")],
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.text,
    plan: Annotated[bool, typer.Option("--plan", help="Add Spark's plan.")] = False,
) -> None:
    """Show what a pipeline does: the graph, columns on every edge, watermarks, state and its keys, column lineage."""
    from penstock.engine.analyse import plan_text
    from penstock.engine.jars import sets_for
    from penstock.engine.stage.choose import analyse_declared
    from penstock.frontends.examine import load_checked
    from penstock.graph.explain import as_json, as_mermaid, as_text
    from penstock.graph.lineage import lineage
    from penstock.testing.session import shared_session

    graph = load_checked(file)
    with working("asking Spark"), tempfile.TemporaryDirectory(prefix="penstock-") as spool:
        analysed = analyse_declared(shared_session(sets_for(graph.file.pipeline)), graph, Path(spool))
        analysed.raise_errors()
        columns = {name: facts.columns for name, facts in analysed.analysis.facts.items()}
        analysis = replace(
            analysed.analysis,
            lineage=lineage(graph, columns),
            plan=plan_text(analysed) if plan else "",
        )
    if output is Shape.json:
        print_json(as_json(graph, analysis, analysed.warnings))
    elif output is Shape.mermaid:
        typer.echo(as_mermaid(graph, analysis))
    else:
        typer.echo(as_text(graph, analysis, analysed.warnings))
        if plan:
            typer.echo(f"\nSpark's plan\n\n{analysis.plan}")
