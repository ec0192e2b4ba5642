"""`penstock get`: the pipelines of a server, and how they are."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.listing import Shape, behind, print_table, print_value, state_text, table_of, utc_now
from penstock.cli.outage import Outage
from penstock.cli.output import out
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.client import Client

COLUMNS = ("name", "state", "desired", "generation", "watermark", "rows in", "rows out")
NARROW = ("name", "state", "desired", "gen", "watermark", "rows in", "rows out")
"""The same where a line should fit into 80 columns."""
_EVERY = 1.0
_MILLION = 1_000_000

Labels = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only those with it; may be repeated.")
]


def register(app: typer.Typer) -> None:
    app.command("get")(get)


def get(
    names: Annotated[list[str] | None, typer.Argument(help="Pipelines; all if none is named.")] = None,
    label: Labels = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing them until Ctrl-C.")] = False,
    output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table,
) -> None:
    """List pipelines with their state, what is desired, their watermark and their rows."""
    from penstock.cli.client import connected

    client = connected()
    if watch and output is Shape.table:
        follow(client, names, label)
        return
    found = pipelines(client, names, label)
    if output is not Shape.table:
        print_value(found, output)
    elif found:
        print_table(NARROW if out.is_terminal else COLUMNS, rows_of(found, utc_now(), narrow=out.is_terminal))
    else:
        out.print(Text("there are no pipelines", "dim"))


def pipelines(client: Client, names: Sequence[str] | None, labels: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Those that are named, or all; raises PIPELINE_UNKNOWN."""
    from penstock.cli.client import part

    if names:
        return [client.get(f"/pipelines/{part(name)}") for name in names]
    return list(client.pages("/pipelines", label=labels))


def rows_of(found: Sequence[dict[str, Any]], now: dt.datetime, *, narrow: bool) -> list[list[str | Text]]:
    """A line for each; people at a terminal do not read the last digits of millions."""
    return [
        [
            Text(each["name"], "bold"),
            state_text(each["state"]),
            "deleted" if each["deleting"] else each["desired"],
            _generation(each),
            behind(each["watermark"], now),
            _count(each["rowsIn"], narrow),
            _count(each["rowsOut"], narrow),
        ]
        for each in found
    ]


def _count(rows: int, narrow: bool) -> str:
    return f"{rows / _MILLION:,.1f} M" if narrow and rows >= 100 * _MILLION else f"{rows:,}"


def _generation(each: dict[str, Any]) -> str:
    """The generation, and what the server has seen to if that is another one."""
    seen = each["observedGeneration"]
    return str(each["generation"]) if seen == each["generation"] else f"{seen} → {each['generation']}"


def follow(client: Client, names: Sequence[str] | None, labels: Sequence[str] | None = None) -> None:
    """Shows them until someone ends it: in place on a terminal, in a pipe one line for each change of a state."""
    if not out.is_terminal:
        _print_changes(client, names, labels)
        return
    # Texts wrap softly on the usual console; a table has to know where the screen ends.
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        picture: Table | Text = Text()

        def note(text: str) -> None:
            live.update(Group(picture, Text(text, "yellow")), refresh=True)

        for found in _looks(client, names, labels, Outage(note)):
            picture = _picture(found)
            live.update(picture, refresh=True)


def _looks(
    client: Client, names: Sequence[str] | None, labels: Sequence[str] | None, outage: Outage
) -> Iterator[list[dict[str, Any]]]:
    """The pipelines every second, for as long as it is wanted; once they were seen, the server may go and come back."""
    yield pipelines(client, names, labels)
    while True:
        time.sleep(_EVERY)
        try:
            found = pipelines(client, names, labels)
        except PenstockError as error:
            outage.wait(error)
            continue
        outage.over()
        yield found


def _picture(found: Sequence[dict[str, Any]]) -> Table | Text:
    if not found:
        return Text("there are no pipelines", "dim")
    return table_of(NARROW, rows_of(found, utc_now(), narrow=True))


def _print_changes(client: Client, names: Sequence[str] | None, labels: Sequence[str] | None) -> None:
    before: dict[str, str] = {}
    for found in _looks(client, names, labels, Outage()):
        now = utc_now()
        for each in found:
            if before.get(each["name"]) != each["state"]:
                before[each["name"]] = each["state"]
                print(f"{now:%H:%M:%SZ} {each['name']} {each['state']} {each['reason']}", flush=True)
