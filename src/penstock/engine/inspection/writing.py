"""Rows of state as files and texts: Parquet as they are; JSON and CSV with times and nested values written out."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import pyarrow as pa

Kind = Literal["json", "csv", "parquet"]
KINDS: tuple[Kind, ...] = ("json", "csv", "parquet")


class Writer(Protocol):
    def write(self, table: pa.Table) -> None:
        """Adds rows."""


def limited(tables: Iterable[pa.Table], most: int | None) -> Iterator[pa.Table]:
    """The first rows of all."""
    left = most
    for table in tables:
        if left is None:
            yield table
            continue
        yield table.slice(0, left)
        left -= min(left, table.num_rows)
        if not left:
            return


@contextmanager
def written_to(path: Path, kind: Kind, schema: pa.Schema) -> Iterator[Writer]:
    """A file that is there whole or not at all."""
    hidden = path.with_name(f".{path.name}.tmp")
    try:
        if kind == "parquet":
            from pyarrow import parquet

            with parquet.ParquetWriter(hidden, schema) as file:
                yield _Parquet(file)
        else:
            with hidden.open("w", encoding="utf-8", newline="") as text:
                yield to_text(text, kind, schema)
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def to_text(text: IO[str], kind: Literal["json", "csv"], schema: pa.Schema) -> Writer:
    """JSON is one object a line."""
    return _Csv(text, schema) if kind == "csv" else _Json(text)


class _Parquet:
    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, table: pa.Table) -> None:
        self.file.write_table(table.cast(self.file.schema))


class _Json:
    def __init__(self, text: IO[str]) -> None:
        self.text = text

    def write(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            self.text.write(f"{json.dumps(plain(row), ensure_ascii=False)}\n")


class _Csv:
    """Null is nothing between commas, an empty text is two quotes."""

    def __init__(self, text: IO[str], schema: pa.Schema) -> None:
        self.text = text
        self._line(schema.names)

    def write(self, table: pa.Table) -> None:
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            self._line([None if value is None else as_text(value) for value in row])

    def _line(self, cells: Iterable[str | None]) -> None:
        self.text.write(",".join("" if cell is None else _quoted(cell) for cell in cells) + "\n")


def _quoted(cell: str) -> str:
    needed = not cell or any(mark in cell for mark in ',"\r\n')
    return '"' + cell.replace('"', '""') + '"' if needed else cell


def plain(value: Any) -> Any:
    """A value as JSON has it; times in UTC, bytes in base64, and numbers that JSON cannot write as texts."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal | dt.timedelta) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def as_text(value: Any) -> str:
    """A value in one cell."""
    found = plain(value)
    if isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)
