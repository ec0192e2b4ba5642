"""`penstock upgrade FILE|NAME`: carries the state of a pipeline over to the version in the file, or on the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.operation import NoWait, awaited, pipeline_on_server
from penstock.cli.output import Format, counted, out, print_json, working
from penstock.cli.steer import Lose


def register(app: typer.Typer) -> None:
    app.command("upgrade")(upgrade)


def upgrade(
    file: Annotated[
        Path,
        typer.Argument(help="The new version: a .yaml, .sql or .py file, or the name of a pipeline on the server."),
    ],
    lose: Lose = None,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap",
            metavar="STEP",
            help="A step whose state is made anew: all that was read so far is read again; may be repeated.",
        ),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    no_wait: NoWait = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Carry the state of a pipeline that does not run over to a new version of it.

    Steps go on by their names, or by `renamedFrom`. A savepoint is taken first. The work is done on a copy and compared
    with what was there; if anything fails, the state is as it was. `penstock plan FILE --against` shows it beforehand.
    For a pipeline on a server `penstock apply` does all this; with its name, state is carried over to the version that
    it has.
    """
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        _ask(on_server, {"lose": lose or [], "bootstrap": bootstrap or []}, output, wait=not no_wait)
        return
    from penstock.frontends.load import load
    from penstock.reports.codec import plain
    from penstock.runner.loop import RunOptions, state_path
    from penstock.runner.upgrade import upgrade as carry_over

    loaded = load(file)
    state = state_path(loaded, RunOptions(state_dir=state_dir))
    with working("upgrading"):
        done = carry_over(loaded, state, lose or (), bootstrap or ())
    if output is Format.json:
        print_json(plain(done))
        return
    _print(plain(done))


def _ask(name: str, asked: Mapping[str, list[str]], output: Format, *, wait: bool) -> None:
    from penstock.cli.client import connected, part

    client = connected()
    done = awaited(client, client.post(f"/pipelines/{part(name)}/upgrade", asked), wait=wait)
    if output is Format.json:
        print_json(done)
    elif done["state"] == "done":
        _print(done["result"])
    else:
        out.print(Text.assemble("the state of ", (name, "bold"), " is to be carried over"))


def _print(done: Mapping[str, Any]) -> None:
    if done["savepoint"] is None:
        out.print(Text("the state fits this version as it is", "dim"))
        return
    if done["rescaled"] is not None:
        out.print(f"state is divided into {counted(done['rescaled']['after'], 'partition')} now")
    if done["grafted"] is not None:
        for step, rows in done["grafted"]["kept"].items():
            out.print(Text.assemble((step, "bold"), f" goes on with {counted(rows, 'row')} of state"))
        for step in done["grafted"]["bootstrapped"]:
            out.print(Text.assemble((step, "bold"), " has seen all that was read before"))
        for step in done["grafted"]["begun"]:
            out.print(Text.assemble((step, "bold"), " begins empty"))
    out.print(Text.assemble("the state before is savepoint ", (done["savepoint"], "bold")))
