"""Lets in as much of each throttled source as the pipeline's file and its sinks allow.

Spark asks each source before a batch how far it may be read, with a limit it was given at the start. Between batches
that limit is replaced here, so that one mechanism serves every source that reads by rows or by files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.components.base import Source
from penstock.engine.markers import execution, number_of, walk
from penstock.engine.throttle import FIRST_ROWS, LEAST_SECONDS, Pace, Seen, paced
from penstock.graph.nodes import Graph, Node
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.pipeline import Throttle

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engine.frames import FrameBuilder

_FIRST_FILES = 1


def throttled(node: Node) -> bool:
    return isinstance(node.spec, SourceSpec) and node.spec.throttle != Throttle()


def begun(node: Node, source: Source, trigger_seconds: float) -> Source:
    """The source with the limit of its first batch."""
    if source.read_through.batch_limit is None or not throttled(node):
        return source
    return source.limited_to(Gate(node, trigger_seconds).first)


class Gate:
    """What is let in of one throttled source, in rows or files."""

    def __init__(self, node: Node, trigger_seconds: float, *, history: bool = False) -> None:
        assert isinstance(node.spec, SourceSpec)
        assert isinstance(node.component, Source)
        source = node.component.read_through
        field = "max_files_per_batch" if history else source.batch_limit
        assert field is not None
        self.trigger = trigger_seconds
        self.throttle = node.spec.throttle
        self.by_files = field == "max_files_per_batch"
        self.most: int | None = None if history else getattr(source, field)
        self.least = _FIRST_FILES if self.by_files else FIRST_ROWS
        self.pace = Pace(self.least, self.least)

    @property
    def first(self) -> int:
        """The limit of the first batch. How many rows a file has is not known before one was read."""
        rate = self.throttle.rows_per_second
        if self.by_files or rate is None:
            return self._within(self.least)
        pace = paced(rate, self.trigger, 0.0)
        return self._within(min(self.least, pace) if self.throttle.adaptive else pace)

    def next(self, rows: int, files: int, seconds: float, *, troubled: bool) -> int:
        """The limit of the batch after one that read so much and took so long."""
        limits = []
        if self.throttle.adaptive:
            seen = Seen(files if self.by_files else rows, seconds, troubled)
            self.pace = self.pace.after(seen, max(self.trigger, LEAST_SECONDS))
            limits.append(self.pace.allowed)
        if self.throttle.rows_per_second is not None:
            pace = paced(self.throttle.rows_per_second, self.trigger, seconds)
            limits.append(max(pace * files // max(rows, 1), 1) if self.by_files else pace)
        return self._within(min(limits))

    def rest(self, rows: int, seconds: float) -> float:
        """For how long a batch must be followed by nothing, so that its rows were not too many a second."""
        rate = self.throttle.rows_per_second
        return 0.0 if rate is None else max(rows / rate - seconds, 0.0)

    def _within(self, limit: int) -> int:
        return limit if self.most is None else min(limit, self.most)


class Admission:
    """Decides after each batch how much the next one may read; told by the batch handler."""

    def __init__(self, graph: Graph, builder: FrameBuilder) -> None:
        present = [node for node in graph.of_kind("source") if throttled(node)]
        self.gates = {
            node.name: Gate(node, builder.trigger, history=node.name in builder.histories) for node in present
        }
        self.marks = {name: builder.marks[name].came for name in self.gates}
        self._streams = {builder.streams[mark][0]: name for name, mark in self.marks.items()}
        self.waits = False
        """Whether one batch follows the other at once, so that the pace has to be kept here."""
        self._began = 0.0

    def begin(self) -> None:
        """A batch begins."""
        self._began = time.monotonic()

    def end(self, query: StreamingQuery, order: Sequence[str], rows: Mapping[str, int], *, troubled: bool) -> None:
        """A batch has been stored: sets the limits of the next. `order` names what Spark reads, in its order."""
        if not self.gates:
            return
        seconds = time.monotonic() - self._began
        files = files_read(query, self.marks.values()) if any(gate.by_files for gate in self.gates.values()) else {}
        limits = {
            name: gate.next(rows.get(name, 0), files.get(self.marks[name], 0), seconds, troubled=troubled)
            for name, gate in self.gates.items()
        }
        places = {order.index(stream): name for stream, name in self._streams.items() if stream in order}
        if self.waits:
            time.sleep(max(0.0, *(gate.rest(rows.get(name, 0), seconds) for name, gate in self.gates.items())))
        set_limits(query, {place: (limits[name], self.gates[name].by_files) for place, name in places.items()})


def files_read(query: StreamingQuery, marks: Iterable[int]) -> dict[int, int]:
    """How many files the batch read below each of these markers."""
    wanted, found = set(marks), dict[int, int]()
    for node in walk(execution(query).executedPlan()):
        number = number_of(node)
        if number in wanted:
            found[number] = sum(_files(below) for below in walk(node))
    return found


def _files(node: Any) -> int:
    metric = node.metrics().get("numFiles")
    return int(metric.get().value()) if metric.isDefined() else 0


def set_limits(query: StreamingQuery, limits: Mapping[int, tuple[int, bool]]) -> None:
    """Sets how much of what Spark reads goes into the next batch: by place in its order, how many, and if in files."""
    from pyspark import SparkContext

    stream: Any = query._jsq.streamingQuery()
    jvm: Any = SparkContext._jvm
    of_spark = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
    of_python = jvm.org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceReadLimit
    sources, known = stream.sources(), stream.uniqueSources()
    for place, (most, by_files) in limits.items():
        # What is read by rows is read in Python, and its limits have a form of their own.
        limit = (
            of_spark.maxFiles(most) if by_files else of_python(json.dumps({"_type": "ReadMaxRows", "max_rows": most}))
        )
        known = known.updated(sources.apply(place), limit)
    getattr(stream, "uniqueSources_$eq")(known)
