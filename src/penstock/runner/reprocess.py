"""Computes a range of event time again, with a bounded copy of a pipeline: its own state, lineage and ledger."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import Sink
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.event_time import event_time_of, shift_of
from penstock.durable import write_durably
from penstock.engine.analyse import Analysed, analyse
from penstock.engine.batch import BatchHandler
from penstock.engine.checkpoint import verify
from penstock.engine.evolution.going_on import judge
from penstock.engine.evolution.graft import graft
from penstock.engine.evolution.rescale import partitions_before, rescale
from penstock.engine.frames import FrameBuilder
from penstock.engine.history import History, since
from penstock.engine.progress import Status
from penstock.engine.reprocessing.copying import copy_range, end_of_range
from penstock.engine.reprocessing.plan import (
    MILLISECOND,
    Reach,
    Reading,
    Wanted,
    bounded,
    condition,
    cut,
    gives_early,
    reach_of,
    reading,
)
from penstock.engine.savepoints.places import read_savepoint
from penstock.engine.savepoints.restore import examine, restore
from penstock.engine.stage.choose import refuse_chunks
from penstock.engine.state.buckets import buckets_of
from penstock.engine.statedir import StateDir, read_identity, refuse_foreign
from penstock.errors import PenstockError, Severity
from penstock.graph.build import build
from penstock.graph.nodes import Graph, Node
from penstock.graph.validate import check
from penstock.reports.codec import plain, read
from penstock.runner.course import Course, Watch
from penstock.runner.loop import RunOptions, Stop, drive, state_path
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import Source as SourceSpec
from penstock.spec.secrets import hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTE = "reprocess.json"
_PHASE = "reprocessing"
_KEEPS_NOTHING = ("console", "memory")
_PLACES = ("table", "path", "topic")


@dataclass(frozen=True)
class Progressed:
    """How far a reprocessing is."""

    since: dt.datetime
    until: dt.datetime
    begun: bool = False
    """Whether it may have given rows to sinks."""
    done: bool = False


@dataclass(frozen=True)
class Reprocessed:
    status: Status
    state: Path
    read_since: dt.datetime | None
    read_until: dt.datetime
    finished: bool
    rows_out: Mapping[str, int] = field(default_factory=dict)
    """Rows that were written by all runs of it, by sink."""


def reprocess(
    file: PipelineFile, wanted: Wanted, savepoint: Path | None, options: RunOptions, watch: Watch
) -> Reprocessed:
    """Computes the range, or goes on where an earlier try was ended; begins anew if that had come to its end."""
    ranged = replace(file, pipeline=bounded(file.pipeline, wanted))
    graph = checked(ranged)
    path = state_path(ranged, options)
    settled = None if savepoint is None else settled_by(savepoint, wanted)
    stop = Stop()
    stop.install()
    begin(path, ranged.pipeline.name)
    with StateDir(path, ranged.pipeline.name) as state:
        try:
            settle(state, wanted, savepoint)
            verify(state.checkpoint)
            made: list[Reprocessing] = []

            def make(
                spark: SparkSession,
                graph: Graph,
                state: StateDir,
                watch: Watch,
                status: Status,
                stop: threading.Event,
                log: Path,
            ) -> Course:
                made.append(Reprocessing(spark, graph, state, watch, status, stop, log, wanted=wanted, settled=settled))
                return made[0]

            status = drive(graph, options, state, stop, watch, make)
        except PenstockError as error:
            state.refuse_overtaken()
            raise hidden(error) from error
    return made[0].outcome(status)


def checked(file: PipelineFile) -> Graph:
    graph = build(file)
    errors = [problem for problem in check(graph) if problem.severity is Severity.ERROR]
    if errors:
        raise PenstockError(errors)
    return graph


def settled_by(folder: Path, wanted: Wanted) -> dt.datetime:
    """Up to which time a savepoint has settled everything; raises if that is in the range."""
    found = read_savepoint(folder)
    settled = dt.datetime.fromtimestamp(found.watermark / 1000, dt.UTC)
    if settled >= wanted.since:
        reason = f"it has settled everything up to {settled.isoformat()}"
        raise PenstockError.of("REPROCESS_SAVEPOINT_LATE", path=folder, reason=reason)
    return settled


# --- the state folder --------------------------------------------------------------------------------------------


def noted(state: Path) -> Progressed | None:
    try:
        return read(Progressed, (state / _NOTE).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _note(state: Path, progressed: Progressed) -> None:
    write_durably(state / _NOTE, json.dumps(plain(progressed)) + "\n")


def begin(state: Path, name: str) -> None:
    """Removes what an earlier one has left that came to its end; or that had not begun, and has written nothing.

    Nothing else is removed: a folder that holds something else is refused.
    """
    if read_identity(state) is None:
        if state.is_dir() and any(state.iterdir()):
            raise PenstockError.of("TARGET_NOT_EMPTY", path=state)
        return
    refuse_foreign(state, name, mend=True)
    found = noted(state)
    if found is None or found.done:
        # Not while another one is at it.
        StateDir(state, name, mend=True).close()
        shutil.rmtree(state)


def settle(state: StateDir, wanted: Wanted, savepoint: Path | None) -> None:
    """Puts the savepoint in place, if one is wanted, and notes that the work has begun."""
    found = noted(state.path)
    if found is not None:
        return
    if savepoint is not None:
        restore(state, savepoint, examine(savepoint, state.identity.name, fork=True), fork=True)
        reach("reprocess.restored", 0)
    _note(state.path, Progressed(wanted.since, wanted.until))


# --- the run -----------------------------------------------------------------------------------------------------


class Reprocessing(Course):
    """A run over a range: rows in the order of their time, or, from a savepoint, as the sources give them."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        state: StateDir,
        watch: Watch,
        status: Status,
        stop: threading.Event,
        log: Path,
        *,
        wanted: Wanted,
        settled: dt.datetime | None,
    ) -> None:
        super().__init__(spark, graph, state, watch, status, stop, log)
        self.wanted = wanted
        self.settled = settled
        """Up to when the savepoint has settled everything, if it begins from one."""
        self.from_savepoint = settled is not None
        self.reading = Reading(wanted.since, wanted.until)

    def through(self, *, once: bool) -> Status:
        """Reads the range to its end, whatever `once` says."""
        whole = self._analyse({})
        reach = reach_of(self.graph, reaches(self.graph, whole), [node.name for node in self.graph.of_kind("sink")])
        self.reading = reading(self.wanted, reach)
        conditions = {sink.name: self._condition(sink, whole) for sink in self.graph.of_kind("sink")}
        self.graph = build(replace(self.graph.file, pipeline=cut(self.graph.file.pipeline, conditions)))
        analysed = self._analyse({})
        progressed = noted(self.state.path)
        assert progressed is not None
        if not progressed.begun:
            if self.settled is not None:
                self._refuse_given_early(whole, self.settled)
                self._carry_over(analysed)
            self._refuse_filled_sinks(analysed)
            _note(self.state.path, replace(progressed, begun=True))
        if self.from_savepoint:
            last = self._drive_to_end(analysed, _PHASE, once=True)
            if self.stop.is_set():
                return last
        histories = self._histories(analysed)
        self.tracker.begin_history(histories)
        last = self._drive_to_end(self._analyse(histories), _PHASE, once=True)
        if not self.stop.is_set():
            _note(self.state.path, replace(progressed, begun=True, done=True))
            for history in histories.values():
                history.finish()
        return last

    def outcome(self, status: Status) -> Reprocessed:
        found = noted(self.state.path)
        rows = self.tracker.ledger.totals().rows_out
        finished = found is not None and found.done
        return Reprocessed(status, self.state.path, self.reading.since, self.reading.until, finished, dict(rows))

    def _refuse_given_early(self, analysed: Analysed, settled: dt.datetime) -> None:
        """Raises if the savepoint may have given results of the range already, to sinks that do not wait for them.

        How far each source was read is known of one source only: the watermark is that of the source furthest behind.
        """
        builds = analysed.builder.builds
        waiting = {name for name, built in builds.items() if built[0].carried.kernel.waits}
        for sink in self.graph.of_kind("sink"):
            if not gives_early(self.graph, waiting, sink.name):
                continue
            sources = [self.graph.nodes[name] for name in self.graph.ancestors(sink.name)]
            times = [node.spec.event_time for node in sources if isinstance(node.spec, SourceSpec)]
            delays = [time.max_delay.millis + 1 for time in times if time is not None]
            newest = settled + max(delays) * MILLISECOND
            if len(delays) > 1 or newest > self.wanted.since:
                early = f"sink '{sink.name}' is given results as soon as rows are read"
                known = f"rows up to {newest.isoformat()} were read"
                reason = f"{early}, and {known if len(delays) == 1 else 'it is not known how far they were'}"
                raise PenstockError.of("REPROCESS_SAVEPOINT_LATE", path=self.wanted.savepoint, reason=reason)

    def _carry_over(self, analysed: Analysed) -> None:
        """Puts the state of the savepoint where this version looks for it; raises if it cannot go on with it."""
        state, version = self.state, self.state.identity.version
        assert self.wanted.savepoint is not None
        before, wanted = partitions_before(state), self.graph.file.pipeline.state.partitions
        verdict = None if version is None else judge(version, self.graph, analysed)
        if verdict is not None and verdict.lost:
            reasons = [f"what '{name}' remembers would be lost ({reason})" for name, reason in verdict.lost.items()]
            raise PenstockError.of("REPROCESS_STATE_DIFFERS", reason="; ".join(reasons))
        if wanted is not None and wanted != before:
            rescale(self.spark, state, wanted, self.wanted.savepoint)
        if verdict is not None and verdict.moves:
            steps = {int(number): step for number, step in state.identity.operators.items()}
            graft(self.spark, state, self.graph, verdict, steps, self.wanted.savepoint)

    def _analyse(self, histories: Mapping[str, History]) -> Analysed:
        refuse_chunks(self.state.checkpoint, "reprocessing from a savepoint")
        buckets = buckets_of(self.spark, self.state)
        kind = partial(_UpTo, until=self.reading.until)
        found = analyse(
            self.spark, self.graph, self.state.spool, buckets, histories, careful=self.careful, builder_class=kind
        )
        found.raise_errors()
        return found

    def _histories(self, analysed: Analysed) -> dict[str, History]:
        found = {}
        for node in self.graph.of_kind("source"):
            self.watch(self.tracker.turn("sorting history"))
            live, spool = analysed.builder.live(node), self.state.spool
            with self._told():
                found[node.name] = (
                    end_of_range(self.spark, node, spool, live, self.reading.until)
                    if self.from_savepoint
                    else copy_range(self.spark, node, self.graph.file.folder, spool, live, self.reading)
                )
        return found

    def _condition(self, sink: Node, analysed: Analysed) -> str:
        from pyspark.sql.types import StructType

        (name,) = sink.inputs
        frame: DataFrame = analysed.frames[name]
        column = event_time_of(frame)
        if column is None:
            advice = "Only results that tell when they happened can be computed again for a range."
            reason = f"what it is given by '{name}' has no event time"
            raise PenstockError.of("REPROCESS_NO_TIME", node=sink.name, reason=reason, advice=advice)
        item = frame.schema[column]
        is_window = isinstance(item.dataType, StructType)
        return condition(column, is_window=is_window, shift=0 if is_window else shift_of(item), wanted=self.wanted)

    def _refuse_filled_sinks(self, analysed: Analysed) -> None:
        """Raises if a sink that appends holds rows already that are not from here."""
        try:
            handler = BatchHandler(self.spark, self.graph, analysed, self.state)
        except PenstockError as error:
            if error.code != "SINK_OF_ANOTHER_RUN":
                raise
            raise self._appends(str(error.problems[0].params["node"]), "it holds rows of another run") from None
        try:
            for node in self.graph.of_kind("sink"):
                component = node.component
                assert isinstance(component, Sink)
                if component.accepts_updates or component.name in _KEEPS_NOTHING:
                    continue
                columns = dict(analysed.analysis.facts[node.name].columns)
                content = component.content(handler.context(node.name, columns), ())
                rows = None if content is None else content.rows
                if rows != 0:
                    reason = "it cannot be told what it holds" if rows is None else f"it holds {rows:,} rows already"
                    raise self._appends(node.name, reason)
        finally:
            handler.close()

    def _appends(self, sink: str, reason: str) -> PenstockError:
        fields = type(self.graph.nodes[sink].component).model_fields
        place = next((name for name in _PLACES if name in fields), "path")
        return PenstockError.of("REPROCESS_APPENDS", node=sink, reason=reason, field=place)


class _UpTo(FrameBuilder):
    """Sources give no rows that come after the range, nor ones without a time."""

    def __init__(self, *parts: object, until: dt.datetime, **options: object) -> None:
        super().__init__(*parts, **options)  # type: ignore[arg-type]
        self.until = until

    def live(self, node: Node, via: tuple[str, ...] = ()) -> DataFrame:
        rows = super().live(node, via)
        assert isinstance(node.spec, SourceSpec)
        assert node.spec.event_time is not None
        return rows.where(~since(self.until, node.spec.event_time, untimed=True))


def reaches(graph: Graph, analysed: Analysed) -> dict[str, Reach]:
    """How far the steps that remember anything look; of Spark's own operators it is not known."""
    facts = analysed.analysis.facts
    builds = analysed.builder.builds
    return {
        name: builds[name][0].carried.kernel.reach if name in builds else (None, 0)
        for name in graph.nodes
        if name in builds or (name in facts and facts[name].stateful)
    }
