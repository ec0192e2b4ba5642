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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock.engine.checkpoint import verify
from penstock.engine.jars import sets_for
from penstock.engine.progress import Status
from penstock.engine.savepoints.journal import undo
from penstock.engine.savepoints.places import found_in, readable
from penstock.engine.savepoints.restore import examine, restore
from penstock.engine.session import Session, SessionOptions, cores
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError, Severity
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.graph.validate import check
from penstock.reports.values import Executor
from penstock.runner.course import Course, Watch
from penstock.runner.executors import follow_executors
from penstock.runner.spark_log import Record
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDING_SECONDS = 0.5
_LEASE_SECONDS = 0.2


@dataclass(frozen=True)
class RunOptions:
    """How to run: once or for ever, where state is kept, and Spark's own options."""

    once: bool = False
    state_dir: Path | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str | None = None
    packages: Sequence[str] = ()
    """Maven coordinates that Spark resolves itself, unchecked."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """Jars of packages with their sha256, which are checked."""
    take_over: bool = False
    """Whether to take the state from a run that still holds it; that one may then not go on."""
    log: Path | None = None
    """The log that errors refer to. Default: `logs/spark.log` in the state folder."""
    take_line: Callable[[str], None] | None = None
    """Called with each line of Spark's log, instead of writing it to a file."""
    restore: Path | None = None
    """A savepoint to go back to first."""
    fork: bool = False
    """Whether it begins from there as one of its own, with sinks of its own, instead of going back."""
    keep_rows: bool = False
    """Whether sinks that cannot take rows back keep them, and are given them again."""
    take_record: Callable[[Record, Executor], None] | None = None
    """Called with what executors of a standalone cluster write."""
    begins: Callable[[int | None], None] | None = None
    """Called with the number of each batch when it begins, and with None when it has been handled."""


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
    restoring = options.restore is not None
    refuse_foreign(path, file.pipeline.name, mend=restoring)
    savepoint = examine(options.restore, file.pipeline.name, fork=options.fork) if options.restore else None
    stop = Stop()
    stop.install()
    fresh = read_identity(path) is None
    with StateDir(path, file.pipeline.name, take_over=options.take_over, mend=restoring) as state:
        try:
            if options.restore is not None and savepoint is not None:
                restore(state, options.restore, savepoint, fork=options.fork, keep_rows=options.keep_rows)
            # Spark takes seconds to start; a checkpoint that cannot be read is told at once.
            verify(state.checkpoint)
            return drive(graph, options, state, stop, watch)
        except PenstockError as error:
            # However it ended, a run whose state was taken over ended of that, and the folder is not its own.
            state.refuse_overtaken()
            if error.code == "SINK_CANNOT_REWIND":
                undo(path)
            error = _with_savepoint(error, path)
            # A mistake in the file leaves nothing behind; for anything else the log is worth having.
            if fresh and error.exit_code == 2 and not state.checkpoint.exists():
                _remove_new(path)
            raise hidden(error) from error


def _with_savepoint(error: PenstockError, path: Path) -> PenstockError:
    """State that cannot be read is told together with the savepoint to go back to, if there is one."""
    names = [one.name for one in readable(found_in(path))]
    if error.code != "STATE_UNREADABLE" or not names:
        return error
    way = f" go back to a savepoint (`penstock run FILE --restore {names[-1]}`),"
    return PenstockError(replace(one, params={**one.params, "savepoint": way}) for one in error.problems)


def _remove_new(path: Path) -> None:
    """Takes away a state folder in which nothing has happened yet."""
    shutil.rmtree(path, ignore_errors=True)
    parent = path.parent
    if parent.name == ".penstock" and parent.is_dir() and not any(parent.iterdir()):
        parent.rmdir()


MakeCourse = Callable[["SparkSession", Graph, StateDir, Watch, Status, threading.Event, Path], Course]


def drive(
    graph: Graph, options: RunOptions, state: StateDir, stop: Stop, watch: Watch, make: MakeCourse = Course
) -> Status:
    """Runs on an open state with a Spark session of its own, which ends with it."""
    scratch = state.scratch / str(state.identity.epoch)
    shutil.rmtree(state.scratch, ignore_errors=True)
    started = dt.datetime.now(dt.UTC)
    status = Status(graph.file.pipeline.name, "starting Spark", started, epoch=state.identity.epoch)
    watch(status)
    session = Session(
        SessionOptions(
            master=options.master,
            conf=with_partitions(graph, options),
            driver_memory=options.driver_memory,
            packages=options.packages,
            locked=options.locked,
            jars=sets_for(graph.file.pipeline),
            hidden=secret_values(graph.file.pipeline),
            scratch=scratch,
            log=options.log or state.logs / "spark.log",
            take_line=options.take_line,
        )
    )
    stop.session = session
    stop.install()
    lease = LeaseWatch(state, session)
    lease.start()
    executors = follow_executors(session, options.master, options.take_record)
    try:
        course = make(session.spark, graph, state, watch, status, stop.asked, session.log)
        course.begins = options.begins or course.begins
        return course.through(once=options.once)
    except Exception as error:
        if _lost(session, error):
            raise PenstockError.of("JVM_DIED", log=session.log) from error
        raise
    finally:
        lease.end()
        if executors is not None:
            executors.end()
        if session.jvm.alive and not state.overtaken:
            session.stop()
        else:
            session.kill()
        with suppress(OSError):
            state.scratch.rmdir()


class LeaseWatch(threading.Thread):
    """Kills the JVM of a run whose state was taken over, wherever it is, before it can write any more."""

    def __init__(self, state: StateDir, session: Session) -> None:
        super().__init__(name="lease", daemon=True)
        self._state = state
        self._session = session
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_LEASE_SECONDS):
            if self._state.overtaken:
                self._session.jvm.kill()
                return

    def end(self) -> None:
        self._over.set()


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
