"""Savepoints: what there is in the state folders of pipelines, as it was last seen."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from penstock.control.store import history
from penstock.control.store.pages import Page, page
from penstock.control.store.records import maker
from penstock.control.store.schema import savepoints, versions
from penstock.control.supervisor.ports import FoundSavepoint
from penstock.errors import PenstockError, did_you_mean


@dataclass(frozen=True)
class Savepoint:
    id: int
    pipeline: str
    name: str
    version: int | None
    """Which version of the pipeline it was taken of; None if that is none of the server's."""
    at: dt.datetime
    batch: int | None
    bytes: int | None
    state_bytes: int | None
    watermark: int | None
    partitions: int | None
    note: str
    automatic: bool


_savepoint = maker(Savepoint)


def listed(connection: Connection, pipeline: str, *, limit: int = 100, after: int | None = None) -> Page[Savepoint]:
    """Newest first."""
    query = select(savepoints).where(savepoints.c.pipeline == pipeline)
    return page(connection, query, savepoints.c.id, _savepoint, limit=limit, after=after, newest_first=True)


def get(connection: Connection, pipeline: str, name: str) -> Savepoint:
    """Raises SAVEPOINT_UNKNOWN."""
    query = select(savepoints).where(savepoints.c.pipeline == pipeline)
    row = connection.execute(query.where(savepoints.c.name == name)).mappings().first()
    if row is None:
        known = [item["name"] for item in connection.execute(query).mappings()]
        where, suggestion = f"those of '{pipeline}'", did_you_mean(name, known)
        raise PenstockError.of("SAVEPOINT_UNKNOWN", name=name, path=where, suggestion=suggestion)
    return _savepoint(row)


def forget(connection: Connection, pipeline: str, name: str) -> None:
    """One that somebody has deleted."""
    connection.execute(delete(savepoints).where((savepoints.c.pipeline == pipeline) & (savepoints.c.name == name)))


def keep_in_step(connection: Connection, found: Mapping[str, Sequence[FoundSavepoint]], *, now: dt.datetime) -> None:
    """Makes these the savepoints of pipelines, and tells of those that have come or gone."""
    if not found:
        return
    query = select(savepoints).where(savepoints.c.pipeline.in_([*found]))
    known: dict[str, dict[str, Savepoint]] = {}
    for item in map(_savepoint, connection.execute(query).mappings()):
        known.setdefault(item.pipeline, {})[item.name] = item
    for pipeline, there in found.items():
        _keep(connection, pipeline, known.get(pipeline, {}), {item.name: item for item in there}, now)


def _keep(
    connection: Connection,
    pipeline: str,
    known: Mapping[str, Savepoint],
    there: Mapping[str, FoundSavepoint],
    now: dt.datetime,
) -> None:
    # One of the same name and another time is another one.
    gone = [name for name, item in known.items() if name not in there or there[name].at != item.at]
    new = [item for name, item in there.items() if name not in known or name in gone]
    for name in gone:
        forget(connection, pipeline, name)
        text = f"savepoint {name} is gone"
        history.add_event(connection, "savepoint_gone", text, now=now, pipeline=pipeline, data={"savepoint": name})
    documents = _documents(connection, pipeline) if new else []
    for item in sorted(new, key=lambda one: (one.at, one.name)):
        version = next((number for number, document in documents if document == item.document), None)
        connection.execute(insert(savepoints).values(_row(pipeline, item, version)))
        text = f"savepoint {item.name} was taken" + (f" after batch {item.batch}" if item.batch is not None else "")
        data = {"savepoint": item.name, "batch": item.batch, "automatic": item.automatic}
        history.add_event(connection, "savepoint_taken", text, now=now, pipeline=pipeline, data=data)


def _documents(connection: Connection, pipeline: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The newest version first."""
    query = select(versions.c.number, versions.c.document).where(versions.c.pipeline == pipeline)
    rows = connection.execute(query.order_by(versions.c.number.desc()))
    return [(int(row.number), row.document) for row in rows]


def _row(pipeline: str, found: FoundSavepoint, version: int | None) -> dict[str, Any]:
    row = {key: value for key, value in vars(found).items() if key != "document"}
    return {**row, "pipeline": pipeline, "version": version}
