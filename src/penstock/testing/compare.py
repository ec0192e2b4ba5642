"""Compares expected rows with actual ones, in any order, by the columns the expectation names."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def differences(expected: Sequence[Row], actual: Sequence[Row]) -> list[str]:
    """What is missing and what is too much, in words; empty if the rows agree."""
    left = list(actual)
    missing: list[Row] = []
    # The most demanding expectations choose first, so that a vague one cannot take their row.
    for row in sorted(expected, key=len, reverse=True):
        found = next((index for index, candidate in enumerate(left) if matches(row, candidate)), None)
        if found is None:
            missing.append(row)
        else:
            left.pop(found)
    named = {column for row in expected for column in row}
    lines = [f"missing:    {_shown(row)}{_nearest(row, left)}" for row in missing]
    return lines + [f"unexpected: {_shown(_only(row, named))}" for row in left]


def matches(expected: Row, actual: Row) -> bool:
    return all(column in actual and same(value, actual[column]) for column, value in expected.items())


def same(expected: Any, actual: Any) -> bool:
    """Whether a value as written in a test equals one that Spark gave."""
    if expected is None or actual is None:
        return expected is actual
    if isinstance(actual, dt.datetime):
        return _as_time(expected) == _as_time(actual)
    if isinstance(actual, dt.date):
        return str(expected) == actual.isoformat()
    if isinstance(actual, bool) or isinstance(expected, bool):
        return expected is actual
    if isinstance(actual, decimal.Decimal):
        return _number(expected) == actual
    if isinstance(actual, float) and isinstance(expected, int | float):
        return math.isclose(expected, actual, rel_tol=1e-9, abs_tol=1e-12) or (
            math.isnan(expected) and math.isnan(actual)
        )
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return expected.keys() <= actual.keys() and all(same(value, actual[key]) for key, value in expected.items())
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        pairs = zip(expected, actual, strict=False)
        return len(expected) == len(actual) and all(same(left, right) for left, right in pairs)
    return bool(expected == actual)


def _as_time(value: Any) -> dt.datetime | None:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return None
    if not isinstance(value, dt.datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _number(value: Any) -> decimal.Decimal | None:
    try:
        return decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        return None


def _nearest(row: Row, candidates: Sequence[Row]) -> str:
    """Which columns of the most similar row differ."""
    best = max(
        candidates, key=lambda other: sum(same(value, other.get(name)) for name, value in row.items()), default=None
    )
    if best is None:
        return ""
    wrong = {name: best.get(name) for name, value in row.items() if not same(value, best.get(name))}
    return "" if len(wrong) == len(row) else f"  (nearest has {_shown(wrong)})"


def _only(row: Row, columns: set[str]) -> Row:
    return {name: value for name, value in row.items() if not columns or name in columns}


def _shown(row: Row) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return _text(value)
    return "null" if value is None else str(value)


def _text(value: dt.datetime) -> str:
    time = _as_time(value)
    return str(value) if time is None else time.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
