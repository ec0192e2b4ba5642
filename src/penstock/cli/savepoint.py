"""`penstock savepoint …`: take a pipeline's state at a moment, look at it, and go back to it.

A pipeline is a file, with its state beside it, or the name of one that a server runs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.operation import NoWait, pipeline_on_server
from penstock.cli.output import Format, counted, err, out, print_json, print_problems, working
from penstock.cli.steer import Lose
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.savepoints.places import Listed
    from penstock.engine.savepoints.trees import Progress as Told
    from penstock.reports.savepoints import Savepoint

File = Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")]
OfFile = Annotated[
    Path | None,
    typer.Argument(help="The pipeline, to find a savepoint by its name: its file, or on the server its name."),
]
Named = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The name of a savepoint, its folder, or its address.")]
StateFolder = Annotated[
    Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Take the state of a pipeline at a moment, and go back to it.", no_args_is_help=True)
    for verb in (create, show, verify, diff, delete, restore, fork):
        verbs.command(verb.__name__)(verb)
    verbs.command("list")(list_)
    app.add_typer(verbs, name="savepoint")


def create(
    file: File,
    name: Annotated[str | None, typer.Option("--name", help="What to call it. Default: the time, or as --to.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FOLDER|ADDRESS",
            help="The folder it shall be, or an address like s3://bucket/folder/NAME. Default: in the state folder.",
        ),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why it was taken.")] = "",
    state_dir: StateFolder = None,
    no_wait: NoWait = False,
    output: Output = Format.text,
) -> None:
    """Take a savepoint: of a running pipeline, which goes on, or of one that does not run."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        if to is not None:
            raise PenstockError.of("USAGE", reason="a server keeps its savepoints itself", advice="Leave out --to.")
        from penstock.cli import savepoint_on_server

        savepoint_on_server.create(on_server, name, note, output, wait=not no_wait)
        return
    from penstock.engine.savepoints.take import Wish
    from penstock.frontends.load import load
    from penstock.runner.distant import take_to
    from penstock.runner.loop import RunOptions, state_path

    loaded = load(file)
    state = state_path(loaded, RunOptions(state_dir=state_dir))
    with working("taking a savepoint"), _told("reading files") as told:
        savepoint, place = take_to(loaded, state, Wish(name, note), to, told)
    if output is Format.json:
        print_json(_as_json(savepoint, place))
        return
    out.print(Text.assemble(("savepoint ", ""), (savepoint.name, "bold"), f" after batch {savepoint.batch}: {place}"))


def list_(
    file: OfFile = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="ADDRESS", help="Those in an object store, as s3://bucket/folder.")
    ] = None,
    state_dir: StateFolder = None,
    output: Output = Format.text,
) -> None:
    """List the savepoints in the state folder of a pipeline or in an object store, the oldest first."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli import savepoint_on_server

        savepoint_on_server.list_(on_server, output)
        return
    from penstock.runner.distant import found_at

    found = found_at(at, _state_of(file, state_dir))
    if output is Format.json:
        print_json([_listed_json(one) for one in found])
        return
    if not found:
        out.print(Text("there are no savepoints", "dim"))
        return
    out.print(_listed(found))


def show(savepoint: Named, file: OfFile = None, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Show what a savepoint holds."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli import savepoint_on_server

        savepoint_on_server.show(on_server, savepoint, output)
        return
    from penstock.runner.distant import look

    found, place = look(savepoint, _state_of(file, state_dir))
    if output is Format.json:
        print_json(_as_json(found, place))
    else:
        _print(found, place)


def verify(savepoint: Named, file: OfFile = None, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Read all of a savepoint and compare it with its checksums; ends with 1 if anything is wrong."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli import savepoint_on_server

        savepoint_on_server.verify(on_server, savepoint, output)
        return
    from penstock.engine.savepoints.verify import damaged
    from penstock.runner.distant import verify_at

    with _told("reading files") as told:
        found, place, damages = verify_at(savepoint, _state_of(file, state_dir), told)
    if output is Format.json:
        wrong = [{"file": damage.file, "reason": damage.reason} for damage in damages]
        print_json({"name": found.name, "files": len(found.files), "bytes": found.bytes, "damages": wrong})
    elif not damages:
        out.print(Text(f"{counted(len(found.files), 'file')}, {size(found.bytes)}: all as they were", "green"))
    else:
        print_problems(damaged(place, damage) for damage in damages)
    if damages:
        raise typer.Exit(1)


def diff(
    first: Annotated[str, typer.Argument(help="A savepoint: its name, or its folder.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    file: OfFile = None,
    state_dir: StateFolder = None,
    output: Output = Format.text,
) -> None:
    """Show what differs between two savepoints: offsets, watermark, state, rows and the pipeline itself."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli import savepoint_on_server

        savepoint_on_server.diff(on_server, first, second, output)
        return
    from penstock.reports.codec import plain
    from penstock.runner.distant import look
    from penstock.runner.savepoints import compared

    state = _state_of(file, state_dir)
    before, after = (look(word, state)[0] for word in (first, second))
    found = plain(compared(before, after))
    if output is Format.json:
        print_json(found)
    else:
        print_diff(found)


def delete(savepoint: Named, file: File, state_dir: StateFolder = None, output: Output = Format.text) -> None:
    """Delete a savepoint of a pipeline."""
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        from penstock.cli import savepoint_on_server

        savepoint_on_server.delete(on_server, savepoint, output)
        return
    from penstock.runner.distant import discard_at

    state = _state_of(file, state_dir)
    assert state is not None
    name = discard_at(savepoint, state)
    if output is Format.json:
        print_json({"deleted": name})
    else:
        out.print(Text.assemble("deleted ", (name, "bold")))


def restore(
    savepoint: Named,
    file: File,
    fork: Annotated[
        bool, typer.Option("--fork", help="Begin there as a pipeline of its own, with sinks of its own.")
    ] = False,
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows", help="Sinks that cannot take rows back keep them, and get them again.")
    ] = False,
    state_dir: StateFolder = None,
    no_wait: NoWait = False,
    output: Output = Format.text,
) -> None:
    """Put a savepoint in place of the state of a pipeline that does not run; its next run goes on from there.

    The sinks go back with it: when the next run opens them, what they were given after the savepoint is taken back. If
    one of them cannot, the state is put back as it was. With --fork the state folder must be new, and sinks empty. A
    server stops the pipeline, lets it and its sinks go back, and starts it in the version that it had then.
    """
    on_server = pipeline_on_server(file, state_dir)
    if on_server is not None:
        if fork:
            advice = "Write `penstock savepoint fork SAVEPOINT NAME FILE`."
            raise PenstockError.of("USAGE", reason="on a server a fork takes a file of its own", advice=advice)
        from penstock.cli import savepoint_on_server

        savepoint_on_server.restore(on_server, savepoint, output, keep_rows=keep_rows, wait=not no_wait)
        return
    from penstock.frontends.load import load
    from penstock.runner.distant import restore_from
    from penstock.runner.loop import RunOptions, state_path

    loaded = load(file)
    state = state_path(loaded, RunOptions(state_dir=state_dir))
    with _told("reading files") as told:
        found, place = restore_from(loaded, state, savepoint, fork=fork, keep_rows=keep_rows, progress=told)
    if output is Format.json:
        print_json({**_as_json(found, place), "stateDir": str(state), "fork": fork})
        return
    name = loaded.pipeline.name
    out.print(Text.assemble((name, "bold"), f" goes on after batch {found.batch} with its next run"))


def fork(
    savepoint: Named,
    name: Annotated[str, typer.Argument(help="The pipeline on the server that the savepoint is of.")],
    file: Annotated[Path, typer.Argument(help="The new pipeline: another name, and sinks of its own.")],
    lose: Lose = None,
    target: Annotated[str | None, typer.Option("--target", help="The target it is to run on.")] = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Only make it; `start` lets it run.")] = False,
    no_wait: NoWait = False,
    output: Output = Format.text,
) -> None:
    """Let another pipeline of a server begin where a savepoint was, side by side with the one it is of."""
    from penstock.cli import savepoint_on_server
    from penstock.cli.files import collected

    (sent,) = collected([file])
    asked: dict[str, Any] = {"file": sent, "start": not no_start, "target": target, "lose": lose or []}
    savepoint_on_server.fork(name, savepoint, asked, output, wait=not no_wait)


# --- in words ------------------------------------------------------------------------------------------------


def _state_of(file: Path | None, state_dir: Path | None) -> Path | None:
    if file is None:
        return None if state_dir is None else state_dir.resolve()
    from penstock.frontends.load import load
    from penstock.runner.loop import RunOptions, state_path

    return state_path(load(file), RunOptions(state_dir=state_dir))


@contextmanager
def _told(what: str) -> Iterator[Told]:
    """A bar on a terminal, for what takes longer than a moment; nothing in a pipe."""
    from penstock.engine.savepoints.trees import quiet

    if not err.is_terminal:
        yield quiet
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None, start=True)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_json(savepoint: Savepoint, place: str) -> dict[str, Any]:
    from penstock.reports.codec import plain

    content = plain(savepoint)
    files = content.pop("files")
    return {**content, "files": len(files), "bytes": savepoint.bytes, "folder": place}


def _listed_json(found: Listed) -> dict[str, Any]:
    if found.savepoint is None:
        assert found.error is not None
        return {"name": found.name, "folder": found.place, "problem": found.error.problems[0].as_dict()}
    one = found.savepoint
    return {
        "name": one.name, "createdAt": one.created_at.isoformat(), "batch": one.batch,
        "watermark": time_of(one.watermark),
        "bytes": one.bytes, "stateBytes": one.state_bytes, "automatic": one.automatic, "note": one.note,
        "folder": found.place,
    }  # fmt: skip


def _listed(found: Sequence[Listed]) -> Table:
    return table_of([_listed_json(one) for one in found])


def table_of(found: Sequence[Mapping[str, Any]]) -> Table:
    """Savepoints as a list of them is told to programs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "taken", "batch", "watermark", "size", "state", "note"):
        table.add_column(column, justify="right" if column in ("batch", "size", "state") else "left")
    for one in found:
        if "problem" in one:
            table.add_row(one["name"], Text(one["problem"]["message"], "red"))
            continue
        sizes = (size(one["bytes"]), size(one["stateBytes"]))
        taken = dt.datetime.fromisoformat(one["createdAt"]).astimezone(dt.UTC)
        table.add_row(
            one["name"], f"{taken:%Y-%m-%d %H:%M:%SZ}", f"{one['batch']:,}", one["watermark"], *sizes, one["note"]
        )
    return table


def _print(saved: Savepoint, place: str) -> None:
    rows: dict[str, str] = {
        "savepoint": saved.name,
        "folder": place,
        "pipeline": saved.pipeline,
        "taken": f"{saved.created_at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%SZ}",
        "note": saved.note,
        "batch": f"{saved.batch:,}" + (", and one that was begun" if saved.unfinished else ""),
        "watermark": time_of(saved.watermark),
        "size": f"{size(saved.bytes)} in {counted(len(saved.files), 'file')}",
        "partitions": str(saved.partitions or ""),
        "made with": f"Penstock {saved.penstock}, Spark {saved.spark}",
    }
    rows |= {f"state of {name}": size(held) for name, held in saved.state_of().items()}
    rows |= {f"offset of {name}": str(offset) for name, offset in saved.offsets.items()}
    rows |= {f"rows {what}": _counts(found) for what, found in _totals(saved).items() if found}
    print_rows(rows)


def print_rows(rows: Mapping[str, str]) -> None:
    """What a savepoint holds, line by line; lines that say nothing are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    out.print(table)


def _totals(saved: Savepoint) -> dict[str, Mapping[str, int]]:
    totals = saved.totals
    return {"in": totals.rows_in, "dead": totals.rows_dead, "late": totals.late, "out": totals.rows_out}


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {rows:,}" for name, rows in found.items())


def print_diff(found: Mapping[str, Any]) -> None:
    """What differs, as it is told to programs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "before", "after"):
        table.add_column(column)
    table.add_row("batch", *_cells(found["batch"]))
    table.add_row("watermark", *(time_of(found["watermark"][side] or 0) for side in _SIDES))
    for name, offset in found["offsets"].items():
        table.add_row(f"offset of {name}", *_cells(offset))
    for name, sizes in found["state_bytes"].items():
        table.add_row(f"state of {name}", *("·" if sizes[side] is None else size(sizes[side]) for side in _SIDES))
    for what, by_name in found["totals"].items():
        for name, rows in by_name.items():
            table.add_row(f"{what.replace('_', ' ')} {name}", *_cells(rows))
    for name, version in found["versions"].items():
        table.add_row(name, *_cells(version))
    out.print(table)
    for item in found["spec"]:
        out.print(Text.assemble((item["path"], "bold"), f": {item['before']} → {item['after']} ({item['cost']})"))
    if not found["same_lineage"]:
        out.print(Text("they are of different pipelines, or of different starts of one", "yellow"))


_SIDES = ("before", "after")


def _cells(pair: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple("·" if one is None else f"{one:,}" if isinstance(one, int) else str(one)
                 for one in (pair[side] for side in _SIDES))  # fmt: skip


def time_of(millis: int) -> str:
    return "" if millis <= 0 else f"{dt.datetime.fromtimestamp(millis / 1000, dt.UTC):%Y-%m-%d %H:%M:%SZ}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
