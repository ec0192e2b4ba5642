"""Comma-separated values."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import RAW, Format, ReadContext
from penstock.components.shared.malformed import as_text, unreadable_fields
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column

_WHOLE = "not a CSV line"


class Csv(Format):
    """Comma-separated values, columns in the order of the schema.

    A line with another number of columns, or with a value that does not fit its column's type, is malformed: it
    goes to the dead letters with the reason. Empty values are null.
    """

    name: ClassVar[str] = "csv"
    spark_format: ClassVar[str] = "csv"
    malformed: ClassVar[bool] = True
    messages: ClassVar[bool] = True
    example: ClassVar[str] = """\
files: {path: ./in}
format: {csv: {schema: "id string, amount double", header: true}}
"""

    row_schema: Schema = field(
        alias="schema", doc="Columns and their types, in the order they stand in the file.", change=Change.BOOTSTRAP
    )
    header: bool = field(True, doc="Whether the first line of each file names the columns; it is skipped.")
    delimiter: str = field(",", holds=Holds.TEXT, doc="What separates the values.", min_length=1, max_length=4)
    timestamp_format: str | None = field(
        None,
        holds=Holds.TEXT,
        doc="Pattern of timestamps, such as `yyyy-MM-dd HH:mm:ss`. Default: ISO 8601, with or without zone (UTC).",
    )

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return self.row_schema.ddl

    def reader_options(self) -> dict[str, str]:
        options = {"header": str(self.header).lower(), "sep": self.delimiter, "enforceSchema": "true"}
        return options if self.timestamp_format is None else {**options, "timestampFormat": self.timestamp_format}

    def row_names(self, context: ReadContext) -> list[str]:
        return list(self.row_schema.names)

    def decode(self, value: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        options = {"sep": self.delimiter, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        options |= {} if self.timestamp_format is None else {"timestampFormat": self.timestamp_format}
        return F.from_csv(as_text(value), f"{self.row_schema.ddl}, `{RAW}` string", options)

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        names = self.row_schema.names
        as_text = ", ".join(f"`{name}` string" for name in names)
        values = F.from_csv(raw, as_text, {"sep": self.delimiter})
        pairs = [item for name in names for item in (F.lit(name), values[name])]
        found = F.size(F.split(raw, rf"\Q{self.delimiter}\E"))
        wrong_count = F.concat(F.lit(f"{len(names)} values expected, "), found.cast("string"), F.lit(" found"))
        time_format = self.reader_options().get("timestampFormat")
        reason = unreadable_fields(self.row_schema, F.create_map(*pairs), _WHOLE, time_format)
        return F.when((found < len(names)) | ((found > len(names)) & (reason == _WHOLE)), wrong_count).otherwise(reason)
