"""Says why a row could not be read, column by column, as a Spark expression used on malformed rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spec.schema import Column as SchemaColumn
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column

_SHOWN = 40
"""Characters of a bad value that are quoted in the reason."""


BASE64 = "base64:"
"""Before the text of bytes that are not text."""


def as_text(value: Column) -> Column:
    """Bytes as text; what is not UTF-8 as base64, so that nothing of it is lost."""
    from pyspark.sql import functions as F

    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit(BASE64), F.base64(value)))


def as_bytes(text: Column) -> Column:
    """The bytes that `as_text` was given."""
    from pyspark.sql import functions as F

    kept = F.unbase64(F.substr(text, F.lit(len(BASE64) + 1)))
    return F.when(F.startswith(text, F.lit(BASE64)), kept).otherwise(F.encode(text, "UTF-8"))


def unreadable_fields(schema: Schema, values: Column, otherwise: str, timestamp_format: str | None) -> Column:
    """The first columns whose text does not fit their type; `otherwise` if the row as a whole is unreadable."""
    from pyspark.sql import functions as F

    reasons = [_reason(column, values.getItem(column.name), timestamp_format) for column in schema.columns]
    joined = F.concat_ws("; ", *reasons)
    return F.when(values.isNull(), F.lit(otherwise)).when(joined != "", joined).otherwise(F.lit(otherwise))


def _reason(column: SchemaColumn, text: Column, timestamp_format: str | None) -> Column:
    from pyspark.sql import functions as F

    fits = _cast(column.type, text, timestamp_format).isNotNull()
    shown = F.substring(text, 1, _SHOWN)
    sentence = F.concat(F.lit(f"column '{column.name}': cannot read '"), shown, F.lit(f"' as {column.type}"))
    return F.when(text.isNotNull() & ~fits, sentence)


def _cast(kind: str, text: Column, timestamp_format: str | None) -> Column:
    from pyspark.sql import functions as F

    if kind.startswith(("array", "map", "struct", "variant")):
        return F.from_json(text, kind) if not kind.startswith("variant") else F.try_parse_json(text)
    if kind == "timestamp" and timestamp_format is not None:
        return F.try_to_timestamp(text, F.lit(timestamp_format))
    return text.try_cast(kind)
