"""What the store knows of the last minutes and hours of all pipelines, in a handful of queries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from penstock.control.store.history import BATCH
from penstock.control.store.schema import batches, pipelines, runs
from penstock.reports.values import BatchLine

_FAILED = ("failed", "fenced", "died", "lost")


@dataclass(frozen=True)
class Recent:
    """One pipeline: rows of batches since a time, trouble since another, and when it last was well."""

    rows_in: int = 0
    rows_dead: int = 0
    rows_late: int = 0
    unbalanced: int = 0
    restarts: int = 0
    restarts_ever: int = 0
    """As far as runs are kept."""
    last_batch: BatchLine | None = None
    """By whichever run; without its counts of rows."""
    wanted_since: dt.datetime | None = None
    """When what is wanted now was first tried; None for a pipeline that is not meant to run."""


def recent(connection: Connection, rows_since: dt.datetime, trouble_since: dt.datetime) -> dict[str, Recent]:
    """Every pipeline."""
    standing = connection.execute(_standing()).all()
    newest = _lines(connection, [row.last for row in standing if row.last is not None])
    found = {
        row.name: Recent(
            last_batch=newest.get(row.last),
            wanted_since=(row.tried or row.updated_at) if row.desired == "running" else None,
        )
        for row in standing
    }
    for query in (_rows(rows_since), _unbalanced(trouble_since), _restarts(trouble_since)):
        for row in connection.execute(query).mappings():
            counts: Mapping[str, Any] = {key: int(count) for key, count in row.items() if key != "pipeline"}
            if row["pipeline"] in found:
                found[row["pipeline"]] = replace(found[row["pipeline"]], **counts)
    return found


def restarts(connection: Connection, since: dt.datetime) -> dict[str, int]:
    """How often each pipeline was started again after it had failed; those that never were are left out."""
    return {row.pipeline: int(row.restarts) for row in connection.execute(_restarts(since))}


def _standing() -> Select[Any]:
    """Subqueries that the indexes answer, since history is long."""
    own = and_(batches.c.pipeline == pipelines.c.name, batches.c.grain == BATCH)
    last = select(batches.c.id).where(own).order_by(batches.c.at.desc()).limit(1).scalar_subquery()
    of_now = and_(runs.c.pipeline == pipelines.c.name, runs.c.generation == pipelines.c.generation)
    tried = select(func.min(runs.c.started_at)).where(of_now).scalar_subquery()
    known = (pipelines.c.name, pipelines.c.desired, pipelines.c.updated_at)
    return select(*known, last.label("last"), tried.label("tried"))


def _lines(connection: Connection, ids: Sequence[int]) -> dict[int, BatchLine]:
    columns = (batches.c.id, batches.c.batch, batches.c.at, batches.c.duration_ms, batches.c.details)
    return {
        row.id: BatchLine(
            row.batch,
            row.at,
            row.duration_ms,
            phases_ms=row.details.get("phases_ms", {}),
            sink_ms=row.details.get("sink_ms", {}),
        )
        for row in connection.execute(select(*columns).where(batches.c.id.in_(ids)))
    }


def _rows(since: dt.datetime) -> Select[Any]:
    counted = {"rows_in": batches.c.rows_in, "rows_dead": batches.c.dead, "rows_late": batches.c.late}
    sums = (func.sum(column).label(name) for name, column in counted.items())
    young = and_(batches.c.grain == BATCH, batches.c.at >= since)
    return select(batches.c.pipeline, *sums).where(young).group_by(batches.c.pipeline)


def _unbalanced(since: dt.datetime) -> Select[Any]:
    # Whatever their grain: the index of these rows alone serves this, and others would do it badly.
    young = and_(batches.c.at >= since, batches.c.balanced.is_(False))
    return select(batches.c.pipeline, func.count().label("unbalanced")).where(young).group_by(batches.c.pipeline)


def _restarts(since: dt.datetime) -> Select[Any]:
    """Runs that followed one that had failed, within the same generation: a person who starts it does not count."""
    before = func.lag(runs.c.outcome).over(partition_by=(runs.c.pipeline, runs.c.generation), order_by=runs.c.sequence)
    each = select(runs.c.pipeline, runs.c.started_at, before.label("before")).subquery()
    young = func.count().filter(each.c.started_at >= since).label("restarts")
    ever = func.count().label("restarts_ever")
    return select(each.c.pipeline, young, ever).where(each.c.before.in_(_FAILED)).group_by(each.c.pipeline)
