"""Runs one pipeline in this process, from reading its file to a clean stop."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock.engine.analyse import analyse
from penstock.engine.checkpoint import verify
from penstock.engine.jars import sets_for
from penstock.engine.ledger import add
from penstock.engine.progress import BatchReport, Status
from penstock.engine.query import RunningPipeline
from penstock.engine.session import Session, SessionOptions, cores
from penstock.engine.state.buckets import buckets_of
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError, Severity
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.graph.validate import check
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden

if TYPE_CHECKING:
    from penstock.engine.analyse import Analysed

_POLL_SECONDS = 0.2
_RATES_KEPT = 60
_ENDING_SECONDS = 0.5

Watch = Callable[[Status], None]


@dataclass(frozen=True)
class RunOptions:
    """How to run: once or for ever, where state is kept, and Spark's own options."""

    once: bool = False
    state_dir: Path | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    packages: Sequence[str] = ()


def state_path(file: PipelineFile, options: RunOptions) -> Path:
    """`.penstock/NAME` beside the pipeline file, unless another place is given."""
    if options.state_dir is not None:
        return options.state_dir.resolve()
    return (file.folder / ".penstock" / file.pipeline.name).resolve()


class Stop:
    """Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.session: Session | None = None

    def install(self) -> None:
        """Takes the signals over; PySpark sets its own handler when a session starts, so this comes after."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            if self.session is not None:
                self.session.kill()
            if sys.stdout.isatty():
                # Nothing is cleaned up from here on, and the live view has hidden the cursor.
                os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
            os._exit(128 + number)
        self.asked.set()


def run(file: PipelineFile, options: RunOptions, watch: Watch) -> Status:
    """Runs until the data is at its end (`once`) or a stop is asked for; gives the final status."""
    graph = build(file)
    errors = [problem for problem in check(graph) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    path = state_path(file, options)
    refuse_foreign(path, file.pipeline.name)
    stop = Stop()
    stop.install()
    fresh = read_identity(path) is None
    with StateDir(path, file.pipeline.name) as state:
        try:
            # Spark takes seconds to start; a checkpoint that cannot be read is told at once.
            verify(state.checkpoint)
            return _run(graph, options, state, stop, watch)
        except PenstockError as error:
            # A mistake in the file leaves nothing behind; for anything else the log is worth having.
            if fresh and error.exit_code == 2 and not state.checkpoint.exists():
                _remove_new(path)
            raise hidden(error) from error


def _remove_new(path: Path) -> None:
    """Takes away a state folder in which nothing has happened yet."""
    shutil.rmtree(path, ignore_errors=True)
    parent = path.parent
    if parent.name == ".penstock" and parent.is_dir() and not any(parent.iterdir()):
        parent.rmdir()


def _run(graph: Graph, options: RunOptions, state: StateDir, stop: Stop, watch: Watch) -> Status:
    shutil.rmtree(state.scratch, ignore_errors=True)
    started = dt.datetime.now(dt.UTC)
    status = Status(graph.file.pipeline.name, "starting Spark", started)
    watch(status)
    session = Session(
        SessionOptions(
            master=options.master,
            conf=with_partitions(graph, options),
            driver_memory=options.driver_memory,
            packages=options.packages,
            jars=sets_for(graph.file.pipeline),
            hidden=secret_values(graph.file.pipeline),
            scratch=state.scratch,
            log=state.logs / "spark.log",
        )
    )
    stop.session = session
    stop.install()
    try:
        analysed = analyse(session.spark, graph, state.spool, buckets_of(session.spark, state))
        analysed.raise_errors()
        return _drive(session, graph, analysed, options, state, stop, watch, status)
    except Exception as error:
        if _lost(session, error):
            raise PenstockError.of("JVM_DIED", log=session.log) from error
        raise
    finally:
        if session.jvm.alive:
            session.stop()
        else:
            session.kill()


def _lost(session: Session, error: Exception) -> bool:
    """Whether an error only says that the JVM is gone: its connections break a moment before it has ended."""
    if isinstance(error, PenstockError) and error.code != "BATCH_FAILED":
        return False
    deadline = time.monotonic() + _ENDING_SECONDS
    while session.jvm.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    return not session.jvm.alive


def with_partitions(graph: Graph, options: RunOptions) -> dict[str, str]:
    """Spark's options with the number of state partitions from the pipeline, or one per core."""
    partitions = graph.file.pipeline.state.partitions or cores(options.master)
    return {"spark.sql.shuffle.partitions": str(partitions), **options.conf}


def _drive(
    session: Session,
    graph: Graph,
    analysed: Analysed,
    options: RunOptions,
    state: StateDir,
    stop: Stop,
    watch: Watch,
    status: Status,
) -> Status:
    running = RunningPipeline(session.spark, graph, analysed, state)
    tracker = _Tracker(running, replace(status, phase="running"))
    try:
        running.start(once=options.once)
        watch(tracker.status)
        while not running.wait(_POLL_SECONDS):
            if stop.asked.is_set():
                watch(tracker.turn("stopping"))
                running.finish()
                break
            running.release_idle()
            watch(tracker.turn("waiting for data" if running.idle else "running"))
        return tracker.turn("stopped" if stop.asked.is_set() else "done")
    finally:
        running.close()


class _Tracker:
    """Adds up what batches report into the status."""

    def __init__(self, running: RunningPipeline, status: Status) -> None:
        self.running = running
        totals = running.ledger.totals()
        self._next = totals.batch + 1
        self.status = replace(status, earlier_rows=sum(totals.rows_in.values()))

    def turn(self, phase: str) -> Status:
        reports = self.running.new_reports()
        entries = self.running.ledger.entries(self._next)
        self._next = entries[-1].batch + 1 if entries else self._next
        last = reports[-1] if reports else self.status.last
        rates = (*self.status.recent_rates, *(report.rows_per_second for report in reports))
        self.status = replace(
            self.status,
            phase=phase,
            batches=self.status.batches + len(entries),
            rows_in=add([self.status.rows_in, *(entry.rows_in for entry in entries)]),
            rows_dead=add([self.status.rows_dead, *(entry.rows_dead for entry in entries)]),
            rows_out=add([self.status.rows_out, *(entry.rows_out for entry in entries)]),
            late=add([self.status.late, *(entry.late for entry in entries), *_natively_late(reports)]),
            watermarks=self.running.watermarks() if reports else self.status.watermarks,
            last=last,
            backlog=self.running.backlog(last) if reports or not self.status.backlog else self.status.backlog,
            recent_rates=rates[-_RATES_KEPT:],
        )
        return self.status


def _natively_late(reports: Sequence[BatchReport]) -> list[dict[str, int]]:
    """Rows that Spark's own operators have dropped, which it does not tell apart."""
    dropped = sum(report.late_rows for report in reports)
    return [{"sql": dropped}] if dropped else []
