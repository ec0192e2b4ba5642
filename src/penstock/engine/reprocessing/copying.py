"""The rows of a range, copied in the order of event time, with a last one that only says that the range is over."""

from __future__ import annotations

import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import HEARTBEAT, RAW, Source
from penstock.components.shared.crashpoints import reach
from penstock.durable import make_folders
from penstock.engine.history import History, Plan, date_in_order, read, since, write_in_order
from penstock.engine.reprocessing.plan import Reading
from penstock.graph.nodes import Node
from penstock.spec.pipeline import Bootstrap, EventTime
from penstock.spec.pipeline import Source as SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END = "~end.parquet"
"""A name after all that Spark gives."""


def copy_range(spark: SparkSession, node: Node, folder: Path, spool: Path, live: DataFrame, wanted: Reading) -> History:
    """Copies what a source held in a range, once. Rows without a time belong to no range."""
    from pyspark.sql import functions as F

    event_time = _time_of(node)
    history = _begun(spool, node)
    if history.plan is not None:
        return history
    rows = _read(spark, node, folder, history.folder / "work", live, wanted)
    inside = ~since(wanted.until, event_time, untimed=True)
    if wanted.since is not None:
        inside = inside & since(wanted.since, event_time, untimed=False)
    rows = rows.where(inside).withColumn(HEARTBEAT, F.lit(None).cast("boolean"))
    assert isinstance(node.spec, SourceSpec)
    write_in_order(rows, node.spec, history.rows)
    return _finished(spark, history, rows, event_time, wanted.until)


def end_of_range(spark: SparkSession, node: Node, spool: Path, live: DataFrame, until: dt.datetime) -> History:
    """Only what says that the range is over."""
    from pyspark.sql import functions as F

    history = _begun(spool, node)
    if history.plan is not None:
        return history
    history.rows.mkdir(parents=True)
    names = [item.name for item in live.schema.fields if item.name != HEARTBEAT]
    rows = live.select(*(f"`{name}`" for name in names))
    empty = spark.createDataFrame([], rows.schema).withColumn(HEARTBEAT, F.lit(None).cast("boolean"))
    return _finished(spark, history, empty, _time_of(node), until)


def _begun(spool: Path, node: Node) -> History:
    history = History(spool, node.name)
    if history.plan is None:
        shutil.rmtree(history.folder, ignore_errors=True)
        make_folders(history.folder)
    return history


def _finished(
    spark: SparkSession, history: History, rows: DataFrame, event_time: EventTime, until: dt.datetime
) -> History:
    """Adds the end, lets files be read in the order of their names, and notes that it is all there."""
    from pyspark.sql import functions as F

    end = until + dt.timedelta(milliseconds=event_time.max_delay.millis)
    told = {event_time.column: F.lit(end), HEARTBEAT: F.lit(True)}
    columns = [told.get(item.name, F.lit(None)).cast(item.dataType).alias(item.name) for item in rows.schema.fields]
    work = history.folder / "end"
    spark.range(1).select(*columns).coalesce(1).write.mode("overwrite").parquet(str(work))
    (part,) = work.glob("*.parquet")
    part.rename(history.rows / _END)
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(history.folder / "work", ignore_errors=True)
    reach("history.copied", 0)
    history.note(Plan(date_in_order(history.rows) - 1, None))
    return history


def _time_of(node: Node) -> EventTime:
    assert isinstance(node.spec, SourceSpec)
    assert node.spec.event_time is not None
    return node.spec.event_time


def _read(spark: SparkSession, node: Node, folder: Path, work: Path, live: DataFrame, wanted: Reading) -> DataFrame:
    """All that a source has, and before it what is in its archive, each up to where the other begins."""
    spec = node.spec
    assert isinstance(spec, SourceSpec)
    assert spec.bootstrap is not None
    source, event_time, archive = node.component, _time_of(node), spec.bootstrap
    assert isinstance(source, Source)
    if archive.component == source:
        return _all(spark, node, folder, work, live, wanted, itself=True)
    old = _all(spark, node, folder, work, live, wanted, itself=False)
    if archive.until is not None:
        old = old.where(~since(archive.until, event_time, untimed=True))
    if type(source).read_all is Source.read_all or (archive.until is not None and wanted.until <= archive.until):
        return old
    new = _all(spark, node, folder, work, live, wanted, itself=True)
    if archive.until is not None:
        new = new.where(since(archive.until, event_time, untimed=False))
    return old.unionByName(new, allowMissingColumns=True)


def _all(
    spark: SparkSession, node: Node, folder: Path, work: Path, live: DataFrame, wanted: Reading, *, itself: bool
) -> DataFrame:
    spec = node.spec
    assert isinstance(spec, SourceSpec)
    assert spec.bootstrap is not None
    if itself:
        source = node.component
        assert isinstance(source, Source)
        archived = spec.bootstrap.component != source
        if not archived or spec.bootstrap.until is not None:
            # Nothing is written before it happens, but clocks differ; as much as rows may be late is allowed for.
            delay = dt.timedelta(milliseconds=_time_of(node).max_delay.millis)
            source = source.written_since(None if wanted.since is None else wanted.since - delay)
        changed = spec.model_copy(update={"bootstrap": Bootstrap(component=source, format=spec.format)})
        node = replace(node, spec=changed)
    rows = read(spark, node, folder, work, live)
    return rows.where(rows[RAW].isNull()) if RAW in rows.columns else rows
