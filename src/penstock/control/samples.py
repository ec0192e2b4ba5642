"""Puts together what is known of every pipeline, for alerts and metrics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from penstock.control.alerts.measure import RECENT_ROWS, RECENT_TROUBLE, Sample
from penstock.control.store.database import Store
from penstock.control.store.recent import Recent, recent
from penstock.control.supervisor.ports import Wanted
from penstock.reports.values import BatchLine, RunStatus


def recent_of(store: Store, now: dt.datetime) -> dict[str, Recent]:
    """What the store knows, over the times that conditions speak of."""
    with store.reading() as connection:
        return recent(connection, now - RECENT_ROWS, now - RECENT_TROUBLE)


def samples(
    pipelines: Iterable[Wanted],
    statuses: Mapping[str, RunStatus],
    last_batches: Mapping[str, BatchLine],
    known: Mapping[str, Recent],
    now: dt.datetime,
) -> dict[str, Sample]:
    """A sample of each pipeline; statuses and last batches are those of the newest runs, where there are any."""
    return {each.name: _sample(each, statuses, last_batches, known.get(each.name, Recent()), now) for each in pipelines}


def _sample(
    pipeline: Wanted,
    statuses: Mapping[str, RunStatus],
    last_batches: Mapping[str, BatchLine],
    known: Recent,
    now: dt.datetime,
) -> Sample:
    return Sample(
        now=now,
        health=pipeline.state,
        wanted_since=known.wanted_since if pipeline.desired == "running" else None,
        status=statuses.get(pipeline.name),
        last_batch=last_batches.get(pipeline.name),
        last_commit=known.last_commit,
        restarts=known.restarts,
        unbalanced=known.unbalanced,
        rows_in=known.rows_in,
        rows_dead=known.rows_dead,
        rows_late=known.rows_late,
    )
