"""`penstock cutover …`: let a new version follow the pipeline that runs, compare them, and let it take over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli import cutover_on_server
from penstock.cli.operation import pipeline_on_server
from penstock.cli.output import Format, counted, err, out, print_json, working

if TYPE_CHECKING:
    from penstock.engine.cutover.follower import Standing
    from penstock.engine.cutover.overlap import SinkCompared
    from penstock.runner.cutover import Watch

File = Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")]
StateFolder = Annotated[
    Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(
        help="Let a new version of a pipeline follow the one that runs, and take over from it.", no_args_is_help=True
    )
    for verb in (start, status, compare, finish, abort):
        verbs.command(verb.__name__)(verb)
    app.add_typer(verbs, name="cutover")


def start(
    file: File,
    new: Annotated[Path, typer.Argument(help="The new version, of the same name.")],
    once: Annotated[
        bool, typer.Option("--once", help="Follow until it stands where the pipeline does, then end.")
    ] = False,
    lose: Annotated[
        list[str] | None,
        typer.Option("--lose", metavar="NAME", help="A source or step whose state may be given up; may be repeated."),
    ] = None,
    state_dir: StateFolder = None,
) -> None:
    """Begin from a savepoint of the pipeline, which runs on, and follow it.

    The new version reads what the pipeline has read, and keeps what it would store beside its state, out of the way of
    the sinks. Ctrl-C ends following; the same command goes on with it. On a server it follows until
    `finish` or `abort`.
    """
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        cutover_on_server.start(on_server, new, lose or [], once=once)
        return
    from penstock.frontends.load import load
    from penstock.runner.cutover import follow, refuse_unsuited
    from penstock.runner.cutover import start as begin
    from penstock.runner.loop import Stop
    from penstock.runner.savepoints import session_for

    (loaded, state), version = _found(file, state_dir), load(new)
    # Spark takes seconds to start; what is wrong without it is told at once.
    refuse_unsuited(loaded, state, version)
    stop, tell = Stop(), _telling()
    with session_for(version.pipeline, state / "logs" / "cutover.log") as spark:
        with working("preparing the new version"):
            cutover = begin(loaded, state, version, lose or (), spark=spark)
        saved = Text.assemble((cutover.savepoint, "bold"), f", after batch {cutover.batch}")
        out.print(Text.assemble("it begins from savepoint ", saved))
        for step, rows in cutover.kept.items():
            out.print(Text.assemble((step, "bold"), f" goes on with {counted(rows, 'row')} of state"))
        for step in cutover.begun:
            out.print(Text.assemble((step, "bold"), " begins empty"))
        # Spark took the signals for itself when it started.
        stop.install()
        now = follow(state, cutover.pipeline, once=once, stop=stop.asked.is_set, watch=tell, spark=spark)
    out.print(_standing(now))


def status(file: File, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Show how far the new version is."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        cutover_on_server.status(on_server, output)
        return
    from penstock.reports.codec import plain
    from penstock.runner.cutover import status as ask

    loaded, state = _found(file, state_dir)
    cutover, now, following = ask(state, loaded.pipeline.name)
    if output is Format.json:
        print_json({**plain(cutover), **plain(now), "behind": now.behind, "following": following})
        return
    out.print(Text.assemble("to ", (cutover.file, "bold"), f", since {cutover.started_at[:19]}"))
    out.print(f"from savepoint {cutover.savepoint}, after batch {cutover.batch}")
    if cutover.stage == "preparing":
        out.print(Text("the new version has not begun: run `penstock cutover start` again", "yellow"))
        return
    out.print(_standing(now))
    out.print(Text("it follows now" if following else "nothing follows now", "dim"))


def compare(file: File, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Compare what both versions have given out since the savepoint, sink by sink. Exit code 1 if that differs."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        cutover_on_server.compare(on_server, output)
        return
    from penstock.reports.codec import plain
    from penstock.runner.cutover import compare as look

    loaded, state = _found(file, state_dir)
    with working("comparing"):
        now, found = look(state, loaded.pipeline.name)
    if output is Format.json:
        print_json({**plain(now), "behind": now.behind, "sinks": plain(found)})
    else:
        out.print(_standing(now))
        print_compared(found)
    if any(one.compared is not None and one.compared.verdict == "differs" for one in found):
        raise typer.Exit(1)


def finish(file: File, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Stop the pipeline after its batch, and put the new version in its place.

    A savepoint is taken of the pipeline as it was. Run the new version afterwards: it goes on where the pipeline
    stopped, with its own state and the pipeline's sinks; a server runs it by itself. Whatever happens, the state is the
    old one or the new one.
    """
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        cutover_on_server.finish(on_server, output)
        return
    from penstock.reports.codec import plain
    from penstock.runner.cutover import finish as cut_over

    loaded, state = _found(file, state_dir)
    with working("cutting over"):
        done = cut_over(state, loaded.pipeline.name, watch=_telling() if err.is_terminal else lambda standing: None)
    if output is Format.json:
        print_json(plain(done))
        return
    out.print(f"the new version has taken over after batch {done.taken.batch}; nothing ran for {done.seconds:.1f} s")
    out.print(Text.assemble("the state before is savepoint ", (done.savepoint, "bold")))


def abort(file: File, state_dir: StateFolder = None) -> None:
    """Give the cut-over up: what was made for it goes, and the pipeline is as it was."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        cutover_on_server.abort(on_server)
        return
    from penstock.runner.cutover import abort as give_up

    loaded, state = _found(file, state_dir)
    give_up(state, loaded.pipeline.name)
    out.print("the cut-over is given up; the pipeline is as it was")


def _found(file: Path, state_dir: Path | None) -> Any:
    from penstock.frontends.load import load
    from penstock.runner.loop import RunOptions, state_path

    loaded = load(file)
    return loaded, state_path(loaded, RunOptions(state_dir=state_dir))


def _telling() -> Watch:
    """Tells how far the new version is, whenever that is another batch."""
    seen: list[int] = []

    def tell(standing: Standing) -> None:
        if seen != [standing.stands]:
            seen[:] = [standing.stands]
            err.print(_standing(standing), style="dim")

    return tell


def _standing(now: Standing) -> Text:
    if now.behind == 0:
        return Text(f"the new version stands where the pipeline does, after batch {now.stands}")
    return Text(f"the new version stands after batch {now.stands}, {_batches(now.behind)} behind")


_HOW = {"batches": "by batch", "time": "by event time", "new rows": "rows of the new version", "not compared": "-"}


def print_compared(found: tuple[SinkCompared, ...]) -> None:
    out.print(_compared(found))
    for one in found:
        _show(one)


def read_compared(found: Sequence[Mapping[str, Any]]) -> tuple[SinkCompared, ...]:
    """What a server has sent."""
    from penstock.engine.cutover.overlap import SinkCompared
    from penstock.reports.codec import read

    return tuple(read(SinkCompared, json.dumps(one)) for one in found)


def _compared(found: tuple[SinkCompared, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("SINK", "EQUAL", "DIFFERENT", "ONLY OLD", "ONLY NEW", "COMPARED"):
        table.add_column(name, justify="left" if name in ("SINK", "COMPARED") else "right")
    for one in found:
        counts = one.compared
        if counts is None:
            table.add_row(one.sink, "-", "-", "-", "-", f"not: {one.reason}")
            continue
        missing = "-" if one.how == "new rows" else f"{counts.only_old:,}"
        cells = [f"{counts.equal:,}", f"{counts.different:,}", missing, f"{counts.only_new:,}"]
        table.add_row(one.sink, *cells, _HOW[one.how], style="" if counts.verdict == "equal" else "yellow")
    return table


def _show(one: SinkCompared) -> None:
    for columns, which in ((one.new_columns, "new"), (one.gone_columns, "gone")):
        if columns:
            out.print(Text(f"{one.sink}: left out, as {which}: {', '.join(columns)}", "dim"))
    for sample in () if one.compared is None else one.compared.samples:
        for sign, row, colour in (("-", sample.old, "red"), ("+", sample.new, "green")):
            if row is not None:
                values = ", ".join(f"{name}: {'null' if value is None else value}" for name, value in row.items())
                out.print(Text(f"{one.sink} {sign} {values}", colour))


def _batches(count: int) -> str:
    return f"{count:,} {'batch' if count == 1 else 'batches'}"
