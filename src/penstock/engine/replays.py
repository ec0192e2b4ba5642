"""Rows that were late once and are fed to their step again, so that what it gave out is corrected.

Late rows that are set aside are also kept, batch by batch, as Parquet in the state folder for as long as they can
correct anything. Replaying moves such files into a folder that the step reads beside its input: a file is in one
folder or the other, and Spark reads it once, so each row is replayed once, whether the pipeline is running or not.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.shared.event_time import delay_of, event_time_of, with_event_time
from penstock.components.shared.kernel_inputs import REPLAYED
from penstock.durable import make_folders, rename_durably, sync_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept_folder(spool: Path, step: str) -> Path:
    """Where the late rows of a step wait to be replayed, a folder for each batch."""
    return spool / "late" / step


def replay_folder(spool: Path, step: str) -> Path:
    """Where a step reads what is replayed."""
    folder = spool / "replay" / step
    make_folders(folder)
    return folder


def with_replays(rows: DataFrame, spool: Path, step: str, stream: str, number: int) -> DataFrame:
    """The input of a step together with what is replayed to it; `number` marks the latter in the plan."""
    from pyspark.sql import functions as F

    column = event_time_of(rows)
    assert column is not None
    again = replayed_rows(rows, spool, step, stream, number)
    both = rows.withColumn(REPLAYED, F.lit(False)).unionByName(again)
    return with_event_time(both, column, delay_of(rows))


def replayed_rows(rows: DataFrame, spool: Path, step: str, stream: str, number: int) -> DataFrame:
    """What is replayed to a step that reads these rows, marked as such; `number` marks it in the plan."""
    from pyspark.sql import functions as F

    from penstock.engine.markers import marker

    again = (
        rows.sparkSession.readStream.name(stream)
        .schema(rows.schema)
        .parquet(str(replay_folder(spool, step)))
        .where(marker(number))
        .withColumn(REPLAYED, F.lit(True))
    )
    column = event_time_of(rows)
    return again if column is None else with_event_time(again, column, delay_of(rows))


def keep(rows: DataFrame, folder: Path, batch: int, oldest_ms: int) -> None:
    """Keeps the late rows of a batch, once: a batch that is run again replaces its own, unless it was replayed.

    Rows of windows that ended before `oldest_ms` can correct nothing any more and are given up.
    """
    place = folder / f"batch={batch}"
    if not place.with_suffix(".moved").exists():
        rows.drop(REPLAYED).coalesce(1).write.mode("overwrite").parquet(str(place))
    for file in kept_files(folder):
        if newest_window(file) <= oldest_ms:
            shutil.rmtree(file.parent, ignore_errors=True)


def newest_window(file: Path) -> int:
    """When the last of the windows ended that a file of kept rows is late for, in milliseconds."""
    from pyarrow import compute, parquet

    ends = parquet.read_table(file, columns=["late_window_end"]).column(0)
    newest = compute.max(ends).as_py()
    return 0 if newest is None else int(newest.timestamp() * 1000)


def kept_files(folder: Path) -> list[Path]:
    """The files that wait, oldest batch first."""
    found = sorted(folder.glob("batch=*"), key=lambda place: int(place.stem.split("=")[1]))
    return [file for place in found if place.is_dir() for file in sorted(place.glob("*.parquet"))]


def replay(file: Path, target: Path) -> None:
    """Moves a file of kept rows to where its step reads; the batch is noted, so that it is not kept a second time."""
    place = file.parent
    make_folders(target)
    place.with_suffix(".moved").touch()
    sync_folder(place.parent)
    rename_durably(file, target / f"{place.name.replace('=', '-')}-{file.name}")
    if not any(place.glob("*.parquet")):
        shutil.rmtree(place, ignore_errors=True)
