"""Functions over Arrow on a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Batches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def in_arrow(rows: DataFrame, function: Batches, schema: str | StructType) -> DataFrame:
    """What a function gives for the rows of each task; like Spark's `mapInArrow`, but names may contain dots."""
    names = rows.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    # Spark looks columns up by their bare names, in which a dot would mean a field of a struct.
    numbered = rows.toDF(*(f"_{number}" for number in range(len(names))))
    return numbered.mapInArrow(named, schema)
