"""What happens to one batch: every sink stores its rows once, unreadable rows are set aside, the ledger is written.

Spark calls this with each batch and commits it afterwards; when anything here fails, nothing is committed and the
same batch comes again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import Batch, Sink, SinkContext, SinkWriter, Source
from penstock.components.shared.checksum import python_sum
from penstock.components.shared.crashpoints import inside, reach
from penstock.components.shared.kernel_inputs import REPLAYED
from penstock.components.shared.spark_sql import expression
from penstock.engine.admission import Admission
from penstock.engine.again import keep_letters, pseudo_node
from penstock.engine.analyse import Analysed
from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.dead import COLUMNS, dead_letter_sink, dead_of_sieve, dead_of_sink, dead_of_step, dead_rows
from penstock.engine.dead import SINK as DEAD
from penstock.engine.frames import drops_rows, steps_in
from penstock.engine.late import SINK as LATE
from penstock.engine.late import late_columns, late_rows, late_sink
from penstock.engine.ledger import BatchEntry, Ledger, SinkNotes, add
from penstock.engine.listed_files import ListedFiles
from penstock.engine.lower import split_trunk, trunk_frame
from penstock.engine.markers import (
    as_batch,
    execution,
    late_in_operators,
    marker,
    plain_session,
    rows_below,
    rows_through,
)
from penstock.engine.measures import Measures
from penstock.engine.on_disk import CheckpointOnDisk
from penstock.engine.replays import keep, kept_folder
from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.rewinding import go_back, go_back_later
from penstock.engine.sieves import dropped_rows, failing
from penstock.engine.sink_positions import SinkPositions
from penstock.engine.sink_writes import SinkRows, SinkWrites, gives_no_more, is_few
from penstock.engine.stage.make import make_stage, staged_query
from penstock.engine.stage.stage import KernelStage, StageBatch
from penstock.engine.state.chunk_store import in_chunks
from penstock.engine.state.counters import Counts, since
from penstock.engine.state.pack import BEFORE
from penstock.engine.statedir import StateDir, storage_error
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph, Node
from penstock.reports.savepoints import SavedSink
from penstock.spec.pipeline import LatePolicy
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.pipeline import Step as StepSpec
from penstock.spec.resolve import with_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchCounts:
    rows_in: dict[str, int]
    rows_dead: dict[str, int]
    filtered: dict[str, int]
    late: dict[str, int]


@dataclass(frozen=True)
class StepCounts:
    """By step."""

    late: dict[str, int]
    corrections: dict[str, int]
    dead: dict[str, int]
    late_times: dict[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class SinkWork:
    """By sink: how long it took to store a batch, and how often it had to try again."""

    ms: Mapping[str, int] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)


_WORK_KEPT = 100

Instead = Callable[[str, Sink], Sink]
"""The sink that is opened in place of one, by its name."""


def as_declared(name: str, sink: Sink) -> Sink:
    """The sink itself, as it stands in the pipeline file, with its secrets."""
    return with_secrets(sink)


class BatchHandler:
    """Called by Spark with each batch. `query` must be set right after the query has been started."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        analysed: Analysed,
        state: StateDir,
        instead: Instead = as_declared,
    ) -> None:
        self.instead = instead
        self.begins: Callable[[int | None], None] = lambda _: None
        """Called with the number of a batch before it is handled, and with None after it was; not if it failed."""
        self.after: Callable[[], None] = lambda: None
        """Called when a batch has been handled, before Spark commits it."""
        self.spark = spark
        self.graph = graph
        self.analysed = analysed
        self.state = state
        self.plain = plain_session(spark)
        self.ledger = Ledger(state.ledger)
        self.ledger.claim(state.identity.epoch)
        self.disk = CheckpointOnDisk(state.path)
        self.disk.open()
        self.query: StreamingQuery | None = None
        self.failure: BaseException | None = None
        self.gate = threading.Lock()
        """Held while a batch is at work; who takes it instead has the pipeline between two batches."""
        committed, planned = last_committed(state.checkpoint), last_number(state.checkpoint / "offsets")
        self.begun = max(committed, planned)
        """The last batch of which a sink may have something."""
        self.finished = committed
        """The last batch that all sinks have; Spark commits it next."""
        self._operators_noted = False
        self.sinks = list(graph.of_kind("sink"))
        self.writers: dict[str, SinkWriter] = {}
        self._counted: dict[str, Counts] = {}
        self._through: Mapping[int, int] = {}
        self.listed = ListedFiles.of(graph, state.checkpoint)
        self.measures = Measures(graph.file.pipeline.ledger)
        self._watched: dict[str, tuple[Observation, Observation]] = {}
        self.admission = Admission(graph, analysed.builder)
        self.source_order: Sequence[str] = ()
        """Names of what Spark reads, in the order of its reports."""
        self.sink_work: dict[int, SinkWork] = {}
        """What the sinks did in the last batches."""
        self._sink_ms: dict[str, int] = {}
        self.last_rows: dict[str, float] = {}
        """When rows of each source were last seen, by the clock that only goes forward."""
        self._end_marker = 2 * len(analysed.builder.marks)
        self._output_markers = {name: self._end_marker + index for index, name in enumerate(analysed.analysis.trunk)}
        """Numbers of the markers at the nodes where the query ends, where several sinks read from it."""
        self._query = staged_query(graph, analysed, self._end_marker)
        self.stage = make_stage(spark, analysed, self._query, state, committed)
        """Runs the kernels on each batch, if it is not Spark's state store that carries them."""
        if self.stage is None and in_chunks(state.checkpoint):
            raise PenstockError.of("STATE_STORE_UNSUPPORTED", what="what was asked for")
        self._work: StageBatch | None = None
        self._empty_frames: dict[str, DataFrame] = {}
        """Frames of nodes that have no rows in a batch, which are the same in all batches."""
        if self.stage is not None:
            self._output_markers = {}
            self.steps = {name: analysed.builder.builds[name][0] for name in self.stage.plan.kernels}
        else:
            self.steps = analysed.builder.carried_in(self.frame())
        self.positions = SinkPositions(state.path, self.ledger, committed, self.begun)
        for node in self.sinks:
            self.writers[node.name] = self._open(node, analysed.analysis.facts[node.name].columns)
        self.sink_writes = SinkWrites(spark)
        self._no_more: bool | None = None
        self._own: set[str] = set()
        """Sinks that lie in the state folder, and go wherever it goes."""
        go_back(state.path, self.writers)
        measured = self.ledger.changed() if self.measures.columns else {}
        for node in self.sinks:
            assert isinstance(node.component, Sink)
            self._compare(node.name, node.component)
            self.writers[node.name].measured_from = min(measured.get(state.known_as(node.name), ()), default=None)
        Pins(state.path).tell(self.writers)

    @property
    def whole(self) -> bool:
        """Whether the one sink takes the rows of the query as they are, so that they need not be kept between."""
        return self._query is None and len(self.sinks) == 1 and self.analysed.analysis.trunk == self.sinks[0].inputs

    def frame(self) -> DataFrame:
        """The frame the one query runs."""
        if self._query is not None:
            return self._query.frame
        frames, trunk = self.analysed.frames, self.analysed.analysis.trunk
        if not self.whole:
            return trunk_frame(
                {name: frames[name].where(marker(number)) for name, number in self._output_markers.items()}, trunk
            )
        frame = trunk_frame(frames, trunk)
        measures = self.measures.of_sink(frame)
        ended = frame.where(marker(self._end_marker))
        return ended.observe(f"rows_out {self.sinks[0].name}", *measures) if measures else ended

    def _open(self, node: Node, columns: Mapping[str, str]) -> SinkWriter:
        assert isinstance(node.component, Sink)
        try:
            return self.instead(node.name, node.component).open(self.context(node.name, dict(columns)))
        except OSError as error:
            raise storage_error(error, Path(error.filename or self.graph.file.folder)) from error

    def _compare(self, key: str, sink: Sink) -> None:
        try:
            self.positions.compare(self.state.known_as(key), key, sink.place(), self.writers[key])
        except PenstockError:
            self.close()
            raise

    def context(self, node: str, columns: dict[str, str]) -> SinkContext:
        identity, state = self.state.identity, self.state
        return SinkContext(
            self.spark,
            state.known_as(node),
            self.graph.file.folder,
            identity.name,
            identity.lineage,
            identity.epoch,
            columns,
            state.scratch / str(identity.epoch),
            state.refuse_overtaken,
            self.measures.columns,
        )

    def close(self) -> None:
        self.disk.close(self.finished)
        with suppress(Exception):
            self._release()
        self.sink_writes.close()
        for writer in self.writers.values():
            writer.close()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        try:
            with self.gate:
                self.begins(batch_id)
                self.begun = batch_id
                self._handle(rows, batch_id)
                self.finished = batch_id
                self.after()
                self.begins(None)
        except BaseException as error:
            # Spark hands back a text of the traceback only; the error itself is kept for the one who waits.
            self.failure = error
            raise

    def _handle(self, rows: DataFrame, batch_id: int) -> None:
        identity = self.state.identity
        batch = Batch(identity.name, identity.lineage, identity.epoch, batch_id)
        self.state.refuse_overtaken()
        self.listed.check()
        self.admission.begin()
        troubles = self._troubles()
        retries = {name: writer.retried for name, writer in self.writers.items()}
        if self.stage is None:
            self._tell_watermark()
        reach("batch.start", batch_id)
        self.disk.begin(batch_id)
        rows_out, counts, sifted = self._store(batch, rows)
        steps = self._account_steps(batch)
        refused = self._bury_refused(batch)
        rows_out = {sink: rows - refused.get(sink, 0) for sink, rows in rows_out.items()}
        dead = add([counts.rows_dead, sifted, steps.dead, refused])
        filtered = {**counts.filtered, **self._filtered_after()}
        entry = BatchEntry(
            batch_id,
            identity.epoch,
            counts.rows_in,
            dead,
            rows_out,
            {**counts.late, **steps.late},
            steps.corrections,
            {name: count for name in filtered if (count := filtered[name] - sifted.get(name, 0))},
            self._replayed(),
            self._checksums(batch),
        )
        self.state.refuse_overtaken()
        self._note_operators()
        self.ledger.record(entry, self.measures.times(steps.late_times, filtered), self._sink_notes(batch))
        self.disk.end()
        reach("batch.after_ledger", batch_id)
        if self.stage is not None and self._work is not None:
            self.stage.end(self._work)
        # Spark commits the batch next; a run that was overtaken in the meantime must not.
        self.state.refuse_overtaken()
        self._note_sinks(batch_id, retries)
        assert self.query is not None
        self.admission.end(self.query, self.source_order, counts.rows_in, troubled=self._troubles() > troubles)

    def lasting_writers(self) -> dict[str, SinkWriter]:
        """The open sinks but those in the state folder."""
        return {name: writer for name, writer in self.writers.items() if name not in self._own}

    def saved_sinks(self) -> tuple[SavedSink, ...]:
        """What each sink holds now; call it between batches."""
        found = []
        for name, writer in self.lasting_writers().items():
            node = self.graph.nodes.get(name)
            with inside(name):
                component = node.component.name if node is not None and isinstance(node.component, Sink) else ""
                found.append(SavedSink(name, component, writer.position()))
        return tuple(found)

    def _open_aside(self, key: str, sink: Sink, columns: dict[str, str]) -> SinkWriter:
        """Opens a sink beside the pipeline's own; after a restore it goes back when it is first opened."""
        writer = sink.open(self.context(key, columns))
        self.writers[key] = writer
        if str(getattr(sink, "path", "")).startswith(f"{self.state.path}/"):
            self._own.add(key)
        else:
            go_back_later(self.state.path, key, writer)
            self._compare(key, sink)
        return writer

    def _note_operators(self) -> None:
        """Notes, in the first batch, where the state of which step is kept, so that others can find it."""
        if not self._operators_noted:
            assert self.query is not None
            self.state.note_operators(
                steps_in(execution(self.query).executedPlan(), self.analysed.builder)
                if self.stage is None
                else dict(enumerate(self.stage.plan.kernels))
            )
            self._operators_noted = True

    def _note_sinks(self, batch: int, before: Mapping[str, int]) -> None:
        retries = {name: writer.retried - before.get(name, 0) for name, writer in self.writers.items()}
        self.sink_work[batch] = SinkWork(dict(self._sink_ms), {name: count for name, count in retries.items() if count})
        self._sink_ms.clear()
        for old in [number for number in self.sink_work if number < batch - _WORK_KEPT]:
            del self.sink_work[old]

    def _troubles(self) -> int:
        return sum(writer.retried for writer in self.writers.values())

    def _tell_watermark(self) -> None:
        """Lets the tasks of this batch know the watermark by which rows are late: that of the batch before."""
        self.spark.sparkContext.setLocalProperty(BEFORE, str(self._watermark_before()))

    def _watermark_before(self) -> int:
        assert self.query is not None
        if self.stage is not None and self._work is not None:
            return self._work.before.watermark
        before = execution(self.query).prevOffsetSeqMetadata()
        return int(before.get().batchWatermarkMs()) if before.isDefined() else 0

    def _store(self, batch: Batch, rows: DataFrame) -> tuple[dict[str, int], BatchCounts, dict[str, int]]:
        """Hands the rows to all sinks, and sets aside what steps sifted out; the counts of each."""
        self.analysed.builder.sifted.clear()
        if self.stage is not None:
            return self._store_staged(batch, rows, self.stage)
        kept = rows if self.whole else rows.persist()
        try:
            rows_out, counts = self._store_whole(batch, rows) if self.whole else self._store_branches(batch, kept)
            reach("batch.after_sinks", batch.id)
            return rows_out, counts, self._bury_sifted(batch)
        finally:
            # The JVM of a run that was overtaken is killed any moment, and answers no more.
            if not self.whole and not self.state.overtaken:
                kept.unpersist()

    def _store_staged(
        self, batch: Batch, rows: DataFrame, stage: KernelStage
    ) -> tuple[dict[str, int], BatchCounts, dict[str, int]]:
        """Runs the kernels on the batch, settles their state, and hands what they gave to all sinks."""
        assert self.query is not None
        self._release()
        self._work = work = stage.begin(self.query, batch.id, rows)
        through = self._rows_through()
        counts = self._account(batch, through)
        stage.note_rows(sum(counts.rows_in.values()))
        self._begin_measures()
        frames = self._staged_frames(work, through, stage)
        stage.settle(work)
        outputs = [self._staged_output(sink, frames, work) for sink in self.sinks]
        tables: Mapping[str, pa.Table] = {}
        if work.local and self._gives_no_more(outputs):
            tables = self.sink_writes.fetch([item for item in outputs if not self.measures.of_sink(item.rows)])
        rows_out = self.sink_writes.run(outputs, lambda item: self._write_counted(batch, item, tables))
        reach("batch.after_sinks", batch.id)
        return rows_out, counts, self._bury_sifted(batch)

    def _staged_frames(self, work: StageBatch, through: Mapping[int, int], stage: KernelStage) -> dict[str, DataFrame]:
        """The nodes from the floor up, built on this batch; `work` knows which of them have no rows."""
        frames: dict[str, DataFrame] = {}
        for part in stage.query.parts:
            for piece in part.pieces:
                if piece.side is None:
                    if not through.get(part.mark):
                        work.empty.add(piece.node)
                    frames[piece.node] = self._if_empty(piece.node, work, partial(stage.rows_of, work, piece.node))
        stage.advance_direct(work)
        frames |= work.frames
        needed = self._after(frames)
        for node in self.graph.nodes.values():
            if node.name not in needed:
                continue
            if node.name not in stage.plan.kernels and self._given_nothing(node, work):
                work.empty.add(node.name)
            if node.name in stage.plan.kernels:
                (*_, last) = node.inputs
                stage.advance(work, node, {name: frames[name] for name in node.inputs} | {last: _given(node, frames)})
                frames[node.name] = work.frames[node.name]
            elif node.name in work.empty:
                frames[node.name] = self._if_empty(node.name, work, partial(self._built, node, frames))
            else:
                frames[node.name] = self._watch(node, frames) if drops_rows(node) else self._built(node, frames)
        return frames

    def _given_nothing(self, node: Node, work: StageBatch) -> bool:
        again = pseudo_node(node.name)
        fed = self.stage is not None and any(piece.node == again for piece in self.stage.query.pieces)
        return bool(node.inputs) and set(node.inputs) <= work.empty and (not fed or again in work.empty)

    def _if_empty(self, name: str, work: StageBatch, build: Callable[[], DataFrame]) -> DataFrame:
        """The frame of a node, made once for all batches in which it has no rows."""
        if name not in work.empty:
            return build()
        if name not in self._empty_frames:
            sifted = len(self.analysed.builder.sifted)
            self._empty_frames[name] = build().limit(0)
            del self.analysed.builder.sifted[sifted:]
        return self._empty_frames[name]

    def _staged_output(self, sink: Node, frames: Mapping[str, DataFrame], work: StageBatch) -> SinkRows:
        empty = self._given_nothing(sink, work)
        return SinkRows(sink.name, self.writers[sink.name], _given(sink, frames), empty)

    def _release(self) -> None:
        """Gives up what Spark keeps of the batch before."""
        if self.stage is not None and self._work is not None and not self.state.overtaken:
            self.stage.release(self._work)

    def _came(self, name: str, side: int) -> DataFrame:
        """The rows of the batch that came to an input of a step with a kernel."""
        assert self.query is not None
        if self.stage is not None and self._work is not None:
            return self.stage.came(self._work, self.query, self.plain, name, side)
        return rows_below(self.query, self.steps[name].marks[side], self.plain)

    def _store_whole(self, batch: Batch, rows: DataFrame) -> tuple[dict[str, int], BatchCounts]:
        (sink,) = self.sinks
        if not self._write(sink.name, lambda writer: writer.write(batch, rows), batch):
            evaluate(rows)
        through = self._rows_through()
        self._begin_measures()
        return {sink.name: through.get(self._end_marker, 0)}, self._account(batch, through)

    def _store_branches(self, batch: Batch, kept: DataFrame) -> tuple[dict[str, int], BatchCounts]:
        # The first action computes the batch; counts are read right after it, as a later one may add to them.
        evaluate(kept)
        through = self._rows_through()
        counts = self._account(batch, through)
        self._begin_measures()
        frames = split_trunk(kept, self.analysed.analysis.trunk)
        without_rows = {name for name, number in self._output_markers.items() if not through.get(number)}
        # Spark starts no task for what it knows to be empty.
        frames |= {name: frames[name].limit(0) for name in without_rows}
        frames = self._branches(frames)
        outputs = [self._output(sink, frames, without_rows) for sink in self.sinks]
        rows = sum(through.get(number, 0) for number in self._output_markers.values())
        if is_few(kept, rows) and self._gives_no_more(outputs):
            tables = self.sink_writes.fetch([item for item in outputs if not self.measures.of_sink(item.rows)])
        else:
            tables = {}
        return self.sink_writes.run(outputs, lambda item: self._write_counted(batch, item, tables)), counts

    def _output(self, sink: Node, frames: Mapping[str, DataFrame], without_rows: Set[str]) -> SinkRows:
        within = {sink.name, *sink.inputs, *self.graph.ancestors(sink.name)}
        ends = {end for end in self._output_markers if end in within or end in {pseudo_node(name) for name in within}}
        # What is counted on the way is counted by a job, also if there is nothing to count.
        counted = self._watched or self.analysed.builder.sifted
        return SinkRows(sink.name, self.writers[sink.name], _given(sink, frames), not counted and ends <= without_rows)

    def _gives_no_more(self, outputs: Sequence[SinkRows]) -> bool:
        """Asked once: plans are alike in all batches."""
        if self._no_more is None:
            self._no_more = gives_no_more(item.rows for item in outputs)
        return self._no_more

    def _branches(self, frames: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """The nodes after the trunk, built on this batch."""
        needed = self._after(frames)
        for node in self.graph.nodes.values():
            if node.name in needed:
                frames[node.name] = self._watch(node, frames) if drops_rows(node) else self._built(node, frames)
        return frames

    def _built(self, node: Node, frames: Mapping[str, DataFrame]) -> DataFrame:
        (*_, name) = node.inputs
        return self.analysed.builder.frame(node, {**frames, name: _given(node, frames)})

    def _watch(self, node: Node, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The node with its rows counted before and after, by the first action that computes it."""
        from pyspark.sql import Observation

        before, after = Observation(), Observation()
        (name,) = node.inputs
        self._watched[node.name] = (before, after)
        counted = self._with_count(_given(node, frames), before)
        return self._with_count(self.analysed.builder.frame(node, {**frames, name: counted}), after)

    def _with_count(self, rows: DataFrame, observation: Observation) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.observe(observation, F.count(F.lit(1)).alias("rows"), *self.measures.of_step(rows))

    def _after(self, frames: Mapping[str, DataFrame]) -> set[str]:
        """The nodes between those whose rows are there and the sinks."""
        waiting, found = [sink.inputs[0] for sink in self.sinks], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in frames and name not in found:
                found.add(name)
                waiting.extend(self.graph.nodes[name].inputs)
        return found

    def _write_counted(self, batch: Batch, output: SinkRows, tables: Mapping[str, pa.Table]) -> int:
        """Lets a sink store its rows; how many there were."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        table = tables.get(output.sink)
        if table is not None:
            self._write(output.sink, lambda writer: writer.write_table(batch, table), batch)
            return int(table.num_rows)
        observation = Observation()
        measures = self.measures.of_sink(output.rows)
        counted = output.rows.observe(observation, F.count(F.lit(1)).alias("rows"), *measures)
        if not self._write(output.sink, lambda writer: writer.write(batch, counted), batch):
            evaluate(counted)
        self.measures.note(f"rows_out {output.sink}", observation.get)
        return int(observation.get["rows"])

    def _write(self, sink: str, store: Callable[[SinkWriter], bool], batch: Batch) -> bool:
        began = time.monotonic()
        try:
            with inside(sink):
                reach("sink.before_write", batch.id)
                self.state.refuse_overtaken()
                stored = store(self.writers[sink])
                reach("sink.after_commit", batch.id)
            self._sink_ms[sink] = round((time.monotonic() - began) * 1000)
            return stored
        except PenstockError as error:
            raise self.positions.explained(self.state.known_as(sink), error) from error
        except OSError as error:
            raise storage_error(error, Path(error.filename or self.state.path)) from error

    def _replayed(self) -> dict[str, int]:
        """The dead letters that were fed back."""
        found = {name: self._through.get(mark, 0) for name, mark in self.analysed.builder.again.items()}
        return {name: rows for name, rows in found.items() if rows}

    def _checksums(self, batch: Batch) -> dict[str, int]:
        """Of what each sink has taken."""
        found = self.measures.checksums()
        for sink in found:
            for item in self.writers[sink].refused(batch):
                row = json.loads(item.row)
                found[sink] -= python_sum(*(row.get(name) for name in self.measures.columns))
        return found

    def _sink_notes(self, batch: Batch) -> SinkNotes:
        known_as = self.state.known_as
        found = {}
        for node in self.sinks:
            assert isinstance(node.component, Sink)
            if self.measures.columns and node.component.replaces_rows:
                with inside(node.name):
                    found[known_as(node.name)] = self.writers[node.name].changed(batch)
        changed = {name: change for name, change in found.items() if change is not None}
        return SinkNotes(self.positions.notes(self.writers, known_as), changed)

    def _begin_measures(self) -> None:
        assert self.query is not None
        self.measures.begin(self.query)

    def _rows_through(self) -> dict[int, int]:
        assert self.query is not None
        return rows_through(self.query)

    def _account(self, batch: Batch, through: dict[int, int]) -> BatchCounts:
        """Counts what came in, and sets aside what could not be read; a clean batch costs nothing more."""
        rows_in: dict[str, int] = {}
        rows_dead: dict[str, int] = {}
        for name, marks in self.analysed.builder.marks.items():
            came, readable = through.get(marks.came, 0), through.get(marks.readable, 0)
            dead = self._set_aside(name, batch) if came > readable else 0
            rows_in[name], rows_dead[name] = readable + dead, dead
            if rows_in[name]:
                self.last_rows[name] = time.monotonic()
        self._through = through
        return BatchCounts(rows_in, rows_dead, self._filtered_in(through), self._late_in_operators())

    def _late_in_operators(self) -> dict[str, int]:
        """What Spark's own operators dropped as late, by step."""
        assert self.query is not None
        builder = self.analysed.builder
        found: dict[str, int] = {}
        if builder.native:
            dropped = {number: rows for number, rows in late_in_operators(self.query).items() if rows}
            steps = steps_in(execution(self.query).executedPlan(), builder) if dropped else {}
            for number, rows in dropped.items():
                if (step := steps.get(number)) is not None and step not in builder.builds:
                    found[step] = found.get(step, 0) + rows
        return found

    def _filtered_in(self, through: dict[int, int]) -> dict[str, int]:
        """What filters inside the streaming query dropped."""
        found = {}
        for name, (before, after) in self.analysed.builder.filters.items():
            dropped = through.get(before, 0) - through.get(after, 0)
            if dropped:
                found[name] = dropped
        return found

    def _filtered_after(self) -> dict[str, int]:
        """What filters dropped that ran on the batch, after the streaming query."""
        counted = {name: tuple(int(item.get["rows"]) for item in pair) for name, pair in self._watched.items()}
        for name, (before, after) in self._watched.items():
            self.measures.note(f"before {name}", before.get)
            self.measures.note(f"after {name}", after.get)
        self._watched.clear()
        return {name: came - left for name, (came, left) in counted.items() if came > left}

    def _set_aside(self, name: str, batch: Batch) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        assert self.query is not None
        node = self.graph.nodes[name]
        assert isinstance(node.spec, SourceSpec)
        assert isinstance(node.component, Source)
        builder = self.analysed.builder
        came = rows_below(self.query, builder.marks[name].came, self.plain)
        source, context = builder.reader(node)
        now = int(execution(self.query).offsetSeqMetadata().batchTimestampMs())
        letters = as_batch(dead_rows(came, source, context, node.spec.event_time, batch.pipeline, batch.id, now))
        observation = Observation()
        counted = letters.observe(observation, F.count(F.lit(1)).alias("rows"))
        writer = self._dead_writer(name)
        with inside(DEAD):
            stored = writer.write(batch, counted)
        if not stored:
            evaluate(counted)
        _refuse_lost(f"{DEAD}_{name}", writer, batch)
        keep_letters(letters, self.state.spool, name, "read", batch.id)
        return int(observation.get["rows"])

    def _account_steps(self, batch: Batch) -> StepCounts:
        """What came too late for each step, what was corrected, and what a step could not use.

        Late rows are kept where the policy says so, and unusable ones are dead letters; only then is the batch's
        input read again.
        """
        found = StepCounts({}, {}, {}, {})
        for name, step in self.steps.items():
            now = step.counters.now()
            counts = since(now, self._counted.get(name, Counts()))
            self._counted[name] = now
            node = self.graph.nodes[name]
            assert isinstance(node.spec, StepSpec)
            policy = self.graph.file.pipeline.late_policy(node.spec)
            if counts.late:
                found.late[name] = self._keep_late(name, batch, policy) if policy.policy == "side" else counts.late
            if counts.late_times:
                found.late_times[name] = counts.late_times
            if counts.corrections:
                found.corrections[name] = counts.corrections
            if counts.dead:
                found.dead[name] = self._bury(name, batch)
        return found

    def _bury_sifted(self, batch: Batch) -> dict[str, int]:
        """Stores the rows that steps have sifted out as dead letters; how many there were, by step."""
        found: dict[str, list[DataFrame]] = {}
        replayable: dict[str, bool] = {}
        builder, through = self.analysed.builder, self._through
        for sieve in builder.sieves:
            if through.get(sieve.before, 0) > through.get(sieve.after, 0):
                assert self.query is not None
                rows = dropped_rows(self.query, sieve, self.plain)
                self.measures.note_dead(sieve.node, as_batch(rows))
                reason = failing(rows) if sieve.reason is None else sieve.reason
                letters = dead_of_sieve(rows, sieve.node, sieve.stage, reason, batch.pipeline, batch.id)
                found.setdefault(sieve.node, []).append(as_batch(letters))
                replayable[sieve.node] = sieve.replayable and replayable.get(sieve.node, True)
        for part in builder.sifted:
            if int(part.before.get["rows"]) > int(part.after.get["rows"]):
                self.measures.note_dead(part.node, part.dropped)
                reason = failing(part.dropped) if part.reason is None else part.reason
                letters = dead_of_sieve(part.dropped, part.node, part.stage, reason, batch.pipeline, batch.id)
                found.setdefault(part.node, []).append(letters)
                replayable[part.node] = part.replayable and replayable.get(part.node, True)
        counts = {}
        for node, parts in found.items():
            letters = reduce(_union, parts)
            counts[node] = self._write_letters(f"{DEAD}_{node}_sifted", node, batch, letters, kept=replayable[node])
        return counts

    def _write_letters(self, key: str, node: str, batch: Batch, letters: DataFrame, *, kept: bool) -> int:
        """Stores dead letters, and keeps them to be fed back where that can be; how many there were."""
        sink = dead_letter_sink(self.graph.file.pipeline.dead_letters, self.state.dead)
        rows = self._write_aside(key, sink, COLUMNS, batch, letters)
        if kept:
            keep_letters(as_batch(letters), self.state.spool, node, key.rsplit("_", 1)[-1], batch.id)
        return rows

    def _bury(self, name: str, batch: Batch) -> int:
        """Stores the rows that a step cannot use as dead letters; how many there were."""
        step = self.steps[name]
        total = 0
        for side in range(len(step.marks)):
            came = self._came(name, side)
            letters = dead_of_step(came, step.carried.kernel, side, name, batch.pipeline, batch.id)
            key = f"{DEAD}_{name}" if side == 0 else f"{DEAD}_{name}_{side + 1}"
            total += self._write_letters(key, name, batch, letters, kept=len(step.marks) == 1)
        return total

    def _bury_refused(self, batch: Batch) -> dict[str, int]:
        """Stores the rows that sinks did not take as dead letters; how many there were, by sink.

        A sink names them again if the batch comes again, so none is lost when a run dies in between; and the
        dead-letter sink takes a batch once.
        """
        found: dict[str, int] = {}
        for node in self.sinks:
            refused = self.writers[node.name].refused(batch)
            if refused:
                letters = dead_of_sink(self.plain, refused, node.name, batch.pipeline, batch.id)
                found[node.name] = self._write_letters(f"{DEAD}_{node.name}", node.name, batch, letters, kept=True)
        return found

    def _keep_late(self, name: str, batch: Batch, policy: LatePolicy) -> int:
        """Stores the late rows of a step, input by input; how many results they missed."""
        step = self.steps[name]
        total = 0
        for side in range(len(step.marks)):
            came = self._came(name, side)
            condition = step.carried.inputs[side].where
            came = came if condition is None else came.where(expression(condition))
            found = late_rows(came, step.carried.kernel, side, name, batch.id, self._watermark_before())
            if step.replays:
                oldest = self._watermark_before() - policy.allowed.millis
                keep(as_batch(found), kept_folder(self.state.spool, name), batch.id, oldest)
            found = found.drop(REPLAYED)
            key = f"{LATE}_{name}" if side == 0 else f"{LATE}_{name}_{side + 1}"
            total += self._write_aside(
                key, late_sink(policy.sink, self.state.late), late_columns(came.drop(REPLAYED)), batch, found
            )
        return total

    def _write_aside(self, key: str, sink: Sink, columns: dict[str, str], batch: Batch, rows: DataFrame) -> int:
        """Stores rows in a sink beside the pipeline's own; how many there were."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        if key not in self.writers:
            place = key.split("_", 1)[1] if key.startswith(f"{LATE}_") else key.removeprefix(f"{DEAD}_")
            self._open_aside(key, _below(self.instead(key, sink), place), columns)
        observation = Observation()
        counted = as_batch(rows).observe(observation, F.count(F.lit(1)).alias("rows"))
        if not self.writers[key].write(batch, counted):
            evaluate(counted)
        _refuse_lost(key, self.writers[key], batch)
        return int(observation.get["rows"])

    def _dead_writer(self, source: str) -> SinkWriter:
        """One open dead-letter sink per source, as each writes the batch in its own turn."""
        key = f"{DEAD}_{source}"
        if key not in self.writers:
            declared = self.graph.file.pipeline.dead_letters
            sink = self.instead(key, dead_letter_sink(declared, self.state.dead))
            several = len(self.analysed.builder.marks) > 1
            self._open_aside(key, _below(sink, source if several else None), COLUMNS)
        return self.writers[key]


def _below(sink: Sink, source: str | None) -> Sink:
    """A files sink keeps one manifest per batch, so each source of several gets a folder of its own."""
    if source is None or sink.name != "files":
        return sink
    return sink.model_copy(update={"path": f"{sink.path}/{source}"})  # type: ignore[attr-defined]


def _refuse_lost(key: str, writer: SinkWriter, batch: Batch) -> None:
    """What a sink for dead or late rows does not take has nowhere else to go."""
    refused = writer.refused(batch)
    if refused:
        advice = "Let its table take every row, or keep them in files."
        raise PenstockError.of("SINK_FAILED", node=key, batch=batch.id, reason=refused[0].error, advice=advice)


def _given(node: Node, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a node's last input, with what is fed back to it."""
    rows, again = frames[node.inputs[-1]], frames.get(pseudo_node(node.name))
    return rows if again is None else rows.unionByName(again)


def _union(first: DataFrame, second: DataFrame) -> DataFrame:
    return first.unionByName(second)


def evaluate(rows: DataFrame) -> None:
    """Computes a batch without storing it, so that state and counts are right when a sink has it already."""
    rows.write.format("noop").mode("overwrite").save()
