"""`penstock delete NAME`: stops a pipeline and forgets it."""

from __future__ import annotations

import typer
from rich.text import Text

from penstock.cli.apply import Yes, ask
from penstock.cli.get import pipelines
from penstock.cli.output import out
from penstock.cli.steer import Names, Wait, is_gone, wait_for


def register(app: typer.Typer) -> None:
    app.command("delete")(delete)


def delete(names: Names, yes: Yes = False, wait: Wait = False) -> None:
    """Stop pipelines and forget them, with their history. What they have written stays.

    Their state and logs are moved to the folder `deleted` of the server.
    """
    from penstock.cli.client import connected, part

    client = connected()
    pipelines(client, names)
    if not yes:
        ask(f"Delete {', '.join(names)} with state and history?")
    for name in names:
        client.delete(f"/pipelines/{part(name)}")
        out.print(Text.assemble((name, "bold"), " is to be deleted"))
    if wait:
        wait_for(client, names, is_gone)
