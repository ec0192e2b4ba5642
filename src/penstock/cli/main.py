"""The `penstock` command: one file a verb, errors in words, stable exit codes.

0 ok · 1 failed · 2 usage or invalid pipeline · 3 not found · 4 refused
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Any

import typer

from penstock.cli import (
    accept_gap,
    alerts,
    apply,
    capacity,
    cutover,
    delete,
    describe,
    doctor,
    explain,
    get,
    init,
    ledger,
    logs,
    packages,
    plan,
    projects,
    replay,
    reprocess,
    rescale,
    run,
    savepoint,
    schema,
    serve,
    start,
    state,
    stop,
    test,
    token,
    upgrade,
    validate,
)
from penstock.cli.output import print_error, print_trace
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Declare a streaming pipeline in YAML, SQL or Python; run it on Spark, right to the row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Newer versions of Typer carry a Click of their own, so the base of its errors (BadParameter, UsageError,
# ClickException) is found through Typer's.
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]

_HERE = (
    *(init, validate, doctor, explain, test, run, state, savepoint, upgrade, cutover, rescale, accept_gap),
    *(ledger, replay, reprocess, schema, capacity),
)
_WITH_A_SERVER = (serve, packages, plan, apply, get, describe, start, stop, delete, logs, alerts, token, projects)
for verb in (*_HERE, *_WITH_A_SERVER):
    verb.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = {"debug": debug}


def _silence_traces() -> None:
    """PySpark prints its trace of every mistake in a query, Py4J that of a lost JVM; Penstock says both in words."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # By its level, as others that set up logging in this process enable all loggers again.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addHandler(logging.NullHandler())


def main() -> None:
    """Runs the command and ends the process with its exit code."""
    debug = "--debug" in sys.argv
    # The option may stand anywhere on the line, as people add it to a command that has just failed.
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if not debug:
        _silence_traces()
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except PenstockError as error:
        if debug:
            print_trace(error)
        print_error(error)
        sys.exit(error.exit_code)
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except _CLICK_ERROR as error:
        error.show()
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        print_trace(error) if debug else print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
