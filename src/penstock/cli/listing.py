"""How lists of the server are shown: a table on a terminal, plain columns in a pipe, JSON or YAML for programs."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.cli.output import out, print_json

STATE_COLOURS = {
    "RUNNING": "green",
    "IDLE": "green",
    "CATCHING_UP": "cyan",
    "STARTING": "cyan",
    "STOPPING": "yellow",
    "BACKING_OFF": "yellow",
    "DEGRADED": "yellow",
    "STALLED": "bold red",
    "FAILED": "bold red",
    "STOPPED": "blue",
    "SAVING": "magenta",
    "RESTORING": "magenta",
    "RESCALING": "magenta",
    "UPGRADING": "magenta",
}
NUMBERS = ("generation", "gen", "rows in", "rows out", "version", "batch", "epoch", "attempts")
_LEAST = 14
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Shape(StrEnum):
    table = "table"
    json = "json"
    yaml = "yaml"


def print_value(value: Any, shape: Shape) -> None:
    """For programs; a table is not for them."""
    if shape is Shape.json:
        print_json(value)
    else:
        from ruamel.yaml import YAML

        writer = YAML()
        writer.default_flow_style = False
        writer.width = 1_000_000
        writer.dump(value, sys.stdout)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], last_wraps: bool = False) -> None:
    """On a terminal as wide as it is; in a pipe every cell is whole, so that other commands can read it."""
    if out.is_terminal:
        # The console wraps softly for texts; a table has to know where the screen ends.
        out.print(table_of(columns, rows, last_wraps), soft_wrap=False)
        return
    lines = [[column.upper() for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        print("  ".join(_aligned(columns[at], cell, widths[at]) for at, cell in enumerate(line)).rstrip())


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], last_wraps: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, column in enumerate(columns):
        wraps = at == 0 or (last_wraps and at == len(columns) - 1)
        table.add_column(
            column,
            justify="right" if column in NUMBERS else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
            # The last column of a list of sentences takes what is left; a name is never pressed to nothing.
            min_width=_LEAST if wraps else None,
        )
    for row in rows:
        table.add_row(*row)
    return table


def _aligned(column: str, cell: str, width: int) -> str:
    return cell.rjust(width) if column in NUMBERS else cell.ljust(width)


def state_text(state: str) -> Text:
    return Text(state, STATE_COLOURS.get(state, ""))


def moment(text: str | None) -> dt.datetime | None:
    """A time as the server writes it."""
    return None if text is None else dt.datetime.fromisoformat(text)


def clock(text: str | None) -> str:
    """A time to the second, in UTC."""
    found = moment(text)
    return "" if found is None else f"{found.astimezone(dt.UTC):%Y-%m-%d %H:%M:%SZ}"


def ago(text: str | None, now: dt.datetime) -> str:
    found = moment(text)
    return "" if found is None else f"{span((now - found).total_seconds())} ago"


def behind(watermark: int | None, now: dt.datetime) -> str:
    """How far the watermark is behind the clock."""
    if not watermark:
        return "·"
    seconds = now.timestamp() - watermark / 1000
    # Who is a day behind does not ask for the hours.
    return f"{seconds // 86_400:,.0f} d ago" if seconds >= 86_400 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A length of time in its largest unit or two: 12 s, 4 min, 3 h 2 min."""
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts) or "0 s"


def labelled(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
