"""Reads the log of a run: from its beginning or its end, as it grows, and only what is asked for."""

from __future__ import annotations

import datetime as dt
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.reports.codec import read
from penstock.reports.folder import RunFolder
from penstock.reports.values import LogLine

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True)
class LogCursor:
    """Up to where a log has been read: in which file, and up to which byte.

    Files get other names as they grow old, and the number of a removed one may be given again; so a file is known by
    its first line.
    """

    file: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.file:x}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LogCursor:
        """Raises ValueError."""
        file, _, offset = text.partition(".")
        return cls(int(file, 16), int(offset))


BEGINNING = LogCursor()


@dataclass(frozen=True)
class LogFilter:
    """Which lines are wanted: from a level on, since a time, and with a pattern in the text or beneath it."""

    level: str = "DEBUG"
    since: dt.datetime | None = None
    grep: re.Pattern[str] | None = None

    def takes(self, line: LogLine) -> bool:
        if line.level in LEVELS and LEVELS.index(line.level) < LEVELS.index(self.level):
            return False
        if self.since is not None and line.at < self.since:
            return False
        return self.grep is None or bool(self.grep.search(line.text) or self.grep.search(line.more or ""))


EVERY_LINE = LogFilter()


def read_log(
    folder: RunFolder, cursor: LogCursor = BEGINNING, wanted: LogFilter = EVERY_LINE, most: int = 10_000
) -> tuple[list[LogLine], LogCursor]:
    """The lines after a cursor, the oldest first, and the cursor after them."""
    found, cursor = read_placed(folder, cursor, wanted, most)
    return [line for line, _ in found], cursor


def read_placed(
    folder: RunFolder, cursor: LogCursor = BEGINNING, wanted: LogFilter = EVERY_LINE, most: int = 10_000
) -> tuple[list[tuple[LogLine, LogCursor]], LogCursor]:
    """The lines after a cursor, the oldest first, each with the cursor after it, and the cursor after all.

    Parts that were removed meanwhile are passed over; a line that is not whole yet is not read yet.
    """
    found: list[tuple[LogLine, LogCursor]] = []
    for file, number, offset in _parts(folder, cursor):
        texts = _whole_lines(folder, file, number, offset)
        if texts is None:
            # Parts have got other names in between; the next look goes on from here.
            break
        for text in texts:
            offset += len(text)
            cursor = LogCursor(number, offset)
            line = parsed(text)
            if line is not None and wanted.takes(line):
                found.append((line, cursor))
                if len(found) >= most:
                    return found, cursor
    return found, cursor


def last_placed(
    folder: RunFolder, count: int, wanted: LogFilter = EVERY_LINE
) -> tuple[list[tuple[LogLine, LogCursor]], LogCursor]:
    """The newest lines, each with the cursor after it, and the cursor after all, from which reading goes on."""
    found, cursor = read_placed(folder, BEGINNING, wanted, most=1 << 62)
    return found[len(found) - count if count < len(found) else 0 :], cursor


def _parts(folder: RunFolder, cursor: LogCursor) -> list[tuple[Path, int, int]]:
    """The files that hold what comes after a cursor, each with its number and where to begin."""
    known = [(file, _first_line(folder, file)) for file in folder.log_files()]
    found = [(file, number) for file, number in known if number is not None]
    numbers = [number for _, number in found]
    first = numbers.index(cursor.file) if cursor.file in numbers else 0
    return [(file, number, cursor.offset if number == cursor.file else 0) for file, number in found[first:]]


def _first_line(folder: RunFolder, file: Path) -> int | None:
    """A number for the first line of a file; None if there is none yet."""
    try:
        with folder.open_log(file) as lines:
            return _number(lines)
    except OSError:
        return None


def _number(lines: IO[bytes]) -> int | None:
    first = lines.readline()
    return zlib.crc32(first) if first.endswith(b"\n") else None


def _whole_lines(folder: RunFolder, file: Path, number: int, offset: int) -> list[bytes] | None:
    """The lines of a part from a byte on; None if it no longer has this name."""
    try:
        with folder.open_log(file) as lines:
            if _number(lines) != number:
                return None
            lines.seek(offset)
            return [text for text in lines if text.endswith(b"\n")]
    except OSError:
        return None


def parsed(text: bytes) -> LogLine | None:
    try:
        return read(LogLine, text)
    except ValueError:
        return None
