"""The folder of one run, or of one operation: what it was told, and what it tells.

run.json              the order, written before it starts
status.json           how it is, written anew every second
batches-000000.jsonl  a line for each batch; a new file once one is large
end.json              how it ended
log/                  run.jsonl and its older parts, and out.txt with what was printed before that
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from penstock.reports.codec import plain, read
from penstock.reports.inside import append_inside, names_inside, open_inside, read_inside, write_inside
from penstock.reports.values import (
    BatchLine,
    OperationEnd,
    OperationOrder,
    OperationStatus,
    RunEnd,
    RunOrder,
    RunStatus,
)

PART_BYTES = 4_000_000
_LONGEST_LINE = 4_000_000
PARTS_KEPT = 16
"""Lines of batches that nobody has fetched for a day or more make room for new ones."""

_T = TypeVar("_T")


@dataclass(frozen=True, order=True)
class Cursor:
    """Up to where the lines of batches have been read."""

    part: int = 0
    offset: int = 0


START = Cursor()


class ReportFolder:
    """Writes are whole or not there at all; what is not there, or cannot be understood, reads as None.

    A process of a pipeline writes here too, so no link is followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.lines = self.log / "run.jsonl"
        self.printed = self.log / "out.txt"

    def make(self) -> None:
        self.log.mkdir(parents=True, exist_ok=True)

    def log_files(self) -> list[Path]:
        """The files of the log, the oldest first."""
        names = names_inside(self.path, self.log.name)
        older = [name for name in names if name.startswith(f"{self.lines.name}.") and name.rpartition(".")[2].isdigit()]
        files = [self.log / name for name in sorted(older, key=lambda name: -int(name.rpartition(".")[2]))]
        return [*files, self.lines] if self.lines.name in names else files

    def open_log(self, file: Path) -> IO[bytes]:
        """One of the files of the log; raises OSError."""
        return open_inside(self.path, self.log.name, file.name)

    def open_printed(self) -> IO[bytes]:
        """Where a process prints to; raises OSError."""
        return append_inside(self.path, self.log.name, self.printed.name)

    def _read(self, kind: type[_T], name: str) -> _T | None:
        try:
            return _parsed(kind, read_inside(self.path, name))
        except OSError:
            return None

    def _write(self, name: str, value: Any, *, lasting: bool = False, mode: int = 0o666) -> None:
        content = json.dumps(plain(value), indent=1).encode() + b"\n"
        write_inside(self.path, name, content=content, lasting=lasting, mode=mode)


class RunFolder(ReportFolder):
    """The folder of one run."""

    ORDER = "run.json"

    @property
    def order(self) -> RunOrder | None:
        return self._read(RunOrder, self.ORDER)

    @property
    def status(self) -> RunStatus | None:
        return self._read(RunStatus, "status.json")

    @property
    def end(self) -> RunEnd | None:
        return self._read(RunEnd, "end.json")

    def write_order(self, order: RunOrder) -> None:
        """Options of Spark may hold secrets, so nobody else reads it."""
        self._write(self.ORDER, order, mode=0o600)

    def write_status(self, status: RunStatus) -> None:
        self._write("status.json", status)

    def write_end(self, end: RunEnd) -> None:
        self._write("end.json", end, lasting=True)

    def add_batch(self, line: BatchLine, parts_kept: int | None = None) -> None:
        """Appends a batch; the newest part is closed once it is large, and the oldest goes if there are too many."""
        parts = self._parts()
        last = parts[-1] if parts else 0
        if parts and self._part(last).stat().st_size >= PART_BYTES:
            last += 1
            for old in parts[: max(len(parts) + 1 - (parts_kept or PARTS_KEPT), 0)]:
                self._part(old).unlink(missing_ok=True)
        with self._part(last).open("ab") as file:
            file.write(json.dumps(plain(line), separators=(",", ":")).encode() + b"\n")

    def read_batches(self, cursor: Cursor = START, most: int = 10_000) -> tuple[list[BatchLine], Cursor]:
        """The batches after a cursor, and the cursor after them; a line that is not whole yet is not read yet."""
        found: list[BatchLine] = []
        for part in [number for number in self._parts() if number >= cursor.part]:
            if part > cursor.part:
                cursor = Cursor(part)
            try:
                with open_inside(self.path, self._part(part).name) as file:
                    file.seek(cursor.offset)
                    while text := file.readline(_LONGEST_LINE):
                        if not text.endswith(b"\n") or len(found) >= most:
                            return found, cursor
                        cursor = Cursor(part, cursor.offset + len(text))
                        line = _parsed(BatchLine, text)
                        if line is not None:
                            found.append(line)
            except OSError:
                continue
        return found, cursor

    @property
    def cursor(self) -> Cursor:
        """Up to where the reader has noted that it has kept the batches."""
        return self._read(Cursor, "cursor.json") or START

    def note_cursor(self, cursor: Cursor) -> None:
        """Notes up to where batches have been kept elsewhere; older parts are no longer needed."""
        self._write("cursor.json", cursor)
        for part in self._parts():
            if part < cursor.part:
                self._part(part).unlink(missing_ok=True)

    def _part(self, number: int) -> Path:
        return self.path / f"batches-{number:06d}.jsonl"

    def _parts(self) -> list[int]:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(name[8:14]) for name in names if name.startswith("batches-") and name[8:14].isdigit())


class OperationFolder(ReportFolder):
    """The folder of one operation: order.json, status.json and end.json, and its log."""

    ORDER = "order.json"

    @property
    def order(self) -> OperationOrder | None:
        return self._read(OperationOrder, self.ORDER)

    @property
    def status(self) -> OperationStatus | None:
        return self._read(OperationStatus, "status.json")

    @property
    def end(self) -> OperationEnd | None:
        return self._read(OperationEnd, "end.json")

    def write_order(self, order: OperationOrder) -> None:
        """Options of Spark may hold secrets, so nobody else reads it."""
        self._write(self.ORDER, order, mode=0o600)

    def write_status(self, status: OperationStatus) -> None:
        self._write("status.json", status)

    def forget_status(self) -> None:
        """What an attempt told that has ended."""
        (self.path / "status.json").unlink(missing_ok=True)

    def write_end(self, end: OperationEnd) -> None:
        self._write("end.json", end, lasting=True)


def _parsed(kind: type[_T], text: bytes) -> _T | None:
    try:
        return read(kind, text)
    except ValueError:
        return None
