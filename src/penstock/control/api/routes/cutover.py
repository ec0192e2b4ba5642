"""Cut-overs: a new version follows a pipeline that runs, is compared with it, and takes over or is given up."""

from __future__ import annotations

import datetime as dt
from pathlib import PurePosixPath
from typing import Any, Literal

from fastapi import Response
from pydantic import Field

from penstock.control.api.answers import Answer, OperationAnswer
from penstock.control.api.asked import CutoverRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, expected_revision, set_etag, visible
from penstock.control.api.queues import Kind
from penstock.control.api.routes.pipelines import IfMatch
from penstock.control.api.services import Services
from penstock.control.api.state import asked_of_state
from penstock.control.api.work import need_state, refuse_losses
from penstock.control.auth.roles import Grant, Role
from penstock.control.changing import changing
from penstock.control.desired import note, within_scope
from penstock.control.placing import refuse_full_disk, refuse_other_project
from penstock.control.store import operations, pipelines
from penstock.control.submitted import Submitted, check_file
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["cut-over"])


class CutoverAnswer(Answer):
    """A new version on its way to take over, and how far it is."""

    version: int = Field(description="The version that is to take over.")
    stage: Literal["preparing", "following"]
    started_at: dt.datetime
    savepoint: str = Field(description="The savepoint of the pipeline from which it has begun.")
    batch: int = Field(description="The batch of that savepoint.")
    kept: dict[str, int] = Field(description="Rows of state by step that it has gone on with.")
    begun: list[str] = Field(description="Steps whose state began empty.")
    stands: int = Field(description="The batch of the pipeline after which it stands.")
    committed: int = Field(description="The last batch of the pipeline.")
    behind: int
    following: bool = Field(description="Whether a process lets it follow now.")


@router.guarded(Role.VIEWER, "GET", "/{name}/cutover", kind=Kind.STATE)
def get_cutover(services: ServicesOf, grant: Caller, name: str) -> CutoverAnswer:
    """The cut-over that is under way."""
    return _under_way(services, grant, name)


@router.guarded(Role.AUTHOR, "POST", "/{name}/cutover", kind=Kind.FILES, status_code=202)
def start_cutover(
    services: ServicesOf, grant: Caller, name: str, asked: CutoverRequest | None = None
) -> OperationAnswer:
    """Lets a new version begin from a savepoint and follow, beside the pipeline and away from its sinks.

    The operation goes on until the cut-over is finished or given up.
    """
    now = services.now()
    with services.store.reading() as connection:
        found = visible(connection, grant, name)
        before = pipelines.version(connection, name, found.version)
    if asked is None:
        raise PenstockError.of("REQUEST_INVALID", reason="send the `file` of the new version")
    file = check_file(Submitted(asked.file.path, asked.file.text), services.rules(grant), grant.highest)
    if file.pipeline.name != name:
        reason = f"the file is of '{file.pipeline.name}', not of '{name}'"
        raise PenstockError.of("REQUEST_INVALID", reason=reason)
    within_scope(grant, name, file.pipeline.labels)
    project = services.project_of(found)
    refuse_other_project(project, services.projects.of(file.pipeline.labels, found.scope), file, name)
    refuse_full_disk(project, services.disk_use(project))
    need_state(services, name)
    refuse_losses(changing(before.document, file.graph, services.state_facts(name)), asked.lose)
    with services.store.writing() as connection:
        visible(connection, grant, name)
        number = pipelines.keep_version(connection, name, file.draft, now=now, by=grant.who)
        services.folder.write_version(name, number, file.kind, file.text)
        wanted = {"version": number, "fileKind": file.kind, "lose": asked.lose}
        done = operations.ask(connection, name, "cutover", wanted, now=now, by=grant.who)
        note(connection, grant, now, "pipeline.cutover", name, {"version": number, "lose": asked.lose})
    services.wake()
    return OperationAnswer.of(done)


@router.guarded(Role.OPERATOR, "POST", "/{name}/cutover/compare", kind=Kind.STATE, status_code=202)
def compare_cutover(services: ServicesOf, grant: Caller, name: str) -> OperationAnswer:
    """Compares what both versions have given out since the savepoint; `result.sinks` of the operation tells."""
    now, under_way = services.now(), _under_way(services, grant, name)
    with services.store.writing() as connection:
        visible(connection, grant, name)
        new = pipelines.version(connection, name, under_way.version)
        wanted = {"version": new.number, "fileKind": new.kind}
        done = operations.ask(connection, name, "compare", wanted, now=now, by=grant.who)
        note(connection, grant, now, "pipeline.cutover_compare", name, {"version": new.number})
    services.wake()
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "POST", "/{name}/cutover/finish", kind=Kind.STATE, status_code=202)
def finish_cutover(
    services: ServicesOf, grant: Caller, name: str, response: Response, if_match: IfMatch = None
) -> OperationAnswer:
    """Stops the pipeline after its batch, puts the new version in its place, and starts that.

    If it fails, the pipeline goes on in the version that it had.
    """
    now, under_way = services.now(), _under_way(services, grant, name)
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        revision = expected_revision(found, if_match)
        new = pipelines.version(connection, name, under_way.version)
        # Rules may have changed since, and who finishes it may be somebody else.
        check_file(Submitted(f"{name}.{new.kind}", new.text), services.rules(grant), grant.highest)
        wanted = {"version": new.number, "fileKind": new.kind}
        done = operations.ask(connection, name, "takeover", wanted, now=now, by=grant.who, back_to=found.version)
        changed = pipelines.steer(
            connection, name, revision=revision, now=now, desired=found.desired, version=new.number
        )
        note(connection, grant, now, "pipeline.cutover_finish", name, {"version": new.number})
    services.wake()
    set_etag(response, changed.revision)
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "DELETE", "/{name}/cutover", kind=Kind.STATE, status_code=202)
def abort_cutover(services: ServicesOf, grant: Caller, name: str) -> OperationAnswer:
    """Gives it up: all that was made for it goes, and the pipeline has not noticed."""
    now, under_way = services.now(), _under_way(services, grant, name)
    with services.store.writing() as connection:
        visible(connection, grant, name)
        operations.refuse_open(connection, name, but="cutover")
        done = operations.ask(connection, name, "abandon", {}, now=now, by=grant.who)
        note(connection, grant, now, "pipeline.cutover_abort", name, {"version": under_way.version})
    services.wake()
    return OperationAnswer.of(done)


def _under_way(services: Services, grant: Grant, name: str) -> CutoverAnswer:
    """Raises CUTOVER_UNKNOWN."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
    if not services.folder.state(name).is_dir():
        raise PenstockError.of("CUTOVER_UNKNOWN", name=name, path=f"pipelines/{name}/state")
    found: dict[str, Any] = asked_of_state(services, grant, name, "cutover")
    place = PurePosixPath(found.pop("file"))
    if not place.stem.isdecimal() or place.parent.name != "versions":
        reason = "it was begun by hand, beside the server"
        raise PenstockError.of("CUTOVER_REFUSED", reason=reason, advice="Finish it, or give it up, by hand too.")
    return CutoverAnswer.model_validate({"version": int(place.stem), **found})
