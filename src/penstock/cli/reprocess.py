"""`penstock reprocess FILE --from TIME --to TIME`: computes a range of event time again."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, out, print_json
from penstock.cli.spark_options import Conf, DriverMemory, Master, Packages, parsed_conf
from penstock.errors import PenstockError


def register(app: typer.Typer) -> None:
    app.command("reprocess")(reprocess)


def reprocess(
    file: Annotated[
        Path, typer.Argument(help="The pipeline, as it is to compute the range: a .yaml, .sql or .py file.")
    ],
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first moment, such as 2024-01-01T00:00:00Z.")
    ],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="The first moment that is not in the range.")],
    into: Annotated[
        list[str] | None,
        typer.Option("--into", metavar="SINK.FIELD=VALUE", help="Send a sink's rows elsewhere: `store.table=mended`."),
    ] = None,
    sink: Annotated[
        list[str] | None, typer.Option("--sink", help="Only this sink; may be repeated. Default: all sinks.")
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", help="Start with its state, instead of reading what lies before the range."),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(
            "--warm-up", metavar="DURATION", help="How far before the range rows are read. Default: as needed."
        ),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where its own state is kept. Default: beside the pipeline's.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
    master: Master = "local[*]",
    conf: Conf = None,
    packages: Packages = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Compute the results of a range of event time again, with this version of the pipeline, and store them.

    It runs beside the pipeline, which may go on meanwhile, and ends by itself. Rows are read anew from the sources.
    Results replace those in sinks with a key; a sink without one must be empty. If it is ended, the same command goes
    on where it was.
    """
    from penstock.cli.live_view import view_for
    from penstock.engine.reprocessing.plan import Wanted
    from penstock.frontends.load import load
    from penstock.runner.distant import at_hand
    from penstock.runner.loop import RunOptions, state_path
    from penstock.runner.reprocess import reprocess as compute
    from penstock.spec.units import Duration

    loaded = load(file)
    begin, end = _time("--from", since), _time("--to", until)
    if begin >= end:
        raise PenstockError.of("USAGE", reason=f"the range ends before it begins: {since} to {until}", advice="")
    try:
        warm = None if warm_up is None else Duration.parse(warm_up)
    except ValueError as error:
        raise PenstockError.of("USAGE", reason=f"--warm-up: {error}", advice="Write for example `2 hours`.") from None
    wanted = Wanted(begin, end, tuple(sink or ()), _places(into or []), warm, savepoint)
    options = RunOptions(
        once=True, state_dir=state_dir, master=master, conf=parsed_conf(conf), packages=packages or (),
        driver_memory=driver_memory,
    )  # fmt: skip
    with ExitStack() as stack:
        state = state_path(loaded, RunOptions())
        found = None if savepoint is None else stack.enter_context(at_hand(savepoint, state))
        shows = output is Format.text
        watch = stack.enter_context(view_for(out, master)).show if shows else lambda _: None
        done = compute(loaded, wanted, found, options, watch)
    if output is Format.json:
        print_json({
            "from": begin.isoformat(), "to": end.isoformat(), "finished": done.finished,
            "readFrom": None if done.read_since is None else done.read_since.isoformat(),
            "readTo": done.read_until.isoformat(), "rowsOut": dict(done.rows_out), "stateDir": str(done.state),
        })  # fmt: skip
    elif done.finished:
        rows = ", ".join(f"{counted(count, 'row')} to {name}" for name, count in done.rows_out.items())
        out.print(Text.assemble((f"{since} to {until}", "bold"), f" computed again: {rows or 'no rows'}"))
    else:
        out.print(Text("stopped before its end; the same command goes on where it was", "yellow"))
    if not done.finished:
        raise typer.Exit(1)


def _time(option: str, text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.microsecond % 1000:
        reason = f"{option}: '{text}' is no time with its zone, in whole milliseconds at most"
        raise PenstockError.of("USAGE", reason=reason, advice="Write for example 2024-01-01T00:00:00Z.")
    return found.astimezone(dt.UTC)


def _places(into: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in into:
        place, equals, value = text.partition("=")
        sink, dot, name = place.partition(".")
        if not (equals and dot and sink and name):
            advice = "Write SINK.FIELD=VALUE, for example `store.table=mended`."
            raise PenstockError.of("USAGE", reason=f"--into: '{text}' names no field of a sink", advice=advice)
        found.setdefault(sink, {})[name] = value
    return found
