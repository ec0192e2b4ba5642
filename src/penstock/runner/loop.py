"""Runs one pipeline in this process, from reading its file to a clean stop."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from penstock.engine.checkpoint import verify
from penstock.engine.jars import sets_for
from penstock.engine.progress import Status
from penstock.engine.session import Session, SessionOptions, cores
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError, Severity
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.graph.validate import check
from penstock.runner.course import Course, Watch
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden

_ENDING_SECONDS = 0.5


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
        course = Course(session.spark, graph, state, watch, status, stop.asked, session.log)
        return course.through(once=options.once)
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
