"""The store as the supervisor sees it: one read and one write a tick."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, cast

from sqlalchemy import Connection, insert, select

from penstock.control.desired import takes_effect_at_once
from penstock.control.files import DataFolder
from penstock.control.store import failover, history, operations, pipelines, runs, savepoints
from penstock.control.store.database import Store
from penstock.control.store.schema import events
from penstock.control.store.schema import pipelines as table
from penstock.control.supervisor.ports import BatchOf, Changes, Event, Snapshot, State, Wanted
from penstock.spec.secrets import SecretRef, references_in


class SupervisorStore:
    """What `penstock.control.supervisor.ports.Store` asks for, on a database and a folder of files."""

    def __init__(
        self,
        store: Store,
        folder: DataFolder,
        default_target: str,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        default_of: Callable[[pipelines.Pipeline], str] | None = None,
    ) -> None:
        self._now = now
        self._default_of = default_of or (lambda _: default_target)
        """The target of a pipeline that names none."""
        self._defaults: dict[str, str] = {}
        """The same by name, of all that have been read."""
        self._store = store
        self._folder = folder
        self._default_target = default_target
        self._written: dict[str, tuple[tuple[dt.datetime, int], str]] = {}
        """Of each pipeline the version whose file is known to be there; a name may be given again."""
        self._budgets: dict[str, int | None] = {}
        """How often each pipeline may be started again in an hour, if its document says so."""
        self._references: dict[tuple[str, int], frozenset[SecretRef]] = {}
        """To what the versions refer that were last wanted, for when the store does not answer."""
        self._same: dict[str, tuple[tuple[dt.datetime, int], frozenset[int]]] = {}
        """Of each pipeline a version, and those that are like it."""

    def load(self, since: dt.datetime) -> Snapshot:
        """What there is now. Deleted pipelines whose runs have ended go; files of versions that are to run come."""
        self._forget_deleted()
        with self._store.reading() as connection:
            wanted = tuple(self._wanted(connection, pipeline) for pipeline in pipelines.every(connection))
            return Snapshot(
                wanted,
                tuple(runs.recent(connection, since)),
                tuple(failover.open_notices(connection)),
                tuple(failover.open_failovers(connection)),
                tuple(operations.open_ones(connection)),
            )

    def references(self, name: str, numbers: Iterable[int]) -> frozenset[SecretRef]:
        """The secrets that these versions of a pipeline refer to; raises STORE_DOWN if they are not known."""
        return frozenset(each for number in numbers for each in self._references_of(name, number))

    def _references_of(self, name: str, number: int) -> frozenset[SecretRef]:
        if (name, number) not in self._references:
            with self._store.reading() as connection:
                return references_in(dict(pipelines.version(connection, name, number).document))
        return self._references[(name, number)]

    def save(self, changes: Changes) -> None:
        """All of it or nothing. What belongs to a pipeline that is gone is left out."""
        with self._store.writing() as connection:
            names = set(connection.execute(select(table.c.name)).scalars())
            runs.put(connection, (run for run in changes.runs.values() if run.pipeline in names))
            pipelines.observe(connection, changes.states, default_target=self._default_target, defaults=self._defaults)
            history.add_batches(connection, (numbers(each) for each in changes.batches if each.pipeline in names))
            history.add_exceptions(connection, (each for each in changes.failures if each.pipeline in names))
            _add_events(connection, (each for each in changes.events if each.pipeline in {*names, None}))
            failover.put_notices(connection, changes.notices)
            failover.put_failovers(connection, (move for move in changes.failovers if move.pipeline in names))
            operations.put(connection, (each for each in changes.operations.values() if each.pipeline in names))
            for name, steered in changes.steered.items():
                pipelines.steer_anew(connection, name, steered, now=self._now())
            there = {name: found for name, found in changes.savepoints.items() if name in names}
            savepoints.keep_in_step(connection, there, now=self._now())

    def _forget_deleted(self) -> None:
        with self._store.reading() as connection:
            ended = pipelines.ended_and_deleted(connection)
        for name in ended:
            # One whose files cannot be moved now stays until they can, and does not keep the others.
            with suppress(OSError), self._store.writing() as connection:
                if name in pipelines.ended_and_deleted(connection):
                    pipelines.forget(connection, name)
                    # Cut off before it is noted, there is nothing left to move the next time.
                    self._folder.put_aside(name, self._now())

    def _wanted(self, connection: Connection, pipeline: pipelines.Pipeline) -> Wanted:
        default = self._defaults[pipeline.name] = self._default_of(pipeline)
        return Wanted(
            name=pipeline.name,
            desired=pipeline.desired,
            generation=pipeline.generation,
            version=pipeline.version,
            file=self._file(connection, pipeline),
            restarts_per_hour=self._budgets.get(pipeline.name),
            target=pipeline.target or default,
            state=cast(State, pipeline.state),
            state_reason=pipeline.state_reason,
            observed_generation=pipeline.observed_generation,
            alike=self._alike(connection, pipeline),
            labels=pipeline.labels,
            scope=pipeline.scope,
        )

    def _alike(self, connection: Connection, pipeline: pipelines.Pipeline) -> frozenset[int]:
        """The versions right before the one it is to run that differ from it only in what takes effect at once."""
        if pipeline.version == 1:
            return frozenset()
        wanted = (pipeline.created_at, pipeline.version)
        known, found = self._same.get(pipeline.name, (None, frozenset()))
        if known != wanted:
            newest, *older = pipelines.versions_of(connection, pipeline.name, after=pipeline.version + 1).items
            same = takewhile(lambda version: takes_effect_at_once(version, newest), older)
            found = frozenset(version.number for version in same)
            self._same[pipeline.name] = (wanted, found)
        return found

    def _file(self, connection: Connection, pipeline: pipelines.Pipeline) -> str:
        """The file of the version it is to run; none while the disk does not take it."""
        wanted = (pipeline.created_at, pipeline.version)
        known, path = self._written.get(pipeline.name, (None, ""))
        if known != wanted:
            version = pipelines.version(connection, pipeline.name, pipeline.version)
            self._budgets[pipeline.name] = _restarts_per_hour(version.document)
            self._references[(pipeline.name, pipeline.version)] = references_in(dict(version.document))
            try:
                path = str(self._folder.write_version(version.pipeline, version.number, version.kind, version.text))
            except OSError:
                return ""
            self._written[pipeline.name] = (wanted, path)
        return path


def _restarts_per_hour(document: Mapping[str, Any]) -> int | None:
    found = document.get("spec", {}).get("run", {}).get("restart", {}).get("maxPerHour")
    return found if isinstance(found, int) else None


def numbers(batch: BatchOf) -> history.BatchNumbers:
    """A batch as a run tells of it, in the columns of history; what is counted by node goes to the details."""
    line = batch.line
    by_node = {"rows_in": line.rows_in, "rows_out": line.rows_out, "late": line.late, "dead": line.dead}
    by_node |= {"filtered": line.filtered, "phases_ms": line.phases_ms, "sink_ms": line.sink_ms}
    by_node |= {"sink_retries": line.sink_retries}
    details: dict[str, Any] = {key: dict(value) for key, value in by_node.items() if value}
    details |= {key: value for key in ("cores", "written_bytes") if (value := getattr(line, key)) is not None}
    return history.BatchNumbers(
        pipeline=batch.pipeline,
        run=batch.run,
        batch=line.batch,
        at=line.at,
        duration_ms=line.duration_ms,
        rows_in=sum(line.rows_in.values()),
        rows_out=sum(line.rows_out.values()),
        late=sum(line.late.values()),
        dead=sum(line.dead.values()),
        filtered=sum(line.filtered.values()),
        watermark=line.watermark,
        state_rows=line.state_rows,
        state_bytes=line.state_bytes,
        checkpoint_bytes=batch.checkpoint_bytes,
        balanced=line.balanced,
        details=details,
    )


def _add_events(connection: Connection, found: Iterable[Event]) -> None:
    rows = [{**vars(each), "data": dict(each.data)} for each in found]
    if rows:
        connection.execute(insert(events), rows)
