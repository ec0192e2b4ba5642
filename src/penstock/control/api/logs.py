"""Logs of runs: the lines that fit, and those that come while somebody looks."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.reports.codec import read
from penstock.reports.folder import RunFolder
from penstock.reports.values import LogLine

Level = Literal["debug", "info", "warning", "error"]
_ORDER = {"trace": 0, "debug": 0, "info": 1, "warn": 2, "warning": 2, "error": 3, "fatal": 3, "critical": 3}
_MOST = 1_000_000
"""Bytes that are read of a growing file at once."""


@dataclass(frozen=True)
class Wanted:
    """Which lines: at least this level, not older than a time, and with a text in them, whatever its case."""

    level: Level = "info"
    since: dt.datetime | None = None
    grep: str | None = None

    def fits(self, line: LogLine) -> bool:
        if _ORDER.get(line.level.lower(), 1) < _ORDER[self.level]:
            return False
        if self.since is not None and line.at < self.since:
            return False
        return self.grep is None or self.grep.lower() in f"{line.text}\n{line.more or ''}".lower()


def last_lines(folder: RunFolder, wanted: Wanted, limit: int) -> list[LogLine]:
    """The newest lines that fit, in their order."""
    return list(deque((line for line in folder.log_lines() if wanted.fits(line)), maxlen=limit))


@dataclass
class Tail:
    """The end of a log that grows. A file that has been put aside meanwhile is read to its end first."""

    folder: RunFolder
    inode: int | None = None
    offset: int = 0
    _rest: bytes = field(default=b"")

    def skip(self) -> None:
        """Goes to the end of what is there."""
        found = _stat(self.folder.lines)
        if found is not None:
            self.inode, self.offset = found.st_ino, found.st_size

    def new_lines(self) -> Iterator[LogLine]:
        found = _stat(self.folder.lines)
        if found is None:
            return
        if self.inode is not None and found.st_ino != self.inode:
            older = next((path for path in self._older() if _inode(path) == self.inode), None)
            if older is not None:
                yield from self._read(older)
            self.offset, self._rest = 0, b""
        elif found.st_size < self.offset:
            self.offset, self._rest = 0, b""
        self.inode = found.st_ino
        yield from self._read(self.folder.lines)

    def _older(self) -> list[Path]:
        return [path for path in self.folder.log_files() if path != self.folder.lines][::-1]

    def _read(self, path: Path) -> Iterator[LogLine]:
        try:
            with path.open("rb") as file:
                file.seek(self.offset)
                content = file.read(_MOST)
        except OSError:
            return
        self.offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for text in lines:
            try:
                yield read(LogLine, json.loads(text))
            except ValueError:
                continue


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _inode(path: Path) -> int | None:
    found = _stat(path)
    return None if found is None else found.st_ino
