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
from penstock.reports.savepoints import REQUESTS, SAVEPOINTS
from penstock.reports.whole import write_whole

_KEPT_SECONDS = 86_400
_STOP = "stop"


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
        self.folder = state / SAVEPOINTS / REQUESTS

    # --- who asks --------------------------------------------------------------------------------------------

    def ask(self, asked: Asked, number: str | None = None) -> str:
        """Leaves a request, with a number that nobody else has; the number."""
        number = number or uuid.uuid4().hex
        self.folder.mkdir(parents=True, exist_ok=True)
        self._forget_old()
        write_whole(self._request(number), json.dumps(plain(asked)))
        return number

    def is_asked(self, number: str) -> bool:
        """Whether the request is still there."""
        return self._request(number).exists()

    def answered(self, number: str) -> Answer | None:
        """The answer, once there is one."""
        try:
            return read(Answer, self._answer(number).read_bytes())
        except FileNotFoundError:
            return None

    def forget(self, number: str) -> None:
        """Takes the request back, and the answer that there may be."""
        self._request(number).unlink(missing_ok=True)
        self._answer(number).unlink(missing_ok=True)

    # --- who answers -----------------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """The numbers of requests without an answer, the oldest first."""
        if not self.folder.is_dir():
            return []
        files = [item for item in self.folder.glob("*.json") if "." not in item.stem]
        return [item.stem for item in sorted(files, key=_age)]

    def asked(self, number: str) -> Asked | None:
        """What is asked for; None if that was taken back, or cannot be read."""
        try:
            return read(Asked, self._request(number).read_bytes())
        except (OSError, ValueError):
            return None

    def answer(self, number: str, answer: Answer) -> None:
        write_whole(self._answer(number), json.dumps(plain(answer)))
        self._request(number).unlink(missing_ok=True)

    def refuse(self, number: str, error: PenstockError) -> None:
        self.answer(number, Answer(problems=tuple(problem.as_dict() for problem in error.problems)))

    # --- to end -------------------------------------------------------------------------------------------

    def ask_to_stop(self, epoch: int) -> None:
        """Lets a run know that it is to end after its batch; it is meant for one epoch, and no later one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / _STOP, str(epoch))

    def asked_to_stop(self, epoch: int) -> bool:
        try:
            return (self.folder / _STOP).read_text("utf-8") == str(epoch)
        except OSError:
            return False

    def let_run(self) -> None:
        """Takes back that a run is to end."""
        (self.folder / _STOP).unlink(missing_ok=True)

    def _forget_old(self) -> None:
        """Answers that nobody has come for."""
        for file in self.folder.glob("*.done.json"):
            if _age(file) < time.time() - _KEPT_SECONDS:
                file.unlink(missing_ok=True)

    def _request(self, number: str) -> Path:
        return self.folder / f"{number}.json"

    def _answer(self, number: str) -> Path:
        return self.folder / f"{number}.done.json"


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
