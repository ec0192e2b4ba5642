"""What a change of a pipeline costs and consists of, in colour: the same for files and for a server's pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from penstock.cli.output import out

COSTS = {"nothing": "dim", "restart": "green", "rescale": "cyan", "bootstrap": "yellow", "loses state": "red"}
_LONGEST = 60


def print_changes(found: Mapping[str, Any], indent: str = "") -> None:
    """The changes of one pipeline, how rows flow, what it costs and what is done."""
    for change in found["changes"]:
        _print_change(change, indent)
    for line in found["flow"]:
        out.print(Text(f"{indent}{line}", {"+": "green", "-": "red"}.get(line[0], "dim")))
    steps = " → ".join(found["stages"]) or "nothing to do"
    out.print(Text.assemble(f"{indent}costs: ", (found["cost"], COSTS[found["cost"]]), f"; {steps}"))


def _print_change(change: Mapping[str, Any], indent: str) -> None:
    colour = COSTS[change["cost"]]
    sign = "+" if change["before"] is None else "-" if change["after"] is None else "~"
    line = Text.assemble(indent, (f"{sign} ", colour), (change["path"], "bold"))
    if change["before"] is not None:
        line.append(f"  {_value(change['before'])}", "red")
    if change["after"] is not None:
        line.append(" → " if change["before"] is not None else "  ").append(_value(change["after"]), "green")
    out.print(line)
    out.print(Text.assemble(f"{indent}    {change['cost']}", (f": {change['reason']}", "dim"), style=colour))


def _value(value: Any) -> str:
    """As a pipeline file would say it."""
    if isinstance(value, Mapping):
        text = f"{{{', '.join(f'{name}: {inner}' for name, inner in value.items())}}}"
    elif isinstance(value, list):
        text = f"[{', '.join(map(str, value))}]"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
