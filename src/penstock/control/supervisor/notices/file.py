"""Notices as files: `DATA/notices/TARGET`. Whatever can touch a file can give one; removing it withdraws it.

The file may hold the time until which the target stays, as `2024-01-01T12:00:00Z`; it may be empty.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from pathlib import Path

from penstock.control.supervisor.ports import Notice

_LONGEST = 100


class FileNotices:
    name = "file"

    def __init__(self, folder: Path, targets: Collection[str]) -> None:
        self.folder = folder
        self._targets = frozenset(targets)

    def restore(self, known: tuple[Notice, ...]) -> None: ...

    def notices(self) -> tuple[Notice, ...]:
        """One for each file that has the name of a target; other files mean nothing."""
        found = []
        for target in sorted(self._targets):
            file = self.folder / target
            try:
                at = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
                with file.open(encoding="utf-8", errors="replace") as content:
                    text = content.read(_LONGEST)
            except (FileNotFoundError, NotADirectoryError):
                continue
            found.append(Notice(target, self.name, at, deadline_in(text)))
        return tuple(found)


def deadline_in(text: str) -> dt.datetime | None:
    """The time in a text; None if it holds none that can be understood."""
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
