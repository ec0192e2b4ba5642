"""A pipeline as a running Spark query: start, watch, finish the batch and stop."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.base import Backlog, Source
from penstock.engine.analyse import Analysed
from penstock.engine.batch import BatchHandler, Instead, SinkWork, as_declared
from penstock.engine.checkpoint import last_committed, source_log, verify
from penstock.engine.evolution.going_on import go_on
from penstock.engine.frames import steps_in
from penstock.engine.idle import Remembered, SourceTime, SourceWatermarks, catch_up, tick, tick_folder
from penstock.engine.ledger import Ledger
from penstock.engine.markers import execution, markers_in
from penstock.engine.progress import BatchReport, batch_report, progress_after
from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.standing import known_steps
from penstock.engine.savepoints.take import Moment
from penstock.engine.spark_errors import runtime_problem
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph
from penstock.reports.state_folder import state_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str((1 << 31) - 1)
_LOOK_SECONDS = 1.0
_BETWEEN = "SystemClock.waitTillTime("
"""Where Spark's loop waits between two batches, and nowhere else."""
_TOP_FRAMES = 6


class RunningPipeline:
    """The one query of a pipeline. Made stopped; `start` it once."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        analysed: Analysed,
        state: StateDir,
        log: Path | None = None,
        instead: Instead = as_declared,
    ) -> None:
        self.spark = spark
        self.log = log or state.logs / "spark.log"
        self.graph = graph
        self.state = state
        self.analysed = analysed
        verify(state.checkpoint)
        self._refuse_other_partitions()
        go_on(state, graph, analysed)
        self.handler = BatchHandler(spark, graph, analysed, state, instead)
        self.query: StreamingQuery | None = None
        self._seen = last_committed(state.checkpoint)
        self._came = {marks.came: name for name, marks in analysed.builder.marks.items()}
        streams = analysed.builder.streams
        self._source_order = [name for number in markers_in(self.handler.frame()) for name in streams.get(number, [])]
        self.handler.source_order = self._source_order
        self._source_watermarks: SourceWatermarks | None = None
        self._heard: dict[str, float] = {}
        self._ticked: dict[str, int] = {}
        self._remembered = Remembered(state.spool)

    @property
    def _idle_after(self) -> dict[str, float]:
        timed = {source.name: source.event_time for source in self.graph.file.pipeline.sources if source.event_time}
        return {name: time.idle_after.millis / 1000 for name, time in timed.items() if time.idle_after is not None}

    def watermarks(self) -> dict[str, int]:
        """The watermark of each source in milliseconds; 0 for one that has given no row in this run."""
        return {} if self._source_watermarks is None else self._source_watermarks.read()

    def release_idle(self, now: float | None = None) -> list[str]:
        """Takes the watermark of silent sources along with the others; which ones. Call it now and then."""
        idle_after = self._idle_after
        if not idle_after or not self.active:
            return []
        now = time.monotonic() if now is None else now
        for name, last in self.handler.last_rows.items():
            self._heard[name] = max(last, self._heard.get(name, 0.0))
        found = self.watermarks()
        marks = self._remembered.with_new(found)
        timed = [source for source in self.graph.file.pipeline.sources if source.event_time is not None]
        known = {
            source.name: SourceTime(marks.get(source.name, 0), now - self._heard.setdefault(source.name, now))
            for source in timed
        }
        released = []
        for source in timed:
            target = catch_up(source.name, known, idle_after)
            if target is None and source.name in idle_after and found.get(source.name, 0) < marks.get(source.name, 0):
                # Spark has forgotten in a restart how far it was.
                silent = known[source.name].silent_seconds >= idle_after[source.name]
                target = marks[source.name] if silent else None
            if target is not None and target > self._ticked.get(source.name, 0):
                assert source.event_time is not None
                newest = dt.datetime.fromtimestamp((target + source.event_time.max_delay.millis) / 1000, dt.UTC)
                tick(tick_folder(self.state.spool, source.name), source.event_time.column, newest)
                self._ticked[source.name] = target
                released.append(source.name)
        return released

    def _refuse_other_partitions(self) -> None:
        wanted, found = self.graph.file.pipeline.state.partitions, state_partitions(self.state.checkpoint)
        if wanted is not None and found is not None and wanted != found:
            place = self.graph.file.places.of("spec", "state", "partitions")
            raise PenstockError.of("STATE_PARTITIONS_FIXED", place, found=found, wanted=wanted)

    @property
    def ledger(self) -> Ledger:
        return self.handler.ledger

    def start(self, *, once: bool) -> None:
        """Starts the query: `once` takes what is there and ends, otherwise it goes on."""
        trigger = self.graph.file.pipeline.run.trigger
        self.handler.admission.waits = once
        writer = (
            self.handler.frame()
            .writeStream.foreachBatch(self._when_bound)
            .outputMode(self.analysed.analysis.output_mode)
            .option("checkpointLocation", str(self.state.checkpoint))
            .queryName(self.graph.file.pipeline.name)
        )
        timing: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": f"{trigger.millis} milliseconds"}
        )
        try:
            with self._uncounted_bytes():
                self.query = writer.trigger(**timing).start()
        except Exception as error:
            raise self._failed(error) from error
        try:
            self.handler.disk.created()
            self.state.bind(str(self.query.id))
        except PenstockError:
            self.query.stop()
            raise
        self._source_watermarks = SourceWatermarks(self.query, self._came)
        # Batches wait for this, so none is stored under a state that is not its own.
        self.handler.query = self.query

    @contextmanager
    def _uncounted_bytes(self) -> Iterator[None]:
        """Spares Spark the size of each row on its way to Python, where rows are small: a tenth of the time.

        A query takes the options of its session along when it starts.
        """
        chosen = self.spark.sparkContext.getConf().get(_MOST_BYTES)
        if not self.analysed.builder.small_rows or chosen is not None:
            yield
            return
        self.spark.conf.set(_MOST_BYTES, _NO_LIMIT)
        try:
            yield
        finally:
            self.spark.conf.unset(_MOST_BYTES)

    def _when_bound(self, rows: Any, batch_id: int) -> None:
        # The first batch can come before `start` has returned and the handler knows its query.
        while self.handler.query is None:
            time.sleep(0.001)
        self.handler(rows, batch_id)

    @property
    def idle(self) -> bool:
        """Whether it waits for data; a query that has not looked for any yet does not."""
        if self.query is None:
            return False
        status = self.query.status
        looked = not str(status["message"]).startswith("Initializing")
        return looked and not status["isDataAvailable"] and not status["isTriggerActive"]

    @property
    def active(self) -> bool:
        return self.query is not None and self.query.isActive

    @property
    def between_batches(self) -> bool:
        """Whether Spark waits for the time of day at which its next batch is due."""
        if not self.active:
            return False
        assert self.query is not None
        return _sleeps(self.query._jsq.streamingQuery().queryExecutionThread())

    def wait(self, seconds: float) -> bool:
        """Waits for the end; whether it has come. Raises what went wrong."""
        assert self.query is not None
        try:
            return bool(self.query.awaitTermination(seconds))  # type: ignore[arg-type]  # it takes fractions
        except Exception as error:
            raise self._failed(error) from error

    def process_all(self) -> None:
        """Waits until all that is there has been processed."""
        assert self.query is not None
        try:
            self.query.processAllAvailable()
        except Exception as error:
            raise self._failed(error) from error

    def finish(self) -> None:
        """Lets the batch that is running end and commit, and starts no other."""
        if not self.active:
            return
        assert self.query is not None
        thread = self._leave_loop().queryExecutionThread()
        # It may just have looked whether to go on, and begin: to stop it then would leave a batch that is only planned.
        while thread.isAlive() and not _sleeps(thread):
            time.sleep(0.01)
        self.stop()

    def _leave_loop(self) -> Any:
        """Tells Spark's loop that it has ended.

        Spark's own stop() interrupts the batch. The loop, told so, starts no other and leaves after the commit; between
        batches it may sleep for the rest of the trigger's time, and is woken by stop().
        """
        assert self.query is not None
        jvm: Any = self.spark._jvm
        loader = jvm.Thread.currentThread().getContextClassLoader()
        name = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
        terminated = jvm.java.lang.Class.forName(name, True, loader).getField("MODULE$").get(None)
        execution = self.query._jsq.streamingQuery()
        execution.state().set(terminated)
        return execution

    def run_one(self) -> None:
        """Runs the one batch that is planned in the log of offsets, and ends; raises what went wrong."""
        self.handler.after = lambda: self._leave_loop() and None
        self.start(once=False)
        while not self.wait(_LOOK_SECONDS):
            pass

    @contextmanager
    def paused(self) -> Iterator[Moment]:
        """Keeps it between two batches, after the one at work, if there is one, has been committed."""
        # Looking through the plan takes its time, and no batch need wait for it.
        steps = self.operators() or known_steps(self.state.path)
        with self.handler.gate:
            since = time.monotonic()
            committed = self._committed()
            unfinished = self.handler.begun > committed
            yield Moment(
                committed, unfinished, self.handler.saved_sinks(), steps, self.handler.lasting_writers(), since
            )

    def _committed(self) -> int:
        """The last committed batch, once Spark has committed what the sinks have; it does so right after them."""
        committed = last_committed(self.state.checkpoint)
        while committed < self.handler.finished and self.active:
            time.sleep(0.002)
            committed = last_committed(self.state.checkpoint)
        return committed

    def operators(self) -> dict[int, str]:
        """The steps whose state is kept, by Spark's number of the operator; empty before the first batch."""
        if self.handler.stage is not None:
            return dict(enumerate(self.handler.stage.plan.kernels))
        last = None if self.query is None else execution(self.query)
        if last is None:
            return {}
        return steps_in(last.executedPlan(), self.analysed.builder)

    def release_pins(self) -> None:
        """Lets sinks know of savepoints that are gone, if no batch is at work; call it now and then."""
        pins = Pins(self.state.path)
        if pins.to_be_released and self.handler.gate.acquire(blocking=False):
            try:
                pins.tell(self.handler.lasting_writers())
            finally:
                self.handler.gate.release()

    def stop(self) -> None:
        """Stops at once; an unfinished batch is not committed and comes again."""
        if self.query is not None:
            self.query.stop()

    def close(self) -> None:
        self.handler.close()

    def new_reports(self) -> list[BatchReport]:
        """Reports of the batches that ended since the last call."""
        if self.query is None or self.handler.finished <= self._seen:
            return []
        kept = self.query._jsq.recentProgress()
        found = [batch_report(progress, self._source_order) for progress in progress_after(self._seen, kept)]
        fresh = [report for report in found if "addBatch" in report.phases_ms]
        self._seen = max((report.batch for report in fresh), default=self._seen)
        return [self._with_sinks(report) for report in fresh]

    def _with_sinks(self, report: BatchReport) -> BatchReport:
        work = self.handler.sink_work.get(report.batch, SinkWork())
        return replace(report, sink_ms=work.ms, sink_retries=work.retries)

    def backlog(self, report: BatchReport | None) -> dict[str, Backlog]:
        """What waits at each source, where it can be told."""
        found: dict[str, Backlog] = {}
        for node in self.graph.of_kind("source"):
            assert isinstance(node.component, Source)
            if node.name in self.analysed.builder.histories:
                continue
            progress = dict(report.sources.get(node.name, {})) if report else {}
            progress["log"] = source_log(self.state.checkpoint, node.name)
            waiting = node.component.backlog(self.analysed.builder.read_context(node), progress)
            if waiting is not None:
                found[node.name] = waiting
        return found

    def _failed(self, error: Exception) -> PenstockError:
        """The reason in Penstock's words; the sink's own error if that was it."""
        failure = self.handler.failure
        if isinstance(failure, PenstockError):
            return failure
        cause = failure if isinstance(failure, Exception) else error
        problem = runtime_problem(cause, batch=self._seen + 1, log=self.log, checkpoint=self.state.path)
        return PenstockError(problem)


def _sleeps(thread: Any) -> bool:
    """Whether Spark's loop waits for its next turn, and is not in a batch or on the way to one."""
    frames = thread.getStackTrace()
    return any(_BETWEEN in str(frames[place]) for place in range(min(len(frames), _TOP_FRAMES)))
