"""`penstock serve`: the server that keeps pipelines as they should be."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.cli.output import counted, out

if TYPE_CHECKING:
    from penstock.control.serve import PenstockServer


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the server keeps what it knows.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes one that is free.")] = 8080,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            envvar="PENSTOCK_STORE",
            help="The database: postgresql://… or sqlite:///FILE. Default: a file in the data folder.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The configuration: targets, paths, channels, ….")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen at an address of the network though there is no certificate.")
    ] = False,
) -> None:
    """Start the server: it runs pipelines, watches them, and answers the other commands.

    Ctrl-C or SIGTERM ends the server. Pipelines go on, and the next server takes them up again.
    """
    from penstock.control import serve as control

    options = control.ServeOptions(data, host, port, store, config, insecure)
    with files_for_own_user_only(), control.PenstockServer(options) as server:
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        _log_to_stderr()
        _say_hello(server)
        over.wait()
        out.print(Text("the server ends", "dim"))
    running = sum(live.run is not None for live in server.supervisor.live().values())
    if running:
        out.print(Text(f"{counted(running, 'pipeline')} {'goes' if running == 1 else 'go'} on", "dim"))


@contextmanager
def files_for_own_user_only() -> Iterator[None]:
    """What this process writes meanwhile cannot be read by other users."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _say_hello(server: PenstockServer) -> None:
    from penstock.control.auth.links import is_loopback

    data = server.options.data
    lines = [("data", str(data)), ("store", server.store.url.render_as_string(hide_password=True))]
    lines.append(("targets", ", ".join(server.config.targets)))
    out.print(Text.assemble("Penstock serves ", (server.url, "bold green")))
    if server.token is not None:
        lines.append(("token", server.token))
        if is_loopback(server.options.host):
            lines.append(("console", f"{server.url}{server.services.links.make(server.token)}"))
    for name, value in lines:
        out.print(Text.assemble((f"  {name:<8} ", "dim"), value))
    for warning in server.warnings():
        out.print(Text(f"Warning: {warning}", "yellow"))
    if server.token is not None:
        out.print(Text(f"The token is an admin's. It is shown this once; {data / 'admin.token'} has it too", "dim"))
        if is_loopback(server.options.host):
            out.print(Text("The link to the console logs in once, within ten minutes", "dim"))
    out.print(Text("Ctrl-C ends the server; pipelines go on", "dim"))
    # Whoever waits for these lines in a pipe wants them now.
    sys.stdout.flush()


def _log_to_stderr() -> None:
    """What goes wrong inside the server, one line each and traces beneath, without secrets."""
    from penstock.spec.secrets import hide

    class Hidden(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return hide(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Hidden("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
