"""Builds frames for a query that ends below the kernels: what kernels read is computed by it, what they give is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import Carried, Step, StepContext, stream_name
from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.event_time import delay_of, hold_of, with_event_time
from penstock.components.shared.kernel_inputs import REPLAYED
from penstock.engine.again import is_fed_back
from penstock.engine.frames import CarriedStep, FrameBuilder, is_small
from penstock.engine.history import History
from penstock.engine.markers import marker
from penstock.engine.replays import replayed_rows
from penstock.engine.stage.fusing import fused
from penstock.engine.stage.plan import StagePlan, stage_plan
from penstock.engine.state.counters import Counters
from penstock.graph.nodes import Graph, Node
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_INPUT_MARKS, _REPLAY_MARKS = 500_000, 600_000


@dataclass(frozen=True)
class StagedStep:
    """A kernel and what it reads, as frames of the streaming query."""

    carried: Carried
    context: StepContext
    inputs: tuple[str, ...]
    hold: int
    """By how much the rows it reads may be older than the watermark, in microseconds."""
    delay: int
    """The delay of the watermark of its inputs, in milliseconds."""
    again: Carried | None = None
    """The same over rows that were late once and are replayed."""
    replay_mark: int | None = None

    def finish(self, rows: DataFrame) -> DataFrame:
        """What later steps read, from what the kernel gave."""
        found = self.carried.finish(rows)
        carried = self.carried
        if carried.event_time is None:
            return found
        return with_event_time(found, carried.event_time, self.delay, carried.shift, self.hold + carried.hold)


@dataclass
class _Marked:
    """The frame of a node with the marker that all kernels share which read it."""

    frame: DataFrame
    number: int


class StageBuilder(FrameBuilder):
    """Kernels stand in the frames by the columns of what they give only; such a frame is never computed."""

    reads_once: ClassVar[bool] = True

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
        super().__init__(spark, graph, spool, buckets, histories, careful=careful)
        self.staged: dict[str, StagedStep] = {}
        self._marked: dict[str, _Marked] = {}

    def trunk(self, stateful: Collection[str], frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
        return self.plan(frames).floor

    def plan(self, frames: Mapping[str, DataFrame]) -> StagePlan:
        """What the query computes, and which kernels it prepares rows for."""
        kernels = [name for name in self.staged if name in frames]
        apart = [name for name in kernels if self.careful or self.fed(name) or not fusible(self, name)]
        return stage_plan(self.graph, kernels, apart)

    def passes(self, frames: Mapping[str, DataFrame]) -> dict[str, tuple[str, ...]]:
        plan = self.plan(frames)
        found = {
            name: tuple(step for step in plan.kernels if step in plan.direct and name in self.staged[step].inputs)
            for name in plan.floor
        }
        return {name: steps for name, steps in found.items() if steps}

    def query(self, frames: Mapping[str, DataFrame], trunk: tuple[str, ...]) -> DataFrame:
        from penstock.engine.stage.query_frame import query_frame

        return query_frame(self, self.plan(frames), frames, {}, 0).frame

    def marked(self, name: str, frame: DataFrame) -> _Marked:
        if name not in self._marked:
            number = _INPUT_MARKS + len(self._marked)
            self._marked[name] = _Marked(frame.where(marker(number)), number)
        return self._marked[name]

    def mark_of(self, name: str) -> int:
        """The number of the marker at which rows of a node go into kernels."""
        return self._marked[name].number

    def _step(self, node: Node, inputs: Mapping[str, DataFrame], via: tuple[str, ...] = ()) -> DataFrame:
        if is_fed_back(self.spool, node.name) and all(frame.isStreaming for frame in inputs.values()):
            # What is fed back to a kernel travels beside the query and meets its rows in the batch.
            component = with_secrets(node.component)
            assert isinstance(component, Step)
            found = self._carry(node, component, inputs, via)
            if found is not None:
                return found
        return super()._step(node, inputs, via)

    def _carry(self, node: Node, step: Step, inputs: Mapping[str, DataFrame], via: tuple[str, ...]) -> DataFrame | None:
        context = self._step_context(node, inputs)
        replays = step.takes_replays and context.late.policy == "side" and bool(context.times)
        marks = {name: self.marked(name, frame) for name, frame in inputs.items()}
        frames = {name: found.frame for name, found in marks.items()}
        if replays:
            frames = {name: not_replayed(frame) for name, frame in frames.items()}
        carried = self._kernel_of(node, step, frames, context)
        if carried is None:
            return None
        again, replay_mark = None, None
        if replays:
            replay_mark = _REPLAY_MARKS + len(self.staged)
            stream = stream_name(f"{node.name}_REPLAY", *via)
            self.streams[replay_mark] = [stream]
            old = {
                name: replayed_rows(frame, self.spool, node.name, stream, replay_mark) for name, frame in inputs.items()
            }
            again = self._kernel_of(node, step, old, context)
        self.small_rows &= all(is_small(rows.rows) for rows in carried.inputs)
        hold = max(hold_of(frame) for frame in frames.values())
        delay = max(delay_of(frame) for frame in frames.values())
        counters = Counters(self.spark, self.window_ms)
        numbers = tuple(found.number for found in marks.values())
        self.builds.setdefault(node.name, []).append(CarriedStep(carried, numbers, counters, replays, hold))
        found = StagedStep(carried, context, tuple(inputs), hold, delay, again, replay_mark)
        self.staged.setdefault(node.name, found)
        return found.finish(_only_columns(carried))

    def fed(self, name: str) -> bool:
        """Whether dead letters are fed back to a node."""
        return is_fed_back(self.spool, name)

    def batch_inputs(self, node: Node, frames: Mapping[str, DataFrame]) -> Carried:
        """What a kernel reads of the rows of a batch; in careful mode without those on which an expression fails."""
        step = with_secrets(node.component)
        assert isinstance(step, Step)
        staged = self.staged[node.name]
        number = self.mark_of(node.inputs[0])
        given = {name: frame.where(marker(number)) for name, frame in frames.items()}
        if staged.again is not None:
            given = {name: frame if REPLAYED in frame.columns else not_replayed(frame) for name, frame in given.items()}
        carried = self._kernel_of(node, step, given, staged.context)
        assert carried is not None
        if not self.careful:
            return carried
        inputs = tuple(replace(x, rows=self._guarded(node.name, x.rows, {number}, frames, ())) for x in carried.inputs)
        return replace(carried, inputs=inputs)


def fusible(builder: StageBuilder, kernel: str) -> bool:
    """Whether everything a kernel reads can be computed beside what others read of the same rows."""
    staged = builder.staged[kernel]
    given = [staged.carried, *([staged.again] if staged.again is not None else [])]
    return all(fused(item.rows) is not None for carried in given for item in carried.inputs)


def not_replayed(frame: DataFrame) -> DataFrame:
    """Rows that come for the first time, marked as such."""
    from pyspark.sql import functions as F

    return frame.withColumn(REPLAYED, F.lit(False))


def _only_columns(carried: Carried) -> DataFrame:
    """A frame with the columns of what a kernel gives, and with nothing in it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(carried.kernel.output, prefer_timestamp_ntz=True)
    return in_arrow(carried.inputs[0].rows, _nothing, schema)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise AssertionError("a kernel runs on the batch, not in the query")
    return iter(())
