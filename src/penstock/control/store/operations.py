"""Operations: what was asked to be done to the state of pipelines, and what became of it."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, select, update

from penstock.control.store.pages import Page, page
from penstock.control.store.records import insert_or_replace, maker
from penstock.control.store.schema import operations
from penstock.control.supervisor.operations import needs_state
from penstock.control.supervisor.ports import Operation, OperationKind
from penstock.errors import PenstockError


@dataclass(frozen=True)
class StoredOperation(Operation):
    sequence: int = 0
    """Its number in the order in which operations were asked for."""


_operation = maker(Operation)
_stored = maker(StoredOperation)


def ask(
    connection: Connection,
    pipeline: str,
    kind: OperationKind,
    asked: Mapping[str, Any],
    *,
    now: dt.datetime,
    by: str,
    back_to: int | None = None,
) -> Operation:
    """Notes what is to be done; raises OPERATION_OPEN if something else changes the state already."""
    found = Operation(f"o{secrets.token_hex(6)}", pipeline, kind, now, by, dict(asked), back_to)
    if needs_state(found) or kind == "cutover":
        refuse_open(connection, pipeline, but="cutover" if kind == "takeover" else None)
    put(connection, [found])
    return found


def refuse_open(connection: Connection, pipeline: str, *, but: OperationKind | None = None) -> None:
    """Raises OPERATION_OPEN if the state of a pipeline is being changed or is to be, or a new version follows it."""
    for operation in open_ones(connection, pipeline):
        if operation.kind != but and (needs_state(operation) or operation.kind == "cutover"):
            raise _open(operation)


def refuse_use(connection: Connection, pipeline: str, savepoint: str) -> None:
    """Raises OPERATION_OPEN if something that has not ended needs a savepoint of a pipeline."""
    for operation in open_ones(connection):
        of = operation.asked.get("of", operation.pipeline)
        if (of, operation.asked.get("savepoint")) == (pipeline, savepoint):
            raise _open(operation)


def _open(operation: Operation) -> PenstockError:
    return PenstockError.of(
        "OPERATION_OPEN", name=operation.pipeline, kind=operation.kind, id=operation.id, by=operation.asked_by
    )


def put(connection: Connection, found: Iterable[Operation]) -> None:
    """Notes operations; what was known of them is replaced, but for who no longer wants them."""
    rows = [{**vars(item), "asked": dict(item.asked), "result": dict(item.result)} for item in found]
    for row in rows:
        del row["cancelled_by"]
    insert_or_replace(connection, operations, rows, key=("id",))


def cancel(connection: Connection, found: StoredOperation, by: str) -> StoredOperation:
    """Notes that somebody no longer wants it."""
    connection.execute(update(operations).where(operations.c.id == found.id).values(cancelled_by=by))
    return replace(found, cancelled_by=by)


def cancel_following(connection: Connection, pipeline: str, by: str) -> None:
    """Ends what lets a new version follow a pipeline, which by itself would never end."""
    condition = (operations.c.pipeline == pipeline) & (operations.c.kind == "cutover") & operations.c.ended_at.is_(None)
    connection.execute(update(operations).where(condition).values(cancelled_by=by))


def open_ones(connection: Connection, pipeline: str | None = None) -> list[Operation]:
    """Those that have not ended, in the order in which they were asked for."""
    query = select(operations).where(operations.c.ended_at.is_(None)).order_by(operations.c.sequence)
    if pipeline is not None:
        query = query.where(operations.c.pipeline == pipeline)
    return [_operation(row) for row in connection.execute(query).mappings()]


def get(connection: Connection, pipeline: str, operation: str) -> StoredOperation:
    """Raises NOT_FOUND."""
    condition = (operations.c.pipeline == pipeline) & (operations.c.id == operation)
    row = connection.execute(select(operations).where(condition)).mappings().first()
    if row is None:
        raise PenstockError.of("NOT_FOUND", what=f"operation of '{pipeline}'", name=operation)
    return _stored(row)


def listed(
    connection: Connection, pipeline: str, *, limit: int = 100, after: int | None = None
) -> Page[StoredOperation]:
    """Newest first."""
    query = select(operations).where(operations.c.pipeline == pipeline)
    return page(connection, query, operations.c.sequence, _stored, limit=limit, after=after, newest_first=True)
