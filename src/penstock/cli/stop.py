"""`penstock stop NAME`: says that a pipeline should not run."""

from __future__ import annotations

import typer
from rich.text import Text

from penstock.cli.output import out
from penstock.cli.steer import Names, Wait, stands, wait_for


def register(app: typer.Typer) -> None:
    app.command("stop")(stop)


def stop(names: Names, wait: Wait = False) -> None:
    """Let pipelines finish their batch and stop; `start` goes on where they were."""
    from penstock.cli.client import connected, part

    client = connected()
    for name in names:
        client.post(f"/pipelines/{part(name)}/stop")
        out.print(Text.assemble((name, "bold"), " is to stop"))
    if wait:
        wait_for(client, names, stands)
