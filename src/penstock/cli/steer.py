"""What `start`, `stop` and `delete` share: they change what is wanted, and may wait until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.listing import state_text
from penstock.cli.output import out, working
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.client import Client

_EVERY = 0.5
_WELL = ("RUNNING", "IDLE", "CATCHING_UP", "DEGRADED")
_OVER = ("FAILED", "STOPPED")
PATIENCE = 300.0

Names = Annotated[list[str], typer.Argument(help="Pipelines.")]
Lose = Annotated[
    list[str] | None,
    typer.Option("--lose", metavar="NAME", help="A source or step whose state may be given up; may be repeated."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is so, at most five minutes.")]


def wait_for(client: Client, names: Sequence[str], reached: Callable[[dict[str, Any] | None], bool]) -> None:
    """Waits until all are as wanted, and says how each is; raises if one fails or takes too long."""
    deadline = time.monotonic() + PATIENCE
    left = list(names)
    with working("waiting"):
        while left and time.monotonic() < deadline:
            for name in list(left):
                found = _looked(client, name)
                if reached(found):
                    left.remove(name)
                    _say(name, found)
            if left:
                time.sleep(_EVERY)
    if left:
        reason = f"{', '.join(left)} took longer than {PATIENCE:.0f} seconds"
        raise PenstockError.of("SERVER_ERROR", reason=reason, advice="`penstock describe` says how it is.")


def runs(found: dict[str, Any] | None) -> bool:
    """Whether a pipeline that was started runs; raises if it failed."""
    if found is not None and _seen_to(found) and found["state"] == "FAILED":
        raise PenstockError.of(
            "SERVER_ERROR",
            reason=f"{found['name']} failed: {found['reason']}",
            advice=f"See `penstock logs {found['name']}`.",
        )
    return found is not None and _seen_to(found) and found["state"] in _WELL


def stands(found: dict[str, Any] | None) -> bool:
    """Whether a pipeline that was stopped has ended."""
    return found is None or (_seen_to(found) and found["state"] in _OVER)


def is_gone(found: dict[str, Any] | None) -> bool:
    return found is None


def _seen_to(found: dict[str, Any]) -> bool:
    return bool(found["observedGeneration"] == found["generation"])


def _looked(client: Client, name: str) -> dict[str, Any] | None:
    from penstock.cli.client import part

    try:
        found: dict[str, Any] = client.get(f"/pipelines/{part(name)}")
    except PenstockError as error:
        if error.code == "PIPELINE_UNKNOWN":
            return None
        raise
    return found


def _say(name: str, found: dict[str, Any] | None) -> None:
    state = Text("gone", "blue") if found is None else state_text(found["state"])
    out.print(Text.assemble((name, "bold"), ": ", state))
