"""How a running pipeline is asked for a savepoint, or to end: a file in its state folder, answered by another.

Whoever asks need not be the one who started it; if it ends before it has answered, the request can be taken back.

savepoints/requests/ID.json        what is asked for
savepoints/requests/ID.done.json   where the savepoint is, or what was wrong
savepoints/requests/stop           the epoch of a run that is to end
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import CODES, PenstockError, Problem
from penstock.reports.codec import plain, read
from penstock.reports.inside import (
    changed_inside,
    folder_inside,
    names_inside,
    read_inside,
    remove_inside,
    write_inside,
)
from penstock.reports.savepoints import REQUESTS, SAVEPOINTS

_KEPT_SECONDS = 86_400
_STOP = "stop"
_DONE = ".done.json"
_WHERE = (SAVEPOINTS, REQUESTS)


@dataclass(frozen=True)
class Asked:
    """What kind of savepoint is asked for; `to` is the folder that it shall be, if not one in the state folder."""

    name: str | None = None
    note: str = ""
    to: str | None = None


@dataclass(frozen=True)
class Answer:
    """Where the savepoint is, or what was wrong."""

    folder: str | None = None
    held_seconds: float = 0.0
    problems: tuple[Mapping[str, Any], ...] = field(default=())

    def raise_problems(self) -> None:
        if self.problems:
            raise PenstockError(_problem(found) for found in self.problems)


def _problem(found: Mapping[str, Any]) -> Problem:
    code = str(found.get("code"))
    if code not in CODES:
        return Problem("SAVEPOINT_FAILED", {"reason": str(found.get("message"))})
    return Problem(code, dict(found.get("params") or {}))


class Requests:
    """The requests in a state folder, for both sides."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.folder = state / SAVEPOINTS / REQUESTS

    # --- who asks --------------------------------------------------------------------------------------------

    def ask(self, asked: Asked, number: str | None = None) -> str:
        """Leaves a request, with a number that nobody else has; the number."""
        number = number or uuid.uuid4().hex
        self._make()
        self._forget_old()
        self._write(f"{number}.json", json.dumps(plain(asked)))
        return number

    def is_asked(self, number: str) -> bool:
        """Whether the request is still there."""
        return changed_inside(self._state, *_WHERE, f"{number}.json") > 0

    def answered(self, number: str) -> Answer | None:
        """The answer, once there is one."""
        try:
            return read(Answer, read_inside(self._state, *_WHERE, f"{number}{_DONE}"))
        except OSError:
            return None

    def forget(self, number: str) -> None:
        """Takes the request back, and the answer that there may be."""
        remove_inside(self._state, *_WHERE, f"{number}.json")
        remove_inside(self._state, *_WHERE, f"{number}{_DONE}")

    # --- who answers -----------------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """The numbers of requests without an answer, the oldest first."""
        names = [name for name in names_inside(self._state, *_WHERE) if name.count(".") == 1 and name.endswith(".json")]
        return [name.removesuffix(".json") for name in sorted(names, key=self._changed)]

    def asked(self, number: str) -> Asked | None:
        """What is asked for; None if that was taken back, or cannot be read."""
        try:
            return read(Asked, read_inside(self._state, *_WHERE, f"{number}.json"))
        except (OSError, ValueError):
            return None

    def answer(self, number: str, answer: Answer) -> None:
        self._write(f"{number}{_DONE}", json.dumps(plain(answer)))
        remove_inside(self._state, *_WHERE, f"{number}.json")

    def refuse(self, number: str, error: PenstockError) -> None:
        self.answer(number, Answer(problems=tuple(problem.as_dict() for problem in error.problems)))

    # --- to end -------------------------------------------------------------------------------------------

    def ask_to_stop(self, epoch: int) -> None:
        """Lets a run know that it is to end after its batch; it is meant for one epoch, and no later one."""
        self._make()
        self._write(_STOP, str(epoch))

    def asked_to_stop(self, epoch: int) -> bool:
        try:
            return read_inside(self._state, *_WHERE, _STOP).decode("utf-8", "replace") == str(epoch)
        except OSError:
            return False

    def let_run(self) -> None:
        """Takes back that a run is to end."""
        remove_inside(self._state, *_WHERE, _STOP)

    def _forget_old(self) -> None:
        """Answers that nobody has come for."""
        for name in names_inside(self._state, *_WHERE):
            if name.endswith(_DONE) and self._changed(name) < (time.time() - _KEPT_SECONDS) * 1e9:
                remove_inside(self._state, *_WHERE, name)

    def _make(self) -> None:
        self._state.mkdir(parents=True, exist_ok=True)
        with folder_inside(self._state, *_WHERE, make=True):
            pass

    def _write(self, name: str, text: str) -> None:
        write_inside(self._state, *_WHERE, name, content=text.encode("utf-8"), lasting=True)

    def _changed(self, name: str) -> int:
        return changed_inside(self._state, *_WHERE, name)
