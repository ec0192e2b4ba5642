"""The course of a run: history, if there is any to be read, and then live; and what it reports of itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.shared.crashpoints import reach
from penstock.components.steps.python import Python
from penstock.engine.analyse import Analysed
from penstock.engine.checkpoint import last_number
from penstock.engine.history import History, copy, pending, waiting
from penstock.engine.ledger import Ledger, add
from penstock.engine.progress import BatchReport, Ended, Headway, Status, Waiting
from penstock.engine.query import RunningPipeline
from penstock.engine.spark_errors import runtime_problem
from penstock.engine.stage.choose import analyse_on
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph
from penstock.runner.savepoints import SavepointDesk
from penstock.runner.set_back import SetBack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_IDLE_POLL_SECONDS = 0.5
"""While nothing is to be read. A stop and a savepoint that is asked for wait no longer than this."""
_RATES_KEPT = 60

Watch = Callable[[Status], None]


class Course:
    """A run from its first row to its last: history, if there is any to be read, and then live."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        state: StateDir,
        watch: Watch,
        status: Status,
        stop: threading.Event,
        log: Path,
    ) -> None:
        self.spark = spark
        self.graph = graph
        self.state = state
        self.watch = watch
        self.stop = stop
        self.log = log
        self.careful = False
        """Whether rows on which an expression fails are set aside; it costs, so only since there was one."""
        self.tracker = Tracker(status, Ledger(state.ledger))
        self.savepoints = SavepointDesk(state, graph.file)
        self.set_back = SetBack()
        self.begins: Callable[[int | None], None] = lambda _: None
        """Called with the number of each batch, and with None when it has been handled."""

    def through(self, *, once: bool) -> Status:
        """Reads history that has not been read, then the sources, until they end (`once`) or a stop is asked for."""
        analysed = self._analyse({})
        self._copy_histories(analysed)
        unread = pending(self.graph, self.state.spool)
        if unread:
            self.tracker.begin_history(unread)
            last = self._drive_to_end(self._analyse(unread), "reading history", once=True)
            if self.stop.is_set():
                return last
            self.watch(replace(last, phase="reading history"))
            for history in unread.values():
                reach("history.read", 0)
                history.finish()
            self.tracker.end_history()
            analysed = self._analyse({})
        return self._drive_to_end(analysed, "running", once=once)

    def _drive_to_end(self, analysed: Analysed, phase: str, *, once: bool) -> Status:
        """Runs; when a row makes a batch fail, runs on with care, so that such rows are set aside.

        A query that stopped because the clock was set back is built and started again, from its checkpoint.
        """
        while True:
            try:
                ended = self._drive(analysed, phase, once=once)
            except PenstockError as error:
                if self.careful or not may_be_a_row(error, self.graph):
                    raise
                self.careful = True
                self.tracker.status = replace(self.tracker.status, careful=True)
                ended = None
            if ended is not None:
                return ended
            analysed = self._analyse(analysed.builder.histories)

    def _analyse(self, histories: Mapping[str, History]) -> Analysed:
        found = analyse_on(self.spark, self.graph, self.state, histories, careful=self.careful)
        found.raise_errors()
        return found

    def _copy_histories(self, analysed: Analysed) -> None:
        """Copies what has not been copied; only a pipeline that has read nothing can still do that."""
        state, graph = self.state, self.graph
        started = last_number(state.checkpoint / "offsets") >= 0
        for name in waiting(graph, state.spool, started=started):
            self.watch(self.tracker.turn("sorting history"))
            node = graph.nodes[name]
            with self._told():
                copy(self.spark, node, graph.file.folder, state.spool, analysed.builder.live(node))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What Spark says of a job, in Penstock's words."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            raise PenstockError(runtime_problem(error, batch=0, log=self.log, checkpoint=self.state.path)) from error

    def _drive(self, analysed: Analysed, phase: str, *, once: bool) -> Status | None:
        """Runs a query until it ends; None if it was stopped to be started again."""
        running = RunningPipeline(self.spark, self.graph, analysed, self.state, self.log)
        tracker = self.tracker
        tracker.follow(running)
        running.handler.begins = self.begins
        timed = not once and self.graph.file.pipeline.run.trigger.millis > 0
        # A query that begins now waits by the clock as it is now.
        self.set_back.begin()
        try:
            running.start(once=once)
            self.watch(tracker.turn(phase))
            idle = False
            while not running.wait(_IDLE_POLL_SECONDS if idle else _POLL_SECONDS):
                if self.stop.is_set() or self.savepoints.asked_to_stop:
                    self.stop.set()
                    self.watch(tracker.turn("stopping"))
                    running.finish()
                    break
                if timed and self._waits_too_long(running):
                    running.finish()
                    self.watch(tracker.turn(phase))
                    return None
                running.release_idle()
                self.savepoints.turn(running)
                idle = running.idle
                self.watch(tracker.turn("waiting for data" if idle else phase))
            self.savepoints.end(running)
            return tracker.turn("stopped" if self.stop.is_set() else "done")
        except Exception:
            # Batches that have finished right before are told all the same.
            with suppress(Exception):
                self.watch(tracker.turn(phase))
            raise
        finally:
            self.savepoints.wait()
            running.close()

    def _waits_too_long(self, running: RunningPipeline) -> bool:
        """Whether Spark waits for a time of day from which the clock was set back; never in the middle of a batch."""
        seconds = self.set_back.look()
        if not seconds or not running.between_batches:
            return False
        _LOG.warning(
            "the machine's clock was set back by %.0f seconds: the query is started again, "
            "because Spark would begin the next batch that much later",
            seconds,
        )
        return True


def may_be_a_row(error: PenstockError, graph: Graph) -> bool:
    """Whether a batch may have failed for a row that can be set aside."""
    in_python = any(
        isinstance(node.component, Python) and node.component.over == "arrow" for node in graph.of_kind("step")
    )
    return error.code == "ROW_FAILED" or (error.code == "BATCH_FAILED" and in_python)


class Tracker:
    """Adds up what batches report into the status."""

    def __init__(self, status: Status, ledger: Ledger) -> None:
        self.ledger = ledger
        self.running: RunningPipeline | None = None
        totals = ledger.totals()
        self._next = totals.batch + 1
        self._earlier = totals.rows_in
        self._waiting: dict[str, Waiting] = {}
        self._history: set[str] = set()
        self._history_from = 0.0
        self.status = replace(status, earlier_rows=sum(totals.rows_in.values()))

    def follow(self, running: RunningPipeline) -> None:
        """Takes reports from this one from now on."""
        self.running = running

    def begin_history(self, histories: Mapping[str, History]) -> None:
        self._history = set(histories)
        self._history_from = time.monotonic()
        rows = sum(history.plan.rows for history in histories.values() if history.plan is not None)
        done = sum(self._earlier.get(name, 0) for name in histories)
        self.status = replace(self.status, history=Headway(done, rows))

    def end_history(self) -> None:
        self._history = set()
        self.status = replace(self.status, history=None)

    def _headway(self) -> Headway | None:
        """How far it is through the history; the rest is taken to go as fast as what this run has read of it."""
        known = self.status.history
        if known is None:
            return None
        here = sum(self.status.rows_in.get(name, 0) for name in self._history)
        done = min(here + sum(self._earlier.get(name, 0) for name in self._history), known.total)
        took = time.monotonic() - self._history_from
        return Headway(done, known.total, (known.total - done) * took / here if here else None)

    def _ended(self, reports: Sequence[BatchReport]) -> tuple[Ended, ...]:
        if not reports:
            return ()
        entries = {entry.batch: entry for entry in self.ledger.entries(reports[0].batch)}
        return tuple(Ended(report, entries[report.batch]) for report in reports if report.batch in entries)

    def _note_backlog(self) -> None:
        now = time.monotonic()
        for name, backlog in self.status.backlog.items():
            self._waiting[name] = self._waiting.get(name, Waiting()).noted(now, backlog.amount)

    def turn(self, phase: str) -> Status:
        running = self.running
        if running is None:
            self.status = replace(self.status, phase=phase, ended=())
            return self.status
        reports = running.new_reports()
        entries = self.ledger.entries(self._next)
        self._next = entries[-1].batch + 1 if entries else self._next
        last = reports[-1] if reports else self.status.last
        ended = self._ended(reports)
        rates = (*self.status.recent_rates, *(report.rows_per_second for report in reports))
        self.status = replace(
            self.status,
            phase=phase,
            batches=self.status.batches + len(entries),
            rows_in=add([self.status.rows_in, *(entry.rows_in for entry in entries)]),
            rows_dead=add([self.status.rows_dead, *(entry.rows_dead for entry in entries)]),
            rows_out=add([self.status.rows_out, *(entry.rows_out for entry in entries)]),
            late=add([self.status.late, *(entry.late for entry in entries)]),
            watermarks=running.watermarks() if reports else self.status.watermarks,
            last=last,
            backlog=running.backlog(last) if reports or not self.status.backlog else self.status.backlog,
            recent_rates=rates[-_RATES_KEPT:],
            filtered=add([self.status.filtered, *(entry.filtered for entry in entries)]),
            sink_retries=add([self.status.sink_retries, *(report.sink_retries for report in reports)]),
            ended=ended,
        )
        if reports:
            self._note_backlog()
        left = {name: waiting.seconds_left for name, waiting in self._waiting.items()}
        caught_up_in = {name: seconds for name, seconds in left.items() if seconds is not None}
        self.status = replace(self.status, history=self._headway(), caught_up_in=caught_up_in)
        return self.status
