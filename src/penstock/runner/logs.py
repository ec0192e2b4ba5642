"""The log of a run: one file of JSON lines, cut into parts, of which only the newest are kept.

All that a run says ends up here: what Penstock and its libraries log, Spark's log, and what user code prints, in this
process, in a worker or on an executor elsewhere. The values of secrets do not.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from penstock.reports.codec import plain
from penstock.reports.values import Executor, LogLine
from penstock.runner.spark_log import Record, explained, read_line, read_record
from penstock.spec.secrets import hide

PART_BYTES = 10_000_000
PARTS_KEPT = 5
_LONGEST_LINE = 1 << 20
_MOST_HELD = 5_000
_SILENT = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that print the trace of what Penstock says in words."""


class RunLog:
    """Writes lines from any thread. A full disk loses lines, never the run."""

    def __init__(self, file: Path, *, part_bytes: int = PART_BYTES, parts: int = PARTS_KEPT) -> None:
        self.file = file
        self.hidden: Sequence[str] = ()
        """Values of secrets, beside those that this process has looked up."""
        self.batch: int | None = None
        """The batch at work, which what is written now belongs to."""
        self._part_bytes = part_bytes
        self._parts = parts
        self._lock = threading.Lock()
        self._held: deque[Callable[[], None]] | None = None
        self._size = file.stat().st_size if file.exists() else 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Lines are kept back while this lasts, the newest of them, and written when it ends."""
        with self._lock:
            self._held = deque(maxlen=_MOST_HELD)
        try:
            yield
        finally:
            with self._lock:
                held, self._held = self._held, None
            for write in held or ():
                write()

    def _when_known(self, write: Callable[[], None]) -> None:
        """Writes now, or when lines are no longer kept back."""
        with self._lock:
            if self._held is not None:
                self._held.append(write)
                return
        write()

    def begin(self, batch: int | None) -> None:
        """Notes the batch that is at work from now on; None between two."""
        self.batch = batch

    def write(self, line: LogLine) -> None:
        self._when_known(lambda: self._write(line))

    def _write(self, line: LogLine) -> None:
        if line.batch is None and line.executor is None:
            # What executors wrote was read some time later.
            line = replace(line, batch=self.batch)
        text = {key: value for key, value in plain(self._cleaned(line)).items() if value is not None}
        content = json.dumps(text, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock, suppress(OSError):
            if self._size and self._size + len(content) > self._part_bytes:
                self._turn()
            with self.file.open("ab") as file:
                file.write(content)
            self._size += len(content)

    def clean(self, text: str) -> str:
        """The text without the values of secrets. A text is cut after this only, as half a secret is not found."""
        text = hide(text)
        for value in self.hidden:
            text = text.replace(value, "***")
        return text

    def _turn(self) -> None:
        """Closes the part that is written and removes the oldest."""
        for number in range(self._parts - 1, 0, -1):
            newer = self.file if number == 1 else self._older(number - 1)
            with suppress(FileNotFoundError):
                newer.replace(self._older(number))
        self._size = 0

    def _older(self, number: int) -> Path:
        return self.file.with_name(f"{self.file.name}.{number}")

    def say(self, level: str, text: str, *, code: str | None = None, batch: int | None = None) -> None:
        self.write(LogLine(dt.datetime.now(dt.UTC), level, "penstock", text, code, batch=batch))

    def take_spark(self, text: str) -> None:
        """A line that the JVM has written."""
        now = dt.datetime.now(dt.UTC)
        self._when_known(lambda: self._keep(read_line(self.clean(text), now)))

    def _keep(self, line: LogLine | None) -> None:
        if line is not None:
            self._write(line)

    def take_printed(self, text: str) -> None:
        if text.strip():
            self.take_spark(text)

    def take_record(self, record: Record, executor: Executor) -> None:
        """What an executor has written, at the time it was read: its own clock and zone are not known."""
        cleaned = replace(record, text=self.clean(record.text), more=self.clean(record.more))
        line = read_record(cleaned, dt.datetime.now(dt.UTC))
        if line is not None:
            self.write(replace(line, executor=executor))

    def take_logged(self, line: LogLine) -> None:
        """What a Python library has logged in this process."""
        self._when_known(lambda: self._write(explained(self._cleaned(line))))

    def _cleaned(self, line: LogLine) -> LogLine:
        return replace(line, text=self.clean(line.text), more=None if line.more is None else self.clean(line.more))


class LogHandler(logging.Handler):
    """Brings what Python libraries log into the log of the run."""

    def __init__(self, log: RunLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_SILENT) or "/py4j/" in record.pathname:
            # Some of what py4j says it says as nobody; whoever called it is told the same by the exception.
            return
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        more = None
        if record.exc_info and record.exc_info[0] is not None:
            more = "".join(traceback.format_exception(*record.exc_info))
        try:
            text = record.getMessage()
        except Exception:
            text = str(record.msg)
        level = "ERROR" if record.levelno >= logging.ERROR else record.levelname
        self._log.take_logged(LogLine(at, level, record.name, text, None, more))


@contextmanager
def everything_into(log: RunLog) -> Iterator[None]:
    """While this lasts, what is logged or printed in this process goes into the log, line by line."""
    handler = LogHandler(log)
    logging.getLogger().addHandler(handler)
    reading, writing = os.pipe()
    before = [os.dup(1), os.dup(2)]
    reader = threading.Thread(target=_read_lines, args=(reading, log), name="printed", daemon=True)
    reader.start()
    _flush()
    for number in (1, 2):
        os.dup2(writing, number)
    os.close(writing)
    try:
        yield
    finally:
        _flush()
        for number, earlier in zip((1, 2), before, strict=True):
            os.dup2(earlier, number)
            os.close(earlier)
        # A child that still holds the other end would keep the reader waiting.
        reader.join(2)
        logging.getLogger().removeHandler(handler)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _read_lines(reading: int, log: RunLog) -> None:
    with os.fdopen(reading, "rb") as stream:
        while raw := stream.readline(_LONGEST_LINE):
            with suppress(Exception):
                log.take_printed(raw.decode("utf-8", "replace").rstrip("\n"))
