"""The part of the server that advises how many cores pipelines should have, in a thread of its own."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from penstock.capacity.autoscale.decide import Decision
from penstock.capacity.fit import MeasuredBatch
from penstock.capacity.measured import of_answer
from penstock.control.autoscale.track import Look, Track
from penstock.control.clock import Clock
from penstock.control.config import Target
from penstock.control.quotas import taken_by
from penstock.control.store import history, pipelines
from penstock.control.store.database import Store
from penstock.control.supervisor.watched import Live
from penstock.errors import PenstockError
from penstock.frontends.batch_history import facts_of
from penstock.reports.codec import plain
from penstock.reports.values import RunStatus
from penstock.spec.scale import ScaleSettings
from penstock.spec.secrets import hide

LOOK_SECONDS = 60.0
_HOUR = dt.timedelta(hours=1)
_MOST_BATCHES = 1000
_IN_ROWS = ("rows", "rows or more", "messages")
_Of = tuple[dt.datetime, int]
"""When a pipeline was made, and its version."""


class ScalingService:
    """Looks once a minute at all pipelines that run and have `scale`."""

    def __init__(
        self,
        store: Store,
        live: Callable[[], Mapping[str, Live]],
        targets: Mapping[str, Target],
        clock: Clock,
        acts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._live = live
        self._targets = targets
        self._clock = clock
        self._acts = acts
        self._settings: dict[str, tuple[_Of, ScaleSettings | None, int | None]] = {}
        """Of each pipeline the `scale` of a version, and the most rows of a batch."""
        self._tracks: dict[str, tuple[dt.datetime, Track]] = {}
        self._over = threading.Event()
        self.trouble: str | None = None
        """Why the last look failed, if it did."""

    def run(self) -> None:
        """Looks until `end` is called. A look that fails is not the last one."""
        while not self._over.wait(LOOK_SECONDS):
            try:
                if self._acts():
                    self.look()
                self.trouble = None
            except PenstockError as error:
                self.trouble = hide(error.problems[0].message)
            except Exception as error:
                self.trouble = hide(f"{type(error).__name__}: {error}")

    def end(self) -> None:
        self._over.set()

    def decision(self, name: str) -> Decision | None:
        """What was decided last of a pipeline; None if nothing was, or not since it runs."""
        known = self._tracks.get(name)
        return None if known is None else known[1].decision

    def look(self) -> None:
        """Decides once for every pipeline, and notes as events what is new."""
        live, now = self._live(), self._clock.now()
        with self._store.reading() as connection:
            known = {each.name: each for each in pipelines.every(connection)}
            self._read_settings(connection, known)
            looks = {
                name: look
                for name, each in known.items()
                if self._settings[name][1] is not None and (look := self._look(connection, each, live.get(name), now))
            }
        self._tracks = {name: track for name, track in self._tracks.items() if name in looks}
        for name, look in looks.items():
            self._decide(known[name], look, now)

    def _decide(self, pipeline: pipelines.Pipeline, look: Look, now: dt.datetime) -> None:
        made, track = self._tracks.get(pipeline.name, (pipeline.created_at, Track()))
        if made != pipeline.created_at:
            track = Track()
        self._tracks[pipeline.name] = (pipeline.created_at, track)
        settings = self._settings[pipeline.name][1]
        assert settings is not None
        news = track.look(look, settings)
        if news is None:
            return
        with self._store.writing() as connection:
            data = terms_of(track.decision)
            history.add_event(
                connection, "scaling_advice", news, now=now, pipeline=pipeline.name, run=look.run, data=data
            )

    def _read_settings(self, connection: Connection, known: Mapping[str, pipelines.Pipeline]) -> None:
        for name, each in known.items():
            of = (each.created_at, each.version)
            if name not in self._settings or self._settings[name][0] != of:
                document = pipelines.version(connection, name, each.version).document
                written = document.get("spec", {}).get("scale")
                settings = None if written is None else ScaleSettings.model_validate(written)
                self._settings[name] = (of, settings, facts_of(document).batch_limit)
        self._settings = {name: found for name, found in self._settings.items() if name in known}

    def _look(
        self, connection: Connection, pipeline: pipelines.Pipeline, live: Live | None, now: dt.datetime
    ) -> Look | None:
        """None while it does not run, or while it is not known how many cores it has."""
        if live is None or live.run is None or live.status is None or live.status.history is not None:
            return None
        page = history.batches_of(connection, pipeline.name, since=self._clock.earliest(_HOUR), limit=_MOST_BATCHES)
        batches = [batch for row in page.items if (batch := _measured(row)) is not None][::-1]
        cores = batches[-1].cores if batches else None
        target = self._targets.get(live.run.target)
        if cores is None and target is not None:
            cores = taken_by(target).cores
        if cores is None:
            return None
        return Look(
            now=now.timestamp(),
            run=live.run.id,
            started=live.run.started_at.timestamp(),
            cores=cores,
            batches=batches,
            waiting=_waiting(live.status),
            batch_limit=self._settings[pipeline.name][2],
        )


def terms_of(decision: Decision | None) -> dict[str, Any]:
    """A decision with each term of its formula, as it is kept and shown."""
    if decision is None:
        return {}
    found = dict(plain(decision))
    evaluation = decision.evaluation
    found["formula"] = None if evaluation is None else evaluation.in_words
    found["wanted"] = None if evaluation is None else evaluation.wanted
    return found


def _measured(row: history.StoredBatch) -> MeasuredBatch | None:
    return of_answer(
        {
            "run": row.run, "at": row.at.isoformat(), "span": row.span, "durationMs": row.duration_ms,
            "rowsIn": row.rows_in, "rowsOut": row.rows_out, "stateRows": row.state_rows,
            "stateBytes": row.state_bytes, "details": dict(row.details or {}),
        }
    )  # fmt: skip


def _waiting(status: RunStatus) -> float | None:
    """Rows that wait at all sources, if all of them count rows."""
    if not status.backlog or any(each.unit not in _IN_ROWS for each in status.backlog.values()):
        return None
    return float(sum(each.amount for each in status.backlog.values()))
