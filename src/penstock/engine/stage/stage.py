"""Runs the kernels of a pipeline on each batch: on the driver where the batch is small, in tasks where it is not.

Both ways begin from the same state and leave the same state, so they may take turns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.components.shared.crashpoints import reach
from penstock.components.shared.kernel_inputs import REPLAYED
from penstock.engine.markers import execution, limited_in_tasks, rows_below
from penstock.engine.stage import on_executors
from penstock.engine.stage.builder import StageBuilder, not_replayed
from penstock.engine.stage.local import StepRows, advance_step
from penstock.engine.stage.on_executors import BatchTask, StepTask, struct_rows
from penstock.engine.stage.plan import StagePlan
from penstock.engine.stage.query_frame import PART, Piece, QueryFrame, with_bucket
from penstock.engine.state.bucket_advance import Watermarks
from penstock.engine.state.chunk_cache import ChunkCache
from penstock.engine.state.chunk_store import BucketState, ChunkStore, ChunkWriter, StateIndex, advanced
from penstock.engine.state.pack import micros
from penstock.engine.statedir import StateDir
from penstock.graph.nodes import Node

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)
SMALL_ROWS = 20_000
"""Up to how many rows a batch is worked on by the driver."""
FETCHED_ROWS = 4 * SMALL_ROWS
"""How many rows each task gives at most where a batch turns out larger than it was taken to be."""
SMALL_BYTES = 16 << 20
"""A batch whose size Spark knows is small up to here."""
_UNKNOWN_BYTES = 1 << 60
_PLACE = "PENSTOCK_KERNELS_ON"
"""Set to `driver` or `tasks`, all batches are worked on there."""


@dataclass
class StageBatch:
    """One batch in the making."""

    id: int
    before: StateIndex
    watermark: int
    """In milliseconds, after the rows of the batch."""
    writer: ChunkWriter
    local: bool
    tables: dict[int, pa.Table] = field(default_factory=dict)
    """The rows of the query by number of their part, if they were fetched."""
    kept: DataFrame | None = None
    """The rows of the query as Spark keeps them, if they were not."""
    changed: dict[str, dict[int, BucketState]] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    """Nodes that are known to have no rows."""
    persisted: list[DataFrame] = field(default_factory=list)
    in_tasks: bool = False
    """Whether tasks wrote chunks."""
    sent: list[Broadcast[Any]] = field(default_factory=list)
    given: dict[str, list[DataFrame]] = field(default_factory=dict)
    """What kernels were given that do not read the floor."""


class KernelStage:
    """The kernels of one running pipeline, and the state they keep."""

    def __init__(
        self,
        spark: SparkSession,
        builder: StageBuilder,
        plan: StagePlan,
        frames: Mapping[str, DataFrame],
        query: QueryFrame,
        state: StateDir,
        committed: int,
    ) -> None:
        self.spark = spark
        self.builder = builder
        self.plan = plan
        self.frames = frames
        """Frames of the query by node, for what is noted on their columns."""
        self.query = query
        self.state = state
        self.store = ChunkStore(state.checkpoint, state.identity.epoch)
        self.index = self.store.open(committed)
        self.partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
        self._cache = ChunkCache()
        self._last_rows: int | None = None
        self._next = self.index
        self._no_rows: dict[str, DataFrame] = {}
        """Frames without rows, made once."""

    # --- the watermark ------------------------------------------------------------------------------------

    @property
    def watermark_before(self) -> int:
        """The watermark by which rows of the next batch are late, in milliseconds."""
        return self.index.watermark

    def _watermark_after(self, query: StreamingQuery, batch: int) -> int:
        """Settled once for a batch: its rows say it, and the rest of Spark's memory does not outlast a restart."""
        first = self.store.first_try(batch)
        if first is not None:
            return first.watermark
        tracker = query._jsq.streamingQuery().watermarkTracker()
        tracker.updateWatermark(execution(query).executedPlan())
        return max(int(tracker.currentWatermark()), self.index.watermark)

    # --- a batch ------------------------------------------------------------------------------------------

    def begin(self, query: StreamingQuery, batch: int, rows: DataFrame) -> StageBatch:
        """Computes the rows of the query: they are fetched if they are few, else kept by Spark."""
        found = StageBatch(batch, self.index, 0, self.store.writer(batch), self._is_small(query))
        if found.local:
            tables = self._fetched(rows)
            if tables is None:
                _LOG.info("batch %d is larger than what the driver fetches; tasks work on it", batch)
                found.local = False
                # What has been counted until then is counted once more.
                execution(query).executedPlan().resetMetrics()
            else:
                found.tables = tables
        if not found.local:
            # How far time has come is known when all rows have been read; so the two halves are two jobs.
            found.kept = rows if self.plan.rows or self._pseudo else self._packed_pieces(found, rows)
            found.kept = found.kept.persist()
            found.persisted.append(found.kept)
            found.kept.write.format("noop").mode("overwrite").save()
        found.watermark = self._watermark_after(query, batch)
        return found

    @property
    def _pseudo(self) -> bool:
        """Whether rows travel beside the floor."""
        return any(piece.side is None and piece.node not in self.plan.rows for piece in self.query.pieces)

    @property
    def _direct(self) -> list[str]:
        return [name for name in self.plan.kernels if name in self.plan.direct]

    def _packed_pieces(self, batch: StageBatch, rows: DataFrame) -> DataFrame:
        """What kernels read of the rows of the query, packed by bucket."""
        unique = {piece.column: piece for piece in self.query.pieces if piece.side is not None}
        numbered = [(piece, self._direct.index(piece.node)) for piece in unique.values()]
        return on_executors.packed(rows, numbered, self._task(batch, self._direct))

    def note_rows(self, rows: int) -> None:
        """How many rows the last batch had, by which the next one is judged."""
        self._last_rows = rows

    def _is_small(self, query: StreamingQuery) -> bool:
        if _PLACE in os.environ:
            return os.environ[_PLACE] == "driver"
        known = int(str(execution(query).optimizedPlan().stats().sizeInBytes()))
        if known < _UNKNOWN_BYTES:
            return known <= SMALL_BYTES
        return self._last_rows is not None and self._last_rows <= SMALL_ROWS

    def _fetched(self, rows: DataFrame) -> dict[int, pa.Table] | None:
        """The rows of the query by number of their part; None if they are more than the driver fetches."""
        try:
            whole = limited_in_tasks(rows, FETCHED_ROWS).toArrow()
        except Exception as error:
            if "maxResultSize" not in str(error):
                raise
            return None
        if whole.num_rows >= FETCHED_ROWS:
            return None
        numbers = whole.column(PART)
        if len(self.query.parts) == 1:
            return {0: whole}
        return {part.number: whole.filter(pc.equal(numbers, part.number)) for part in self.query.parts}

    def rows_of(self, batch: StageBatch, node: str) -> DataFrame:
        """The rows of a node at which the query ends."""
        part, piece = next((part, piece) for part in self.query.parts for piece in part.pieces
                           if piece.node == node and piece.side is None)  # fmt: skip
        if batch.kept is not None:
            own = batch.kept.where(batch.kept[PART] == part.number).select(f"{piece.column}.*")
        else:
            table = batch.tables[part.number]
            own = self._as_frame(struct_rows(table.column(piece.column)), self._schema(piece))
        return self._with_metadata(own, node)

    def _schema(self, piece: Piece) -> Any:
        return self.query.frame.schema[piece.column].dataType

    def _with_metadata(self, rows: DataFrame, node: str) -> DataFrame:
        """What is noted on columns, such as that one is the event time, which a struct has lost."""
        source = self.frames.get(node)
        for item in source.schema.fields if source is not None else ():
            if item.metadata:
                rows = rows.withMetadata(item.name, item.metadata)
        return rows

    def _as_frame(self, rows: pa.Table, schema: Any) -> DataFrame:
        return self.spark.createDataFrame(rows, schema=schema)

    # --- a kernel -----------------------------------------------------------------------------------------

    def advance_direct(self, batch: StageBatch) -> None:
        """Runs the kernels that read the floor: all at once where tasks do it."""
        if not self._direct:
            return
        if batch.kept is None:
            for name in self._direct:
                self._take(batch, name, self._locally(batch, name, self._inputs_fetched(batch, name)))
            return
        packed = self._packed_pieces(batch, batch.kept) if PART in batch.kept.columns else batch.kept
        self._advance_in_tasks(batch, self._direct, self._task(batch, self._direct), packed)

    def advance(self, batch: StageBatch, node: Node, frames: Mapping[str, DataFrame]) -> None:
        """Runs a kernel that reads what other steps gave in this batch."""
        name = node.name
        due = self._due(batch, name)
        if all(below in batch.empty for below in node.inputs) and not due:
            self._take(batch, name, StepRows(self.builder.staged[name].carried.kernel.output.empty_table(), {}))
            return
        carried = self.builder.batch_inputs(node, frames)
        batch.given[name] = [frames[below] for below in node.inputs]
        inputs = [with_bucket(rows, self.builder.buckets) for rows in carried.inputs]
        if batch.local:
            tables = [[self._arrow(frame)] if node.inputs[min(side, len(node.inputs) - 1)] not in batch.empty else []
                      for side, frame in enumerate(inputs)]  # fmt: skip
            self._take(batch, name, self._locally(batch, name, tables))
            return
        self._in_tasks_from(batch, name, inputs)

    @staticmethod
    def _arrow(frame: DataFrame) -> pa.Table:
        return frame.toArrow()

    def _inputs_fetched(self, batch: StageBatch, name: str) -> list[list[pa.Table]]:
        sides = len(self.builder.staged[name].carried.inputs)
        found: list[list[pa.Table]] = [[] for _ in range(sides)]
        for part in self.query.parts:
            table = batch.tables[part.number]
            for piece in part.pieces:
                if piece.node == name and piece.side is not None and table.num_rows:
                    found[piece.side].append(struct_rows(table.column(piece.column)))
        return found

    def _watermarks(self, batch: StageBatch, name: str) -> Watermarks:
        hold = self.builder.staged[name].hold
        return Watermarks(micros(batch.before.watermark, hold), micros(batch.watermark, hold))

    def _due(self, batch: StageBatch, name: str) -> list[int]:
        return batch.before.due(name, self._watermarks(batch, name).after)

    def _locally(self, batch: StageBatch, name: str, inputs: Sequence[Sequence[pa.Table]]) -> StepRows:
        staged = self.builder.staged[name]
        return advance_step(
            name,
            staged.carried.kernel,
            inputs,
            batch.before.steps.get(name, {}),
            self._due(batch, name),
            self._watermarks(batch, name),
            self.builder.buckets,
            self.builder.builds[name][0].counters,
            self.store.folder,
            batch.writer,
            self._cache,
        )

    def _take(self, batch: StageBatch, name: str, found: StepRows) -> None:
        batch.changed[name] = dict(found.changed)
        if found.rows.num_rows:
            batch.frames[name] = self.builder.staged[name].finish(self._as_frame(found.rows, self._output(name)))
        else:
            self._take_nothing(batch, name)

    def _take_nothing(self, batch: StageBatch, name: str) -> None:
        if name not in self._no_rows:
            none = self.spark.createDataFrame([], self._output(name))
            self._no_rows[name] = self.builder.staged[name].finish(none)
        batch.frames[name] = self._no_rows[name]
        batch.empty.add(name)

    def _output(self, name: str) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.builder.staged[name].carried.kernel.output, prefer_timestamp_ntz=True)

    # --- in tasks -----------------------------------------------------------------------------------------

    def _task(self, batch: StageBatch, names: Sequence[str]) -> BatchTask:
        steps = tuple(
            StepTask(
                name,
                self.builder.staged[name].carried.kernel,
                len(self.builder.staged[name].carried.inputs),
                self._watermarks(batch, name),
                self.builder.builds[name][0].counters,
            )
            for name in names
        )
        return BatchTask(steps, self.builder.buckets, self.store.folder, batch.id, self.store.epoch)

    def _in_tasks_from(self, batch: StageBatch, name: str, inputs: Sequence[DataFrame]) -> None:
        from functools import reduce

        from pyspark.sql import functions as F

        task = self._task(batch, [name])
        parts = []
        for side, frame in enumerate(inputs):
            piece = Piece("rows", name, side, tuple(frame.columns))
            whole = frame.select(F.struct(*(F.col(f"`{column}`") for column in frame.columns)).alias("rows"))
            parts.append(on_executors.packed(whole, [(piece, 0)], task))
        self._advance_in_tasks(batch, [name], task, reduce(lambda left, right: left.union(right), parts))

    def _advance_in_tasks(self, batch: StageBatch, names: Sequence[str], task: BatchTask, packed: DataFrame) -> None:
        batch.in_tasks = True
        due = on_executors.due_rows(self.spark, {i: self._due(batch, name) for i, name in enumerate(names)}, task)
        states = {number: batch.before.steps.get(name, {}) for number, name in enumerate(names)}
        rows = packed if due is None else packed.union(due)
        computed, sent = on_executors.advanced_rows(self.spark, rows, task, states, self.partitions)
        found = computed.persist()
        batch.persisted.append(found)
        batch.sent.append(sent)
        for name in names:
            batch.changed.setdefault(name, {})
        for note in on_executors.notes_of(found):
            for number, buckets in note.items():
                batch.changed[names[number]].update(buckets)
        for number, name in enumerate(names):
            batch.frames[name] = self.builder.staged[name].finish(on_executors.rows_of(found, number))

    # --- rows that went no further ------------------------------------------------------------------------

    def came(self, batch: StageBatch, query: StreamingQuery, plain: SparkSession, name: str, side: int) -> DataFrame:
        """The rows of the batch that came to an input of a kernel, as they came."""
        staged = self.builder.staged[name]
        if name in batch.given:
            rows = batch.given[name][side]
            return rows if staged.again is None or REPLAYED in rows.columns else not_replayed(rows)
        rows = rows_below(query, self.builder.mark_of(staged.inputs[side]), plain)
        if staged.replay_mark is None:
            return rows
        again = rows_below(query, staged.replay_mark, plain)
        from pyspark.sql import functions as F

        return not_replayed(rows).unionByName(again.withColumn(REPLAYED, F.lit(True)))

    # --- the end of a batch -------------------------------------------------------------------------------

    def settle(self, batch: StageBatch) -> None:
        """Puts the state after the batch on the disk; call it before a sink gets a row, as nothing may differ later."""
        index = advanced(batch.before, batch.id, batch.watermark, batch.changed, self.plan.kernels)
        self.store.move_out(index, batch.writer)
        batch.writer.close()
        reach("state.written", batch.id)
        self.state.refuse_overtaken()
        self.store.commit(index)
        reach("state.indexed", batch.id)
        self._next = index

    def end(self, batch: StageBatch) -> None:
        """The batch has been stored."""
        self.index = self._next
        self.store.clean(batch.id, sweep=batch.in_tasks)

    def release(self, batch: StageBatch) -> None:
        """Gives up what Spark keeps of a batch."""
        for frame in batch.persisted:
            with suppress(Exception):
                frame.unpersist()
        for sent in batch.sent:
            with suppress(Exception):
                sent.destroy()
