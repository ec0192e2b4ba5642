"""`penstock cutover … NAME`: a new version of a pipeline that a server runs follows it, and takes over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from penstock.cli.client import connected, part
from penstock.cli.files import collected
from penstock.cli.operation import awaited, failed, shown
from penstock.cli.output import Format, counted, out, print_json
from penstock.reports.values import FOLLOWS

if TYPE_CHECKING:
    from penstock.cli.client import Client

_EVERY = 0.5


def start(pipeline: str, new: Path, lose: list[str], *, once: bool) -> None:
    """Asks for it and waits until the new version follows, or with `once` until it stands where the pipeline does."""
    client = connected()
    (sent,) = collected([new])
    asked = client.post(_path(pipeline), {"file": sent, "lose": lose})
    _await_following(client, asked)
    found = client.get(_path(pipeline))
    while once and found["behind"] > 0:
        time.sleep(_EVERY)
        found = client.get(_path(pipeline))
    out.print(
        Text.assemble("it begins from savepoint ", (found["savepoint"], "bold"), f", after batch {found['batch']}")
    )
    for step, rows in found["kept"].items():
        out.print(Text.assemble((step, "bold"), f" goes on with {counted(rows, 'row')} of state"))
    for step in found["begun"]:
        out.print(Text.assemble((step, "bold"), " begins empty"))
    out.print(Text(_standing(found)))


def _await_following(client: Client, asked: Mapping[str, Any]) -> None:
    path = f"/pipelines/{part(asked['pipeline'])}/operations/{part(asked['id'])}"
    found = dict(asked)
    with shown(found) as show:
        while found["state"] in ("waiting", "running") and not str(found["stage"] or "").startswith(FOLLOWS):
            time.sleep(_EVERY)
            found = client.get(path)
            show(found)
    if found["state"] == "failed":
        raise failed(found)


def status(pipeline: str, output: Format) -> None:
    found = connected().get(_path(pipeline))
    if output is Format.json:
        print_json(found)
        return
    out.print(Text.assemble("to ", (f"version {found['version']}", "bold"), f", since {found['startedAt'][:19]}"))
    out.print(f"from savepoint {found['savepoint']}, after batch {found['batch']}")
    if found["stage"] == "preparing":
        out.print(Text("the new version has not begun", "yellow"))
        return
    out.print(Text(_standing(found)))
    out.print(Text("it follows now" if found["following"] else "nothing follows now", "dim"))


def compare(pipeline: str, output: Format) -> None:
    from penstock.cli.cutover import print_compared, read_compared

    client = connected()
    found = awaited(client, client.post(f"{_path(pipeline)}/compare"))["result"]
    sinks = read_compared(found["sinks"])
    if output is Format.json:
        print_json(found)
    else:
        out.print(Text(_standing(found)))
        print_compared(sinks)
    if any(one.compared is not None and one.compared.verdict == "differs" for one in sinks):
        raise typer.Exit(1)


def finish(pipeline: str, output: Format) -> None:
    client = connected()
    done = awaited(client, client.post(f"{_path(pipeline)}/finish"))
    if output is Format.json:
        print_json(done)
        return
    result = done["result"]
    out.print(f"version {done['asked']['version']} has taken over after batch {result['batch']}")
    if result.get("savepoint") is not None:
        out.print(Text.assemble("the state before is savepoint ", (result["savepoint"], "bold")))


def abort(pipeline: str) -> None:
    client = connected()
    awaited(client, client.delete(_path(pipeline)))
    out.print("the cut-over is given up; the pipeline is as it was")


def _path(pipeline: str) -> str:
    return f"/pipelines/{part(pipeline)}/cutover"


def _standing(found: Mapping[str, Any]) -> str:
    stands, behind = found["stands"], found["behind"]
    if behind == 0:
        return f"the new version stands where the pipeline does, after batch {stands}"
    return f"the new version stands after batch {stands}, {behind:,} {'batch' if behind == 1 else 'batches'} behind"
