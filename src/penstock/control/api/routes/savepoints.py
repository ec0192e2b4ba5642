"""Savepoints of pipelines: taking, looking at, comparing and deleting them, and going back to them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from penstock.control.api.answers import (
    AfterNumber,
    Answer,
    Limit,
    Listed,
    OperationAnswer,
    PipelineAnswer,
    SavepointAnswer,
    listed,
)
from penstock.control.api.asked import ForkRequest, RestoreRequest, SavepointRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, expected_revision, set_etag, visible
from penstock.control.api.queues import Kind
from penstock.control.api.routes.pipelines import IfMatch, answered, may_use_target
from penstock.control.api.state import asked_of_state
from penstock.control.api.work import ask_for_savepoint, facts_of_savepoint, manifest, refuse_losses
from penstock.control.auth.roles import Role
from penstock.control.changing import changing
from penstock.control.desired import note, within_scope
from penstock.control.placing import refuse_full_disk, refuse_one_more, refuse_other_project
from penstock.control.store import operations, pipelines, savepoints
from penstock.control.submitted import Submitted, check_file
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["savepoints"])


class SavedSinkAnswer(Answer):
    name: str
    component: str


class SavepointDescription(SavepointAnswer):
    """A savepoint with all that it says of itself."""

    document: dict[str, Any] = Field(description="The pipeline as it was declared.")
    offsets: dict[str, Any] = Field(description="How far each source was read, as Spark has it.")
    state_of: dict[str, int] = Field(description="Bytes of state by step.")
    rows: dict[str, dict[str, int]] = Field(description="The ledger up to its batch, by what became of rows and where.")
    sinks: list[SavedSinkAnswer]
    files: int
    unfinished: bool = Field(description="Whether a further batch had been begun.")
    penstock: str
    spark: str


class PairAnswer(Answer):
    before: Any
    after: Any


class FieldAnswer(PairAnswer):
    path: str
    cost: str


class DiffAnswer(Answer):
    """What differs between two savepoints; batch and watermark are always told."""

    same_lineage: bool = Field(description="Whether one is an earlier or later moment of the other.")
    batch: PairAnswer
    watermark: PairAnswer
    offsets: dict[str, PairAnswer]
    state_bytes: dict[str, PairAnswer]
    totals: dict[str, dict[str, PairAnswer]]
    versions: dict[str, PairAnswer]
    spec: list[FieldAnswer]


class ForkAnswer(Answer):
    pipeline: PipelineAnswer
    operation: OperationAnswer


@router.guarded(Role.VIEWER, "GET", "/{name}/savepoints")
def list_savepoints(
    services: ServicesOf, grant: Caller, name: str, limit: Limit = 100, after: AfterNumber = None
) -> Listed[SavepointAnswer]:
    """Its savepoints, the newest first."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = savepoints.listed(connection, name, limit=limit, after=after)
    return listed(page, SavepointAnswer.model_validate)


@router.guarded(Role.OPERATOR, "POST", "/{name}/savepoints", status_code=202)
def take_savepoint(
    services: ServicesOf, grant: Caller, name: str, asked: SavepointRequest | None = None
) -> OperationAnswer:
    """Takes one: by its run, which goes on, or of its state if it does not run."""
    asked = asked or SavepointRequest()
    with services.store.writing() as connection:
        visible(connection, grant, name)
        done = ask_for_savepoint(services, connection, grant, name, asked.name, asked.note)
        note(connection, grant, services.now(), "pipeline.savepoint", name, asked.model_dump(exclude_none=True))
    services.wake()
    return OperationAnswer.of(done)


@router.guarded(Role.VIEWER, "GET", "/{name}/savepoints/{savepoint}")
def get_savepoint(services: ServicesOf, grant: Caller, name: str, savepoint: str) -> SavepointDescription:
    """One savepoint, and what it holds."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        known = savepoints.get(connection, name, savepoint)
    found = manifest(services, name, savepoint)
    totals = {what: dict(counts) for what, counts in vars(found.totals).items() if counts}
    return SavepointDescription(
        **vars(SavepointAnswer.model_validate(known)),
        document=dict(found.document),
        offsets=dict(found.offsets),
        state_of=found.state_of(),
        rows=totals,
        sinks=[SavedSinkAnswer(name=sink.name, component=sink.component) for sink in found.sinks],
        files=len(found.files),
        unfinished=found.unfinished,
        penstock=found.penstock,
        spark=found.spark,
    )


@router.guarded(Role.OPERATOR, "DELETE", "/{name}/savepoints/{savepoint}", kind=Kind.STATE)
def delete_savepoint(services: ServicesOf, grant: Caller, name: str, savepoint: str) -> SavepointAnswer:
    """Deletes it; what sinks kept for it goes when they are next looked at."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        known = savepoints.get(connection, name, savepoint)
        operations.refuse_use(connection, name, savepoint)
    asked_of_state(services, grant, name, "savepoint_delete", savepoint=savepoint)
    with services.store.writing() as connection:
        savepoints.forget(connection, name, savepoint)
        note(connection, grant, services.now(), "pipeline.savepoint_delete", name, {"savepoint": savepoint})
    return SavepointAnswer.model_validate(known)


@router.guarded(Role.OPERATOR, "POST", "/{name}/savepoints/{savepoint}/verify", status_code=202)
def verify_savepoint(services: ServicesOf, grant: Caller, name: str, savepoint: str) -> OperationAnswer:
    """Reads all of it and compares it with its checksums; `result.damages` of the operation says what is wrong."""
    now = services.now()
    with services.store.writing() as connection:
        visible(connection, grant, name)
        savepoints.get(connection, name, savepoint)
        wanted = {"savepoint": savepoint}
        done = operations.ask(connection, name, "verify", wanted, now=now, by=grant.who)
        note(connection, grant, now, "pipeline.savepoint_verify", name, wanted)
    services.wake()
    return OperationAnswer.of(done)


@router.guarded(Role.VIEWER, "GET", "/{name}/savepoints/{savepoint}/diff", kind=Kind.STATE)
def diff_savepoints(
    services: ServicesOf,
    grant: Caller,
    name: str,
    savepoint: str,
    against: Annotated[str | None, Query(max_length=100, description="The name of the other, later savepoint.")] = None,
) -> DiffAnswer:
    """What differs from this savepoint to another: offsets, watermark, state, rows and the pipeline itself."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        if against is None:
            raise PenstockError.of("REQUEST_INVALID", reason="say `against` which savepoint")
        for each in (savepoint, against):
            savepoints.get(connection, name, each)
    found = asked_of_state(services, grant, name, "savepoint_diff", savepoint=savepoint, against=against)
    return DiffAnswer.model_validate(found)


@router.guarded(Role.AUTHOR, "POST", "/{name}/savepoints/{savepoint}/restore", status_code=202)
def restore_savepoint(
    services: ServicesOf,
    grant: Caller,
    name: str,
    savepoint: str,
    response: Response,
    asked: RestoreRequest | None = None,
    if_match: IfMatch = None,
) -> OperationAnswer:
    """Lets it go back: it is stopped, its state and its sinks go back, and it goes on in the version it had then."""
    asked, now = asked or RestoreRequest(), services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        known = savepoints.get(connection, name, savepoint)
        revision = expected_revision(found, if_match)
        version = known.version or found.version
        wanted = {"savepoint": savepoint, "keepRows": asked.keep_rows, "version": version}
        back_to = found.version if version != found.version else None
        done = operations.ask(connection, name, "restore", wanted, now=now, by=grant.who, back_to=back_to)
        changed = pipelines.steer(connection, name, revision=revision, now=now, desired=found.desired, version=version)
        note(connection, grant, now, "pipeline.restore", name, wanted)
    services.wake()
    set_etag(response, changed.revision)
    return OperationAnswer.of(done)


@router.guarded(Role.AUTHOR, "POST", "/{name}/savepoints/{savepoint}/fork", kind=Kind.FILES, status_code=202)
def fork_savepoint(
    services: ServicesOf, grant: Caller, name: str, savepoint: str, asked: ForkRequest | None = None
) -> ForkAnswer:
    """Makes another pipeline that begins where the savepoint was, with sinks of its own."""
    now = services.now()
    with services.store.reading() as connection:
        source = visible(connection, grant, name)
        savepoints.get(connection, name, savepoint)
    if asked is None:
        raise PenstockError.of("REQUEST_INVALID", reason="send the `file` of the new pipeline")
    file = check_file(Submitted(asked.file.path, asked.file.text), services.rules(grant, source), grant.highest)
    new = file.pipeline.name
    within_scope(grant, new, file.pipeline.labels)
    project = services.project_of(source)
    refuse_other_project(project, services.projects.of(file.pipeline.labels, source.scope), file, new)
    may_use_target(services, grant, grant.role_for(file.pipeline.labels), project, asked.target)
    saved = manifest(services, name, savepoint)
    refuse_losses(changing(saved.document, file.graph, facts_of_savepoint(services, name, savepoint)), asked.lose)
    with services.store.writing() as connection:
        refuse_one_more(services.projects, project, pipelines.every(connection))
        refuse_full_disk(project, services.disk_use(project))
        if pipelines.find(connection, new) is not None:
            reason = f"there is a pipeline '{new}' already"
            raise PenstockError.of("REFUSED", reason=reason, advice="Give the new one a name of its own.")
        desired: pipelines.Desired = "running" if asked.start else "stopped"
        pipelines.create(
            connection, new, file.draft, now=now, by=grant.who, desired=desired, target=asked.target, scope=source.scope
        )
        wanted = {"savepoint": savepoint, "of": name, "lose": asked.lose}
        done = operations.ask(connection, new, "fork", wanted, now=now, by=grant.who)
        note(connection, grant, now, "pipeline.fork", new, wanted)
        made = pipelines.get(connection, new)
    services.wake()
    return ForkAnswer(pipeline=answered(services, made), operation=OperationAnswer.of(done))
