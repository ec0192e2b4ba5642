"""`penstock run FILE`: runs a pipeline here, in this process."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import out
from penstock.cli.spark_options import Conf, DriverMemory, Master, Packages, parsed_conf


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file.")],
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then end with a summary.")] = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    master: Master = "local[*]",
    conf: Conf = None,
    packages: Packages = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Run a pipeline. Ctrl-C finishes the batch and stops; a second one stops at once."""
    from penstock.cli.live_view import view_for
    from penstock.frontends.load import load
    from penstock.runner.loop import RunOptions
    from penstock.runner.loop import run as run_pipeline

    options = RunOptions(
        once=once,
        state_dir=state_dir,
        master=master,
        conf=parsed_conf(conf),
        packages=packages or (),
        driver_memory=driver_memory,
    )
    with view_for(out, master) as view:
        status = run_pipeline(load(file), options, view.show)
    view.summary(status, dt.datetime.now(dt.UTC))
