"""Runs a whole pipeline on real Spark, one batch at a time, under a test's control."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.components.base import HEARTBEAT
from penstock.components.shared import crashpoints
from penstock.components.sinks.memory import forget, stored_batches, stored_rows
from penstock.components.sources.memory import append_batch, spool_folder
from penstock.engine.dead import SINK
from penstock.engine.jars import obtainable, sets_for
from penstock.engine.late import SINK as LATE
from penstock.engine.ledger import BatchEntry
from penstock.engine.query import RunningPipeline
from penstock.engine.stage.choose import analyse_on
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.frontends.python import Pipeline
from penstock.graph.build import build
from penstock.spec.location import PipelineFile
from penstock.spec.units import Duration
from penstock.testing.rewire import WATCH, in_memory
from penstock.testing.session import shared_log, shared_session

Row = dict[str, Any]
Time = str | dt.datetime
END_OF_TIME = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)


class SimulatedCrash(Exception):
    """Raised inside a batch by `Harness.crash_at`."""


class Harness:
    """A pipeline under test. Sources are fed by the test and sinks collect rows in memory.

    >>> with Harness("pipeline.yaml") as pipeline:          # doctest: +SKIP
    ...     pipeline.feed("views", [{"ts": "2024-01-01T00:00:00Z", "user": "ann"}])
    ...     pipeline.advance_watermark("2024-01-01T01:00:00Z")
    ...     assert pipeline.rows("store") == [{"user": "ann", "views": 1}]

    `watch` names steps whose rows are to be seen too; `keep` names sinks that stay real.
    """

    def __init__(
        self,
        pipeline: str | Path | Pipeline | PipelineFile,
        *,
        watch: Iterable[str] = (),
        keep: Iterable[str] = (),
        state_dir: Path | None = None,
    ) -> None:
        file = _file(pipeline)
        self._own_folder = None if state_dir else Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.state_dir = state_dir or self._own_folder or Path()
        # What a test replaces needs no jars, so those that cannot be had are missed only by what is still real.
        self.spark = shared_session(obtainable(sets_for(file.pipeline)))
        spool = self.state_dir / "spool"
        fast = file.pipeline.run.model_copy(update={"trigger": Duration(0)})
        file = PipelineFile(file.pipeline.model_copy(update={"run": fast}), file.places, file.path)
        self.graph = build(in_memory(file, self.spark, spool, watch=watch, keep=keep))
        self._running: RunningPipeline | None = None
        self._state: StateDir | None = None
        self._crash_at: str | None = None
        self._lineage: str | None = None

    # --- running -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the query, from its checkpoint if it has run before. `step` does this when needed."""
        if self._running is not None:
            return
        self._state = StateDir(self.state_dir, self.graph.file.pipeline.name)
        try:
            analysed = analyse_on(self.spark, self.graph, self._state)
            analysed.raise_errors()
            running = RunningPipeline(self.spark, self.graph, analysed, self._state, shared_log())
            running.start(once=False)
        except BaseException:
            self._state.close()
            self._state = None
            raise
        self._running = running

    def step(self) -> None:
        """Processes all that was fed: each `feed` is one batch."""
        self.start()
        assert self._running is not None
        crashpoints.install(self._hook if self._crash_at else None)
        try:
            self._running.process_all()
        except PenstockError:
            failure = self._running.handler.failure
            self.crash()
            if not isinstance(failure, SimulatedCrash):
                raise
        finally:
            crashpoints.install(None)

    def stop(self) -> None:
        """Stops after the running batch, as Ctrl-C does."""
        self._leave(graceful=True)

    def crash(self) -> None:
        """Ends the query where it stands; what was not committed comes again after `resume`."""
        self._leave(graceful=False)

    def crash_at(self, point: str) -> None:
        """Makes the next batch die at a point (see `penstock.components.shared.crashpoints.POINTS`)."""
        if point not in crashpoints.POINTS:
            raise PenstockError.of("USAGE", reason=f"no crash point '{point}'", advice=", ".join(crashpoints.POINTS))
        self._crash_at = point

    def resume(self) -> None:
        """Starts again from the checkpoint and catches up."""
        self._leave(graceful=False)
        self.step()

    def _hook(self, point: str, batch: int) -> None:
        if point == self._crash_at:
            self._crash_at = None
            raise SimulatedCrash(f"{point} in batch {batch}")

    def _leave(self, *, graceful: bool) -> None:
        if self._running is not None:
            (self._running.finish if graceful else self._running.stop)()
            self._running.close()
            self._running = None
        if self._state is not None:
            self._lineage = self._state.identity.lineage
            self._state.close()
            self._state = None

    # --- input -------------------------------------------------------------------------------------------

    def feed(self, source: str, rows: Iterable[Mapping[str, Any] | str]) -> None:
        """Hands rows to a source as one batch; a text instead of a mapping is a malformed row."""
        self.graph.file.pipeline.source(source)
        append_batch(self._spool(source), rows)

    def advance_watermark(self, to: Time) -> None:
        """Moves event time on, as if newer rows had come, and processes what that completes."""
        for source in self.graph.file.pipeline.sources:
            if source.event_time is not None:
                newest = _time(to) + dt.timedelta(milliseconds=source.event_time.max_delay.millis)
                beat = {source.event_time.column: newest.isoformat(), HEARTBEAT: True}
                append_batch(self._spool(source.name), [beat])
        self.step()

    def finish(self) -> None:
        """Moves event time to the end, so that every window closes."""
        self.advance_watermark(END_OF_TIME)

    def _spool(self, source: str) -> Path:
        return spool_folder(self.state_dir / "spool", source)

    # --- outcome -----------------------------------------------------------------------------------------

    @property
    def lineage(self) -> str:
        if self._state is None and self._lineage is None:
            self.start()
        if self._state is not None:
            self._lineage = self._state.identity.lineage
        assert self._lineage is not None
        return self._lineage

    def rows(self, name: str) -> list[Row]:
        """What a sink has collected, or what has left a watched step."""
        sink, key = self._sink(name)
        return stored_rows(self.lineage, sink, key)

    def batches(self, name: str) -> Mapping[int, list[Row]]:
        """The same by batch."""
        sink, key = self._sink(name)
        return stored_batches(self.lineage, sink, key)

    def dead_letters(self, source: str | None = None) -> list[Row]:
        names = [source] if source else [item.name for item in self.graph.file.pipeline.sources]
        return [row for name in names for row in stored_rows(self.lineage, f"{SINK}_{name}")]

    def late(self, step: str, side: int = 0) -> list[Row]:
        """The late rows that were kept for a step; a step with two inputs keeps those of each (`side`)."""
        return stored_rows(self.lineage, f"{LATE}_{step}" if side == 0 else f"{LATE}_{step}_{side + 1}")

    def columns(self) -> dict[str, list[str]]:
        """The columns of every source, step and sink."""
        return {name: list(columns) for name, columns in self.types().items()}

    def types(self) -> dict[str, dict[str, str]]:
        """The same with the type of each."""
        self.start()
        assert self._running is not None
        facts = self._running.analysed.analysis.facts
        return {name: dict(fact.columns) for name, fact in facts.items()}

    def ledger(self) -> list[BatchEntry]:
        """Row counts of every batch so far."""
        self.start()
        assert self._running is not None
        return self._running.ledger.entries()

    def _sink(self, name: str) -> tuple[str, tuple[str, ...]]:
        names = {sink.name: sink for sink in self.graph.file.pipeline.sinks}
        found = names.get(name) or names.get(f"{WATCH}{name}")
        if found is None:
            known = ", ".join(names)
            advice = f"Known: {known}. Name steps in `watch` to see their rows."
            raise PenstockError.of("USAGE", reason=f"nothing collects '{name}'", advice=advice)
        return found.name, tuple(getattr(found.component, "key", ()))

    # --- life --------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._leave(graceful=False)
        if self._lineage is not None:
            forget(self._lineage)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _file(pipeline: str | Path | Pipeline | PipelineFile) -> PipelineFile:
    if isinstance(pipeline, PipelineFile):
        return pipeline
    if isinstance(pipeline, Pipeline):
        return pipeline.file()
    return load(Path(pipeline))


def _time(value: Time) -> dt.datetime:
    time = dt.datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
