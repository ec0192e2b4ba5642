"""Plain text lines."""

from __future__ import annotations

from typing import ClassVar

from penstock.components.base import Format, ReadContext


class Text(Format):
    """Plain text, one row a line, in the single column `value`."""

    name: ClassVar[str] = "text"
    spark_format: ClassVar[str] = "text"
    example: ClassVar[str] = """\
files: {path: ./logs}
format: {text: {}}
"""

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return "value string"
