"""`python -m penstock.runner.operate FOLDER`: one operation on the state of a pipeline, as its order there says.

It does what the commands of the same names do, but tells of itself in files: whoever started it may come and go. If it
dies, another that gets the same order goes on from where the state folder is found.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.cutover.follower import Standing
from penstock.engine.jars import sets_for
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.places import folder_of, read_savepoint
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.verify import verify as damages_of
from penstock.engine.session import Session, SessionOptions
from penstock.errors import PenstockError, Problem
from penstock.reports.codec import plain
from penstock.reports.folder import OperationFolder
from penstock.reports.processes import birth
from penstock.reports.savepoints import refuse_bad_name
from penstock.reports.values import FOLLOWS, OperationEnd, OperationOrder, OperationStatus
from penstock.runner.cutover import abort, compare, finish, has_taken_over, start
from penstock.runner.cutover import follow as follow_on
from penstock.runner.going_back import go_back_to
from penstock.runner.logs import RunLog, everything_into
from penstock.runner.ordered import in_words, load_ordered, obey, unexpected
from penstock.runner.report import BEAT_SECONDS, utc_now
from penstock.runner.rescale import rescale
from penstock.runner.savepoints import create, restore_into
from penstock.runner.sink_gaps import accept_gap
from penstock.runner.upgrade import Upgraded, upgrade
from penstock.spec.location import PipelineFile
from penstock.spec.resolve import secret_values
from penstock.spec.secrets import hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    obey(OperationFolder, "penstock.runner.operate", follow)


def follow(folder: OperationFolder, order: OperationOrder) -> int:
    """Works as ordered, and notes what became of it; the exit code."""
    folder.make()
    log = RunLog(folder.lines)
    with Telling(folder, order) as telling, everything_into(log):
        end = _worked(folder, order, telling, log)
    folder.write_end(end)
    return 0 if end.outcome == "done" else 1


def _worked(folder: OperationFolder, order: OperationOrder, telling: Telling, log: RunLog) -> OperationEnd:
    log.say("INFO", f"{order.kind} of '{order.pipeline}' begins")
    try:
        with log.holding():
            file = load_ordered(order.file, order.folder)
        log.hidden = secret_values(file.pipeline)
        result = _KINDS[order.kind](Work(order, file, telling, log))
    except PenstockError as error:
        return _failed(order, error, log)
    except BaseException as error:
        return _failed(order, PenstockError.of("OPERATION_FAILED", reason=unexpected(error, log)), log)
    log.say("INFO", f"{order.kind} of '{order.pipeline}' is done")
    return OperationEnd(order.operation, utc_now(), "done", result)


def _failed(order: OperationOrder, error: PenstockError, log: RunLog) -> OperationEnd:
    problems = hidden(error).problems
    for problem in problems:
        log.say("ERROR", in_words(problem), code=problem.code)
    # Where the new side could not be left any more, the next run goes on from there.
    begun = False
    with suppress(PenstockError):
        begun = order.kind == "restore" and pending(Path(order.state_dir)) is not None
    told = tuple(_short(problem, order) for problem in problems)
    return OperationEnd(order.operation, utc_now(), "failed", {"begun": begun}, told)


def _short(problem: Problem, order: OperationOrder) -> dict[str, Any]:
    """Where the server keeps its files is nobody's business who asks."""
    folder = f"{Path(order.state_dir).parent.parent}/"
    params = {key: str(value).replace(folder, "") for key, value in problem.params.items()}
    return replace(problem, params=params).as_dict()


class Telling:
    """Writes how far it is, again and again, so that a busy operation shows that it lives."""

    def __init__(self, folder: OperationFolder, order: OperationOrder) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._lock = threading.Lock()
        started = birth(os.getpid()) or ""
        self._status = OperationStatus(order.operation, os.getpid(), started, "starting", utc_now())
        self._thread = threading.Thread(target=self._repeat, name="heartbeat", daemon=True)

    def stage(self, stage: str) -> None:
        with self._lock:
            self._status = replace(self._status, stage=stage, done=None, total=None)
        self._write()

    def progress(self, done: int, total: int) -> None:
        with self._lock:
            self._status = replace(self._status, done=done, total=total)

    def _write(self) -> None:
        with self._lock, suppress(OSError):
            self._status = replace(self._status, at=utc_now())
            self._folder.write_status(self._status)

    def _repeat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._write()

    def __enter__(self) -> Telling:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Work:
    """An order, and what it takes to carry it out."""

    def __init__(self, order: OperationOrder, file: PipelineFile, telling: Telling, log: RunLog) -> None:
        self.asked: Mapping[str, Any] = order.asked
        self.file = file
        self.telling = telling
        self.state = Path(order.state_dir)
        self._order = order
        self._log = log

    @property
    def savepoint(self) -> Path:
        """The savepoint it is about: of this pipeline, or of the one whose state folder is named."""
        name = str(self.asked["savepoint"])
        refuse_bad_name(name)
        return folder_of(Path(self.asked.get("of") or self.state)) / name

    @property
    def new_version(self) -> PipelineFile:
        """The version that is to take over."""
        return load_ordered(str(self.asked["file"]), self._order.folder)

    def tell_standing(self, found: Standing) -> None:
        behind = f", {found.behind} behind" if found.behind else ""
        self.telling.stage(f"{FOLLOWS} and stands after batch {found.stands}{behind}")

    @contextmanager
    def session(self, file: PipelineFile | None = None) -> Iterator[SparkSession]:
        """Spark, as runs of the pipeline have it, or of another version of it."""
        order, pipeline = self._order, (file or self.file).pipeline
        partitions = pipeline.state.partitions
        conf = {} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}
        session = Session(
            SessionOptions(
                master=order.master,
                conf={**conf, **order.conf},
                driver_memory=order.driver_memory,
                locked=order.jars,
                jars=sets_for(pipeline),
                hidden=secret_values(pipeline),
                log=self._log.file,
                take_line=self._log.take_spark,
            )
        )
        try:
            yield session.spark
        finally:
            session.stop()


def _savepoint(work: Work) -> dict[str, Any]:
    work.telling.stage("a savepoint is taken")
    wish = Wish(work.asked.get("name"), str(work.asked.get("note", "")))
    savepoint, _ = create(work.file, work.state, wish, work.telling.progress)
    return {"savepoint": savepoint.name, "batch": savepoint.batch}


def _verify(work: Work) -> dict[str, Any]:
    work.telling.stage("a savepoint is read and compared with its checksums")
    found = read_savepoint(work.savepoint)
    damages = damages_of(work.savepoint, found, work.telling.progress)
    wrong = [{"file": damage.file, "reason": damage.reason} for damage in damages]
    return {"savepoint": found.name, "files": len(found.files), "bytes": found.bytes, "damages": wrong}


def _restore(work: Work) -> dict[str, Any]:
    work.telling.stage("a savepoint is put in place, and sinks go back")
    keep_rows = bool(work.asked.get("keepRows"))
    found = go_back_to(
        work.file, work.state, work.savepoint, work.session, keep_rows=keep_rows, progress=work.telling.progress
    )
    return {"savepoint": found.name, "batch": found.batch}


def _fork(work: Work) -> dict[str, Any]:
    work.telling.stage("a savepoint of another pipeline is put in place")
    savepoint = read_savepoint(work.savepoint)
    # One that died in between has put it there, and nobody else can have.
    if last_number(work.state / "checkpoint" / "offsets") < 0:
        restore_into(work.file, work.state, work.savepoint, fork=True, progress=work.telling.progress)
    done = _carried_over(work)
    return {"savepoint": savepoint.name, "batch": savepoint.batch, "of": savepoint.pipeline, **_upgraded(done)}


def _rescale(work: Work) -> dict[str, Any]:
    work.telling.stage("the state is divided anew")
    if work.file.pipeline.state.partitions is not None:
        return _upgraded(_carried_over(work))
    partitions = int(work.asked["partitions"])
    with work.session() as spark:
        done = rescale(work.file, work.state, partitions, work.telling.progress, spark)
    return {"savepoint": done.savepoint, "rescaled": asdict(done.rescaled)}


def _upgrade(work: Work) -> dict[str, Any]:
    work.telling.stage("the state is carried over")
    if last_number(work.state / "checkpoint" / "offsets") < 0:
        return _upgraded(Upgraded())
    return _upgraded(_carried_over(work))


def _cutover(work: Work) -> dict[str, Any]:
    """Goes on until whoever ends the cut-over asks it to."""
    work.telling.stage("the new version is given a state of its own")
    new, name = work.new_version, work.file.pipeline.name
    with work.session(new) as spark:
        begun = start(work.file, work.state, new, work.asked.get("lose") or (), spark=spark)
        found = follow_on(work.state, name, once=False, watch=work.tell_standing, spark=spark)
    return {"savepoint": begun.savepoint, **_standing(found)}


def _compare(work: Work) -> dict[str, Any]:
    work.telling.stage("what both versions have given out is compared")
    with work.session(work.new_version) as spark:
        now, found = compare(work.state, work.file.pipeline.name, spark)
    return {**_standing(now), "sinks": plain(found)}


def _takeover(work: Work) -> dict[str, Any]:
    work.telling.stage("the new version takes over")
    name = work.file.pipeline.name
    try:
        with work.session() as spark:
            done = finish(work.state, name, progress=work.telling.progress, watch=work.tell_standing, spark=spark)
    except PenstockError as error:
        # One that died in between may have come to the end.
        if error.code != "CUTOVER_UNKNOWN" or not has_taken_over(work.state, work.file):
            raise
        return {"batch": last_committed(work.state / "checkpoint")}
    return {"batch": done.taken.batch, "savepoint": done.savepoint, "seconds": done.seconds}


def _abandon(work: Work) -> dict[str, Any]:
    work.telling.stage("what was made for the cut-over is removed")
    abort(work.state, work.file.pipeline.name)
    return {}


def _accept_gap(work: Work) -> dict[str, Any]:
    work.telling.stage("what a sink has lost is noted as accepted")
    return {"gaps": plain(accept_gap(work.file, work.state, str(work.asked["sink"])))}


def _standing(found: Standing) -> dict[str, Any]:
    return {"stands": found.stands, "committed": found.committed, "behind": found.behind}


def _carried_over(work: Work) -> Upgraded:
    lose, bootstrap = (work.asked.get(key) or () for key in ("lose", "bootstrap"))
    with work.session() as spark:
        return upgrade(work.file, work.state, lose, bootstrap, work.telling.progress, spark)


def _upgraded(done: Upgraded) -> dict[str, Any]:
    """What was done to the state; the numbers of Spark's operators say nothing to people."""
    found = plain(done)
    if found["grafted"] is not None:
        del found["grafted"]["steps"]
    return dict(found)


_KINDS: Mapping[str, Callable[[Work], dict[str, Any]]] = {
    "savepoint": _savepoint,
    "verify": _verify,
    "restore": _restore,
    "fork": _fork,
    "rescale": _rescale,
    "upgrade": _upgrade,
    "cutover": _cutover,
    "compare": _compare,
    "takeover": _takeover,
    "abandon": _abandon,
    "accept_gap": _accept_gap,
}


if __name__ == "__main__":
    main()
