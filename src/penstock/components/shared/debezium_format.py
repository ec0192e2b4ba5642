"""Change records as a format that the sources of Kafka and of files can read with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import PLACE, RAW, Format, ReadContext
from penstock.spec.fields import field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.debezium import DebeziumDecoder

Part = Literal["op", "deleted", "ts", "version"]
Unit = Literal["millis", "micros", "nanos"]
KEY = "_penstock_key"
"""Column with the key of a message."""


class Changes(Format):
    """Made by the source `cdc`, not by users."""

    name: ClassVar[str] = "debezium"
    spark_format: ClassVar[str] = "text"
    messages: ClassVar[bool] = True
    in_python: ClassVar[bool] = True

    row_schema: Schema = field(doc="Columns of the table.")
    columns: dict[str, Part] = field(doc="Further columns.")
    units: Unit | dict[str, Unit] | None = field(doc="Units of times.")
    decimals: Literal["base64", "text"] = field(doc="How decimals are written.")
    keyed: bool = field(doc="Whether messages have keys.")

    def decoder(self, context: ReadContext) -> DebeziumDecoder:
        from pyspark.sql.pandas.types import to_arrow_schema

        from penstock.components.shared.debezium import DebeziumDecoder

        declared = context.spark.createDataFrame([], self.row_schema.ddl).schema
        return DebeziumDecoder(to_arrow_schema(declared, timezone="UTC"), self.columns, self.units, self.decimals)

    def row_names(self, context: ReadContext) -> list[str]:
        return list(self.decoder(context).schema.names)

    def decode(self, value: Column, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        from penstock.components.shared.message_rows import row_column

        key = F.col("key") if self.keyed else F.lit(None).cast("binary")
        return row_column(F.struct(key.alias("key"), value.alias("value")), self.decoder(context))

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column:
        from penstock.components.shared.message_rows import reason_column

        return reason_column(raw, self.decoder(context))

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return "value string"

    def unpack(self, found: DataFrame, context: ReadContext, path: str) -> DataFrame:
        from pyspark.sql import functions as F

        row = self.decode(F.col("value").cast("binary"), context)
        placed = found.select(row.alias("_row"), F.col("_metadata.file_path").alias(PLACE))
        return placed.select(*(F.col("_row")[name].alias(name) for name in (*self.row_names(context), RAW)), PLACE)
