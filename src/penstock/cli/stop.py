"""`penstock stop NAME`: says that a pipeline should not run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.output import out
from penstock.cli.steer import Names, Wait, stands, wait_for


def register(app: typer.Typer) -> None:
    app.command("stop")(stop)


def stop(
    names: Names,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Take a savepoint of what they are after their last batch.")
    ] = False,
    note: Annotated[str, typer.Option("--note", help="Why the savepoint is taken.")] = "",
    wait: Wait = False,
) -> None:
    """Let pipelines finish their batch and stop; `start` goes on where they were."""
    from penstock.cli.client import connected, part

    client = connected()
    for name in names:
        client.post(f"/pipelines/{part(name)}/stop", {"savepoint": savepoint, "note": note})
        out.print(Text.assemble((name, "bold"), " is to stop"))
    if wait:
        wait_for(client, names, stands)
