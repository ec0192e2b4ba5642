"""Builds the streaming frame of every node of a graph, sources marked so that their rows can be accounted for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import (
    ERROR,
    HEARTBEAT,
    PLACE,
    RAW,
    Carried,
    Format,
    ReadContext,
    Source,
    Step,
    StepContext,
    stream_name,
)
from penstock.components.shared.event_time import event_time_of, hold_of
from penstock.components.shared.spark_sql import expression
from penstock.engine.admission import Gate, begun, throttled
from penstock.engine.again import is_fed_back, letters_again, of_source, of_step, with_again
from penstock.engine.by_time import observed
from penstock.engine.history import FILES_PER_BATCH, History, reader, since, stream
from penstock.engine.idle import with_ticks
from penstock.engine.judging import judged, judged_kernel
from penstock.engine.lower import keeps_state, states_in, trunk_frame
from penstock.engine.markers import marked, marker, markers_in, reading_all, steps_of_operators
from penstock.engine.replays import with_replays
from penstock.engine.sieves import Sieve, Sifted, Stage, guarded
from penstock.engine.state.buckets import bucket_count
from penstock.engine.state.counters import Counters
from penstock.errors import PenstockError, did_you_mean
from penstock.graph.flow import choose_trunk, sifts_results
from penstock.graph.nodes import Graph, Node
from penstock.spec.pipeline import EventTime
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.pipeline import Step as StepSpec
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BOOKKEEPING = (RAW, HEARTBEAT, PLACE)


@dataclass(frozen=True)
class SourceMarks:
    """Numbers of the markers of a source: where its rows come in, and where the readable ones go on."""

    came: int
    readable: int


_COPY_MARKS = 900_000
"""First number of the marks of further copies of a source: their rows are those of the first one, counted there."""


_STATE_MARKS, _SIEVE_MARKS, _FLOOR_MARK, _AGAIN_MARKS = 200_000, 300_000, 400_000, 800_000
_KERNEL_MARKS, _REPLAY_MARKS, _FILTER_MARKS = 500_000, 600_000, 700_000


@dataclass(frozen=True)
class CarriedStep:
    """A step with a kernel as it stands in the plan."""

    carried: Carried
    marks: tuple[int, ...]
    """Numbers of the markers where the rows of its inputs come in."""
    counters: Counters
    replays: bool
    """Whether late rows can be fed to it again."""
    hold: int
    """By how much the rows it reads may be older than the watermark, in microseconds."""


class FrameBuilder:
    """Frames by node name. Building runs no job; a node's frame may raise what Spark's analyser raises."""

    reads_once: ClassVar[bool] = False
    """Whether the query reads each source once, whoever needs its rows."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        spool: Path,
        buckets: int | None = None,
        histories: Mapping[str, History] | None = None,
        *,
        careful: bool = False,
    ) -> None:
        self.spark = spark
        self.graph = graph
        self.spool = spool
        self.histories = histories or {}
        """What is read instead of the sources of these names."""
        self.careful = careful
        """Whether rows on which an expression fails are set aside."""
        self.sieves: list[Sieve] = []
        """Where the streaming query sets rows aside."""
        self.sifted: list[Sifted] = []
        """What was set aside after it, of the batch that is running."""
        self._sieve_count = 0
        self.again: dict[str, int] = {}
        """Markers of the dead letters that are fed back to each node."""
        window = graph.file.pipeline.ledger.window
        self.window_ms = window.millis if window is not None else None
        """By which windows of event time the ledger counts rows."""
        self.trigger = graph.file.pipeline.run.trigger.millis / 1000
        self.buckets = buckets or bucket_count(int(spark.conf.get("spark.sql.shuffle.partitions") or 2))
        self.builds: dict[str, list[CarriedStep]] = {}
        """Steps with a kernel by name, each as often as it was built: a query may need several copies."""
        self.native: dict[str, int] = {}
        """Markers above steps whose state Spark's own operators keep."""
        self._copies = 0
        self.streams: dict[int, list[str]] = {}
        """Names of what Spark reads, in the order of its reports, by the marker above it."""
        self.small_rows = True
        """Whether all rows that travel to Python are a few numbers each, so that their bytes need not be counted."""
        names = [node.name for node in graph.of_kind("source")]
        self.marks = {name: SourceMarks(2 * index, 2 * index + 1) for index, name in enumerate(names)}
        dropping = [node.name for node in graph.of_kind("step") if drops_rows(node)]
        self.filters = {
            name: (_FILTER_MARKS + 2 * index, _FILTER_MARKS + 2 * index + 1) for index, name in enumerate(dropping)
        }
        """Numbers of the markers before and after each step that only drops rows."""

    def trunk(self, stateful: Collection[str], frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
        """The nodes at which the streaming query ends, given the steps that keep state."""
        return choose_trunk(self.graph, stateful, early=self.careful or sifts_results(self.graph, stateful))

    def passes(self, frames: Mapping[str, DataFrame]) -> dict[str, tuple[str, ...]]:
        """The stateful steps that share a pass over the rows of a node at which the query ends."""
        return {}

    def query(self, frames: Mapping[str, DataFrame], trunk: tuple[str, ...]) -> DataFrame:
        """The frame of the one query, as it is shown."""
        return trunk_frame(dict(frames), trunk)

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
        below = {below: self._again(below, (*via, name), taken) for below in node.inputs}
        return self._step(node, below, via)

    def _step(self, node: Node, inputs: Mapping[str, DataFrame], via: tuple[str, ...] = ()) -> DataFrame:
        component = with_secrets(node.component)
        assert isinstance(component, Step)
        if len(inputs) == 1 and is_fed_back(self.spool, node.name):
            inputs = {
                name: with_again(frame, self.fed_back(node.name, frame, via)) if frame.isStreaming else frame
                for name, frame in inputs.items()
            }
        if all(frame.isStreaming for frame in inputs.values()):
            found = self._carry(node, component, inputs, via)
            if found is not None:
                return found
        self.small_rows &= component.name != "python"
        return self._with_state_marked(node, inputs, self._uncarried(node, component, inputs, via))

    def _with_state_marked(self, node: Node, inputs: Mapping[str, DataFrame], rows: DataFrame) -> DataFrame:
        """The rows, findable in a plan if Spark keeps state for them; filters above do not reach below that."""
        below = sum(states_in(frame) for frame in inputs.values() if frame.isStreaming)
        if not rows.isStreaming or states_in(rows) <= below:
            return rows
        return rows.where(marker(self.native.setdefault(node.name, _STATE_MARKS + len(self.native))))

    def _uncarried(
        self, node: Node, component: Step, inputs: Mapping[str, DataFrame], via: tuple[str, ...]
    ) -> DataFrame:
        """The rows of a step that has no kernel for these inputs."""
        context = self._step_context(node, inputs)
        rules = component.rules()
        if rules:
            (rows,) = inputs.values()
            met = meets(rules)
            judged(component, rows.where(met), inputs)
            return self._sift(node.name, "expectation", rows, met, breaks(rules), via=via, replayable=True)
        if node.name not in self.filters or not all(frame.isStreaming for frame in inputs.values()):
            return self._applied(node, component, inputs, context, via)
        before, after = self.filters[node.name]
        given = {name: self._observed(frame, f"before {node.name}", via) for name, frame in inputs.items()}
        marked_inputs = {name: frame.where(marker(before)) for name, frame in given.items()}
        applied = self._applied(node, component, marked_inputs, context, via).where(marker(after))
        return self._observed(applied, f"after {node.name}", via)

    def _observed(self, rows: DataFrame, name: str, via: tuple[str, ...]) -> DataFrame:
        """The rows, counted by windows of event time if that is wanted; further copies are not counted."""
        return rows if via else observed(rows, name, self.window_ms)

    def _applied(
        self, node: Node, step: Step, inputs: Mapping[str, DataFrame], context: StepContext, via: tuple[str, ...]
    ) -> DataFrame:
        """The rows of a step that has no kernel; with care, those it fails on are sifted out.

        What it computes from the results of a stateful step inside the query cannot be had twice, and is left alone.
        """
        from pyspark.sql import functions as F

        if not self.careful or any(frame.isStreaming and keeps_state(frame) for frame in inputs.values()):
            return judged(step, step.apply(inputs, context), inputs)
        told = step.careful(inputs, context)
        if told is not None:
            told = judged(step, told, inputs)
            rows = self._sift(node.name, "step", told, F.col(RAW).isNull(), F.col(ERROR), via=via, replayable=True)
            return rows.drop(RAW, ERROR)
        floor = {name: frame.where(marker(_FLOOR_MARK)) for name, frame in inputs.items()}
        applied = judged(step, step.apply(floor, context), floor)
        return self._guarded(node.name, applied, {_FLOOR_MARK}, inputs, via)

    def _guarded(
        self, node: str, frame: DataFrame, floors: set[int], inputs: Mapping[str, DataFrame], via: tuple[str, ...]
    ) -> DataFrame:
        def sift(rows: DataFrame, keep: Column) -> DataFrame:
            whole = len(inputs) == 1 and all(rows.schema == given.schema for given in inputs.values())
            return self._sift(node, "step", rows, keep, None, via=via, replayable=whole)

        return guarded(frame, floors, sift)

    def _sift(
        self,
        node: str,
        stage: Stage,
        rows: DataFrame,
        keep: Column,
        reason: Column | None,
        *,
        via: tuple[str, ...],
        replayable: bool,
    ) -> DataFrame:
        """The rows for which the condition holds; the others are accounted for, those of further copies once."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        if not rows.isStreaming:
            before, after = Observation(), Observation()
            self.sifted.append(Sifted(node, stage, rows.where(~keep), before, after, reason, replayable))
            counting = F.count(F.lit(1)).alias("rows")
            return rows.observe(before, counting).where(keep).observe(after, counting)
        number = _SIEVE_MARKS + 2 * self._sieve_count
        self._sieve_count += 1
        if not via:
            self.sieves.append(Sieve(node, stage, number, number + 1, reason, replayable))
        return rows.where(marker(number)).where(marked(number + 1, keep))

    def fed_back(self, node: str, rows: DataFrame, via: tuple[str, ...] = ()) -> DataFrame:
        """The dead letters that are fed back to a step or a sink, as rows of its input."""
        again = of_step(self._letters(node, via), rows)
        column = event_time_of(rows)
        if column is not None:
            again = again.withMetadata(column, rows.schema[column].metadata)
        return self._observed(again, f"replayed {node}", via)

    def _letters(self, node: str, via: tuple[str, ...]) -> DataFrame:
        number = _AGAIN_MARKS + len(self.streams)
        name = f"{stream_name(node, *via)}_AGAIN"
        self.streams[number] = [name]
        if not via:
            self.again[node] = number
        return letters_again(self.spark, self.spool, node, name, number)

    def _step_context(self, node: Node, inputs: Mapping[str, DataFrame]) -> StepContext:
        times = {name: column for name, frame in inputs.items() if (column := event_time_of(frame)) is not None}
        assert isinstance(node.spec, StepSpec)
        late = self.graph.file.pipeline.late_policy(node.spec)
        first = next(iter(times.values()), None)
        return StepContext(self.spark, node.name, self.graph.file.folder, first, late, times, self.buckets)

    def _carry(self, node: Node, step: Step, inputs: Mapping[str, DataFrame], via: tuple[str, ...]) -> DataFrame | None:
        """The rows of a step that has a kernel for these inputs; `via` is the way to a further copy of it."""
        from penstock.engine.state.carry import carry

        number = sum(len(built) for built in self.builds.values())
        context = self._step_context(node, inputs)
        replays = step.takes_replays and context.late.policy == "side" and bool(context.times)
        if replays:
            stream = stream_name(f"{node.name}_REPLAY", *via)
            mark = _REPLAY_MARKS + number
            self.streams[mark] = [stream]
            inputs = {name: with_replays(frame, self.spool, node.name, stream, mark) for name, frame in inputs.items()}
        marks = {name: _KERNEL_MARKS + 8 * number + side for side, name in enumerate(inputs)}
        frames = {name: frame.where(marker(marks[name])) for name, frame in inputs.items()}
        carried = self._kernel_of(node, step, frames, context)
        if carried is None:
            return None
        if self.careful and not any(keeps_state(frame) for frame in frames.values()):
            floors = set(marks.values())
            inputs_ = tuple(
                replace(x, rows=self._guarded(node.name, x.rows, floors, inputs, via)) for x in carried.inputs
            )
            carried = replace(carried, inputs=inputs_)
        self.small_rows &= all(is_small(rows.rows) for rows in carried.inputs)
        counters = Counters(self.spark, self.window_ms)
        hold = max(hold_of(frame) for frame in frames.values())
        built = CarriedStep(carried, tuple(marks.values()), counters, replays, hold)
        self.builds.setdefault(node.name, []).append(built)
        return carry(node.name, carried, list(frames.values()), hold, self.buckets, counters)

    def _kernel_of(
        self, node: Node, step: Step, frames: Mapping[str, DataFrame], context: StepContext
    ) -> Carried | None:
        """The kernel of a step over these inputs, judged; None if it has none for them."""
        try:
            carried = step.carried(frames, context)
            if carried is None or carried.kernel.output is None:
                return None
            return judged_kernel(step, carried, frames)
        except ValueError as error:
            # Kernels know which types they can compute with, and nothing of pipelines.
            raise PenstockError.of("AGGREGATE_TYPE", node=node.name, reason=error) from None

    def carried_in(self, frame: DataFrame) -> dict[str, CarriedStep]:
        """The steps with a kernel that a frame computes; of a step that is in it several times the first."""
        present = set(markers_in(frame))
        found = {
            name: next((step for step in built if present.issuperset(step.marks)), None)
            for name, built in self.builds.items()
        }
        return {name: step for name, step in found.items() if step is not None}

    def _copy_marks(self) -> SourceMarks:
        self._copies += 1
        return SourceMarks(_COPY_MARKS + 2 * self._copies, _COPY_MARKS + 2 * self._copies + 1)

    def read_context(self, node: Node, via: tuple[str, ...] = ()) -> ReadContext:
        assert isinstance(node.spec, SourceSpec)
        found = with_secrets(node.spec.format) if node.spec.format is not None else None
        assert found is None or isinstance(found, Format)
        return ReadContext(self.spark, node.name, self.graph.file.folder, self.spool, found, via)

    def reader(self, node: Node) -> tuple[Source, ReadContext]:
        """What a source's rows are read with now: itself, or its history."""
        context = self.read_context(node)
        if node.name in self.histories:
            return reader(context, node)
        source = with_secrets(node.component)
        assert isinstance(source, Source)
        return source, context

    def live(self, node: Node, via: tuple[str, ...] = ()) -> DataFrame:
        """The rows a source gives itself, without what belongs to its history."""
        source, spec = with_secrets(node.component), node.spec
        assert isinstance(source, Source)
        assert isinstance(spec, SourceSpec)
        context = self.read_context(node, via)
        self.small_rows &= not (source.in_python or (context.format is not None and context.format.in_python))
        rows = begun(node, source, self.trigger).read(context)
        cut = spec.bootstrap.until if spec.bootstrap is not None else None
        if cut is None or spec.event_time is None or spec.event_time.column not in rows.columns:
            return rows
        return rows.where(since(cut, spec.event_time, untimed=True))

    def _read(self, node: Node, via: tuple[str, ...]) -> tuple[DataFrame, str]:
        """The rows of a source, or of its history, and the name of the stream."""
        context = self.read_context(node, via)
        if node.name not in self.histories:
            return self.live(node, via), context.stream
        name = f"{context.stream}_HISTORY"
        most = Gate(node, self.trigger, history=True).first if throttled(node) else FILES_PER_BATCH
        return stream(self.spark, self.histories[node.name], name, most), name

    def _source(self, node: Node, via: tuple[str, ...] = ()) -> DataFrame:
        spec = node.spec
        assert isinstance(spec, SourceSpec)
        rows, name = self._read(node, via)
        marks = self._copy_marks() if via else self.marks[node.name]
        if is_fed_back(self.spool, node.name):
            context = self.read_context(node, via)
            again = of_source(self._letters(node.name, via), rows, context)
            rows = rows.unionByName(again, allowMissingColumns=True)
        self.streams[marks.came] = [name]
        if spec.event_time is not None and spec.event_time.idle_after is not None:
            context = self.read_context(node, via)
            rows = with_ticks(rows, context, spec.event_time)
            self.streams[marks.came] = [name, f"{context.stream}_TICKS"]
        came = marker(marks.came)
        if RAW in rows.columns:
            # Spark checks only the columns it reads, so rows would be good or bad by what the steps happen to use.
            came = came & reading_all([name for name in rows.columns if name not in _BOOKKEEPING])
        rows = rows.where(came)
        if spec.event_time is not None:
            rows = _with_watermark(rows, node.name, spec.event_time)
        if spec.event_time is None and RAW not in rows.columns and HEARTBEAT not in rows.columns:
            # Every row can be used. A condition that says so would be optimised away, and the rows not be counted.
            return rows.where(marker(marks.readable)).drop(*_BOOKKEEPING)
        readable = marked(marks.readable, is_readable(rows, spec.event_time) & ~_is_heartbeat(rows))
        return self._observed(rows.where(readable).drop(*_BOOKKEEPING), f"rows_in {node.name}", via)


def steps_in(plan: Any, builder: FrameBuilder) -> dict[int, str]:
    """The steps whose state the operators of a physical plan keep, by the number of the operator."""
    marks = {name: [set(step.marks) for step in built] for name, built in builder.builds.items()}
    return steps_of_operators(plan, marks, builder.native)


def is_readable(rows: DataFrame, event_time: EventTime | None, now: Column | None = None) -> Column:
    """Whether a row of a source can be used: it was read whole, and it says when it happened.

    A time that is far ahead of the clock is no time; `now` is the clock of the batch, if that is still to be judged.
    """
    from pyspark.sql import functions as F

    readable = F.col(RAW).isNull() if RAW in rows.columns else F.lit(True)
    if event_time is not None:
        readable = readable & F.col(f"`{event_time.column}`").isNotNull()
        if now is not None:
            readable = readable & ~is_ahead(event_time, now)
    return readable


def meets(rules: Mapping[str, str]) -> Column:
    """Whether a row meets all rules."""
    return reduce(lambda left, right: left & right, (_holds(rule) for rule in rules.values()))


def breaks(rules: Mapping[str, str]) -> Column:
    """The rules that a row does not meet, in words."""
    from pyspark.sql import functions as F

    return F.concat_ws("; ", *(F.when(~_holds(rule), F.lit(f"{name}: {rule}")) for name, rule in rules.items()))


def _holds(rule: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(expression(rule), F.lit(False))


def drops_rows(node: Node) -> bool:
    """Whether a step only drops rows, which are then counted; what an output leaves out goes to others."""
    return isinstance(node.component, Step) and node.component.passes == "some" and node.part_of is None


def is_small(rows: DataFrame) -> bool:
    """Whether every value is a number, a time or a flag."""
    from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

    small = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
    return all(isinstance(item.dataType, small) for item in rows.schema.fields)


def is_ahead(event_time: EventTime, now: Column) -> Column:
    """Whether a row's time is further ahead of the clock than is believable; null if it has no time."""
    from pyspark.sql import functions as F

    if event_time.max_ahead is None:
        return F.lit(False)
    # As numbers: Spark would add the interval anew for every row, by the calendar.
    latest = F.unix_micros(now) + F.lit(event_time.max_ahead.millis * 1000)
    return F.unix_micros(F.col(f"`{event_time.column}`")) > latest


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
    # A malformed row may still have a time, and a wrong clock gives one; neither must move the watermark.
    believable = F.col(RAW).isNull() if RAW in rows.columns else F.lit(True)
    if event_time.max_ahead is not None:
        # In a stream this is the time of the batch, the same when the batch is run again.
        believable = believable & (~is_ahead(event_time, F.current_timestamp()) | _is_heartbeat(rows))
    if RAW in rows.columns or event_time.max_ahead is not None:
        rows = rows.withColumn(column, F.when(believable, F.col(f"`{column}`")))
    return rows.withWatermark(column, f"{event_time.max_delay.millis} milliseconds")


def columns_of(frame: DataFrame) -> dict[str, str]:
    return {item.name: item.dataType.simpleString() for item in frame.schema.fields}
