"""Sources that give nothing for a while: they must not hold the watermark of all the others back.

Spark's watermark is that of the slowest source, and a source without rows stays where it is. One with `idleAfter`
has a second, internal stream beside it, of ticks: rows that only carry a time. When the source has been silent for
long enough and others are ahead of it, a tick takes its watermark to theirs. Ticks are files in the state folder, so
a batch that is run again sees the same ones.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.base import HEARTBEAT, ReadContext
from penstock.durable import make_folders, write_durably
from penstock.engine.markers import execution, number_of, walk
from penstock.spec.pipeline import EventTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_KEPT_TICKS = 100


def tick_folder(spool: Path, source: str) -> Path:
    folder = spool / "ticks" / source
    make_folders(folder)
    return folder


def with_ticks(rows: DataFrame, context: ReadContext, event_time: EventTime) -> DataFrame:
    """The rows of a source together with its ticks."""
    from pyspark.sql import functions as F

    ticks = (
        context.spark.readStream.name(f"{context.stream}_TICKS")
        .schema(f"`{event_time.column}` timestamp")
        .json(str(tick_folder(context.spool, context.node)))
        .withColumn(HEARTBEAT, F.lit(True))
    )
    own = rows if HEARTBEAT in rows.columns else rows.withColumn(HEARTBEAT, F.lit(False))
    return own.unionByName(ticks, allowMissingColumns=True)


def tick(folder: Path, column: str, time: dt.datetime) -> None:
    """Hands a tick to a source; older ones that have long been read are removed."""
    name = f"{time.timestamp():020.6f}-{uuid.uuid4().hex[:8]}.json"
    write_durably(folder / name, json.dumps({column: time.isoformat()}) + "\n")
    for old in sorted(folder.glob("*.json"))[:-_KEPT_TICKS]:
        old.unlink(missing_ok=True)


@dataclass(frozen=True)
class SourceTime:
    """What is known of a source: its watermark in milliseconds (0 before any row), and for how long it is silent."""

    watermark: int
    silent_seconds: float


def catch_up(name: str, sources: Mapping[str, SourceTime], idle_after: Mapping[str, float]) -> int | None:
    """The watermark that a silent source should be taken to: that of the slowest source which is not silent.

    If all are silent, none holds the others back, and it is that of the furthest. None if the source is not silent
    long enough, or not behind.
    """

    def idle(source: str) -> bool:
        return source in idle_after and sources[source].silent_seconds >= idle_after[source]

    awake = [time.watermark for source, time in sources.items() if not idle(source)]
    target = min(awake) if awake else max(time.watermark for time in sources.values())
    return target if idle(name) and target > sources[name].watermark else None


class Remembered:
    """The watermark of each source, kept from run to run: Spark keeps only that of the slowest."""

    def __init__(self, spool: Path) -> None:
        self.file = spool / "ticks" / "watermarks.json"
        self.marks: dict[str, int] = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}

    def with_new(self, found: Mapping[str, int]) -> dict[str, int]:
        """What is known now, noted if it is news."""
        known = {name: max(found.get(name, 0), self.marks.get(name, 0)) for name in {**self.marks, **found}}
        if known != self.marks:
            self.marks = known
            make_folders(self.file.parent)
            write_durably(self.file, json.dumps(known))
        return known


class SourceWatermarks:
    """The watermark of each source, as Spark keeps it for a query; `came` are sources by marker."""

    def __init__(self, query: StreamingQuery, came: Mapping[int, str]) -> None:
        self.query = query
        self.came = came
        self._field: Any = None
        self._sources: dict[Any, str] = {}
        """By Spark's name of what makes the watermark, which stays the same from batch to batch."""

    def read(self) -> dict[str, int]:
        """In milliseconds, by source; none before the first batch."""
        tracker = self.query._jsq.streamingQuery().watermarkTracker()
        if tracker is None or not self._known():
            return {}
        if self._field is None:
            self._field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
            self._field.setAccessible(True)
        by_operator = self._field.get(tracker)
        found: dict[str, int] = {}
        for operator, source in self._sources.items():
            value = by_operator.get(operator)
            if value.isDefined():
                found[source] = max(_millis(value.get()), found.get(source, 0))
        return found

    def _known(self) -> bool:
        """Whether it is known what makes watermarks; the plan, which says so, is there with the first batch."""
        if not self._sources and (last := execution(self.query)) is not None:
            for node in walk(last.analyzed()):
                if node.nodeName() == "EventTimeWatermark" and (name := _source_below(node, self.came)) is not None:
                    self._sources[node.nodeId()] = name
        return bool(self._sources)


def _source_below(node: Any, came: Mapping[int, str]) -> str | None:
    for below in walk(node):
        number = number_of(below)
        if number is not None and number in came:
            return came[number]
    return None


def _millis(value: Any) -> int:
    """Spark keeps a number, or maybe one."""
    if isinstance(value, int):
        return value
    return int(value.get()) if value.isDefined() else 0
