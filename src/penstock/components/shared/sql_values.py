"""Values as databases give them, in Arrow columns; a row with a value that does not fit is kept as text."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.components.base import RAW

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")


def arrow_type(kind: str) -> pa.DataType:
    """Arrow's type for one of Spark's."""
    import pyarrow as pa

    sized = _DECIMAL.fullmatch(kind)
    if sized is not None:
        return pa.decimal128(int(sized[1]), int(sized[2]))
    return {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
        "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
        "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    }[kind]  # fmt: skip


def arrow_schema(kinds: Mapping[str, str]) -> pa.Schema:
    """The schema of rows with such columns, `RAW` behind them."""
    import pyarrow as pa

    return pa.schema([*((name, arrow_type(kind)) for name, kind in kinds.items()), (RAW, pa.string())])


def arrow_rows(kinds: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """The rows as columns; what follows the columns in a row is left out."""
    import pyarrow as pa

    columns: list[pa.Array] = []
    bad: set[int] = set()
    for place, kind in enumerate(kinds.values()):
        column, unfit = _column([row[place] for row in rows], kind)
        columns.append(column)
        bad |= unfit
    texts = [_as_json(kinds, row) if place in bad else None for place, row in enumerate(rows)] if bad else None
    columns.append(pa.nulls(len(rows), pa.string()) if texts is None else pa.array(texts, pa.string()))
    return pa.Table.from_arrays(columns, schema=arrow_schema(kinds))


def _column(values: list[Any], kind: str) -> tuple[pa.Array, set[int]]:
    """The column, and where values do not fit; they are null there."""
    import pyarrow as pa

    faults = (pa.ArrowException, ValueError, TypeError, OverflowError)
    try:
        return _converted(values, kind), set()
    except faults:
        pass
    bad: set[int] = set()
    for place, value in enumerate(values):
        try:
            _converted([value], kind)
        except faults:
            bad.add(place)
    return _converted([None if place in bad else value for place, value in enumerate(values)], kind), bad


def _converted(values: list[Any], kind: str) -> pa.Array:
    import pyarrow as pa

    wanted = arrow_type(kind)
    if kind == "boolean":
        return pa.array([None if value is None else _flag(value) for value in values], wanted)
    if kind.startswith("decimal"):
        return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(wanted)
    if kind == "string":
        return pa.array([_text(value) for value in values], wanted)
    if kind == "date":
        return pa.array([_day(value) for value in values], pa.string()).cast(wanted)
    if kind == "timestamp":
        return pa.array([_moment(value) for value in values], pa.string()).cast(pa.timestamp("us")).cast(wanted)
    if pa.types.is_integer(wanted) and any(isinstance(value, float) for value in values):
        # Arrow would cut off what follows the point.
        return pa.array(values, pa.float64()).cast(wanted)
    return pa.array(values, wanted)


def _flag(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        raise ValueError("not a text")
    return value if value is None or isinstance(value, str) else str(value)


def _day(value: Any) -> str | None:
    return None if value is None else _moment(value)[:10]  # type: ignore[index]


def _moment(value: Any) -> str | None:
    """A time as Arrow reads it, in UTC; databases with types give it like that already."""
    if value is None or (isinstance(value, str) and _ISO.fullmatch(value)):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a time")
    return utc(value).isoformat(" ")


def utc(text: str) -> dt.datetime:
    """The moment that an ISO 8601 text names, in UTC and without saying so; raises ValueError."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def _as_json(kinds: Mapping[str, str], row: Sequence[Any]) -> str:
    named = zip(kinds, row, strict=False)
    return json.dumps({name: _plain(value) for name, value in named if value is not None}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
