"""`penstock replay late|dead FILE|NAME`: feeds rows that were set aside to the pipeline again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from penstock.cli.output import Format, counted, out, print_json
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.runner.replay import ReplayResult


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(help="Feed rows that were set aside to the pipeline again.", no_args_is_help=True)
    verbs.command("late")(late)
    verbs.command("dead")(dead)
    app.add_typer(verbs, name="replay")


def late(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")],
    step: Annotated[str | None, typer.Option("--step", help="Only the late rows of this step.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Feed late rows that were set aside (`late: side`) to their steps again, each once.

    The windows they missed are opened again, and their corrected rows replace the earlier ones in sinks with a key.
    A pipeline that is running takes them in at once, otherwise its next run does.
    """
    result = _replayed("late", file, state_dir, step, dry_run=dry_run)
    if output is Format.json:
        steps = [{"step": item.step, "rows": item.rows, "tooOld": item.too_old} for item in result.steps]
        print_json({"running": result.running, "dryRun": dry_run, "steps": steps})
        return
    for item in result.steps:
        done = "would be fed again" if dry_run else "fed again"
        line = Text.assemble((item.step, "bold"), f": {counted(item.rows, 'late row')} {done}")
        if item.too_old:
            line.append(f", {item.too_old:,} too old to correct anything", "yellow")
        out.print(line)
    if any(item.rows for item in result.steps) and not dry_run:
        out.print(Text("the running pipeline takes them in" if result.running else "the next run takes them in", "dim"))


def dead(
    file: Annotated[Path, typer.Argument(help="The pipeline: a .yaml, .sql or .py file, or its name on the server.")],
    node: Annotated[str | None, typer.Option("--node", help="Only those of this source, step or sink.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where state is kept. Default: .penstock/NAME beside the file.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.text,
) -> None:
    """Feed dead letters back to the sources, steps and sinks that set them aside, each once.

    Mend first what was wrong: the pipeline, a table, a rule. A row that still cannot be used becomes a dead letter
    again. Columns that a source takes from elsewhere than the row itself, such as the key of a message, are null.
    """
    result = _replayed("dead", file, state_dir, node, dry_run=dry_run)
    if output is Format.json:
        nodes = [{"node": item.step, "rows": item.rows} for item in result.steps]
        print_json({"running": result.running, "dryRun": dry_run, "nodes": nodes})
        return
    for item in result.steps:
        done = "would be fed back" if dry_run else "fed back"
        out.print(Text.assemble((item.step, "bold"), f": {counted(item.rows, 'dead letter')} {done}"))
    if not any(item.rows for item in result.steps):
        out.print(Text("there are no dead letters to feed back", "dim"))
    elif not dry_run:
        out.print(Text("the running pipeline takes them in" if result.running else "the next run takes them in", "dim"))


def _replayed(
    what: Literal["dead", "late"], file: Path, state_dir: Path | None, node: str | None, *, dry_run: bool
) -> ReplayResult:
    """What was done, here or by the server if the pipeline is one of its."""
    from penstock.cli.client import name_of_a_server
    from penstock.frontends.load import load
    from penstock.runner.loop import RunOptions, state_path
    from penstock.runner.replay import replay_dead, replay_late

    name = name_of_a_server(file)
    if name is not None:
        if state_dir is not None:
            raise PenstockError.of("USAGE", reason="--state-dir goes with a pipeline file", advice="Leave it out.")
        return _asked(name, {"what": what, "node": node, "dryRun": dry_run})
    loaded = load(file)
    replay = replay_dead if what == "dead" else replay_late
    return replay(loaded, state_path(loaded, RunOptions(state_dir=state_dir)), node, dry_run=dry_run)


def _asked(name: str, body: Mapping[str, Any]) -> ReplayResult:
    from penstock.cli.client import connected, part
    from penstock.runner.replay import Replayed, ReplayResult

    found = connected().post(f"/pipelines/{part(name)}/replay", body)
    nodes = tuple(Replayed(item["node"], item["rows"], item["tooOld"]) for item in found["nodes"])
    return ReplayResult(nodes, found["running"])
