"""`penstock savepoint … NAME`: the savepoints of a pipeline that a server runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from rich.text import Text

from penstock.cli.client import connected, part
from penstock.cli.operation import awaited
from penstock.cli.output import Format, counted, out, print_json, print_problems
from penstock.cli.savepoint import print_diff, print_rows, size, table_of, time_of
from penstock.errors import Problem


def create(pipeline: str, name: str | None, note: str, output: Format, *, wait: bool) -> None:
    client = connected()
    asked = client.post(f"/pipelines/{part(pipeline)}/savepoints", {"name": name, "note": note})
    done = awaited(client, asked, wait=wait)
    if output is Format.json:
        print_json(done)
    elif done["state"] != "done":
        out.print(f"a savepoint of {pipeline} was asked for ({done['id']})")
    else:
        taken = client.get(_path(pipeline, done["result"]["savepoint"]))
        out.print(Text.assemble("savepoint ", (taken["name"], "bold"), f" after batch {taken['batch']}"))


def list_(pipeline: str, output: Format) -> None:
    found = [*connected().pages(f"/pipelines/{part(pipeline)}/savepoints")][::-1]
    if output is Format.json:
        print_json(found)
    elif not found:
        out.print(Text("there are no savepoints", "dim"))
    else:
        out.print(table_of([_listed(one) for one in found]))


def show(pipeline: str, savepoint: str, output: Format) -> None:
    found = connected().get(_path(pipeline, savepoint))
    if output is Format.json:
        print_json(found)
    else:
        print_rows(_rows(found))


def verify(pipeline: str, savepoint: str, output: Format) -> None:
    client = connected()
    found = awaited(client, client.post(f"{_path(pipeline, savepoint)}/verify"))["result"]
    if output is Format.json:
        print_json({"name": savepoint, **found})
    elif not found["damages"]:
        out.print(Text(f"{counted(found['files'], 'file')}, {size(found['bytes'])}: all as they were", "green"))
    else:
        print_problems(Problem("SAVEPOINT_DAMAGED", {"path": savepoint, **damage}) for damage in found["damages"])
    if found["damages"]:
        raise typer.Exit(1)


def diff(pipeline: str, first: str, second: str, output: Format) -> None:
    found = connected().get(f"{_path(pipeline, first)}/diff", against=second)
    if output is Format.json:
        print_json(found)
        return
    print_diff({**found, "state_bytes": found["stateBytes"], "same_lineage": found["sameLineage"]})


def delete(pipeline: str, savepoint: str, output: Format) -> None:
    found = connected().delete(_path(pipeline, savepoint))
    if output is Format.json:
        print_json({"deleted": found["name"]})
    else:
        out.print(Text.assemble("deleted ", (found["name"], "bold")))


def restore(pipeline: str, savepoint: str, output: Format, *, keep_rows: bool, wait: bool) -> None:
    client = connected()
    asked = client.post(f"{_path(pipeline, savepoint)}/restore", {"keepRows": keep_rows})
    done = awaited(client, asked, wait=wait)
    if output is Format.json:
        print_json(done)
    elif done["state"] == "done":
        out.print(Text.assemble((pipeline, "bold"), f" goes on after batch {done['result']['batch']}"))
    else:
        out.print(Text.assemble((pipeline, "bold"), f" is to go back ({done['id']})"))


def fork(pipeline: str, savepoint: str, asked: Mapping[str, Any], output: Format, *, wait: bool) -> None:
    client = connected()
    made = client.post(f"{_path(pipeline, savepoint)}/fork", asked)
    done = awaited(client, made["operation"], wait=wait)
    if output is Format.json:
        print_json({"pipeline": made["pipeline"]["name"], "operation": done})
    else:
        name = made["pipeline"]["name"]
        out.print(Text.assemble((name, "bold"), f" begins from savepoint {savepoint} of {pipeline}"))


def _path(pipeline: str, savepoint: str) -> str:
    return f"/pipelines/{part(pipeline)}/savepoints/{part(savepoint)}"


def _listed(one: Mapping[str, Any]) -> dict[str, Any]:
    """As a list of local ones tells it."""
    if one["batch"] is None:
        return {"name": one["name"], "problem": {"message": one["note"]}}
    return {**one, "createdAt": one["at"], "watermark": time_of(one["watermark"] or 0)}


def _rows(found: Mapping[str, Any]) -> dict[str, str]:
    version = "" if found["version"] is None else str(found["version"])
    rows = {
        "savepoint": found["name"],
        "pipeline": found["pipeline"],
        "version": version,
        "taken": found["at"],
        "note": found["note"],
        "batch": f"{found['batch']:,}" + (", and one that was begun" if found["unfinished"] else ""),
        "watermark": time_of(found["watermark"] or 0),
        "size": f"{size(found['bytes'])} in {counted(found['files'], 'file')}",
        "partitions": str(found["partitions"] or ""),
        "made with": f"Penstock {found['penstock']}, Spark {found['spark']}",
    }
    rows |= {f"state of {name}": size(held) for name, held in found["stateOf"].items()}
    rows |= {f"offset of {name}": str(offset) for name, offset in found["offsets"].items()}
    for what, counts in found["rows"].items():
        rows[what.replace("_", " ")] = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return rows
