"""Who may say that a target will be taken away. One file a kind; a thread asks each of them now and then."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from penstock.control.supervisor.ports import Notice

ASK_SECONDS = 1.0


class Herald(Protocol):
    """Something that may know of a target's end."""

    @property
    def name(self) -> str:
        """Under which its notices are known."""

    def notices(self) -> tuple[Notice, ...]:
        """The notices that hold now. May take a while, and may fail: then nothing has changed."""

    def restore(self, known: tuple[Notice, ...]) -> None:
        """Is told once, after a start of the server, what held before; most find that out anew."""


class Listening(threading.Thread):
    """Asks heralds in a thread of its own, so that a slow address does not hold a tick up."""

    def __init__(self, heralds: Sequence[Herald], every: float = ASK_SECONDS) -> None:
        super().__init__(name="notices", daemon=True)
        self._heralds = tuple(heralds)
        self._every = every
        self._over = threading.Event()
        self._heard: dict[str, tuple[Notice, ...]] = {}

    @property
    def heard(self) -> dict[str, tuple[Notice, ...]]:
        """What each herald said last; one that could not be asked yet is missing."""
        return dict(self._heard)

    def restore(self, known: tuple[Notice, ...]) -> None:
        for herald in self._heralds:
            herald.restore(known)
            self._heard.pop(herald.name, None)

    def ask(self) -> None:
        for herald in self._heralds:
            with suppress(Exception):
                self._heard[herald.name] = herald.notices()

    def run(self) -> None:
        self.ask()
        while not self._over.wait(self._every):
            self.ask()

    def end(self) -> None:
        self._over.set()
