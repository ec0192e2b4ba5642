"""JSON lines: one object a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import RAW, Format, ReadContext
from penstock.components.shared.malformed import as_text, unreadable_fields
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column


class Json(Format):
    """One JSON object per line.

    A line that is not JSON, or holds a value that does not fit its column's type, is malformed: it goes to the
    dead letters with the reason. Missing keys become null; keys that are not in the schema are ignored.
    """

    name: ClassVar[str] = "json"
    spark_format: ClassVar[str] = "json"
    malformed: ClassVar[bool] = True
    messages: ClassVar[bool] = True
    example: ClassVar[str] = """\
files: {path: ./in}
format: {json: {schema: {id: string, ts: timestamp, amount: double}}}
"""

    row_schema: Schema = field(
        alias="schema", doc="Columns and their types, as `{name: type}` or Spark DDL.", change=Change.BOOTSTRAP
    )
    timestamp_format: str | None = field(
        None,
        holds=Holds.TEXT,
        doc="Pattern of timestamps, such as `yyyy-MM-dd HH:mm:ss`. Default: ISO 8601, with or without zone (UTC).",
    )

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return self.row_schema.ddl

    def reader_options(self) -> dict[str, str]:
        return {} if self.timestamp_format is None else {"timestampFormat": self.timestamp_format}

    def row_names(self, context: ReadContext) -> list[str]:
        return list(self.row_schema.names)

    def decode(self, value: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        options = {**self.reader_options(), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        return F.from_json(as_text(value), f"{self.row_schema.ddl}, `{RAW}` string", options)

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        parts = F.from_json(raw, "map<string,string>")
        return unreadable_fields(
            self.row_schema, parts, "not a JSON object", self.reader_options().get("timestampFormat")
        )
