"""Plain text lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import RAW, Format, ReadContext
from penstock.components.shared.malformed import as_text

if TYPE_CHECKING:
    from pyspark.sql import Column


class Text(Format):
    """Plain text, one row a line, in the single column `value`."""

    name: ClassVar[str] = "text"
    spark_format: ClassVar[str] = "text"
    messages: ClassVar[bool] = True
    example: ClassVar[str] = """\
files: {path: ./logs}
format: {text: {}}
"""

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return "value string"

    def row_names(self, context: ReadContext) -> list[str]:
        return ["value"]

    def decode(self, value: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        return F.struct(as_text(value).alias("value"), F.lit(None).cast("string").alias(RAW))
