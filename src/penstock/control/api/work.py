"""Asks for work on the state of a pipeline, inside the transaction of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant, Role
from penstock.control.changing import Changing, changing
from penstock.control.store import operations, pipelines
from penstock.control.submitted import graph_of
from penstock.control.supervisor.ports import Operation
from penstock.errors import PenstockError, Problem
from penstock.reports.savepoints import MANIFEST, Savepoint, from_json, refuse_bad_name
from penstock.reports.state_folder import StateFacts


def ask_for_savepoint(
    services: Services, connection: Connection, grant: Grant, name: str, called: str | None, note: str
) -> Operation:
    """Raises SAVEPOINT_NAME, SAVEPOINT_EXISTS or STATE_MISSING."""
    if called is not None:
        refuse_bad_name(called)
        if services.folder.savepoint(name, called).exists():
            raise PenstockError.of("SAVEPOINT_EXISTS", name=called, path=f"a savepoint of '{name}'")
    need_state(services, name)
    asked: dict[str, Any] = {"name": called, "note": note}
    return operations.ask(connection, name, "savepoint", asked, now=services.now(), by=grant.who)


def need_state(services: Services, name: str) -> None:
    """Raises STATE_MISSING."""
    if not services.folder.state(name).is_dir():
        raise PenstockError.of("STATE_MISSING", name=name, path=f"pipelines/{name}/state")


def to_version(
    services: Services,
    connection: Connection,
    grant: Grant,
    found: pipelines.Pipeline,
    number: int,
    lose: Sequence[str],
) -> None:
    """Sees to it that the state is carried over to another version, if it has to be; raises NOT_FOUND."""
    version = pipelines.version(connection, found.name, number)
    operations.refuse_open(connection, found.name)
    policy = services.policies.of(services.project_of(found))
    after = graph_of(version, policy.folder)
    if after is None:
        return
    before = pipelines.version(connection, found.name, found.version)
    found_changes = changing(before.document, after, services.state_facts(found.name))
    refuse_losses(found_changes, lose)
    if found_changes.moves:
        carry_over(services, connection, grant, found, found_changes, lose)


def carry_over(
    services: Services,
    connection: Connection,
    grant: Grant,
    found: pipelines.Pipeline,
    changes: Changing,
    lose: Sequence[str],
) -> Operation:
    """Asks for the state to be carried over; if that fails, the pipeline goes on with the version it has."""
    grant.need(Role.AUTHOR, to="change the state of a pipeline", with_labels=found.labels)
    stages = changes.stages(runs=found.desired == "running", is_to_run=True)
    asked = {"stages": [str(stage) for stage in stages], "lose": list(lose)}
    return operations.ask(
        connection, found.name, changes.kind, asked, now=services.now(), by=grant.who, back_to=found.version
    )


def refuse_losses(changes: Changing, lose: Sequence[str]) -> None:
    """Raises CHANGE_LOSES_STATE for what nobody has said may be lost."""
    problems = [
        Problem("CHANGE_LOSES_STATE", {"node": change.node, "reason": change.reason})
        for change in changes.changes
        if change.node in changes.lost and change.node not in lose
    ]
    if problems:
        raise PenstockError(problems)


def manifest(services: Services, name: str, savepoint: str) -> Savepoint:
    """What a savepoint says of itself; raises SAVEPOINT_DAMAGED."""
    file = services.folder.savepoint(name, savepoint) / MANIFEST
    try:
        return from_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise PenstockError.of("SAVEPOINT_DAMAGED", path=savepoint, file=MANIFEST, reason=reason) from None


def facts_of_savepoint(services: Services, name: str, savepoint: str) -> StateFacts | None:
    """What is known of the state in a savepoint; None if an earlier Penstock has taken it."""
    found = manifest(services, name, savepoint)
    if found.version is None or found.partitions is None:
        return None
    return StateFacts(found.version, found.partitions)
