"""What a Spark worker serves of the logs of its executors: where to ask, which lines are new, what belongs together.

Pure functions and values over bytes and texts; `executors` asks for them. A worker answers with a line that says which
bytes follow, and these bytes as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from penstock.runner.spark_log import Record

LOOK_BYTES = 1 << 17
"""How much is asked for at once."""
_HEAD = re.compile(rb"==== Bytes (\d+)-(\d+) of (\d+) of [^\n]* ====\n")
_MANGLED = "\ufffd".encode()
_LEVEL = r"(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)"
_LOG4J = (
    re.compile(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d {_LEVEL} ([\w.$]+)(?: .*?)?: ?(.*)"),
    re.compile(rf"\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S* {_LEVEL} +((?:[\w$]+\.)*[A-Z][\w$]*): ?(.*)"),
)
"""As Spark writes by default, and with the date of ISO, as others do too: loggers of Java are named after classes."""
_EXCEPTION = re.compile(r"(?:Caused by: |Suppressed: )?(?:[a-zA-Z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b")
_OF_A_TRACE = re.compile(r"\s|Caused by: |Suppressed: |\.\.\. \d+ (?:more|common)")
_PYTHON_TRACE = "Traceback (most recent call last):"
_LONGEST_MORE = 64_000


def address(reported: str, kind: str) -> str | None:
    """Where a worker serves a log as plain text, from the page that Spark reports; None if it cannot be asked.

    Spark reports `…/logPage/?appId=…&executorId=…&logType=…`, behind a proxy with its path before that.
    """
    try:
        found = urlsplit(reported)
        asked = parse_qs(found.query)
        if found.scheme not in ("http", "https") or not found.hostname or found.username is not None:
            return None
    except ValueError:
        return None
    prefix, page, rest = found.path.rpartition("/logPage")
    if not page or rest not in ("", "/") or not {"appId", "executorId"} <= asked.keys():
        return None
    query = urlencode({"appId": asked["appId"][0], "executorId": asked["executorId"][0], "logType": kind})
    return urlunsplit((found.scheme, found.netloc, f"{prefix}/log/", query, ""))


@dataclass(frozen=True)
class Chunk:
    """Bytes of a log, from `start` to `end` of `length`."""

    start: int
    end: int
    length: int
    text: bytes
    """Not as many bytes where the log has bytes that are no text: the worker has replaced these."""


def read_chunk(answer: bytes) -> Chunk | None:
    """None if it is not what a worker answers, or the log is not there."""
    head = _HEAD.match(answer)
    if head is None:
        return None
    start, end, length = (int(number) for number in head.groups())
    text = answer[head.end() :]
    if not start <= end <= length or (text and start == end):
        return None
    return Chunk(start, end, length, text)


@dataclass(frozen=True)
class Tail:
    """Up to where a log has been read. `rest` is what was read of a line whose place is no longer known exactly."""

    offset: int = 0
    length: int = 0
    rest: bytes = b""
    ragged: bool = False
    """Whether it begins in the middle of a line, which is left out."""


def advance(tail: Tail, chunk: Chunk, most: int = LOOK_BYTES, *, last: bool = False) -> tuple[Tail, list[str]]:
    """The lines that are whole now, and from where to go on; a line longer than a look comes in pieces.

    With `last` nothing more will be written, so the last line is whole without its end.
    """
    if chunk.start != tail.offset or chunk.length < tail.length:
        # The worker has removed older parts, and the numbers of all bytes with them.
        return Tail(chunk.length, chunk.length, ragged=True), []
    text, whole = chunk.text, chunk.text.rfind(b"\n") + 1
    exact = len(text) == chunk.end - chunk.start or _MANGLED not in text[:whole]
    if (not whole and chunk.end - chunk.start >= most) or (last and chunk.end == chunk.length):
        whole = len(text)
    elif not exact:
        return _taken(Tail(chunk.end, chunk.length, text[whole:], tail.ragged), tail.rest + text[:whole])
    elif not whole:
        return replace(tail, length=chunk.length), []
    place = chunk.start + whole if len(text) != whole else chunk.end
    return _taken(Tail(place, chunk.length, b"", tail.ragged), tail.rest + text[:whole])


def _taken(tail: Tail, text: bytes) -> tuple[Tail, list[str]]:
    lines = text.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if tail.ragged and lines:
        del lines[0]
        tail = replace(tail, ragged=False)
    return tail, [line.rstrip("\r") for line in lines]


def skipped(tail: Tail, most_behind: int, look: int = LOOK_BYTES) -> tuple[Tail, int]:
    """Where to go on if it is too far behind: shortly before the end; and how many bytes that leaves out."""
    if tail.length - tail.offset <= most_behind:
        return tail, 0
    place = tail.length - look
    return Tail(place, tail.length, ragged=True), place - tail.offset


class Assembly:
    """Puts lines together that were written as one. The last record stays open until it is clear that it is whole."""

    def __init__(self) -> None:
        self._open: Record | None = None
        self._in_frames = False
        """Whether the trace has come to its frames; what looks otherwise after them is no part of it."""

    def take(self, lines: list[str]) -> Iterator[Record]:
        """The records that are whole now."""
        for line in lines:
            if self._open is not None and self._belongs(self._open, line):
                if len(self._open.more) < _LONGEST_MORE:
                    self._open = replace(self._open, more=f"{self._open.more}{line}\n")
                continue
            yield from self.end()
            self._open, self._in_frames = _begun(line), False
            if not self._open.level and self._open.text != _PYTHON_TRACE:
                yield from self.end()

    def end(self) -> Iterator[Record]:
        """The record that is open: nothing comes after it for now."""
        if self._open is not None:
            found, self._open = self._open, None
            yield found

    def _belongs(self, record: Record, line: str) -> bool:
        if _head(line) is not None or _structured(line) is not None:
            return False
        if not record.level:
            return record.text == _PYTHON_TRACE and self._in_python_trace(record, line)
        if line.startswith("\tat "):
            self._in_frames = True
        if _OF_A_TRACE.match(line) or (not record.more and _EXCEPTION.match(line)):
            return True
        # A message may have lines of any kind between the name of the exception and its first frame.
        return bool(record.more) and not self._in_frames and bool(_EXCEPTION.match(record.more))

    def _in_python_trace(self, record: Record, line: str) -> bool:
        """Frames are indented; the first line that is not says what was raised, and is the last."""
        if self._in_frames:
            return False
        self._in_frames = not line.startswith(" ")
        return True


def _head(line: str) -> re.Match[str] | None:
    return next((found for pattern in _LOG4J if (found := pattern.fullmatch(line))), None)


def _begun(line: str) -> Record:
    head = _head(line)
    if head is not None:
        return Record(head[1], head[2].rpartition(".")[2], head[3])
    return _structured(line) or Record("", "output", line)


def _structured(line: str) -> Record | None:
    """A line of Spark's structured log, which is one JSON object."""
    if not line.startswith('{"ts":'):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("level"), str):
        return None
    logger = str(found.get("logger", "spark")).rpartition(".")[2]
    return Record(found["level"], logger, str(found.get("msg", "")), _trace(found.get("exception")))


def _trace(exception: object) -> str:
    if not isinstance(exception, dict):
        return ""
    lines = [f"{exception.get('class', '')}: {exception.get('msg', '')}"]
    frames = exception.get("stacktrace")
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, dict):
            place = f"{frame.get('file')}:{frame.get('line')}"
            lines.append(f"\tat {frame.get('class')}.{frame.get('method')}({place})")
    return "\n".join(lines)


@dataclass(frozen=True)
class Allowance:
    """How many lines may still be written: so many at once, and so many more each second."""

    burst: int = 1_000
    per_second: int = 100
    left: float = 1_000.0
    at: float = 0.0

    def take(self, now: float) -> tuple[Allowance, bool]:
        """What is left after one more line, and whether it may be written."""
        left = min(self.left + max(now - self.at, 0.0) * self.per_second, float(self.burst))
        allowed = left >= 1.0
        return replace(self, left=left - 1.0 if allowed else left, at=now), allowed
