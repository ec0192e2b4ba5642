"""`penstock plan -f DIR|FILE`: what `apply` would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.listing import Shape, print_value
from penstock.cli.output import counted, out, print_problems, working

Files = Annotated[
    list[Path], typer.Option("--file", "-f", metavar="DIR|FILE", help="Pipeline files, or folders; may be repeated.")
]
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
_LONGEST = 60


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    file: Files,
    prune: Prune = False,
    selector: Selector = None,
    start: Start = None,
    target: Target = None,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """Show what `apply` with the same options would change, and what it costs each pipeline."""
    from penstock.cli.client import connected
    from penstock.cli.files import request

    asked = request(file, prune=prune, selector=selector, start=start, target=target)
    with working("planning"):
        found = connected().post("/plan", asked)
    if output is not Shape.table:
        print_value(found, output)
        return
    print_plan(found)


def print_plan(found: Mapping[str, Any]) -> None:
    from penstock.cli.client import told

    width = max((len(step["name"]) for step in found["steps"]), default=0)
    for step in found["steps"]:
        sign, colour = _SIGNS[step["action"]]
        cost = f", costs: {step['cost']}" if step["cost"] != "nothing" else ""
        line = Text.assemble((f"{sign} {step['action']:<9} ", colour), (f"{step['name']:<{width}}", "bold"))
        out.print(line.append(f"  {step['reason']}{cost}", "dim" if step["action"] == "unchanged" else ""))
        for change in step["changes"]:
            before, after = _value(change["before"]), _value(change["after"])
            out.print(Text.assemble(f"    {change['path']}: ", (before, "red"), " → ", (after, "green")))
        print_problems(map(told, step["warnings"]))
    out.print(Text(summary(found, _WILL), "bold"))


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


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
