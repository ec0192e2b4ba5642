"""Builds the streaming frame of every node of a graph, sources marked so that their rows can be accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import HEARTBEAT, RAW, Format, ReadContext, Source, Step, StepContext
from penstock.engine.markers import marked, marker, reading_all
from penstock.errors import PenstockError, did_you_mean
from penstock.graph.nodes import Graph, Node
from penstock.spec.pipeline import EventTime
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DELAY = "spark.watermarkDelayMs"
_BOOKKEEPING = (RAW, HEARTBEAT)


@dataclass(frozen=True)
class SourceMarks:
    """Numbers of the markers of a source: where its rows come in, and where the readable ones go on."""

    came: int
    readable: int


_UNCOUNTED = SourceMarks(900_000, 900_001)
"""Marks of further copies of a source: their rows are those of the first one, counted there."""


class FrameBuilder:
    """Frames by node name. Building runs no job; a node's frame may raise what Spark's analyser raises."""

    def __init__(self, spark: SparkSession, graph: Graph, spool: Path) -> None:
        self.spark = spark
        self.graph = graph
        self.spool = spool
        names = [node.name for node in graph.of_kind("source")]
        self.marks = {name: SourceMarks(2 * index, 2 * index + 1) for index, name in enumerate(names)}

    def frame(self, node: Node, inputs: Mapping[str, DataFrame]) -> DataFrame:
        if node.kind == "source":
            return self._source(node)
        return self._step(node, self.apart(node.inputs, inputs, (node.name,)))

    def apart(
        self, names: tuple[str, ...], frames: Mapping[str, DataFrame], via: tuple[str, ...]
    ) -> dict[str, DataFrame]:
        """The frames of these nodes, such that no source is read by two of them: Spark wants each named once.

        A node that shares a source with one before it is built anew on a copy of the source. Copies are named by
        the way rows take, so that a name stays the same while other parts of the pipeline change.
        """
        found: dict[str, DataFrame] = {}
        taken: set[str] = set()
        for name in names:
            sources = self._sources_of(name)
            shared = frames[name].isStreaming and sources & taken
            found[name] = self._again(name, via, taken) if shared else frames[name]
            taken |= sources
        return found

    def _sources_of(self, name: str) -> set[str]:
        return {found for found in (name, *self.graph.ancestors(name)) if self.graph.nodes[found].kind == "source"}

    def _again(self, name: str, via: tuple[str, ...], taken: set[str]) -> DataFrame:
        """The node built anew; its rows come from copies of the sources that are taken. Takes the others itself."""
        node = self.graph.nodes[name]
        if node.kind == "source":
            copied = name in taken
            taken.add(name)
            return self._source(node, via if copied else ())
        return self._step(node, {below: self._again(below, (*via, name), taken) for below in node.inputs})

    def _step(self, node: Node, inputs: Mapping[str, DataFrame]) -> DataFrame:
        component = with_secrets(node.component)
        assert isinstance(component, Step)
        return component.apply(inputs, self._step_context(node, inputs))

    def _step_context(self, node: Node, inputs: Mapping[str, DataFrame]) -> StepContext:
        times = [name for frame in inputs.values() if (name := event_time_of(frame)) is not None]
        return StepContext(self.spark, node.name, self.graph.file.folder, times[0] if times else None)

    def read_context(self, node: Node, via: tuple[str, ...] = ()) -> ReadContext:
        assert isinstance(node.spec, SourceSpec)
        found = with_secrets(node.spec.format) if node.spec.format is not None else None
        assert found is None or isinstance(found, Format)
        return ReadContext(self.spark, node.name, self.graph.file.folder, self.spool, found, via)

    def _source(self, node: Node, via: tuple[str, ...] = ()) -> DataFrame:
        source, spec = with_secrets(node.component), node.spec
        assert isinstance(source, Source)
        assert isinstance(spec, SourceSpec)
        rows = source.read(self.read_context(node, via))
        marks = _UNCOUNTED if via else self.marks[node.name]
        rows = rows.where(marker(marks.came))
        if spec.event_time is not None:
            rows = _with_watermark(rows, node.name, spec.event_time)
        if spec.event_time is None and not any(name in rows.columns for name in _BOOKKEEPING):
            # Every row can be used. A condition that says so would be optimised away, and the rows not be counted.
            return rows.where(marker(marks.readable))
        readable = marked(marks.readable, is_readable(rows, spec.event_time) & ~_is_heartbeat(rows))
        if RAW in rows.columns:
            # Spark checks only the columns it reads, so rows would be good or bad by what the steps happen to use.
            readable = readable & reading_all([name for name in rows.columns if name not in _BOOKKEEPING])
        return rows.where(readable).drop(*_BOOKKEEPING)


def is_readable(rows: DataFrame, event_time: EventTime | None) -> Column:
    """Whether a row of a source can be used: it was read whole, and it says when it happened."""
    from pyspark.sql import functions as F

    readable = F.col(RAW).isNull() if RAW in rows.columns else F.lit(True)
    if event_time is not None:
        readable = readable & F.col(f"`{event_time.column}`").isNotNull()
    return readable


def _is_heartbeat(rows: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.col(HEARTBEAT), F.lit(False)) if HEARTBEAT in rows.columns else F.lit(False)


def _with_watermark(rows: DataFrame, node: str, event_time: EventTime) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    column = event_time.column
    if column not in rows.columns:
        known = [name for name in rows.columns if name not in _BOOKKEEPING]
        raise PenstockError.of(
            "EVENT_TIME_COLUMN_UNKNOWN", node=node, column=column, suggestion=did_you_mean(column, known)
        )
    kind = rows.schema[column].dataType
    if not isinstance(kind, TimestampType):
        raise PenstockError.of("EVENT_TIME_NOT_A_TIMESTAMP", node=node, column=column, type=kind.simpleString())
    if RAW in rows.columns:
        # A malformed row may still have a time; it must not move the watermark.
        rows = rows.withColumn(column, F.when(F.col(RAW).isNull(), F.col(f"`{column}`")))
    return rows.withWatermark(column, f"{event_time.max_delay.millis} milliseconds")


def event_time_of(frame: DataFrame) -> str | None:
    """The column that carries the watermark, if any."""
    return next((item.name for item in frame.schema.fields if DELAY in (item.metadata or {})), None)


def columns_of(frame: DataFrame) -> dict[str, str]:
    return {item.name: item.dataType.simpleString() for item in frame.schema.fields}
