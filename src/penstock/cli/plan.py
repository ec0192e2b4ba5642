"""`penstock plan -f DIR|FILE`: what `apply` would do. `penstock plan NEW --against OLD`: what a change costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.changes import COSTS, print_changes
from penstock.cli.listing import Shape, print_value
from penstock.cli.operation import pipeline_on_server
from penstock.cli.output import counted, out, print_problems, working
from penstock.errors import PenstockError

_FILES = typer.Option("--file", "-f", metavar="DIR|FILE", help="Pipeline files, or folders; may be repeated.")
Files = Annotated[list[Path], _FILES]
Prune = Annotated[bool, typer.Option("--prune", help="Delete pipelines that are not among the files.")]
Selector = Annotated[
    list[str] | None,
    typer.Option("--selector", "-l", metavar="KEY=VALUE", help="Prune only those with it; may be repeated."),
]
Start = Annotated[
    bool | None,
    typer.Option("--start/--no-start", help="Whether they are to run. Default: new ones are, others stay as they are."),
]
Target = Annotated[str | None, typer.Option("--target", help="The target they are to run on.")]

_SIGNS = {
    "create": ("+", "green"),
    "upgrade": ("~", "yellow"),
    "start": (">", "cyan"),
    "stop": ("#", "blue"),
    "delete": ("-", "red"),
    "unchanged": ("=", "dim"),
}
_DONE = {"create": "created", "upgrade": "upgraded", "start": "started", "stop": "stopped", "delete": "deleted"}


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    new: Annotated[
        Path | None, typer.Argument(metavar="[NEW]", help="With --against: the new version of a pipeline.")
    ] = None,
    file: Annotated[list[Path] | None, _FILES] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="FILE|SAVEPOINT|NAME",
            help="The pipeline as it is: its file, a savepoint, or its name on the server.",
        ),
    ] = None,
    savepoint: Annotated[
        str | None, typer.Option("--savepoint", help="With --against NAME: go on from this savepoint of it.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="With --against FILE: where its state is kept.")
    ] = None,
    prune: Prune = False,
    selector: Selector = None,
    start: Start = None,
    target: Target = None,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """Show what `apply` with the same options would change, and what it costs each pipeline.

    With --against it shows what it takes to go on with the new version of a pipeline, and the state that the old one
    has; no server is asked, unless the pipeline is one of its.
    """
    if (new is None) != (against is None) or (against is not None and file) or (against is None and not file):
        advice = "Write `penstock plan NEW --against FILE|SAVEPOINT|NAME`, or `penstock plan -f FILE` for a server."
        raise PenstockError.of("USAGE", reason="it takes a file and --against, or files with -f", advice=advice)
    if new is not None and against is not None:
        from penstock.cli.plan_locally import is_savepoint, plan_against

        # A word may be a savepoint of the file or a pipeline of a server; without a token no server is meant.
        local = not os.environ.get("PENSTOCK_TOKEN") or is_savepoint(new, against, state_dir)
        name = None if local else pipeline_on_server(Path(against), state_dir)
        if name is not None:
            _plan_on_server(new, name, savepoint, output)
            return
        plan_against(new, against, state_dir, output)
        return
    assert file is not None
    from penstock.cli.client import connected
    from penstock.cli.files import request

    asked = request(file, prune=prune, selector=selector, start=start, target=target)
    with working("planning"):
        found = connected().post("/plan", asked)
    if output is not Shape.table:
        print_value(found, output)
        return
    print_plan(found)


def _plan_on_server(new: Path, name: str, savepoint: str | None, output: Shape) -> None:
    from penstock.cli.client import connected, part
    from penstock.cli.files import collected

    (sent,) = collected([new])
    with working("planning"):
        found = connected().post(f"/pipelines/{part(name)}/plan", {"file": sent, "savepoint": savepoint})
    if output is not Shape.table:
        print_value(found, output)
    else:
        print_plan(found)


def print_plan(found: Mapping[str, Any]) -> None:
    from penstock.cli.client import told

    width = max((len(step["name"]) for step in found["steps"]), default=0)
    for step in found["steps"]:
        sign, colour = _SIGNS[step["action"]]
        line = Text.assemble((f"{sign} {step['action']:<9} ", colour), (f"{step['name']:<{width}}", "bold"))
        line.append(f"  {step['reason']}", "dim" if step["action"] == "unchanged" else "")
        if step["action"] == "upgrade":
            out.print(line)
            print_changes(step, "    ")
            if step["loses"]:
                words = " ".join(f"--lose {name}" for name in step["loses"])
                out.print(Text(f"    it is done only with {words}", "red"))
        else:
            if step["cost"] != "nothing":
                line.append(", costs: ").append(step["cost"], COSTS[step["cost"]])
            out.print(line)
        print_problems(map(told, step["warnings"]))
    out.print(Text(summary(found, _WILL), "bold"))


_WILL = {name: f"to {name}" for name in _DONE}


def summary(found: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """How many pipelines of each action."""
    counts = Counter(step["action"] for step in found["steps"])
    parts = [f"{counts[action]} {word}" for action, word in words.items() if counts[action]]
    if not parts:
        return f"nothing to change in {counted(counts['unchanged'], 'pipeline')}"
    return ", ".join([*parts, *([f"{counts['unchanged']} unchanged"] if counts["unchanged"] else [])])


def done(found: Mapping[str, Any]) -> str:
    return summary(found, _DONE)
