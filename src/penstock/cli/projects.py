"""`penstock projects`: the projects of a server, and what they use of their quotas."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.cli.listing import Shape, labelled, print_table, print_value
from penstock.spec.units import Size

COLUMNS = ("project", "labels", "pipelines", "cores", "memory", "disk", "targets")


def register(app: typer.Typer) -> None:
    app.command("projects")(projects)


def projects(output: Annotated[Shape, typer.Option("--output", "-o", help="How to print.")] = Shape.table) -> None:
    """List the projects of the server that you may see, with what they use of their quotas."""
    from penstock.cli.client import connected

    found: list[dict[str, Any]] = connected().get("/projects")
    if output is Shape.table:
        print_table(COLUMNS, rows_of(found))
    else:
        print_value(found, output)


def rows_of(found: list[dict[str, Any]]) -> list[list[str | Text]]:
    return [
        [
            Text(each["name"], "bold"),
            labelled(each["labels"]),
            _of(each["pipelines"]),
            _of(each["cores"]),
            _of(each["memory"], sizes=True),
            _of(each["disk"], sizes=True),
            ", ".join(each["targets"]),
        ]
        for each in found
    ]


def _of(quota: dict[str, int | None], *, sizes: bool = False) -> str:
    """What is used, and of how much."""
    used, limit = (
        None if each is None else _shown(each) if sizes else f"{each:,}" for each in (quota["used"], quota["limit"])
    )
    return (used or "?") if limit is None else f"{used or '?'} of {limit}"


def _shown(size: int) -> str:
    unit = next((unit for unit in (1024**4, 1024**3, 1024**2, 1024) if size >= unit), 1)
    return str(Size(size // unit * unit))
