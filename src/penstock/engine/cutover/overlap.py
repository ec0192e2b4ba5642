"""What the pipeline and its new version have both given out since the savepoint, sink by sink, and how it compares.

Where a sink can tell which batches stored its rows, both sides are rows of the same batches. Elsewhere they are rows of
the same span of event time: it begins where the pipeline had read nothing before the savepoint, and ends at the
watermark that the new version has come to. Without event time, only rows that the new version has are looked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.components.base import Part, Sink, SinkContext, Times
from penstock.engine.analyse import Analysed, analyse
from penstock.engine.checkpoint_cut import watermark_after
from penstock.engine.cutover.comparing import Change, Compared, Row, columns_alike, compare, newest, text_of
from penstock.engine.cutover.follower import Standing
from penstock.engine.cutover.shadows import BATCH, ROW, shadow_rows
from penstock.engine.statedir import Identity
from penstock.graph.nodes import Graph, Node
from penstock.reports.savepoints import Savepoint
from penstock.spec.resolve import with_secrets
from penstock.spec.schema import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VERSION, _DELETE = "_penstock_version", "_penstock_delete"
How = Literal["batches", "time", "new rows", "not compared"]


@dataclass(frozen=True)
class SinkCompared:
    """A sink of the new version, how its rows were compared, and what came out."""

    sink: str
    how: How
    compared: Compared | None = None
    reason: str = ""
    """Why it was not compared."""
    new_columns: tuple[str, ...] = ()
    """Columns that only the new version gives, which are left out."""
    gone_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A span of event time, in milliseconds: after the first, up to the second."""

    after: int
    until: int


@dataclass(frozen=True)
class Sides:
    """All that it takes to look at both sides."""

    spark: SparkSession
    old: Graph
    new: Graph
    analysed: Analysed
    """The new version."""
    identity: Identity
    """Of the pipeline."""
    savepoint: Savepoint
    saved: Path
    """The folder of the savepoint."""
    checkpoint: Path
    """Of the new version."""
    shadow: Path
    standing: Standing

    @property
    def span(self) -> Span | None:
        """None without event time, or if no time has passed that both have seen."""
        log = (self.checkpoint / "offsets" / str(self.standing.batch)).read_text("utf-8")
        until = int(json.loads(log.splitlines()[1])["batchWatermarkMs"])
        delays = [source.event_time.max_delay.millis for source in self.old.file.pipeline.sources if source.event_time]
        after = watermark_after(self.saved / "checkpoint", self.savepoint.batch) + max(delays, default=0)
        return Span(after, until) if delays and until > after else None


def compared(sides: Sides, kept: dict[str, str]) -> tuple[SinkCompared, ...]:
    """All sinks of the new version; `kept` are new names with those of before."""
    before = analyse(sides.spark, sides.old, sides.analysed.builder.spool, sides.identity.buckets)
    return tuple(_compared(sides, before, node, kept.get(node.name)) for node in sides.new.of_kind("sink"))


def _compared(sides: Sides, before: Analysed, node: Node, old_name: str | None) -> SinkCompared:
    if old_name is None:
        return SinkCompared(node.name, "not compared", reason="only the new version has it")
    old = sides.old.nodes[old_name].component
    assert isinstance(old, Sink)
    had, has = before.analysis.facts[old_name].columns, sides.analysed.analysis.facts[node.name].columns
    columns, gone, new = columns_alike([*had], [*has])
    columns = [name for name in columns if "binary" not in had[name] and name != getattr(old, "delete", None)]
    sink = _Side(sides, old_name, node, with_secrets(old), columns, _time_column(before, sides.old.nodes[old_name]))
    if not columns or not set(sink.key) <= set(columns):
        return SinkCompared(node.name, "not compared", reason="the versions have no columns in common to compare")
    how, rows = sink.stored()
    if rows is None:
        return SinkCompared(node.name, how, reason="what it has stored cannot be read back")
    found = compare(rows, sink.shadowed(how), columns, sink.identity)
    return SinkCompared(node.name, how, found, "", tuple(new), tuple(gone))


def _time_column(analysed: Analysed, sink: Node) -> str | None:
    """The timestamp by which rows of a sink tell time, if they have one."""
    watermark = analysed.analysis.facts[sink.inputs[0]].watermark
    columns = analysed.analysis.facts[sink.name].columns
    if "window_end" in columns:
        return "window_end"
    return watermark.column if watermark is not None and watermark.column in columns else None


@dataclass(frozen=True)
class _Side:
    sides: Sides
    old_name: str
    node: Node
    sink: Sink
    """As the pipeline has it, whose rows are read back."""
    columns: Sequence[str]
    time: str | None

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(getattr(self.sink, "key", ()))

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that tell which rows are the same one: the key, or a window and what it is of."""
        if self.key or "window_start" not in self.columns:
            return self.key
        facts = self.sides.analysed.analysis.facts[self.node.inputs[0]]
        keys = [key for state in facts.stateful for key in state.keys if key in self.columns]
        return (*keys, *(name for name in ("window_start", "window_end") if name in self.columns))

    @property
    def context(self) -> SinkContext:
        identity, version = self.sides.identity, self.sides.identity.version
        name = self.old_name if version is None else version.sinks.get(self.old_name, self.old_name)
        folder = self.sides.old.file.folder
        return SinkContext(self.sides.spark, name, folder, identity.name, identity.lineage, identity.epoch, {})

    # --- what the pipeline has stored ------------------------------------------------------------------------

    def stored(self) -> tuple[How, list[Row] | None]:
        """How its rows can be told apart from others, and what they are; None if it cannot be read back."""
        savepoint, standing = self.sides.savepoint, self.sides.standing
        position = {sink.name: sink.position for sink in savepoint.sinks}.get(self.old_name, {})
        part = Part(savepoint.batch, standing.stands, position)
        found = self.sink.rows_between(self.context, self.columns, part)
        if found is not None:
            return "batches", _texts(found)
        times = self._times()
        found = self.sink.rows_within(self.context, self.columns, times)
        if found is None:
            return "not compared", None
        rows = _texts(found)
        if times is not None:
            return "time", rows
        return "new rows", self._that_are_new(rows)

    def _times(self) -> Times | None:
        span = self.sides.span
        # A row that others replace by key has the time of the last one, which may be later than the span.
        if span is None or self.time is None or (self.key and self.time not in self.key):
            return None
        after, until = (self._as_stored(self.time, millis) for millis in (span.after, span.until))
        return Times(self.time, after, until)

    def _as_stored(self, column: str, millis: int) -> Any:
        from pyspark.sql import functions as F

        kind = self.sides.analysed.analysis.facts[self.node.name].columns[column]
        row = self.sides.spark.range(1).select(F.timestamp_millis(F.lit(millis)).cast(kind).alias(column))
        return self.sink.as_stored(row, self.context).toArrow().column(0)[0].as_py()

    def _that_are_new(self, rows: list[Row]) -> list[Row]:
        """Of all that is stored those rows that the new version has too, as others may be older than the savepoint."""
        places = self._places or list(range(len(self.columns)))
        known: dict[Row, int] = {}
        for row in self.shadowed("new rows"):
            key = tuple(row[place] for place in places)
            known[key] = known.get(key, 0) + 1
        found = []
        for row in rows:
            key = tuple(row[place] for place in places)
            if known.get(key, 0) > 0:
                known[key] -= 1
                found.append(row)
        return found

    # --- what the new version would have stored --------------------------------------------------------------

    @property
    def _places(self) -> list[int]:
        return [list(self.columns).index(name) for name in self.key]

    def shadowed(self, how: How) -> list[Row]:
        rows = shadow_rows(self.sides.spark, self.sides.shadow, self.node.name, self.sides.standing.batch)
        if rows is None:
            return []
        rows = rows.select(BATCH, f"{ROW}.*")
        span = self.sides.span
        if how == "time" and self.time is not None and span is not None:
            rows = _within(rows, self.time, span)
        if not self.key:
            return _texts(_values(self.sink.as_stored(rows.select(*map(quote, self.columns)), self.context)))
        return newest(self._changes(rows), self._places)

    def _changes(self, rows: DataFrame) -> list[Change]:
        from pyspark.sql import functions as F

        component = self.node.component
        named = {_VERSION: getattr(component, "version", None), _DELETE: getattr(component, "delete", None)}
        extra = {alias: name for alias, name in named.items() if name is not None}
        wanted = [*map(quote, self.columns), *(F.col(quote(name)).alias(alias) for alias, name in extra.items())]
        found = []
        for batch, *values in _values(self.sink.as_stored(rows.select(BATCH, *wanted), self.context)):
            row = tuple(text_of(value) for value in values[: len(self.columns)])
            about = dict(zip(extra, values[len(self.columns) :], strict=True))
            deletes = about.get(_DELETE) in (True, 1, "1", "true")
            found.append(Change(int(batch), row, about.get(_VERSION), deletes))
        return found


def _within(rows: DataFrame, column: str, span: Span) -> DataFrame:
    from pyspark.sql import functions as F

    time = F.col(quote(column))
    after, until = (F.timestamp_millis(F.lit(millis)) for millis in (span.after, span.until))
    return rows.where((time > after) & (time <= until))


def _values(rows: DataFrame) -> list[tuple[Any, ...]]:
    found = rows.toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _texts(rows: Any) -> list[Row]:
    return [tuple(text_of(value) for value in row) for row in rows]
