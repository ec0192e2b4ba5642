"""`penstock run FILE`: runs a pipeline here, in this process."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import out
from penstock.cli.spark_options import Conf, DriverMemory, Master, Packages, parsed_conf
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.progress import Status


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file.")],
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then end with a summary.")] = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(
            "--restore", metavar="SAVEPOINT", help="Go back to this savepoint first: its name, folder or address."
        ),
    ] = None,
    fork: Annotated[
        bool,
        typer.Option("--fork", help="With --restore: begin there as a pipeline of its own, with sinks of its own."),
    ] = False,
    keep_rows: Annotated[
        bool,
        typer.Option(
            "--keep-rows", help="With --restore: sinks that cannot take rows back keep them, and get them again."
        ),
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    packages: Packages = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Run a pipeline. Ctrl-C finishes the batch and stops; a second one stops at once."""
    from dataclasses import replace

    from penstock.cli.live_view import view_for
    from penstock.engine.savepoints.places import find
    from penstock.engine.savepoints.shelf import is_remote
    from penstock.frontends.load import load
    from penstock.runner.distant import restore_from
    from penstock.runner.loop import RunOptions, state_path
    from penstock.runner.loop import run as run_pipeline
    from penstock.runner.report import BatchHistory

    if (fork or keep_rows) and restore is None:
        option = "--fork" if fork else "--keep-rows"
        raise PenstockError.of("USAGE", reason=f"{option} goes with --restore", advice="Add --restore SAVEPOINT.")
    loaded = load(file)
    options = RunOptions(
        once=once,
        state_dir=state_dir,
        fork=fork,
        keep_rows=keep_rows,
        master=master,
        conf=parsed_conf(conf),
        packages=packages or (),
        driver_memory=driver_memory,
    )
    if restore is not None and is_remote(restore):
        restore_from(loaded, state_path(loaded, options), restore, fork=fork, keep_rows=keep_rows)
    elif restore is not None:
        options = replace(options, restore=find(restore, state_path(loaded, options)))
    history = BatchHistory(loaded, state_path(loaded, options), master)
    with view_for(out, master) as view:

        def watch(status: Status) -> None:
            history.note(status)
            view.show(status)

        status = run_pipeline(loaded, options, watch)
    view.summary(status, dt.datetime.now(dt.UTC))
