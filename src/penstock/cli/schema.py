"""`penstock schema`: the JSON Schema of the pipeline file, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("schema")(schema)


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of the terminal.")
    ] = None,
) -> None:
    """Print the JSON Schema of the pipeline file.

    Put it beside your pipelines as penstock.schema.json and start them with
    `# yaml-language-server: $schema=./penstock.schema.json` to get completion and checks in the editor.
    """
    from penstock.frontends.json_schema import json_schema

    text = json.dumps(json_schema(), indent=2)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", "utf-8")
