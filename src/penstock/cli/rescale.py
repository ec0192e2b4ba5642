"""`penstock rescale FILE|NAME --partitions N`: divides the state of a pipeline into other partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.operation import NoWait, awaited, pipeline_on_server
from penstock.cli.output import Format, counted, err, out, print_json, working


def register(app: typer.Typer) -> None:
    app.command("rescale")(rescale)


def rescale(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, max=4096, help="How many. Default: what the file says.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    no_wait: NoWait = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Divide the state of a pipeline that does not run into other partitions.

    A savepoint is taken first. The work is done on a copy and compared with what was there; if anything fails, the
    state is as it was. A server stops the pipeline for it, and starts it again.
    """
    from penstock.errors import PenstockError

    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        if partitions is None:
            reason = "it does not say into how many partitions"
            raise PenstockError.of("USAGE", reason=reason, advice="Add --partitions.")
        _ask(on_server, partitions, output, wait=not no_wait)
        return
    from penstock.frontends.load import load
    from penstock.runner.loop import RunOptions, state_path
    from penstock.runner.rescale import rescale as divide_anew

    loaded = load(file)
    declared = loaded.pipeline.state.partitions
    wanted = partitions if partitions is not None else declared
    if wanted is None:
        raise PenstockError.of("USAGE", reason="the file does not say how many partitions", advice="Add --partitions.")
    state = state_path(loaded, RunOptions(state_dir=state_dir))
    with working("rescaling"):
        done = divide_anew(loaded, state, wanted)
    found = done.rescaled
    if output is Format.json:
        print_json({"before": found.before, "after": found.after, "rows": found.rows, "savepoint": done.savepoint})
    elif done.savepoint is None:
        out.print(Text(f"the state is divided into {counted(wanted, 'partition')} already", "dim"))
    else:
        said = f"{counted(found.rows, 'row')} of state moved from {found.before} to {found.after} partitions"
        out.print(Text.assemble(said, ("; the state before is savepoint ", ""), (done.savepoint, "bold")))
    if declared not in (None, wanted):
        err.print(Text(f"set `state.partitions: {wanted}` in {file}, or it will not run", "yellow"))


def _ask(name: str, partitions: int, output: Format, *, wait: bool) -> None:
    from penstock.cli.client import connected, part

    client = connected()
    done = awaited(client, client.post(f"/pipelines/{part(name)}/rescale", {"partitions": partitions}), wait=wait)
    found = done["result"].get("rescaled")
    if output is Format.json:
        print_json(done)
    elif found is None:
        out.print(Text.assemble((name, "bold"), f" is to be divided into {counted(partitions, 'partition')}"))
    else:
        said = f"{counted(found['rows'], 'row')} of state moved from {found['before']} to {found['after']} partitions"
        out.print(Text.assemble(said, "; the state before is savepoint ", (done["result"]["savepoint"], "bold")))
