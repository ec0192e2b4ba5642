"""Apache Parquet."""

from __future__ import annotations

from typing import ClassVar

from penstock.components.base import Format, ReadContext
from penstock.components.shared.found_files import only_allowed
from penstock.errors import PenstockError
from penstock.spec.fields import Change, field
from penstock.spec.schema import Schema


class Parquet(Format):
    """Apache Parquet files. Without a schema, the columns are those of the files found at the start."""

    name: ClassVar[str] = "parquet"
    spark_format: ClassVar[str] = "parquet"
    example: ClassVar[str] = """\
files: {path: ./in}
format: {parquet: {schema: {id: string, ts: timestamp}}}
"""

    row_schema: Schema | None = field(
        None, alias="schema", doc="Columns and their types. Default: as in the files.", change=Change.BOOTSTRAP
    )

    def reader_schema(self, context: ReadContext, path: str) -> str:
        if self.row_schema is not None:
            return self.row_schema.ddl
        from pyspark.errors import PySparkException

        try:
            # Its text format lists the same files and opens none.
            only_allowed(context.spark.read.text(path), context.node)
            found = context.spark.read.parquet(path).schema
        except PySparkException as error:
            reason = str(error.getMessage()).split("\n")[0]
            raise PenstockError.of("SCHEMA_NOT_INFERRED", node=context.node, reason=reason) from None
        return ", ".join(f"`{item.name}` {item.dataType.simpleString()}" for item in found)
