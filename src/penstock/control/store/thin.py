"""Keeps history for weeks in little space: every batch of the last day, then one row a minute, then one an hour.

What rows become is decided by plain functions; nothing that was counted is lost, only when exactly it happened.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, delete, select

from penstock.control.store.history import BATCH, HOUR, MINUTE, BatchNumbers, StoredBatch, put_batches
from penstock.control.store.records import maker
from penstock.control.store.schema import COUNTS, audit, batches, events, exceptions, failovers, notices, runs, silences
from penstock.control.store.schema import alerts as alerts_
from penstock.control.store.schema import tokens as tokens_

_CHUNK = 5000
_batch = maker(StoredBatch)


@dataclass(frozen=True)
class Keep:
    """How long what is kept."""

    batches: dt.timedelta = dt.timedelta(days=1)
    minutes: dt.timedelta = dt.timedelta(days=7)
    hours: dt.timedelta = dt.timedelta(days=90)
    """Also for runs, events, exceptions and alerts."""
    audit: dt.timedelta = dt.timedelta(days=365)


def put_together(rows: Sequence[StoredBatch], grain: int) -> Iterator[BatchNumbers]:
    """One row for all batches of a run in the same minute or hour; rows come in the order of time."""

    def place(row: StoredBatch) -> tuple[str, int]:
        return (row.run, int(row.at.timestamp()) // grain)

    for _, group in groupby(sorted(rows, key=place), place):
        yield _sum(list(group), grain)


def _sum(rows: Sequence[StoredBatch], grain: int) -> BatchNumbers:
    last = max(rows, key=lambda row: row.batch)
    sums = {name: sum(getattr(row, name) for row in rows) for name in (*COUNTS, "duration_ms", "span")}
    return BatchNumbers(
        pipeline=last.pipeline,
        run=last.run,
        batch=last.batch,
        at=last.at,
        watermark=last.watermark,
        state_rows=last.state_rows,
        state_bytes=last.state_bytes,
        checkpoint_bytes=last.checkpoint_bytes,
        checkpoint_ms=max((row.checkpoint_ms for row in rows if row.checkpoint_ms is not None), default=None),
        balanced=all(row.balanced for row in rows),
        details=_merged([row.details or {} for row in rows]),
        grain=grain,
        longest_ms=max(row.longest_ms or row.duration_ms for row in rows),
        **sums,
    )


def _merged(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers under the same name are added, mappings of numbers too; of anything else the last is kept."""
    merged: dict[str, Any] = {}
    for each in details:
        for key, value in each.items():
            before = merged.get(key)
            if isinstance(value, Mapping):
                merged[key] = _merged([before, value]) if isinstance(before, Mapping) else dict(value)
            elif _is_number(value) and _is_number(before):
                merged[key] = before + value
            else:
                merged[key] = value
    return merged


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def thin(connection: Connection, keep: Keep, now: dt.datetime) -> int:
    """Does a part of what is to be done, so that one transaction stays short; 0 when nothing is left to do."""
    for grain, coarser, age in ((BATCH, MINUTE, keep.batches), (MINUTE, HOUR, keep.minutes)):
        done = _coarsen(connection, grain, coarser, now - age)
        if done:
            return done
    return _expire(connection, keep, now)


def _coarsen(connection: Connection, grain: int, coarser: int, before: dt.datetime) -> int:
    # Whole minutes or hours only: what is left of one would become a second row of it.
    cut = dt.datetime.fromtimestamp(before.timestamp() // coarser * coarser, dt.UTC)
    old = (batches.c.grain == grain) & (batches.c.at < cut)
    oldest = select(batches.c.pipeline, batches.c.at).where(old).order_by(batches.c.at).limit(1)
    first = connection.execute(oldest).first()
    if first is None:
        return 0
    pipeline, start = first
    query = select(batches).where(old, batches.c.pipeline == pipeline, batches.c.at >= start)
    rows = [_batch(row) for row in connection.execute(query.order_by(batches.c.at).limit(_CHUNK)).mappings()]
    if len(rows) == _CHUNK:
        rows = _without_last(rows, coarser)
    connection.execute(delete(batches).where(batches.c.id.in_([row.id for row in rows])))
    put_batches(connection, put_together(rows, coarser))
    return len(rows)


def _without_last(rows: list[StoredBatch], grain: int) -> list[StoredBatch]:
    """Without the rows of the last minute or hour, of which there may be more; all if there is no other."""
    last = int(rows[-1].at.timestamp()) // grain
    whole = [row for row in rows if int(row.at.timestamp()) // grain != last]
    return whole or rows


def _expire(connection: Connection, keep: Keep, now: dt.datetime) -> int:
    long_ago = now - keep.hours
    conditions = [
        (batches, batches.c.at < long_ago),
        (exceptions, exceptions.c.at < long_ago),
        (events, events.c.at < long_ago),
        (runs, runs.c.ended_at < long_ago),
        (alerts_, alerts_.c.resolved_at < long_ago),
        (failovers, failovers.c.noticed_at < long_ago),
        (notices, notices.c.at < long_ago),
        (silences, silences.c.until < long_ago),
        (audit, audit.c.at < now - keep.audit),
        (tokens_, tokens_.c.session & (tokens_.c.expires_at < long_ago)),
    ]
    gone = 0
    for table, condition in conditions:
        key = next(iter(table.primary_key.columns))
        some = select(key).where(condition).limit(_CHUNK)
        gone += connection.execute(delete(table).where(key.in_(some))).rowcount
    return gone
