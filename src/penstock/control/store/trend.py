"""History for charts: however many batches there were, a chosen number of points."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, cast, extract, func, select

from penstock.control.store.schema import COUNTS, batches

_LAST = ("watermark", "state_rows", "state_bytes", "checkpoint_bytes")
"""What stands at a moment and is not added up."""


@dataclass(frozen=True)
class TrendPoint:
    """All batches that ended within `seconds`, fewer at both ends; what is not a sum is that of the last of them."""

    at: dt.datetime
    """When the last of them ended."""
    seconds: int
    batches: int
    rows_in: int
    rows_out: int
    late: int
    dead: int
    filtered: int
    duration_ms: int
    longest_ms: int
    unbalanced: int
    watermark: int | None
    state_rows: int | None
    state_bytes: int | None
    checkpoint_bytes: int | None
    phases_ms: Mapping[str, int]
    sink_ms: Mapping[str, int]
    span: int
    """How many batches the last row stands for, which `phases_ms` and `sink_ms` are sums of."""


def step_of(since: dt.datetime, until: dt.datetime, points: int) -> int:
    """Whole seconds between points, so that there are no more of them than wanted."""
    return max(1, -(-int((until - since).total_seconds()) // points))


def trend(
    connection: Connection, pipeline: str, *, since: dt.datetime, until: dt.datetime, points: int
) -> tuple[TrendPoint, ...]:
    """In the order of time; times without a batch have no point."""
    step = step_of(since, until, points)
    at = extract("epoch", batches.c.at)
    # SQLite knows whole seconds only; PostgreSQL would round them.
    second = cast(func.floor(at) if connection.dialect.name == "postgresql" else at, BigInteger)
    query = _sums(pipeline, since, until, second - second % step)
    sums = [dict(row) for row in connection.execute(query).mappings()]
    last = _last(connection, pipeline, [row["last"] for row in sums])
    first, end = int(since.timestamp()), int(until.timestamp())
    return tuple(
        _point(row, last[row["last"]], min(row["bucket"] + step, end) - max(row["bucket"], first)) for row in sums
    )


def _sums(
    pipeline: str, since: dt.datetime, until: dt.datetime, first_second: ColumnElement[int]
) -> Select[*tuple[Any, ...]]:
    bucket = first_second.label("bucket")
    added = (*COUNTS, "duration_ms")
    return (
        select(
            bucket,
            func.max(batches.c.at).label("last"),
            func.sum(batches.c.span).label("batches"),
            *(func.sum(batches.c[name]).label(name) for name in added),
            func.max(batches.c.longest_ms).label("longest_ms"),
            func.count().filter(batches.c.balanced.is_(False)).label("unbalanced"),
        )
        .where(batches.c.pipeline == pipeline, batches.c.at >= since, batches.c.at < until)
        .group_by(bucket)
        .order_by(bucket)
    )


def _last(connection: Connection, pipeline: str, times: Sequence[dt.datetime]) -> dict[dt.datetime, Mapping[str, Any]]:
    columns = (batches.c.at, batches.c.details, batches.c.span, *(batches.c[name] for name in _LAST))
    query = select(*columns).where(batches.c.pipeline == pipeline, batches.c.at.in_(times)).order_by(batches.c.id)
    return {row["at"]: dict(row) for row in connection.execute(query).mappings()}


def _point(row: Mapping[str, Any], last: Mapping[str, Any], seconds: int) -> TrendPoint:
    details = last["details"]
    return TrendPoint(
        at=row["last"],
        seconds=max(1, seconds),
        **{name: int(row[name]) for name in (*COUNTS, "batches", "duration_ms", "longest_ms", "unbalanced")},
        **{name: last[name] for name in _LAST},
        phases_ms=details.get("phases_ms", {}),
        sink_ms=details.get("sink_ms", {}),
        span=last["span"],
    )
