"""Pipelines: what should run, in which version, and what is known of it.

What people change raises `revision`, by which two who change the same pipeline at once notice; what they want of the
supervisor also raises `generation`. What the supervisor sees is written beside it and raises neither.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    String,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from penstock.control.store.pages import Page, page
from penstock.control.store.records import has_labels, maker
from penstock.control.store.schema import NAME, UtcTime, operations, pipelines, runs, versions
from penstock.control.supervisor.ports import StateChange, Steered
from penstock.errors import PenstockError

Desired = Literal["running", "stopped"]
Labels = Mapping[str, str]
Scopes = Sequence[Labels]
"""A pipeline is meant that has all labels of one of them; an empty one is every pipeline."""
EVERYTHING: Scopes = ({},)
FileKind = Literal["yaml", "sql", "py"]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as the server knows it."""

    name: str
    labels: Labels
    scope: Labels | None
    """The limit of the token that made it; None if that was not limited."""
    desired: Desired
    generation: int
    observed_generation: int
    revision: int
    version: int
    target: str | None
    state: str
    state_reason: str
    state_since: dt.datetime
    rows_in: int
    rows_out: int
    late: int
    dead: int
    filtered: int
    deleting_at: dt.datetime | None
    created_at: dt.datetime
    updated_at: dt.datetime


@dataclass(frozen=True)
class Version:
    """One version of a pipeline's file, word by word."""

    pipeline: str
    number: int
    kind: FileKind
    text: str
    checksum: str
    document: Mapping[str, Any]
    """The pipeline it describes, in the shape of a YAML file, so that nothing has to be run to know it."""
    created_at: dt.datetime
    created_by: str


@dataclass(frozen=True)
class Draft:
    """A pipeline file that is to become a version."""

    kind: FileKind
    text: str
    labels: Labels
    document: Mapping[str, Any] = field(default_factory=dict)


_pipeline = maker(Pipeline)
_version = maker(Version)


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# --- reading -----------------------------------------------------------------------------------------------


def find(connection: Connection, name: str) -> Pipeline | None:
    row = connection.execute(select(pipelines).where(pipelines.c.name == name)).mappings().first()
    return None if row is None else _pipeline(row)


def get(connection: Connection, name: str) -> Pipeline:
    """Raises PIPELINE_UNKNOWN."""
    found = find(connection, name)
    if found is None:
        raise PenstockError.of("PIPELINE_UNKNOWN", name=name)
    return found


def every(connection: Connection) -> list[Pipeline]:
    """All pipelines by name, for who supervises them."""
    return [_pipeline(row) for row in connection.execute(select(pipelines).order_by(pipelines.c.name)).mappings()]


def listed(
    connection: Connection,
    *,
    labels: Labels,
    scopes: Scopes = EVERYTHING,
    state: str | None = None,
    limit: int = 100,
    after: str | None = None,
) -> Page[Pipeline]:
    """Pipelines that have all these labels, and those of one of the scopes, by name."""
    query = select(pipelines).where(*has_labels(pipelines.c.labels, labels), *_in_scopes(scopes))
    if state is not None:
        query = query.where(pipelines.c.state == state)
    return page(connection, query, pipelines.c.name, _pipeline, limit=limit, after=after)


def within(column: ColumnElement[Any], scopes: Scopes) -> list[ColumnElement[bool]]:
    """The condition that a column names a pipeline with all labels of one of these; none if one of them is empty."""
    conditions = _in_scopes(scopes)
    return [column.in_(select(pipelines.c.name).where(*conditions))] if conditions else []


def _in_scopes(scopes: Scopes) -> list[ColumnElement[bool]]:
    if not all(scopes):
        return []
    return [or_(false(), *(and_(*has_labels(pipelines.c.labels, scope)) for scope in scopes))]


def version(connection: Connection, name: str, number: int) -> Version:
    """Raises NOT_FOUND."""
    condition = (versions.c.pipeline == name) & (versions.c.number == number)
    row = connection.execute(select(versions).where(condition)).mappings().first()
    if row is None:
        advice = f"`penstock describe {name}` lists its versions."
        raise PenstockError.of("NOT_FOUND", what=f"version of '{name}'", name=number, advice=advice)
    return _version(row)


def current_versions(connection: Connection) -> dict[str, Version]:
    """The version each pipeline is to run."""
    joined = versions.join(
        pipelines, (versions.c.pipeline == pipelines.c.name) & (versions.c.number == pipelines.c.version)
    )
    rows = connection.execute(select(versions).select_from(joined)).mappings()
    return {row["pipeline"]: _version(row) for row in rows}


def versions_of(connection: Connection, name: str, *, limit: int = 100, after: int | None = None) -> Page[Version]:
    """Newest first."""
    query = select(versions).where(versions.c.pipeline == name)
    return page(connection, query, versions.c.number, _version, limit=limit, after=after, newest_first=True)


# --- changing ----------------------------------------------------------------------------------------------


def create(
    connection: Connection,
    name: str,
    draft: Draft,
    *,
    now: dt.datetime,
    by: str,
    desired: Desired = "running",
    target: str | None = None,
    scope: Labels | None = None,
) -> Pipeline:
    """A new pipeline with its first version; raises STALE_REVISION if someone has just made it."""
    first = {
        "name": name, "labels": dict(draft.labels), "scope": dict(scope) if scope else None,
        "desired": desired, "generation": 1, "observed_generation": 0,
        "revision": 1, "version": 1, "target": target, "state": "STOPPED", "state_reason": "it was just registered",
        "state_since": now, "created_at": now, "updated_at": now,
    }  # fmt: skip
    try:
        with connection.begin_nested():
            connection.execute(insert(pipelines).values(first))
    except IntegrityError:
        raise PenstockError.of("STALE_REVISION", name=name, found=1, expected="none") from None
    _keep(connection, name, 1, draft, now, by)
    return get(connection, name)


def upgrade(
    connection: Connection,
    name: str,
    draft: Draft,
    *,
    revision: int,
    now: dt.datetime,
    by: str,
    desired: Desired | None = None,
    target: str | None = None,
) -> Pipeline:
    """A further version, which becomes the one to run; a pipeline about to be deleted stays."""
    highest = select(func.coalesce(func.max(versions.c.number), 0)).where(versions.c.pipeline == name)
    number = connection.execute(highest).scalar_one() + 1
    values: dict[str, Any] = {"version": number, "labels": dict(draft.labels), "deleting_at": None}
    values |= {} if desired is None else {"desired": desired}
    values |= {} if target is None else {"target": target}
    changed = _change(connection, name, revision, now, **values)
    _keep(connection, name, number, draft, now, by)
    return changed


def keep_version(connection: Connection, name: str, draft: Draft, *, now: dt.datetime, by: str) -> int:
    """A version that is not yet the one to run; its number. The same once more has the number that it had."""
    query = select(versions).where(versions.c.pipeline == name).order_by(versions.c.number.desc()).limit(1)
    last = connection.execute(query).mappings().one()
    if (last["kind"], last["text"]) == (draft.kind, draft.text):
        return int(last["number"])
    _keep(connection, name, last["number"] + 1, draft, now, by)
    return int(last["number"]) + 1


def steer(
    connection: Connection,
    name: str,
    *,
    revision: int,
    now: dt.datetime,
    desired: Desired,
    target: str | None = None,
    version: int | None = None,
) -> Pipeline:
    """Starts or stops it. To start what should run already asks the supervisor to try once more."""
    values: dict[str, Any] = {"desired": desired, "deleting_at": None}
    values |= {} if target is None else {"target": target}
    values |= {} if version is None else {"version": version}
    return _change(connection, name, revision, now, **values)


def steer_anew(connection: Connection, name: str, steered: Steered, *, now: dt.datetime) -> None:
    """What the supervisor itself lets be otherwise, whatever revision that is of; a pipeline that is gone stays so."""
    found = find(connection, name)
    if found is not None:
        values: dict[str, Any] = {} if steered.desired is None else {"desired": steered.desired}
        values |= {} if steered.version is None else {"version": steered.version}
        _change(connection, name, found.revision, now, **values)


def mark_for_deletion(connection: Connection, name: str, *, revision: int, now: dt.datetime) -> Pipeline:
    """It is stopped, and forgotten when it has ended."""
    return _change(connection, name, revision, now, desired="stopped", deleting_at=now)


def ended_and_deleted(connection: Connection) -> list[str]:
    """The pipelines marked for deletion that no run and no operation belongs to any more."""
    running = exists().where(runs.c.pipeline == pipelines.c.name, runs.c.ended_at.is_(None))
    changing = exists().where(operations.c.pipeline == pipelines.c.name, operations.c.ended_at.is_(None))
    query = select(pipelines.c.name).where(pipelines.c.deleting_at.is_not(None), ~running, ~changing)
    return list(connection.execute(query).scalars())


def forget(connection: Connection, name: str) -> None:
    """Removes a pipeline with all its history; the audit log still knows of it."""
    connection.execute(delete(pipelines).where(pipelines.c.name == name))


def observe(
    connection: Connection,
    changes: Mapping[str, StateChange],
    *,
    default_target: str,
    defaults: Mapping[str, str] | None = None,
) -> None:
    """Notes what the supervisor has seen, the generation it has acted on, and where it has put each pipeline.

    Where someone has asked for another target meanwhile, that stays. `defaults` are the targets of pipelines that name
    none, where they have others than the default one.
    """
    if not changes:
        return
    state, at, generation, target, default = (
        bindparam(name, type_=kind)
        for name, kind in (
            ("now_state", String),
            ("now_at", UtcTime),
            ("now_generation", Integer),
            ("now_target", NAME),
            ("now_default", NAME),
        )
    )
    moved = (pipelines.c.generation == generation) & (func.coalesce(pipelines.c.target, default) != target)
    noted = update(pipelines).where(pipelines.c.name == bindparam("of")).values(
        state=state,
        state_reason=bindparam("now_reason"),
        state_since=case((pipelines.c.state == state, pipelines.c.state_since), else_=at),
        observed_generation=generation,
        target=case((moved, target), else_=pipelines.c.target),
    )  # fmt: skip
    rows = [
        {
            "of": name, "now_state": change.state, "now_reason": change.reason, "now_at": change.at,
            "now_generation": change.observed_generation, "now_target": change.target,
            "now_default": (defaults or {}).get(name, default_target),
        }
        for name, change in changes.items()
    ]  # fmt: skip
    connection.execute(noted, rows)


def _change(connection: Connection, name: str, revision: int, now: dt.datetime, **values: Any) -> Pipeline:
    changed = connection.execute(
        update(pipelines)
        .where(pipelines.c.name == name, pipelines.c.revision == revision)
        .values(**values, revision=pipelines.c.revision + 1, generation=pipelines.c.generation + 1, updated_at=now)
    )
    found = get(connection, name)
    if changed.rowcount != 1:
        raise PenstockError.of("STALE_REVISION", name=name, found=found.revision, expected=revision)
    return found


def _keep(connection: Connection, name: str, number: int, draft: Draft, now: dt.datetime, by: str) -> None:
    values: dict[str, Any] = {"pipeline": name, "number": number, "kind": draft.kind, "text": draft.text}
    values |= {"checksum": checksum(draft.text), "document": dict(draft.document), "created_at": now, "created_by": by}
    connection.execute(insert(versions).values(values))
