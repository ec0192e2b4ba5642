"""Puts together what is known of every pipeline, from the store and from what the supervisor sees, for alerts and
metrics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.alerts.measure import RECENT_ROWS, RECENT_TROUBLE, Sample
from penstock.control.clock import Clock
from penstock.control.store import pipelines
from penstock.control.store.database import Store
from penstock.control.store.recent import Recent, recent
from penstock.control.supervisor.watched import Live


@dataclass(frozen=True)
class Seen:
    """A pipeline at a moment; `reason` is why its health is what it is."""

    name: str
    sample: Sample
    reason: str
    version: int
    target: str
    labels: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    """Since it was made."""
    scope: Mapping[str, str] | None = None
    """The limit of the token that made it."""
    made: dt.datetime | None = None
    """Tells it from an earlier pipeline of its name."""


def seen(store: Store, live: Mapping[str, Live], clock: Clock) -> list[Seen]:
    """Every pipeline; raises STORE_DOWN."""
    now = clock.now()
    with store.reading() as connection:
        known = recent(connection, clock.earliest(RECENT_ROWS), clock.earliest(RECENT_TROUBLE))
        return [_seen(each, live.get(each.name), known[each.name], now, clock) for each in pipelines.every(connection)]


def seen_by_supervisor(live: Mapping[str, Live], now: dt.datetime) -> list[Seen]:
    """What is known while the store is down: the pipelines that run."""
    return [
        Seen(name, Sample(now, each.health.state, each.run.started_at, each.status), each.health.evidence,
             each.run.version, each.run.target)
        for name, each in live.items()
        if each.run is not None
    ]  # fmt: skip


def _seen(pipeline: pipelines.Pipeline, live: Live | None, known: Recent, now: dt.datetime, clock: Clock) -> Seen:
    committed = known.last_batch.at if known.last_batch else None
    if live is not None and live.status is not None and live.status.last_batch is not None:
        # After the clock was set back the newest batch is not the one with the latest time.
        committed = live.status.last_batch.at
    sample = Sample(
        now=now,
        health=live.health.state if live else pipeline.state,
        wanted_since=None if known.wanted_since is None else clock.corrected(known.wanted_since),
        status=live.status if live else None,
        last_batch=known.last_batch,
        last_commit=None if committed is None else clock.corrected(committed),
        restarts=known.restarts,
        unbalanced=known.unbalanced,
        rows_in=known.rows_in,
        rows_dead=known.rows_dead,
        rows_late=known.rows_late,
    )
    return Seen(
        name=pipeline.name,
        sample=sample,
        reason=live.health.evidence if live else pipeline.state_reason,
        version=pipeline.version,
        target=live.run.target if live and live.run else pipeline.target or "",
        labels=pipeline.labels,
        restarts=known.restarts_ever,
        scope=pipeline.scope,
        made=pipeline.created_at,
    )
