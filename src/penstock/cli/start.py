"""`penstock start NAME`: says that a pipeline should run."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.output import out
from penstock.cli.steer import Lose, Names, Wait, runs, wait_for


def register(app: typer.Typer) -> None:
    app.command("start")(start)


def start(
    names: Names,
    target: Annotated[str | None, typer.Option("--target", help="Where to run; default: where it was.")] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Another version of its file.")] = None,
    lose: Lose = None,
    wait: Wait = False,
) -> None:
    """Let pipelines run; one that has failed is tried again."""
    from penstock.cli.client import connected, part

    client = connected()
    wanted: dict[str, Any] = {"target": target, "version": version, "lose": lose}
    asked = {key: value for key, value in wanted.items() if value is not None}
    for name in names:
        client.post(f"/pipelines/{part(name)}/start", asked)
        out.print(Text.assemble((name, "bold"), " is to run"))
    if wait:
        wait_for(client, names, runs)
