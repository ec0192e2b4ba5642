"""What a new version would have stored: rows in files beside its state, in place of its sinks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.base import Batch, Sink, SinkContext, SinkWriter
from penstock.components.sinks.files import Files, read_files
from penstock.engine.batch import Instead
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH, ROW = "_penstock_batch", "_penstock_row"
"""The columns of a shadow: the number of the batch, and the row as the sink would have got it."""


class Shadow(Files):
    """Takes rows as any sink gets them, also such as later ones replace."""

    def open(self, context: SinkContext) -> SinkWriter:
        return _ShadowWriter(super().open(context))


class _ShadowWriter(SinkWriter):
    def __init__(self, files: SinkWriter) -> None:
        self.files = files

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        from pyspark.sql import functions as F

        return self.files.write(batch, rows.select(F.lit(batch.id).alias(BATCH), F.struct("*").alias(ROW)))

    def position(self) -> dict[str, Any]:
        return self.files.position()

    def close(self) -> None:
        self.files.close()


def shadows_in(folder: Path) -> Instead:
    """A shadow in place of every sink, those for dead and late rows among them."""

    def shadow(name: str, sink: Sink) -> Sink:
        return Shadow(path=str(folder / name))

    return shadow


def shadow_rows(spark: SparkSession, folder: Path, sink: str, last: int) -> DataFrame | None:
    """What a sink would have got up to a batch, as `BATCH` and `ROW`; None if that is nothing."""
    try:
        rows = read_files(spark, str(folder / sink))
    except PenstockError as error:
        if error.code == "PATH_NOT_FOUND":
            return None
        raise
    return rows.where(rows[BATCH] <= last)
