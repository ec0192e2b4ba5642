"""`penstock ledger FILE|NAME`: what became of every row, batch by batch."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.output import Format, out, print_json, working
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.components.shared.checksum import Content
    from penstock.runner.audit import Audited
    from penstock.spec.location import PipelineFile

_COLOURS = {"sealed": "green", "open": "yellow", "unbalanced": "bold red"}
_COLUMNS = ("in", "dead", "filtered", "late", "corrections", "replayed", "out")


def register(app: typer.Typer) -> None:
    app.command("ledger")(ledger)


def ledger(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")],
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many batches to show, the newest ones.")] = 20,
    windows: Annotated[
        bool, typer.Option("--windows", help="By windows of event time instead of batches; needs `ledger.window`.")
    ] = False,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Read the sinks and compare them with the ledger; needs `ledger.checksum`."),
    ] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Show what became of the rows of each batch, and whether the counts add up.

    A batch is sealed when it is committed and its counts add up, and open while it may be run again. A window of event
    time is sealed when the watermark has passed its end. The command ends with 1 if anything is unbalanced.
    """
    from penstock.cli.client import name_of_a_server

    name = name_of_a_server(file)
    if name is not None:
        if audit or state_dir is not None:
            reason = "--audit and --state-dir go with a pipeline file"
            raise PenstockError.of("USAGE", reason=reason, advice="Run it where the state is.")
        _ask(name, last, output, windows=windows)
        return
    from penstock.frontends.load import load
    from penstock.runner.ledger import account_as_json, read_ledger, read_windows, windows_as_json
    from penstock.runner.loop import RunOptions, state_path

    loaded = load(file)
    state = state_path(loaded, RunOptions(state_dir=state_dir))
    if audit:
        _audit(loaded, state, output)
    elif windows:
        found = windows_as_json(read_windows(loaded, state))
        _show_windows(found[-last:], output)
        _end(found)
    else:
        account = account_as_json(read_ledger(loaded, state), sys.maxsize)
        _show({**account, "batches": account["batches"][-last:]}, account["batches"], output)
        _end([account])


def _ask(name: str, last: int, output: Format, *, windows: bool) -> None:
    from penstock.cli.client import connected, part

    if windows:
        found = connected().get(f"/pipelines/{part(name)}/ledger/windows", last=last)["items"]
        _show_windows(found, output)
        _end(found)
    else:
        account = connected().get(f"/pipelines/{part(name)}/ledger", last=last)
        _show(account, account["batches"], output)
        _end([account])


def _end(judged: Sequence[Mapping[str, Any]]) -> None:
    if any(item["verdict"] == "unbalanced" for item in judged):
        raise typer.Exit(1)


def _show(account: Mapping[str, Any], judged: Sequence[Mapping[str, Any]], output: Format) -> None:
    """The account, and what does not add up in any of the batches that were judged."""
    if output is Format.json:
        print_json(account)
        return
    if not account["batches"]:
        out.print(Text("no batch has been run yet", "dim"))
        return
    rows = [(str(batch["batch"]), batch, str(batch["verdict"])) for batch in account["batches"]]
    out.print(_table("batch", [*rows, ("all", account["totals"], str(account["verdict"]))]))
    for batch in judged:
        for problem in batch["problems"]:
            out.print(Text(f"batch {batch['batch']}: {problem}", "red"))


def _audit(file: PipelineFile, state: Path, output: Format) -> None:
    from penstock.engine.jars import sets_for
    from penstock.engine.session import Session, SessionOptions
    from penstock.runner.audit import audit as compare
    from penstock.spec.resolve import secret_values

    sessions: list[Session] = []

    def spark() -> SparkSession:
        if not sessions:
            options = SessionOptions(
                jars=sets_for(file.pipeline, audited=True),
                hidden=secret_values(file.pipeline),
                log=state / "logs" / "audit.log",
            )
            sessions.append(Session(options))
        return sessions[0].spark

    try:
        with working("reading the sinks"):
            found = compare(file, state, spark)
    finally:
        for session in sessions:
            session.stop()
    if output is Format.json:
        print_json([asdict(item) for item in found])
    else:
        _print_audit(found)
    if any(item.verdict == "differs" for item in found):
        raise typer.Exit(1)


def _print_audit(found: Sequence[Audited]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("sink", "rows written", "rows held", "checksum written", "checksum held", ""):
        table.add_column(column, justify="left" if column in ("sink", "") else "right")
    for item in found:
        cells = [
            "·" if content is None else f"{value(content):,}"
            for value in (_rows_of, _checksum_of)
            for content in (item.written, item.held)
        ]
        colour = {"equal": "green", "differs": "bold red", "not compared": "yellow"}[item.verdict]
        why = f": {item.reason}" if item.reason else ""
        table.add_row(item.sink, *cells, Text(f"{item.verdict}{why}", colour))
    out.print(table)


def _rows_of(content: Content) -> int:
    return content.rows


def _checksum_of(content: Content) -> int:
    return content.checksum


def _show_windows(found: Sequence[Mapping[str, Any]], output: Format) -> None:
    if output is Format.json:
        print_json(found)
    elif not found:
        out.print(Text("no row has been counted by event time yet", "dim"))
    else:
        starts = (dt.datetime.fromisoformat(window["start"]) for window in found)
        rows = [
            (f"{start:%Y-%m-%d %H:%M:%SZ}", window, str(window["verdict"]))
            for start, window in zip(starts, found, strict=True)
        ]
        out.print(_table("window", rows))


def _table(title: str, rows: Sequence[tuple[str, Mapping[str, Any], str]]) -> Table:
    """What became of rows, line by line; columns that say nothing are left out."""
    used = [name for name in _COLUMNS if any(any(counts[name].values()) for _, counts, _ in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, justify="right", no_wrap=True)
    for column in (*used, ""):
        table.add_column(column, no_wrap=True)
    for name, counts, verdict in rows:
        table.add_row(name, *(_cell(counts[column]) for column in used), _verdict(verdict))
    return table


def _verdict(verdict: str) -> Text:
    return Text(verdict, _COLOURS[verdict])


def _cell(counts: Mapping[str, int]) -> str:
    """Counts by name; a dot for none, so that the others stand out."""
    shown = [f"{name} {rows:,}" for name, rows in counts.items() if rows]
    return "\n".join(shown) or "·"
