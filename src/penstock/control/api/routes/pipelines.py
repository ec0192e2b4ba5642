"""Pipelines: what there is, and starting, stopping and deleting it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response

from penstock.control.api.answers import (
    AfterName,
    AfterNumber,
    Answer,
    EventAnswer,
    ExceptionAnswer,
    Limit,
    Listed,
    PipelineAnswer,
    RunAnswer,
    VersionAnswer,
    VersionText,
    listed,
    status_answer,
)
from penstock.control.api.asked import LabelQuery, StartRequest, StopRequest, labels_in
from penstock.control.api.guard import (
    Caller,
    GuardedRouter,
    ServicesOf,
    expected_revision,
    set_etag,
    visible,
)
from penstock.control.api.services import Services
from penstock.control.api.work import ask_for_savepoint, to_version
from penstock.control.auth.roles import Grant, Role, refuse_lesser
from penstock.control.desired import note
from penstock.control.projects import Project
from penstock.control.store import history, operations, pipelines, runs
from penstock.errors import PenstockError, did_you_mean

router = GuardedRouter(prefix="/api/v1/pipelines", tags=["pipelines"])
IfMatch = Annotated[str | None, Header(description="The `ETag` of what the caller has seen.")]


class Description(Answer):
    """A pipeline with all that belongs to it."""

    pipeline: PipelineAnswer
    document: dict[str, Any]
    versions: list[VersionAnswer]
    runs: list[RunAnswer]
    exceptions: list[ExceptionAnswer]
    events: list[EventAnswer]
    status: dict[str, Any] | None


def answered(services: Services, found: pipelines.Pipeline, response: Response | None = None) -> PipelineAnswer:
    if response is not None:
        set_etag(response, found.revision)
    target = services.project_of(found).default_target
    return PipelineAnswer.of(found, services.live().get(found.name), target)


@router.guarded(Role.VIEWER, "GET", "")
def list_pipelines(
    services: ServicesOf,
    grant: Caller,
    label: LabelQuery = None,
    state: str | None = None,
    limit: Limit = 100,
    after: AfterName = None,
) -> Listed[PipelineAnswer]:
    """All pipelines that the caller may see, by name."""
    with services.store.reading() as connection:
        page = pipelines.listed(
            connection, labels=labels_in(label), scopes=grant.scopes, state=state, limit=limit, after=after
        )
    live = services.live()
    return listed(
        page, lambda found: PipelineAnswer.of(found, live.get(found.name), services.project_of(found).default_target)
    )


@router.guarded(Role.VIEWER, "GET", "/{name}")
def get_pipeline(services: ServicesOf, grant: Caller, name: str, response: Response) -> PipelineAnswer:
    """One pipeline; its `ETag` goes into `If-Match` of what changes it."""
    with services.store.reading() as connection:
        found = visible(connection, grant, name)
    return answered(services, found, response)


@router.guarded(Role.VIEWER, "GET", "/{name}/description")
def describe_pipeline(services: ServicesOf, grant: Caller, name: str, response: Response) -> Description:
    """A pipeline with its versions, its latest runs, exceptions and events, and what its run reports."""
    with services.store.reading() as connection:
        found = visible(connection, grant, name)
        document = pipelines.version(connection, name, found.version).document
        versions = pipelines.versions_of(connection, name, limit=20).items
        latest = runs.listed(connection, pipeline=name, limit=10).items
        exceptions = history.exceptions_of(connection, pipeline=name, limit=10).items
        events = history.listed_events(connection, pipeline=name, limit=20).items
    live = services.live().get(name)
    return Description(
        pipeline=answered(services, found, response),
        document=dict(document),
        versions=[VersionAnswer.model_validate(item) for item in versions],
        runs=[RunAnswer.model_validate(item) for item in latest],
        exceptions=[ExceptionAnswer.model_validate(item) for item in exceptions],
        events=[EventAnswer.model_validate(item) for item in events],
        status=status_answer(live.status if live is not None else None),
    )


@router.guarded(Role.VIEWER, "GET", "/{name}/versions")
def list_versions(
    services: ServicesOf, grant: Caller, name: str, limit: Limit = 100, after: AfterNumber = None
) -> Listed[VersionAnswer]:
    """Every version of its file, the newest first."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        page = pipelines.versions_of(connection, name, limit=limit, after=after)
    return listed(page, VersionAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/{name}/versions/{number}")
def get_version(services: ServicesOf, grant: Caller, name: str, number: int) -> VersionText:
    """One version, word by word."""
    with services.store.reading() as connection:
        visible(connection, grant, name)
        return VersionText.model_validate(pipelines.version(connection, name, min(max(number, 0), 2**31 - 1)))


@router.guarded(Role.OPERATOR, "POST", "/{name}/start")
def start_pipeline(
    services: ServicesOf,
    grant: Caller,
    name: str,
    response: Response,
    asked: StartRequest | None = None,
    if_match: IfMatch = None,
) -> PipelineAnswer:
    """Lets it run; one that has failed is tried again."""
    asked = asked or StartRequest()
    now = services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        if asked.target is not None:
            role = grant.role_for(found.labels)
            may_use_target(services, grant, role, services.project_of(found), asked.target)
        revision = expected_revision(found, if_match)
        if asked.version not in (None, found.version):
            assert asked.version is not None
            to_version(services, connection, grant, found, asked.version, asked.lose)
        changed = pipelines.steer(
            connection,
            name,
            revision=revision,
            now=now,
            desired="running",
            target=asked.target,
            version=asked.version,
        )
        note(connection, grant, now, "pipeline.start", name, asked.model_dump(exclude_none=True))
    services.wake()
    return answered(services, changed, response)


@router.guarded(Role.OPERATOR, "POST", "/{name}/stop")
def stop_pipeline(
    services: ServicesOf,
    grant: Caller,
    name: str,
    response: Response,
    asked: StopRequest | None = None,
    if_match: IfMatch = None,
) -> PipelineAnswer:
    """Lets it finish its batch and stop; with a savepoint of what it is then, if that is asked for."""
    asked, now = asked or StopRequest(), services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        revision = expected_revision(found, if_match)
        if asked.savepoint:
            ask_for_savepoint(services, connection, grant, name, asked.name, asked.note)
        if found.desired == "running":
            found = pipelines.steer(connection, name, revision=revision, now=now, desired="stopped")
        if asked.savepoint or found.revision != revision:
            note(connection, grant, now, "pipeline.stop", name, {"savepoint": asked.savepoint})
    services.wake()
    return answered(services, found, response)


@router.guarded(Role.AUTHOR, "DELETE", "/{name}", status_code=202)
def delete_pipeline(
    services: ServicesOf, grant: Caller, name: str, response: Response, if_match: IfMatch = None
) -> PipelineAnswer:
    """Stops it, and forgets it once it has ended. Its files go to `deleted/` of the server; what it wrote stays."""
    now = services.now()
    with services.store.writing() as connection:
        found = visible(connection, grant, name)
        revision = expected_revision(found, if_match)
        if found.deleting_at is None:
            found = pipelines.mark_for_deletion(connection, name, revision=revision, now=now)
            operations.cancel_following(connection, name, grant.who)
            note(connection, grant, now, "pipeline.delete", name, {})
    services.wake()
    return answered(services, found, response)


def may_use_target(services: Services, grant: Grant, role: Role | None, project: Project, target: str | None) -> None:
    """Raises FORBIDDEN if the target takes a higher role, and TARGET_UNKNOWN or TARGET_NOT_ALLOWED.

    Without a target that of a pipeline of the project is meant that names none; `role` is that of the caller there.
    """
    if target is not None and not grant.whole and target not in project.targets:
        # What the targets of others are called is nobody's business.
        raise PenstockError.of("TARGET_UNKNOWN", name=target, suggestion=did_you_mean(target, project.targets))
    if target is not None:
        services.config.target(target)
    chosen = project.target(target)
    refuse_lesser(role, services.config.target(chosen).role, to=f"use target '{chosen}'")
