"""History before live: what a source held before is read first, in the order of event time.

The history is copied once into the state folder, sorted by event time and cut into files; a pipeline reads these as
it would have read the rows when they were new, and then the source itself, with the same state and in one process.
The copy is what makes it repeatable: a run that dies goes on where it was, whatever has become of the history since.

history/SOURCE/plan.json   how many rows there are, where it was cut, and whether they have all been read
history/SOURCE/work/       what the source of the history keeps while it is copied
history/SOURCE/rows/       the rows, in files that are read in the order of their modification times
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import PLACE, RAW, Format, ReadContext, Source
from penstock.components.shared.crashpoints import reach
from penstock.durable import make_folders, sync_tree, write_durably
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph, Node
from penstock.spec.pipeline import Bootstrap, EventTime, Throttle
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_FILE = 100_000
FILES_PER_BATCH = 5
ROWS_PER_THROTTLED_FILE = 2_000
"""A batch reads whole files, so where little may be let in they are small."""
_PARTS = 16
_BOOKKEEPING = (RAW, PLACE)


@dataclass(frozen=True)
class Plan:
    """What is known of the history of a source."""

    rows: int
    until: str | None
    done: bool = False


class History:
    """The copied history of one source."""

    def __init__(self, spool: Path, source: str) -> None:
        self.source = source
        self.folder = spool / "history" / source
        self.rows = self.folder / "rows"
        self._plan = self.folder / "plan.json"

    @property
    def plan(self) -> Plan | None:
        """None before it has been copied."""
        return Plan(**json.loads(self._plan.read_text("utf-8"))) if self._plan.exists() else None

    @property
    def pending(self) -> bool:
        """Whether there are rows in it that may not have been read."""
        plan = self.plan
        return plan is not None and not plan.done

    def note(self, plan: Plan) -> None:
        if not plan.done:
            sync_tree(self.rows)
        make_folders(self.folder)
        write_durably(self._plan, json.dumps(asdict(plan)))

    def finish(self) -> None:
        """Notes that all of it has been read; the copy is no longer needed."""
        plan = self.plan
        assert plan is not None
        self.note(replace(plan, done=True))
        shutil.rmtree(self.rows, ignore_errors=True)


def with_history(graph: Graph) -> Iterator[tuple[Node, Bootstrap]]:
    for node in graph.of_kind("source"):
        if isinstance(node.spec, SourceSpec) and node.spec.bootstrap is not None:
            yield node, node.spec.bootstrap


def pending(graph: Graph, spool: Path) -> dict[str, History]:
    """The histories that are not read to their end."""
    found = {node.name: History(spool, node.name) for node, _ in with_history(graph)}
    return {name: history for name, history in found.items() if history.pending}


def waiting(graph: Graph, spool: Path, *, started: bool) -> list[str]:
    """The sources whose history has still to be copied; raises if it comes too late or was cut elsewhere.

    `started` says whether the pipeline has read anything before.
    """
    found = []
    for node, bootstrap in with_history(graph):
        plan = History(spool, node.name).plan
        place = graph.location(node.name, "bootstrap")
        if plan is None and started:
            raise PenstockError.of("HISTORY_TOO_LATE", place, node=node.name)
        if plan is None:
            found.append(node.name)
        elif plan.until != _written(bootstrap.until):
            before, now = plan.until or "its end", _written(bootstrap.until) or "its end"
            raise PenstockError.of("HISTORY_CHANGED", place, node=node.name, before=before, now=now)
    return found


def copy(spark: SparkSession, node: Node, folder: Path, spool: Path, live: DataFrame) -> Plan:
    """Copies the history of a source, sorted, with the columns of `live`; what it is now."""
    assert isinstance(node.spec, SourceSpec)
    bootstrap, event_time = node.spec.bootstrap, node.spec.event_time
    assert bootstrap is not None
    assert event_time is not None
    history = History(spool, node.name)
    shutil.rmtree(history.folder, ignore_errors=True)
    make_folders(history.folder)
    work = history.folder / "work"
    rows = read(spark, node, folder, work, live)
    if bootstrap.until is not None:
        rows = rows.where(~since(bootstrap.until, event_time, untimed=False))
    write_in_order(rows, node.spec, history.rows)
    shutil.rmtree(work, ignore_errors=True)
    reach("history.copied", 0)
    plan = Plan(date_in_order(history.rows), _written(bootstrap.until))
    history.note(plan)
    return plan


def write_in_order(rows: DataFrame, spec: SourceSpec, target: Path) -> None:
    """Writes rows of a source in files whose names are in the order of event time, and so are the rows in them."""
    assert spec.event_time is not None
    time = f"`{spec.event_time.column}`"
    in_order = rows.repartitionByRange(_PARTS, time).sortWithinPartitions(time)
    size = ROWS_PER_FILE if spec.throttle == Throttle() else ROWS_PER_THROTTLED_FILE
    in_order.write.option("maxRecordsPerFile", size).parquet(str(target))


def reader(context: ReadContext, node: Node) -> tuple[Source, ReadContext]:
    """The source of a history, and how it is read; `context` is that of the source it belongs to."""
    assert isinstance(node.spec, SourceSpec)
    assert node.spec.bootstrap is not None
    source = with_secrets(node.spec.bootstrap.component)
    assert isinstance(source, Source)
    encoding = node.spec.bootstrap.format or node.spec.format
    found = with_secrets(encoding) if encoding is not None and source.takes_format else None
    assert found is None or isinstance(found, Format)
    return source, replace(context, format=found)


def read(spark: SparkSession, node: Node, folder: Path, spool: Path, live: DataFrame) -> DataFrame:
    """All rows of the history, with the columns of the source in its order."""
    source, context = reader(ReadContext(spark, node.name, folder, spool), node)
    rows = source.read_all(context)
    place = source.place()
    if place is not None and PLACE not in rows.columns:
        rows = rows.withColumn(PLACE, place)
    return _as_live(rows, live, node.name)


def _as_live(rows: DataFrame, live: DataFrame, node: str) -> DataFrame:
    """The rows with exactly the columns of the source, and those that tell of unreadable ones."""
    wanted = {item.name: item.dataType for item in live.schema.fields if item.name not in _BOOKKEEPING}
    there = {item.name: item.dataType for item in rows.schema.fields}
    for name, kind in wanted.items():
        if name not in there:
            raise PenstockError.of("HISTORY_COLUMNS", node=node, reason=f"there is no '{name}'")
        if there[name] != kind:
            reason = f"'{name}' is {there[name].simpleString()}, not {kind.simpleString()}"
            raise PenstockError.of("HISTORY_COLUMNS", node=node, reason=reason)
    extra = [name for name in there if name not in wanted and name not in _BOOKKEEPING]
    if extra:
        raise PenstockError.of("HISTORY_COLUMNS", node=node, reason=f"the source has no '{extra[0]}'")
    return rows.select(*(f"`{name}`" for name in wanted), *(name for name in _BOOKKEEPING if name in there))


def since(cut: dt.datetime, event_time: EventTime, *, untimed: bool) -> Column:
    """Whether a row is not older than the cut; `untimed` is the answer for one without time."""
    from pyspark.sql import functions as F

    micros = (cut - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return F.coalesce(F.unix_micros(F.col(f"`{event_time.column}`")) >= F.lit(micros), F.lit(untimed))


def stream(spark: SparkSession, history: History, name: str, most_files: int) -> DataFrame:
    """The copied rows as a stream of which the first batch reads so many files."""
    schema = spark.read.parquet(str(history.rows)).schema
    reader = spark.readStream.name(name).schema(schema).option("maxFilesPerTrigger", str(most_files))
    return reader.parquet(str(history.rows))


def date_in_order(rows: Path) -> int:
    """Gives the files times in the order of their names, which is that of their rows; how many rows there are."""
    from pyarrow import parquet

    total = 0
    for number, file in enumerate(sorted(rows.glob("*.parquet"))):
        total += parquet.read_metadata(file).num_rows
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    return total


def _written(time: dt.datetime | None) -> str | None:
    return None if time is None else time.astimezone(dt.UTC).isoformat()
