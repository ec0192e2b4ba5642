"""What a command that follows a server does when it goes away: it says so once, waits, and goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.text import Text

from penstock.cli.output import err
from penstock.errors import PenstockError

_FIRST = 0.5
_LONGEST = 5.0
FINAL = frozenset({"UNAUTHENTICATED", "FORBIDDEN", "PIPELINE_UNKNOWN", "NOT_FOUND", "USAGE", "TOKEN_MISSING"})
"""What waiting does not mend: the token is not taken, or what is followed is not there."""


def tell(text: str) -> None:
    err.print(Text(text, "yellow"))


class Outage:
    """Whether the server answers, as the one who follows it sees it."""

    def __init__(self, say: Callable[[str], None] = tell, sleep: Callable[[float], None] = time.sleep) -> None:
        self._say = say
        self._sleep = sleep
        self._pause = _FIRST
        self._out = False

    def wait(self, error: PenstockError) -> None:
        """Waits before the next try, longer each time; raises the error if trying again is no use."""
        if error.code in FINAL:
            raise error
        if not self._out:
            self._out = True
            self._say(f"{error.problems[0].message}; trying again")
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST)

    def over(self) -> None:
        """The server has answered."""
        if self._out:
            self._say("the server answers again")
        self._out, self._pause = False, _FIRST
