"""Checksums of rows: added up they do not depend on the order of rows, and both Spark and Python can compute them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

NAME = "checksum"
_BETWEEN, _NULL = "\x1f", "\x00"
_KINDS = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")


def fits(columns: Sequence[str], known: Mapping[str, str]) -> bool:
    """Whether rows with these columns can be summed."""
    return bool(columns) and all(name in known for name in columns)


def unsuited(columns: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The columns whose values not everyone writes alike."""
    return [name for name in columns if name in known and known[name] not in _KINDS]


def spark_sum(columns: Sequence[str]) -> Column:
    """The sum over all rows, as Spark computes it."""
    from pyspark.sql import functions as F

    texts = [F.coalesce(F.col(f"`{name}`").cast("string"), F.lit(_NULL)) for name in columns]
    return F.coalesce(F.sum(F.crc32(F.encode(F.concat_ws(_BETWEEN, *texts), "UTF-8"))), F.lit(0)).alias(NAME)


def python_sum(rows: Iterable[Sequence[Any]]) -> tuple[int, int]:
    """How many rows there are, and their sum."""
    count = total = 0
    for row in rows:
        count += 1
        total += zlib.crc32(_BETWEEN.join(_text(value) for value in row).encode("utf-8"))
    return count, total


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    return str(value).lower() if isinstance(value, bool) else str(value)
