"""A new version at work beside the pipeline: it reads batch after batch what the pipeline has read, into shadows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.components.base import Source
from penstock.components.shared.crashpoints import reach
from penstock.engine.analyse import Analysed, analyse
from penstock.engine.checkpoint import last_committed, last_number
from penstock.engine.cutover.following import bring, next_stop, plan, stands_at
from penstock.engine.cutover.note import Cutover, Places, followed, mark_of, note_followed
from penstock.engine.cutover.shadows import shadows_in
from penstock.engine.evolution.going_on import Verdict, judge
from penstock.engine.evolution.graft import stream_origins
from penstock.engine.evolution.streams import is_beside
from penstock.engine.query import RunningPipeline
from penstock.engine.savepoints.standing import note_standing
from penstock.engine.savepoints.take import Moment
from penstock.engine.state.buckets import buckets_of
from penstock.engine.statedir import StateDir, read_identity
from penstock.errors import PenstockError
from penstock.graph.nodes import Graph
from penstock.reports.version import Version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class Standing:
    """How far the new version is."""

    batch: int
    """Its own last batch."""
    stands: int
    """The batch of the pipeline after which it stands."""
    committed: int
    """The last batch of the pipeline."""

    @property
    def behind(self) -> int:
        return self.committed - self.stands


def standing(state: Path, cutover: Cutover) -> Standing:
    """How far the new version is; no lock is needed to ask."""
    places = Places(state)
    batch = last_committed(places.new / "checkpoint")
    return Standing(batch, followed(state).get(batch, cutover.batch), last_committed(state / "checkpoint"))


@dataclass
class Follower:
    """Holds the state folder of the new version, open. One step reads one batch of its own."""

    spark: SparkSession
    graph: Graph
    state: Path
    """The state folder of the pipeline, which may be running."""
    cutover: Cutover
    new: StateDir
    log: Path
    _beside: frozenset[str] = frozenset()
    _analysed: Analysed | None = None
    _verdict: Verdict | None = field(default=None)

    @property
    def places(self) -> Places:
        return Places(self.state)

    @property
    def standing(self) -> Standing:
        return standing(self.state, self.cutover)

    @property
    def verdict(self) -> Verdict:
        """What becomes of the pipeline's streams, steps and sinks."""
        if self._verdict is None:
            found = judge(self._version(), self.graph, self.analysis())
            if found is None:
                raise _refused("this Penstock cannot read the version that runs")
            self._verdict = found
        return self._verdict

    def _version(self) -> Version:
        """The version of the pipeline; raises if it is another one than when the cut-over began."""
        identity = read_identity(self.state)
        if identity is None or identity.version is None or mark_of(identity.version) != self.cutover.before:
            raise _refused("another version of the pipeline has run since it began")
        return identity.version

    @property
    def _ways(self) -> tuple[Mapping[str, frozenset[str]], Mapping[str, str]]:
        return stream_origins(self.verdict), self.verdict.plan.renamed

    @property
    def _apart(self) -> bool:
        sources = [node.component for node in self.graph.of_kind("source")]
        return not all(isinstance(one, Source) and one.read_through.reads_ranges for one in sources)

    def analysis(self) -> Analysed:
        """The new version as Spark's analyser knows it."""
        if self._analysed is None:
            buckets = buckets_of(self.spark, self.new)
            self._analysed = analyse(self.spark, self.graph, self.new.spool, buckets)
            self._analysed.raise_errors()
        return self._analysed

    def step(self) -> Standing | None:
        """Reads on; how far it is then. None if it stands where the pipeline does."""
        if last_number(self.new.checkpoint / "offsets") > last_committed(self.new.checkpoint):
            # It died in a batch, which comes again just as it was planned.
            self._run()
            return self.standing
        before = self.standing
        self._refuse_strangers(before)
        stop = next_stop(before.stands, before.committed, apart=self._apart)
        if stop is None:
            return None
        self._plan(before.batch + 1, stop)
        self._run()
        return self.standing

    def _plan(self, batch: int, stop: int) -> None:
        origins, renamed = self._ways
        log = self._log(stop)
        assert log is not None
        bring(self.state, self.new.path, origins, renamed)
        beside = frozenset(name for line in log.splitlines()[2:] if is_beside(name := line.partition(":")[0]))
        if not beside <= self._beside:
            # Rows are fed to the pipeline again since, which it reads beside its sources.
            self._analysed, self._beside = None, beside
        note_followed(self.state, batch, stop)
        plan(self.new.path, batch, log, origins, renamed)
        reach("cutover.planned", 0)

    def _log(self, batch: int) -> str | None:
        try:
            return (self.state / "checkpoint" / "offsets" / str(batch)).read_text("utf-8")
        except FileNotFoundError:
            return None

    def _run(self) -> None:
        running = RunningPipeline(
            self.spark, self.graph, self.analysis(), self.new, self.log, shadows_in(self.places.shadow)
        )
        try:
            with self._state_as_a_whole():
                running.run_one()
            steps = running.operators()
            note_standing(self.new.path, self.new.identity.lineage, Moment(running.handler.finished, steps=steps))
        finally:
            running.stop()
            running.close()

    @contextmanager
    def _state_as_a_whole(self) -> Iterator[None]:
        """Lets Spark store state as a whole and not as changes, which it would have to go through in each batch anew.

        What is stored so can also be given the number of another version.
        """
        before = self.spark.conf.get(_CHANGES)
        self.spark.conf.set(_CHANGES, "false")
        try:
            yield
        finally:
            self.spark.conf.set(_CHANGES, str(before))

    def _refuse_strangers(self, standing: Standing) -> None:
        """Raises if the pipeline is another one, or not where it was when it was followed: it has gone back since."""
        self._version()
        log = self._log(standing.stands)
        if standing.behind < 0 or (log is not None and standing.batch > self._first and not self._alike(log, standing)):
            raise _refused("the pipeline has gone back to a savepoint since it began")

    @property
    def _first(self) -> int:
        """The last batch of the new version before it followed."""
        return min(followed(self.state), default=last_committed(self.new.checkpoint) + 1) - 1

    def _alike(self, log: str, standing: Standing) -> bool:
        own = (self.new.checkpoint / "offsets" / str(standing.batch)).read_text("utf-8")
        return stands_at(own, log, *self._ways)

    @property
    def stands_alike(self) -> bool:
        """Whether both have read the same, and at the same watermark; the pipeline must not be running."""
        standing = self.standing
        log = self._log(standing.stands)
        return log is not None and standing.behind == 0 and self._alike(log, standing)


def _refused(reason: str) -> PenstockError:
    advice = "Give it up with `penstock cutover abort`, and begin anew."
    return PenstockError.of("CUTOVER_REFUSED", reason=reason, advice=advice)
