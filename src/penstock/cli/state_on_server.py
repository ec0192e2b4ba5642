"""`penstock state NAME`: what the steps of a pipeline that a server runs remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from penstock.cli.client import connected, part
from penstock.cli.output import err, out, print_json, working
from penstock.cli.state import heading, print_rows, steps_table
from penstock.errors import PenstockError


def ask(
    name: str, step: str | None, key: list[str] | None, savepoint: str | None, kind: str, limit: int, to: Path | None
) -> None:
    if to is not None or kind in ("csv", "parquet"):
        reason = "a server shows state, and exports none of it"
        advice = "Run it on the machine of the server, with its state folder."
        raise PenstockError.of("USAGE", reason=reason, advice=advice)
    path = f"/pipelines/{part(name)}/state"
    if step is None:
        with working("reading state"):
            found = connected().get(path, savepoint=savepoint)
        _show(name, found, kind)
        return
    with working("reading state"):
        asked = {"savepoint": savepoint, "key": key, "limit": limit}
        found = connected().get(f"{path}/{part(step)}", **asked)
    if kind == "json":
        print_json(found["rows"])
        return
    out.print(heading(step, found["batch"], found["watermark"] or 0))
    print_rows(found["columns"], found["rows"], key)
    if not found["whole"]:
        err.print(Text(f"only the first {limit:,} rows; --limit shows more", "yellow"))


def _show(name: str, found: dict[str, Any], kind: str) -> None:
    if kind == "json":
        print_json({"pipeline": name, **found})
        return
    out.print(heading(name, found["batch"], found["watermark"] or 0))
    partitions = found["partitions"]
    out.print(
        steps_table((one["step"], one["rows"], one["bytes"], partitions, one["keptBy"]) for one in found["steps"])
    )
