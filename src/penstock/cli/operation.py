"""Work on the state of a pipeline that a server does: waited for, and told as if it had been done here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import err
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.client import Client

_EVERY = 0.5
NoWait = Annotated[bool, typer.Option("--no-wait", help="On a server: only ask for it, and do not wait for it.")]


def pipeline_on_server(file: Path | None, state_dir: Path | None) -> str | None:
    """The name of the pipeline, if it is one of a server's and not a file; raises USAGE if a state folder is named."""
    from penstock.cli.client import name_of_a_server

    name = None if file is None else name_of_a_server(file)
    if name is not None and state_dir is not None:
        raise PenstockError.of("USAGE", reason="--state-dir goes with a pipeline file", advice="Leave it out.")
    return name


def awaited(client: Client, asked: Mapping[str, Any], *, wait: bool = True) -> dict[str, Any]:
    """The operation once it is done; raises what it failed of. It goes on also if nobody waits for it."""
    from penstock.cli.client import part

    found = dict(asked)
    path = f"/pipelines/{part(found['pipeline'])}/operations/{part(found['id'])}"
    with shown(found) as show:
        while wait and found["state"] in ("waiting", "running"):
            time.sleep(_EVERY)
            found = client.get(path)
            show(found)
    if found["state"] == "failed":
        raise failed(found)
    return found


@contextmanager
def shown(found: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What it is at, on a terminal."""
    if not err.is_terminal:
        yield lambda _: None
        return
    with err.status(_words(found)) as status:
        yield lambda now: status.update(_words(now))


def _words(found: Mapping[str, Any]) -> str:
    if found["stage"] is None:
        return f"{found['kind']} …"
    share = f" {100 * found['done'] // found['total']} %" if found["total"] else ""
    return f"{found['stage']}{share} …"


def failed(found: Mapping[str, Any]) -> PenstockError:
    """As it would have been told here."""
    from penstock.cli.client import told

    problem = found["result"].get("problem")
    if problem is not None:
        return PenstockError([told(problem)])
    return PenstockError.of("OPERATION_FAILED", reason=found["reason"])
