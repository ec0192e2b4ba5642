"""Spark's checkpoint folder: the only place that knows its layout."""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.errors import PenstockError

_SOURCE_NAME = re.compile(r"^\w+:")
"""What stands before the position of a source in the log of offsets; a source that has given nothing has `-`."""


def last_number(folder: Path) -> int:
    """The highest batch in a log folder, -1 if there is none."""
    if not folder.is_dir():
        return -1
    return max((int(item.name) for item in folder.iterdir() if item.name.isdigit()), default=-1)


def last_committed(checkpoint: Path) -> int:
    return last_number(checkpoint / "commits")


def state_versions(checkpoint: Path) -> dict[Path, int]:
    """The newest version of each part of the state; they differ while a batch stores its state."""
    parts = (checkpoint / "state").glob("[0-9]*/[0-9]*/")
    return {part: max(map(_state_version, part.rglob("*")), default=0) for part in parts}


def _state_version(file: Path) -> int:
    """The version of the state that a file holds: its name is the number, and perhaps who has written it."""
    number = re.match(r"\d+", file.name)
    return int(number[0]) if number and file.suffix in (".changelog", ".zip") else 0


def watermark(checkpoint: Path) -> int:
    """The watermark of the newest batch in milliseconds, 0 if there is none."""
    file = checkpoint / "offsets" / str(last_number(checkpoint / "offsets"))
    if not file.exists():
        return 0
    return int(json.loads(file.read_text("utf-8").splitlines()[1]).get("batchWatermarkMs", 0))


def verify(checkpoint: Path) -> None:
    """Raises STATE_UNREADABLE, naming the file, if the newest entries of the logs cannot be read."""
    planned, committed = last_number(checkpoint / "offsets"), last_committed(checkpoint)
    for folder, newest in (("offsets", planned), ("commits", committed)):
        for number in range(max(newest - 1, 0), newest + 1):
            file = checkpoint / folder / str(number)
            if file.exists():
                _verify_log_file(file)
    for log in sorted((checkpoint / "sources").glob("*/")):
        numbered = [item for item in log.iterdir() if item.name.split(".")[0].isdigit()]
        if numbered:
            _verify_log_file(max(numbered, key=lambda item: int(item.name.split(".")[0])))
    if committed > planned:
        _missing(checkpoint / "offsets" / str(committed), f"batch {committed} was committed")
    # A batch is planned when the one before it has been committed, and both stay in the logs for a while.
    if planned > committed + 1:
        _missing(checkpoint / "commits" / str(planned - 1), f"batch {planned} was planned")
    if planned > 0 and not (checkpoint / "offsets" / str(planned - 1)).exists():
        _missing(checkpoint / "offsets" / str(planned - 1), f"batch {planned} was planned")


def _missing(file: Path, why: str) -> None:
    raise PenstockError.of("STATE_UNREADABLE", path=file, reason=f"it is missing, and {why}")


def _verify_log_file(file: Path) -> None:
    try:
        cut_short = not is_whole(file)
    except OSError as error:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason=error) from None
    if cut_short:
        raise PenstockError.of("STATE_UNREADABLE", path=file, reason="it is cut short")


def is_whole(file: Path) -> bool:
    """Whether a file of one of the logs is there and not cut short."""
    try:
        lines = file.read_text("utf-8").splitlines()
        for line in lines[1:]:
            position = _SOURCE_NAME.sub("", line)
            if position != "-":
                json.loads(position)
    except (FileNotFoundError, ValueError):
        return False
    least = 3 if file.parent.name == "offsets" else 2
    return len(lines) >= least and lines[0].startswith("v")


def source_log(checkpoint: Path, source: str) -> Path | None:
    """The folder in which Spark's file source notes the files it has read."""
    folder = checkpoint / "sources" / source
    return folder if folder.is_dir() else None
