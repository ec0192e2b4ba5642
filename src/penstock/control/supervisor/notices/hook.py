"""Notices that somebody gives through the API."""

from __future__ import annotations

import threading

from penstock.control.supervisor.ports import Notice


class HookNotices:
    """Holds what was told until it is withdrawn. After a restart of the server the store still has it."""

    name = "hook"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Notice] = {}
        self._known: set[str] = set()

    def restore(self, known: tuple[Notice, ...]) -> None:
        """Takes up what the store knows from before."""
        with self._lock:
            for notice in known:
                if notice.heard_from == self.name and notice.target not in self._known:
                    self._held.setdefault(notice.target, notice)

    def tell(self, notice: Notice) -> None:
        with self._lock:
            self._known.add(notice.target)
            self._held[notice.target] = notice

    def withdraw(self, target: str) -> None:
        with self._lock:
            self._known.add(target)
            self._held.pop(target, None)

    def notices(self) -> tuple[Notice, ...]:
        with self._lock:
            return tuple(self._held.values())
