"""Dead letters that are fed back once what was wrong has been mended.

Every dead letter whose row can be fed back is also kept in the state folder, batch by batch, by the source, step or
sink that set it aside. Replaying moves such files into a folder that this node reads beside its input: a file is in
one folder or the other, and Spark reads it once, so each row is fed back once.

dead/NODE/KIND/batch=N/   what can be fed back
again/NODE/               what is; a pipeline reads it if the folder was there when it started
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import PLACE, RAW, Format, ReadContext
from penstock.components.shared.event_time import delay_of, event_time_of, with_event_time
from penstock.components.shared.malformed import as_bytes
from penstock.engine.markers import marker
from penstock.engine.replays import kept_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEPT_SECONDS = 30 * 86_400
_LETTER = "stage string, raw string"


def kept_letters(spool: Path, node: str) -> list[Path]:
    """The files of dead letters that can be fed back to a node."""
    return [file for folder in sorted((spool / "dead" / node).glob("*")) for file in kept_files(folder)]


def again_folder(spool: Path, node: str) -> Path:
    return spool / "again" / node


def is_fed_back(spool: Path, node: str) -> bool:
    """Whether a node has been given dead letters again, now or at any time before."""
    return again_folder(spool, node).is_dir()


def keep_letters(letters: DataFrame, spool: Path, node: str, kind: str, batch: int) -> None:
    """Keeps the dead letters of a batch to be fed back: a batch that is run again replaces its own of this kind."""
    folder = spool / "dead" / node / kind
    place = folder / f"batch={batch}"
    if not place.with_suffix(".moved").exists():
        letters.select("stage", "raw").coalesce(1).write.mode("overwrite").parquet(str(place))
    for file in kept_files(folder):
        if file.stat().st_mtime < time.time() - _KEPT_SECONDS:
            shutil.rmtree(file.parent, ignore_errors=True)


def letters_again(spark: SparkSession, spool: Path, node: str, stream: str, mark: int) -> DataFrame:
    """What is fed back to a node, as a stream of letters whose rows are counted by the marker."""
    reader = spark.readStream.name(stream).schema(_LETTER)
    return reader.parquet(str(again_folder(spool, node))).where(marker(mark))


def of_source(letters: DataFrame, rows: DataFrame, context: ReadContext) -> DataFrame:
    """Letters of a source as rows it could have read; what still cannot be read comes as such."""
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name not in (RAW, PLACE)]
    whole = _as_row(letters, rows, names)
    if isinstance(context.format, Format) and context.format.messages:
        known = set(context.format.row_names(context))
        row = context.format.decode(as_bytes(F.col("raw")), context)
        read = letters.withColumn("row", row)
        columns = [read["row"][name] if name in known else F.lit(None) for name in names]
        unread = F.when(read["stage"] == "parse", read["row"][RAW]).alias(RAW)
        chosen = [
            F.when(read["stage"] == "parse", column.cast(rows.schema[name].dataType)).otherwise(whole[name]).alias(name)
            for name, column in zip(names, columns, strict=True)
        ]
        return read.select(*chosen, unread)
    return letters.select(*(whole[name].alias(name) for name in names))


def of_step(letters: DataFrame, rows: DataFrame) -> DataFrame:
    """Letters of a step or a sink as rows of its input."""
    row = _as_row(letters, rows, rows.columns)
    return letters.select(*(row[name].alias(name) for name in rows.columns))


def _as_row(letters: DataFrame, rows: DataFrame, names: list[str]) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(name, rows.schema[name].dataType) for name in names]
    return F.from_json(letters["raw"], StructType(fields))


def pseudo_node(node: str) -> str:
    """The name under which rows travel that are fed back to a node after the streaming query."""
    return f"{node}@again"


def with_again(rows: DataFrame, again: DataFrame) -> DataFrame:
    """The rows of a stream together with those that are fed back."""
    both = rows.unionByName(again, allowMissingColumns=True)
    column = event_time_of(rows)
    return both if column is None else with_event_time(both, column, delay_of(rows))
