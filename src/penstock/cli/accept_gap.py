"""`penstock accept-gap FILE|NAME SINK`: runs on though a sink has lost batches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.operation import NoWait, awaited, pipeline_on_server
from penstock.cli.output import Format, out, print_json


def register(app: typer.Typer) -> None:
    app.command("accept-gap")(accept)


def accept(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")],
    sink: Annotated[str, typer.Argument(help="The sink, as SINK_BEHIND names it.")],
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    no_wait: NoWait = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Accept that a sink has lost batches, after a run has stopped with SINK_BEHIND.

    The rows stay missing, and the ledger keeps a note of it. Later losses are refused again.
    """
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli.client import connected, part

        client = connected()
        asked = client.post(f"/pipelines/{part(on_server)}/accept-gap", {"sink": sink})
        done = awaited(client, asked, wait=not no_wait)
        gaps = done["result"].get("gaps", [])
    else:
        from penstock.frontends.load import load
        from penstock.reports.codec import plain
        from penstock.runner.loop import RunOptions, state_path
        from penstock.runner.sink_gaps import accept_gap

        loaded = load(file)
        gaps = plain(accept_gap(loaded, state_path(loaded, RunOptions(state_dir=state_dir)), sink))
    if output is Format.json:
        print_json({"sink": sink, "gaps": gaps})
        return
    for gap in gaps:
        missing = f"the batches after {gap['position']} up to {gap['noted']}, with {gap['rows']:,} rows"
        out.print(Text.assemble("accepted: ", (sink, "bold"), f" lacks {missing}"))
    if not gaps:
        out.print(Text.assemble((sink, "bold"), " is to run without what it has lost"))
