"""Savepoints of a pipeline: taken by its run, while it goes on, or of its state when it does not run."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.batch import BatchHandler
from penstock.engine.checkpoint import last_committed, last_number, verify
from penstock.engine.jars import sets_for
from penstock.engine.query import RunningPipeline
from penstock.engine.savepoints.diff import SavepointDiff, compare
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.names import age_of_last, superfluous
from penstock.engine.savepoints.pins import Pins
from penstock.engine.savepoints.places import folder_of, found_in, read_savepoint, readable, remove
from penstock.engine.savepoints.restore import examine, restore
from penstock.engine.savepoints.standing import known_steps, note_standing, standing
from penstock.engine.savepoints.take import Hold, Moment, Taken, Wish, take
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.session import Session, SessionOptions
from penstock.engine.stage.choose import analyse_on
from penstock.engine.statedir import StateDir, in_use, read_identity, refuse_foreign
from penstock.errors import PenstockError
from penstock.frontends.assemble import assemble
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.reports.savepoint_requests import Answer, Asked, Requests
from penstock.reports.savepoints import Savepoint
from penstock.runner.set_back import seconds_up
from penstock.spec.location import PipelineFile, Places
from penstock.spec.pipeline import Pipeline, SavepointSettings
from penstock.spec.resolve import secret_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0
_ANSWER_SECONDS = 0.05


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class SavepointDesk:
    """Takes savepoints while a pipeline runs: those that are asked for, and those that are due. One at a time."""

    def __init__(
        self,
        state: StateDir,
        file: PipelineFile,
        clock: Callable[[], dt.datetime] = _now,
        steady: Callable[[], float] = seconds_up,
    ) -> None:
        self.state = state
        self.file = file
        self.clock = clock
        self.steady = steady
        self.requests = Requests(state.path)
        self._began = clock()
        self._last: float | None = None
        """When the last one that was due was taken, by the steady clock; None until it is known."""
        self._looked = 0.0
        self._at_work: threading.Thread | None = None
        self.failed: PenstockError | None = None
        """What went wrong with the last one that was due."""

    @property
    def asked_to_stop(self) -> bool:
        """Whether the run is to end after its batch."""
        return self.requests.asked_to_stop(self.state.identity.epoch)

    @property
    def _settings(self) -> SavepointSettings:
        return self.file.pipeline.savepoints

    def turn(self, running: RunningPipeline) -> None:
        """Begins what is to be done, beside the run; call it now and then."""
        if self._at_work is not None and self._at_work.is_alive():
            return
        waiting = self.requests.waiting()
        if waiting:
            self._begin(lambda: self._serve(running.paused, waiting[0]))
        elif time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            running.release_pins()
            if self._is_due():
                self._begin(lambda: self._take_due(running.paused))

    def _begin(self, work: Callable[[], None]) -> None:
        self._at_work = threading.Thread(target=work, name="savepoint", daemon=True)
        self._at_work.start()

    def end(self, running: RunningPipeline) -> None:
        """Finishes what has begun and answers what is still asked for; the run takes no further batch."""
        self.wait()
        for number in self.requests.waiting():
            self._serve(running.paused, number)
        # Without it the next savepoint opens the sinks to ask them.
        with suppress(Exception), running.paused() as moment:
            if not moment.unfinished:
                note_standing(self.state.path, self.state.identity.lineage, moment)

    def wait(self) -> None:
        if self._at_work is not None:
            self._at_work.join()

    def _serve(self, hold: Hold, number: str) -> None:
        asked = self.requests.asked(number)
        if asked is None:
            self.requests.forget(number)
            return
        try:
            taken = self._take(hold, Wish(asked.name, asked.note, None if asked.to is None else Path(asked.to)))
            self.requests.answer(number, Answer(str(taken.folder), taken.held_seconds))
        except PenstockError as error:
            self.requests.refuse(number, error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self.requests.refuse(number, PenstockError.of("SAVEPOINT_FAILED", reason=reason))

    def _take(self, hold: Hold, wish: Wish) -> Taken:
        self.state.refuse_overtaken()
        return take(self.state.path, self.state.identity, self.file, hold, wish, clock=self.clock)

    # --- those that are due -------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        every = self._settings.every
        if every is None or last_committed(self.state.checkpoint) < 0:
            return False
        if self._last is None:
            # Of one from before this run, and of the start, only the time of day is known.
            age = age_of_last(readable(found_in(self.state.path)), self._began, self.clock())
            self._last = self.steady() - age.total_seconds()
        return self.steady() - self._last >= every.seconds

    def _take_due(self, hold: Hold) -> None:
        started = self.steady()
        try:
            newest = self._take(hold, Wish(automatic=True)).savepoint.name
            self._last = started
            # It stays, also where the clock was set back and those before it seem newer.
            others = [one for one in readable(found_in(self.state.path)) if one.name != newest]
            for name in superfluous(others, self._settings.keep - 1):
                delete(self.state.path, name)
            self.failed = None
        except PenstockError as error:
            self.failed = error
            _LOG.warning("no savepoint could be taken: %s", error.problems[0].message)
            self._began, self._last = self.clock(), None


def delete(state: Path, name: str) -> None:
    """Removes a savepoint of a state folder; sinks learn of it from who has them open."""
    remove(folder_of(state) / name)
    Pins(state).let_go(name)


def restore_into(
    file: PipelineFile,
    state: Path,
    folder: Path,
    *,
    fork: bool = False,
    keep_rows: bool = False,
    progress: Progress = quiet,
) -> Savepoint:
    """Puts a savepoint into a state folder that no run holds; its next run goes on from there."""
    name = file.pipeline.name
    savepoint = examine(folder, name, fork=fork, progress=progress)
    with StateDir(state, name, mend=True) as opened:
        restore(opened, folder, savepoint, fork=fork, keep_rows=keep_rows, progress=progress)
    return savepoint


def create(
    file: PipelineFile, state: Path, wish: Wish, progress: Progress = quiet, spark: SparkSession | None = None
) -> tuple[Savepoint, Path]:
    """Takes a savepoint: by the run that holds the state, or here if none does."""
    refuse_foreign(state, file.pipeline.name)
    if read_identity(state) is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=file.pipeline.name)
    while True:
        if in_use(state):
            folder = _asked(state, wish)
            if folder is not None:
                return read_savepoint(folder), folder
        try:
            taken = _of_stopped(file, state, wish, progress, spark)
            return taken.savepoint, taken.folder
        except PenstockError as error:
            # A run has begun in between: now it can be asked.
            if error.code != "STATE_IN_USE":
                raise


def _asked(state: Path, wish: Wish) -> Path | None:
    """Where the run has put it; None if it ended before it did."""
    requests = Requests(state)
    number = requests.ask(Asked(wish.name, wish.note, None if wish.to is None else str(wish.to.absolute())))
    try:
        while True:
            running = in_use(state)
            answer = requests.answered(number)
            if answer is not None:
                answer.raise_problems()
                assert answer.folder is not None
                return Path(answer.folder)
            if not running:
                return None
            time.sleep(_ANSWER_SECONDS)
    finally:
        requests.forget(number)


def _of_stopped(file: PipelineFile, path: Path, wish: Wish, progress: Progress, spark: SparkSession | None) -> Taken:
    with StateDir(path, file.pipeline.name) as state:
        return take_here(file, state, wish, progress, spark)[0]


def take_here(
    file: PipelineFile, state: StateDir, wish: Wish, progress: Progress = quiet, spark: SparkSession | None = None
) -> tuple[Taken, Moment]:
    """Takes a savepoint of a state that is open here, without a run; and where it stands.

    Spark is needed only after a run that was killed, and started if it is not given.
    """
    if pending(state.path) is not None:
        raise PenstockError.of("RESTORE_UNFINISHED", path=state.path)
    verify(state.checkpoint)
    if last_committed(state.checkpoint) < 0:
        raise PenstockError.of("SAVEPOINT_NOTHING", name=file.pipeline.name)
    moment = standing(state.path, state.identity.lineage) or _with_sinks_opened(build(file), state, spark)

    @contextmanager
    def hold() -> Iterator[Moment]:
        yield moment

    return take(state.path, state.identity, file, hold, wish, progress=progress), moment


@contextmanager
def session_for(pipeline: Pipeline, log: Path, spark: SparkSession | None = None) -> Iterator[SparkSession]:
    """A Spark session for work on the state of a pipeline that does not run; the given one, if there is one."""
    if spark is not None:
        yield spark
        return
    partitions = pipeline.state.partitions
    conf = {} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}
    session = Session(SessionOptions(conf=conf, jars=sets_for(pipeline), hidden=secret_values(pipeline), log=log))
    try:
        yield session.spark
    finally:
        session.stop()


def _with_sinks_opened(graph: Graph, state: StateDir, given: SparkSession | None) -> Moment:
    """Asks the sinks themselves, after a run that was killed."""
    with session_for(graph.file.pipeline, state.logs / "savepoint.log", given) as spark:
        analysed = analyse_on(spark, graph, state)
        analysed.raise_errors()
        handler = BatchHandler(spark, graph, analysed, state)
        try:
            sinks = handler.saved_sinks()
        finally:
            handler.close()
    committed, planned = last_committed(state.checkpoint), last_number(state.checkpoint / "offsets")
    return Moment(committed, planned > committed, sinks, known_steps(state.path))


def discard(state: Path, folder: Path) -> None:
    """Removes a savepoint of a pipeline, in its state folder or elsewhere."""
    if folder.parent == folder_of(state):
        delete(state, folder.name)
        return
    savepoint = read_savepoint(folder)
    remove(folder)
    Pins(state).let_go(savepoint.name)


def compared(before: Savepoint, after: Savepoint) -> SavepointDiff:
    """What differs, the pipelines included where they can still be read."""
    try:
        pipelines = (_declared(before), _declared(after))
    except PenstockError:
        return compare(before, after)
    return compare(before, after, pipelines)


def _declared(savepoint: Savepoint) -> Pipeline:
    return assemble(savepoint.document, Places(savepoint.name))
