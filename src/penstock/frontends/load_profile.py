"""Reads the load of a day from a CSV file with the columns `time` and `rate`."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from penstock.capacity.load import DAY, Profile
from penstock.capacity.units import RowRate
from penstock.errors import Location, PenstockError, Problem
from penstock.frontends.document import read_text

_COLUMNS = ["time", "rate"]
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MOST_LINES = 1441


def read_profile(path: Path) -> Profile:
    """The profile in a file; raises all that is wrong with it."""
    if not path.is_file():
        raise PenstockError.of("FILE_NOT_FOUND", path=path)
    rows = list(csv.reader(read_text(path).splitlines()))
    if not rows or [cell.strip() for cell in rows[0]] != _COLUMNS:
        raise PenstockError(_problem(path, 1, "", "does not start with the line `time,rate`"))
    starts: list[float] = []
    rates: list[float] = []
    problems: list[Problem] = []
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(_COLUMNS):
            problems.append(_problem(path, line, "", f"has {len(row)} values instead of {len(_COLUMNS)}"))
            continue
        at, rate = _second(row[0].strip()), _rate(row[1].strip())
        if at is None:
            problems.append(_problem(path, line, "time", f"'{row[0]}' is not a time of day such as 06:00"))
        elif starts and at <= starts[-1]:
            problems.append(_problem(path, line, "time", f"'{row[0]}' is not later than the time before it"))
        elif not starts and at > 0 and line == 2:
            problems.append(_problem(path, line, "time", "the first time must be 00:00"))
        if isinstance(rate, str):
            problems.append(_problem(path, line, "rate", rate, len(row[0]) + 2))
        if at is not None and not isinstance(rate, str):
            starts.append(at)
            rates.append(rate)
    if not problems and not any(rates):
        problems.append(_problem(path, 1, "rate", "is 0 all day"))
    if len(rows) > _MOST_LINES:
        problems.append(_problem(path, _MOST_LINES, "", "has more lines than a day has minutes"))
    if problems:
        raise PenstockError(problems)
    return Profile(tuple(starts), tuple(rates))


def _second(text: str) -> float | None:
    found = _TIME.fullmatch(text)
    if found is None or int(found[2]) > 59 or int(found[3] or 0) > 59:
        return None
    second = float(int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0))
    return second if second < DAY else None


def _rate(text: str) -> float | str:
    """Rows a second, or why it is none."""
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return float(RowRate.parse(text).per_second)
    except ValueError as error:
        return str(error)


def _problem(path: Path, line: int, column: str, reason: str, at: int = 1) -> Problem:
    where = f"`{column}`" if column else f"line {line}"
    return Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, Location(str(path), line, at))
