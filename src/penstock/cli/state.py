"""`penstock state …`: what a pipeline remembers, step by step and key by key."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.output import counted, err, out, print_json, working
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.inspection.reading import Progress as Told
    from penstock.engine.inspection.writing import Kind
    from penstock.runner.state import Overview, Shown, Target

_ON_SCREEN = 100


class StateFormat(StrEnum):
    """How rows of state are written."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def register(app: typer.Typer) -> None:
    app.command("state")(state)


def state(
    target: Annotated[
        str,
        typer.Argument(
            help="A pipeline file, a state folder, a savepoint, or the name of a pipeline run here or by a server."
        ),
    ],
    step: Annotated[str | None, typer.Option("--step", help="Show what this step keeps. Default: all steps.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="VALUE", help="Only this key; once for each of its columns, in their order."),
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", help="Look at this savepoint of the pipeline: its name, folder or address."),
    ] = None,
    format: Annotated[
        StateFormat | None, typer.Option("--format", help="How to write. Default: what --out ends with, or a table.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The most rows. Default: 100 in a table, else all.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Write to this file.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
) -> None:
    """Show what a pipeline remembers: after its last committed batch, while it runs or not, or in a savepoint.

    Without --step: the steps that keep state, with rows, bytes and partitions. With --step: the rows of its state, as
    the step reads them. Nothing is changed, and a run that goes on does not wait.
    """
    from penstock.cli.client import name_of_a_server
    from penstock.runner.state import has_run_here, target_of

    kind = _kind(format, to, step)
    if key and step is None:
        raise PenstockError.of("USAGE", reason="--key goes with --step", advice="Add --step NAME.")
    name = name_of_a_server(Path(target))
    if name is not None and state_dir is None and not has_run_here(name) and os.environ.get("PENSTOCK_TOKEN"):
        from penstock.cli.state_on_server import ask

        ask(name, step, key, savepoint, kind, limit or _ON_SCREEN, to)
        return
    found = target_of(target, state_dir, savepoint)
    if step is None:
        _show_overview(found, kind)
    elif kind == "table":
        _show_rows(found, step, key, limit or _ON_SCREEN)
    else:
        _write_rows(found, step, key, limit, kind, to)


def _kind(format: StateFormat | None, to: Path | None, step: str | None) -> Kind | str:
    """How to write; raises USAGE for what cannot be."""
    ending = to.suffix.lstrip(".").lower() if to is not None else ""
    known = {"jsonl": "json", "ndjson": "json"}.get(ending, ending)
    found = format.value if format is not None else known if known in ("json", "csv", "parquet") else None
    if to is not None and found in (None, "table"):
        reason = f"it is not known how to write {to}"
        raise PenstockError.of("USAGE", reason=reason, advice="Add --format json, csv or parquet.")
    if found == "parquet" and to is None:
        raise PenstockError.of("USAGE", reason="Parquet is written to a file", advice="Add --out FILE.")
    if step is None and (found in ("csv", "parquet") or to is not None):
        raise PenstockError.of("USAGE", reason="only the rows of a step can be exported", advice="Add --step NAME.")
    return found or "table"


def _show_overview(target: Target, kind: str) -> None:
    from penstock.runner.state import overview

    with working("reading state"), _told("steps") as told:
        found = overview(target, told)
    if kind == "json":
        print_json(_as_json(found))
        return
    out.print(heading(found.pipeline, found.batch, found.watermark_ms))
    out.print(steps_table((one.step, one.rows, one.bytes, found.partitions, one.kind) for one in found.steps))


def steps_table(steps: Iterable[tuple[str, int, int, int, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("step", "rows", "bytes", "partitions", "kept by"):
        table.add_column(column, justify="right" if column in ("rows", "bytes", "partitions") else "left")
    for step, rows, size, partitions, kind in steps:
        table.add_row(step, f"{rows:,}", f"{size:,}", str(partitions), kind)
    return table


def _as_json(found: Overview) -> dict[str, object]:
    steps = [
        {"step": one.step, "rows": one.rows, "bytes": one.bytes, "partitions": found.partitions, "keptBy": one.kind}
        for one in found.steps
    ]
    watermark = _time(found.watermark_ms) or None
    return {"pipeline": found.pipeline, "batch": found.batch, "watermark": watermark, "steps": steps}


def _show_rows(target: Target, step: str, key: list[str] | None, limit: int) -> None:
    from penstock.runner.state import shown

    with working("reading state"), _told("partitions") as told, shown(target, step, key, limit + 1, told) as found:
        rows = [row for table in found.tables for row in table.to_pylist()]
        batch, watermark, names = found.batch, found.watermark_ms, found.schema.names
    out.print(heading(step, batch, watermark))
    print_rows(names, rows[:limit], key)
    if len(rows) > limit:
        err.print(Text(f"only the first {limit:,} rows; --limit shows more, --out FILE exports them", "yellow"))


def print_rows(names: Sequence[str], rows: Sequence[Mapping[str, Any]], key: list[str] | None) -> None:
    from penstock.engine.inspection.writing import as_text

    if not rows:
        out.print(Text("nothing is kept" if key is None else "nothing is kept for that key", "dim"))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*(Text("·", "dim") if row[name] is None else Text(as_text(row[name])) for name in names))
    out.print(table)


def _write_rows(
    target: Target, step: str, key: list[str] | None, limit: int | None, kind: Kind | str, to: Path | None
) -> None:
    from penstock.engine.inspection.writing import to_text
    from penstock.runner.state import shown

    assert kind in ("json", "csv", "parquet")
    with _told("partitions") as told, shown(target, step, key, limit, told) as found:
        if to is None:
            assert kind != "parquet"
            writer = to_text(sys.stdout, kind, found.schema)
            for table in found.tables:
                writer.write(table)
            return
        rows = _exported(found, kind, to)
    said = f"{counted(rows, 'row')} of '{step}' after batch {found.batch:,}: {to}"
    err.print(Text(said))


def _exported(found: Shown, kind: Kind, to: Path) -> int:
    from penstock.engine.inspection.writing import written_to
    from penstock.engine.statedir import storage_error

    rows = 0
    try:
        with written_to(to, kind, found.schema) as writer:
            for table in found.tables:
                writer.write(table)
                rows += table.num_rows
    except OSError as error:
        raise storage_error(error, to) from error
    return rows


def heading(what: str, batch: int, watermark_ms: int) -> Text:
    until = f", settled up to {_time(watermark_ms)}" if watermark_ms > 0 else ""
    return Text.assemble((what, "bold"), f" after batch {batch:,}{until}")


def _time(millis: int) -> str:
    return "" if millis <= 0 else dt.datetime.fromtimestamp(millis / 1000, dt.UTC).isoformat().replace("+00:00", "Z")


@contextmanager
def _told(what: str) -> Iterator[Told]:
    """A bar on a terminal, nothing in a pipe."""
    from penstock.engine.inspection.reading import quiet

    if not err.is_terminal:
        yield quiet
        return
    with Progress(TextColumn(what), BarColumn(), MofNCompleteColumn(), console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
