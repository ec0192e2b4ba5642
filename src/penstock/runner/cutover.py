"""A new version of a pipeline takes over from the one that runs: it follows in the shadow, is compared, and cut over.

All but the last moment happens beside the pipeline, in a folder of its own inside the pipeline's state folder. The last
moment is the swap of the journal that restores go by, so that what a killed process leaves is one side or the other.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.shared.crashpoints import reach
from penstock.engine.analyse import analyse
from penstock.engine.checkpoint import last_committed
from penstock.engine.cutover import note
from penstock.engine.cutover.follower import Follower, Standing, standing
from penstock.engine.cutover.note import Cutover, Places, mark_of
from penstock.engine.cutover.overlap import Sides, SinkCompared, compared
from penstock.engine.cutover.taking import Taken, refuse_unwilling, take_over
from penstock.engine.history import pending as unread_histories
from penstock.engine.savepoints.journal import pending
from penstock.engine.savepoints.names import new_name
from penstock.engine.savepoints.places import folder_of, found_in, read_savepoint
from penstock.engine.savepoints.restore import restore
from penstock.engine.savepoints.standing import known_steps, note_standing
from penstock.engine.savepoints.take import Moment, Wish
from penstock.engine.savepoints.trees import Progress, quiet
from penstock.engine.stage.choose import refuse_chunks
from penstock.engine.statedir import StateDir, in_use, read_identity, refuse_foreign
from penstock.errors import PenstockError, Severity
from penstock.frontends.earlier import declared
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.changes import same_ones
from penstock.graph.nodes import Graph
from penstock.graph.validate import check
from penstock.reports.savepoint_requests import Requests
from penstock.reports.savepoints import MANIFEST, Savepoint
from penstock.runner.ordered import load_ordered
from penstock.runner.savepoints import create, delete, session_for, take_here
from penstock.runner.unfinished import finish_batch, unfinished_batch
from penstock.runner.upgrade import renamed_sinks, upgrade
from penstock.spec.dump import fingerprint
from penstock.spec.location import PipelineFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 300.0
_LOCK = ".cutover.lock"
Watch = Callable[[Standing], None]


@dataclass(frozen=True)
class Done:
    """A cut-over that has come to its end."""

    taken: Taken
    savepoint: str
    """The pipeline as it was when the new version took over."""
    seconds: float
    """For how long nothing ran."""


def _ignore(standing: Standing) -> None:
    """For who need not know."""


# --- what is under way -----------------------------------------------------------------------------------------


def under_way(state: Path, name: str) -> Cutover:
    """The cut-over of a pipeline; raises if there is none."""
    found = current(state)
    if found is None:
        raise PenstockError.of("CUTOVER_UNKNOWN", name=name, path=state)
    return found


def current(state: Path) -> Cutover | None:
    """The cut-over that is under way, if there is one; one that a killed process left behind is over."""
    found, identity = note.find(state), read_identity(state)
    in_place = None if identity is None else identity.query_id
    return None if found is None or (found.query_id is not None and found.query_id == in_place) else found


def _ready(state: Path, name: str) -> Cutover:
    found = under_way(state, name)
    if found.stage == "preparing":
        reason = "it was interrupted before the new version could begin"
        advice = "Begin it again with `penstock cutover start`, or give it up with `penstock cutover abort`."
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=advice)
    return found


def _new_version(cutover: Cutover) -> Graph:
    """The new version as its file says; raises if that says something else than when the cut-over began."""
    file = load(Path(cutover.file)) if cutover.base is None else load_ordered(cutover.file, cutover.base)
    if fingerprint(file.pipeline) != cutover.fingerprint:
        reason = f"{cutover.file} has changed since it began"
        advice = "Put it back as it was, or give it up with `penstock cutover abort` and begin anew."
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=advice)
    return _checked(file)


def has_taken_over(state: Path, file: PipelineFile) -> bool:
    """Whether the state is that of this very version, as after a cut-over to it."""
    identity = read_identity(state)
    found = None if identity is None or identity.version is None else declared(identity.version.document, file)
    return found is not None and fingerprint(found.file.pipeline) == fingerprint(file.pipeline)


def _checked(file: PipelineFile) -> Graph:
    graph = build(file)
    errors = [problem for problem in check(graph) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    return graph


@contextmanager
def _alone(state: Path, name: str) -> Iterator[None]:
    """Keeps other commands from changing the cut-over meanwhile, and finishes what a killed one has begun to swap."""
    if not state.is_dir():
        raise PenstockError.of("STATE_MISSING", path=state, name=name)
    with (state / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason, advice = "another command is at work on it", "Wait for that, or end it, and try again."
            raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=advice) from None
        if pending(state) is not None and not in_use(state):
            StateDir(state, name).close()
        yield


# --- beginning -------------------------------------------------------------------------------------------------


def start(
    file: PipelineFile,
    state: Path,
    new: PipelineFile,
    lose: Collection[str] = (),
    *,
    progress: Progress = quiet,
    spark: SparkSession | None = None,
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Cutover:
    """Gives the new version a state of its own, from a savepoint of the pipeline, which goes on. It may be repeated."""
    name = file.pipeline.name
    with _alone(state, name):
        refuse_chunks(state / "checkpoint", "a cut-over")
        refuse_unsuited(file, state, new)
        found = current(state)
        if found is not None and found.stage == "following":
            if found.fingerprint != fingerprint(new.pipeline) or Path(found.file) != new.path.absolute():
                raise PenstockError.of("CUTOVER_ANOTHER", name=name, file=found.file)
            return found
        if found is not None:
            _give_up(state, found)
        cutover = _noted(state, new, lose, clock())
        try:
            return _prepared(file, state, new, cutover, progress, spark)
        except PenstockError:
            _give_up(state, cutover)
            raise


def _noted(state: Path, new: PipelineFile, lose: Collection[str], now: dt.datetime) -> Cutover:
    """Notes what is about to be made, so that whoever gives it up finds all of it."""
    identity = read_identity(state)
    assert identity is not None
    assert identity.version is not None
    saved = new_name(now, {one.name for one in found_in(state)})
    before, after = mark_of(identity.version), fingerprint(new.pipeline)
    place, base = str(new.path.absolute()), None if new.base is None else str(new.base)
    cutover = Cutover(identity.name, place, after, before, saved, now.isoformat(), lose=tuple(lose), base=base)
    note.remove(state)
    note.write(state, cutover)
    return cutover


def refuse_unsuited(file: PipelineFile, state: Path, new: PipelineFile) -> None:
    """Raises if the new version cannot take over from the pipeline, as far as that shows without Spark."""
    _checked(new)
    name, other = file.pipeline.name, new.pipeline.name
    if name != other:
        advice = f"Call it '{name}' too: it goes on under that name, with that state."
        raise PenstockError.of("CUTOVER_REFUSED", reason=f"the new version is called '{other}'", advice=advice)
    if file.folder.resolve() != new.folder.resolve():
        reason = f"{new.path} lies in another folder, so that relative paths in it name other places"
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=f"Put it beside {file.path}.")
    refuse_foreign(state, name)
    identity = read_identity(state)
    if identity is None:
        raise PenstockError.of("STATE_MISSING", path=state, name=name)
    if identity.version is None:
        reason = "it is not known which version of the pipeline runs"
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice="Run it once more.")
    old = declared(identity.version.document, new)
    if old is not None and unread_histories(old, state / "spool"):
        advice = "Wait until it has been read."
        raise PenstockError.of("CUTOVER_REFUSED", reason="the pipeline still reads its history", advice=advice)


def _prepared(
    file: PipelineFile, state: Path, new: PipelineFile, cutover: Cutover, progress: Progress, spark: SparkSession | None
) -> Cutover:
    if unfinished_batch(state) is not None and not in_use(state):
        with StateDir(state, cutover.pipeline) as opened:
            log = opened.logs / "cutover.log"
            with session_for(file.pipeline, log, spark) as session:
                finish_batch(session, file, opened, log)
    savepoint, folder = create(file, state, Wish(cutover.savepoint, "before a cut-over"), progress, spark)
    if savepoint.unfinished:
        reason = "a run that was killed meanwhile has left a batch unfinished"
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice="Try again.")
    reach("cutover.saved", 0)
    place = Places(state).new
    _fork(place, folder, savepoint, progress)
    reach("cutover.forked", 0)
    done = upgrade(new, place, cutover.lose, spark=spark)
    identity = read_identity(place)
    assert identity is not None
    reach("cutover.prepared", 0)
    ready = replace(cutover, stage="following", batch=savepoint.batch, query_id=identity.query_id)
    if done.grafted is not None:
        ready = replace(ready, kept=done.grafted.kept, begun=done.grafted.begun)
    note.write(state, ready)
    return ready


def _fork(place: Path, folder: Path, savepoint: Savepoint, progress: Progress) -> None:
    """A state of its own, as the savepoint has it; it is never opened with the pipeline's sinks."""
    with StateDir(place, savepoint.pipeline) as opened:
        restore(opened, folder, savepoint, fork=True, progress=progress)
        steps = {operator.id: operator.step for operator in savepoint.operators if operator.step is not None}
        note_standing(place, opened.identity.lineage, Moment(savepoint.batch, steps=steps))


# --- following -------------------------------------------------------------------------------------------------


def follow(
    state: Path,
    name: str,
    *,
    once: bool = True,
    stop: Callable[[], bool] = lambda: False,
    watch: Watch = _ignore,
    spark: SparkSession | None = None,
) -> Standing:
    """Lets the new version read what the pipeline has read: `once` until it stands where that does, or until `stop`."""
    cutover = _ready(state, name)
    with _follower(state, cutover, spark) as follower:
        return _follow(follower, once, stop, watch)


@contextmanager
def _follower(state: Path, cutover: Cutover, spark: SparkSession | None) -> Iterator[Follower]:
    graph = _new_version(cutover)
    place = Places(state).new
    with StateDir(place, cutover.pipeline) as opened:
        log = opened.logs / "cutover.log"
        with session_for(graph.file.pipeline, log, spark) as session:
            yield Follower(session, graph, state, cutover, opened, log)


def _follow(follower: Follower, once: bool, stop: Callable[[], bool], watch: Watch) -> Standing:
    requests = Requests(follower.new.path)
    watch(follower.standing)
    while not stop() and not requests.asked_to_stop(follower.new.identity.epoch):
        found = follower.step()
        if found is not None:
            watch(found)
        elif once:
            break
        else:
            time.sleep(_LOOK_SECONDS)
    return follower.standing


# --- comparing -------------------------------------------------------------------------------------------------


def compare(state: Path, name: str, spark: SparkSession | None = None) -> tuple[Standing, tuple[SinkCompared, ...]]:
    """What both versions have given out since the savepoint, sink by sink; nothing is changed."""
    cutover = _ready(state, name)
    graph, place = _new_version(cutover), Places(state)
    identity, own = read_identity(state), read_identity(place.new)
    assert identity is not None
    assert own is not None
    old = None if identity.version is None else declared(identity.version.document, graph.file)
    if old is None:
        reason, advice = "this Penstock cannot read the version that runs", "Use the one that runs it."
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=advice)
    saved = folder_of(state) / cutover.savepoint
    now = standing(state, cutover)
    with session_for(graph.file.pipeline, place.new / "logs" / "compare.log", spark) as session:
        analysed = analyse(session, graph, place.new / "spool", own.buckets)
        analysed.raise_errors()
        sides = Sides(
            session, old, graph, analysed, identity, read_savepoint(saved), saved, place.new / "checkpoint",
            place.shadow, now,
        )  # fmt: skip
        return now, compared(sides, same_ones(old.file.pipeline, graph.file.pipeline))


# --- the end ---------------------------------------------------------------------------------------------------


def finish(
    state: Path, name: str, *, progress: Progress = quiet, watch: Watch = _ignore, spark: SparkSession | None = None
) -> Done:
    """Stops the pipeline after its batch, lets the new version read as far, and puts it in the pipeline's place.

    Until then the pipeline can be run again at any time; if anything fails it is as it was, but stopped.
    """
    with _alone(state, name):
        return _finish(state, name, _ready(state, name), progress, watch, spark)


def _finish(
    state: Path, name: str, cutover: Cutover, progress: Progress, watch: Watch, spark: SparkSession | None
) -> Done:
    _stop_run(Places(state).new)
    with _follower(state, cutover, spark) as follower:
        # What can be read beforehand need not be read while nothing runs; what comes meanwhile may never end.
        goal = last_committed(state / "checkpoint")
        _follow(follower, True, lambda: follower.standing.stands >= goal, watch)
        began = time.monotonic()
        with _stopped(state, name) as opened:
            reach("cutover.stopped", 0)
            taken = _take_over(follower, opened, progress, watch)
            note.remove(state)
        return Done(*taken, time.monotonic() - began)


def _catch_up(follower: Follower, watch: Watch) -> None:
    _follow(follower, True, lambda: False, watch)


def _take_over(follower: Follower, opened: StateDir, progress: Progress, watch: Watch) -> tuple[Taken, str]:
    finish_batch(follower.spark, follower.graph.file, opened, follower.log)
    saved, moment = _saved(follower, opened, progress)
    _catch_up(follower, watch)
    if not follower.stands_alike:
        raise PenstockError.of("CUTOVER_FAILED", reason="the new version does not stand where the pipeline does")
    reach("cutover.caught_up", 0)
    place, verdict = follower.new.path, follower.verdict
    refuse_unwilling(follower.spark, opened, follower.graph, follower.analysis(), verdict)
    taken = take_over(follower.spark, opened, place, follower.new.identity, verdict, saved)
    sinks = renamed_sinks(moment, verdict)
    now = Moment(taken.batch, sinks=sinks, steps=known_steps(place))
    note_standing(opened.path, opened.identity.lineage, now)
    reach("cutover.taken", 0)
    return taken, saved


def _saved(follower: Follower, opened: StateDir, progress: Progress) -> tuple[str, Moment]:
    """A savepoint of the pipeline after its last batch, to go back to; one of an earlier attempt goes."""
    version, cutover = opened.identity.version, note.find(opened.path)
    assert version is not None
    assert cutover is not None
    earlier = declared(version.document, follower.graph.file)
    assert earlier is not None
    _forget(opened.path, cutover.last)
    name = new_name(dt.datetime.now(dt.UTC), {one.name for one in found_in(opened.path)})
    note.write(opened.path, replace(cutover, last=name))
    wish = Wish(name, f"before {Path(cutover.file).name} took over")
    _, moment = take_here(earlier.file, opened, wish, progress, follower.spark)
    return name, moment


def _forget(state: Path, savepoint: str | None) -> None:
    if savepoint is not None and (folder_of(state) / savepoint / MANIFEST).is_file():
        delete(state, savepoint)


@contextmanager
def _stopped(state: Path, name: str) -> Iterator[StateDir]:
    """The state folder of the pipeline, open here, after its run has ended its batch."""
    deadline = time.monotonic() + _STOP_SECONDS
    while True:
        _stop_run(state)
        try:
            opened = StateDir(state, name)
            break
        except PenstockError as error:
            # Another run has begun in between.
            if error.code != "STATE_IN_USE" or time.monotonic() > deadline:
                raise
    with opened:
        yield opened


def _stop_run(state: Path) -> None:
    """Asks the run that holds a state folder to end, and waits for that."""
    requests = Requests(state)
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        while in_use(state):
            identity = read_identity(state)
            if identity is not None and not requests.asked_to_stop(identity.epoch):
                requests.ask_to_stop(identity.epoch)
            if time.monotonic() > deadline:
                reason = f"the run that holds {state} does not end"
                raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice="Stop it, and try again.")
            time.sleep(_LOOK_SECONDS)
    finally:
        requests.let_run()


def abort(state: Path, name: str) -> None:
    """Gives the cut-over up: all that was made for it is gone, and the pipeline is as it was."""
    with _alone(state, name):
        _give_up(state, under_way(state, name))


def _give_up(state: Path, cutover: Cutover) -> None:
    _stop_run(Places(state).new)
    note.remove(state)
    for savepoint in (cutover.savepoint, cutover.last):
        _forget(state, savepoint)


def status(state: Path, name: str) -> tuple[Cutover, Standing, bool]:
    """The cut-over, how far the new version is, and whether it follows now."""
    cutover = under_way(state, name)
    return cutover, standing(state, cutover), in_use(Places(state).new)
