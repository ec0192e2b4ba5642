"""Checksums of rows. Added up they do not depend on the order of rows, and Spark, Python and databases agree on them.

A row's sum is the first 32 bits of the MD5 of its values as text, with a mark between them and another for null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

NAME = "checksum"
BETWEEN, NULL = "\x1f", "\x02"
DIGITS = 8
_KINDS = ("string", "tinyint", "smallint", "int", "bigint", "date")


@dataclass(frozen=True)
class Content:
    """How many rows there are, and the sum of their checksums."""

    rows: int
    checksum: int


@dataclass(frozen=True)
class Change:
    """By how much a batch has changed the content of a table; if `whole`, all that it held after the batch."""

    rows: int
    checksum: int
    whole: bool = False
    columns: Sequence[str] = ()
    """The columns that are summed up, from here on."""


class NotSummed(Exception):
    """Why what a sink holds cannot be summed up."""


def fits(columns: Sequence[str], known: Mapping[str, str]) -> bool:
    """Whether rows with these columns can be summed."""
    return bool(columns) and all(name in known for name in columns)


def unsuited(columns: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The columns whose values not everyone writes alike."""
    return [name for name in columns if name in known and known[name] not in _KINDS]


def spark_sum(columns: Sequence[str]) -> Column:
    """The sum over all rows, as Spark computes it."""
    from pyspark.sql import functions as F

    texts = [F.coalesce(F.col(f"`{name}`").cast("string"), F.lit(NULL)) for name in columns]
    digest = F.md5(F.encode(F.concat_ws(BETWEEN, *texts), "UTF-8"))
    number = F.conv(F.substr(digest, F.lit(1), F.lit(DIGITS)), 16, 10).cast("bigint")
    return F.coalesce(F.sum(number), F.lit(0)).alias(NAME)


def python_sum(*values: Any) -> int:
    """The sum of one row."""
    text = BETWEEN.join(NULL if value is None else str(value) for value in values)
    return int(hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()[:DIGITS], 16)
