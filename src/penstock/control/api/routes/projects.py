"""Projects: which pipelines belong together, and how much of what they may take they do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.control.api.answers import Answer
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.api.services import Services
from penstock.control.auth.roles import Role
from penstock.control.projects import Project
from penstock.control.quotas import taken_by
from penstock.control.store import pipelines, runs

router = GuardedRouter(prefix="/api/v1", tags=["projects"])


class QuotaUse(Answer):
    used: int | None = Field(description="Null if it is not known; the disk is measured where it has a quota.")
    limit: int | None = Field(description="Null if there is none.")


class ProjectAnswer(Answer):
    """A project, and what its pipelines take; sizes are in bytes."""

    name: str
    kind: Literal["configured", "scope", "default"] = Field(
        description="`scope` are pipelines made with a limited token, `default` all others of no project."
    )
    labels: dict[str, str]
    targets: list[str]
    pipelines: QuotaUse
    cores: QuotaUse
    memory: QuotaUse
    disk: QuotaUse


@router.guarded(Role.VIEWER, "GET", "/projects")
def list_projects(services: ServicesOf, grant: Caller) -> list[ProjectAnswer]:
    """The projects in which the caller may see or do something, with what they use of their quotas."""
    with services.store.reading() as connection:
        known = pipelines.every(connection)
        running = {name for name, run in runs.latest(connection).items() if run.open}
    found = {project.id: project for project in services.projects.seen_by(grant)}
    members: dict[str, list[pipelines.Pipeline]] = {}
    for each in known:
        project = services.project_of(each)
        members.setdefault(project.id, []).append(each)
        if grant.whole:
            found.setdefault(project.id, project)
    return [_answer(services, project, members.get(project.id, []), running) for project in found.values()]


def _answer(
    services: Services, project: Project, members: list[pipelines.Pipeline], running: set[str]
) -> ProjectAnswer:
    quotas, targets = project.quotas, project.config.targets
    places = [each.target or project.default_target for each in members if each.name in running]
    taken = [taken_by(targets[place]) for place in places if place in targets]
    memory = [each.memory for each in taken]
    known = sum(each for each in memory if each is not None) if None not in memory else None
    return ProjectAnswer(
        name=project.name,
        kind=project.kind,
        labels=dict(project.labels),
        targets=list(project.targets),
        pipelines=QuotaUse(used=len(members), limit=quotas.pipelines),
        cores=QuotaUse(used=sum(each.cores or 0 for each in taken), limit=quotas.cores),
        memory=QuotaUse(used=known, limit=None if quotas.memory is None else quotas.memory.bytes),
        disk=QuotaUse(used=services.disk_use(project), limit=None if quotas.disk is None else quotas.disk.bytes),
    )
