"""Sees to it that what is applied stays in its project: none changes it unnoticed, and none goes beyond its quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from penstock.control.auth.roles import Grant
from penstock.control.desired import Action, Existing, Plan
from penstock.control.projects import Project, Projects, may_change
from penstock.control.store.pipelines import Pipeline
from penstock.control.submitted import Checked
from penstock.errors import PenstockError
from penstock.spec.units import Size

DiskUse = Callable[[Project], int | None]
"""The bytes that a project takes on the disk; None if that is not known, or does not count."""


def refuse_moves(
    projects: Projects,
    existing: Mapping[str, Existing],
    checked: Iterable[Checked],
    grant: Grant,
    has_state: Callable[[str], bool],
) -> None:
    """Raises PROJECT_CHANGE_REFUSED for a pipeline that would take rows from one project to another.

    One that has not run yet may move if its sender may change both projects; else FORBIDDEN is raised.
    """
    for file in checked:
        known = existing.get(file.pipeline.name)
        after = file.project
        if known is None or after is None:
            continue
        name, before = known.pipeline.name, projects.of(known.pipeline.labels, known.pipeline.scope)
        if projects.of(file.pipeline.labels, known.pipeline.scope).id != after.id:
            reason = f"somebody else has made '{name}' meanwhile"
            raise PenstockError.of("REFUSED", reason=reason, advice="Look at it, and try again.")
        if before.id == after.id:
            continue
        if not any(may_change(access, before) for access in grant.accesses):
            reason = f"'{name}' belongs to {before}, which your token does not open"
            raise PenstockError.of("FORBIDDEN", reason=reason, advice="")
        if has_state(name):
            reason = f"it has run, and its state holds rows of {before}"
            raise PenstockError.of("PROJECT_CHANGE_REFUSED", name=name, before=before, after=after, reason=reason)


def refuse_over_quota(
    projects: Projects, existing: Mapping[str, Existing], plan: Plan, disk_use: DiskUse = lambda _: None
) -> None:
    """Raises QUOTA_EXCEEDED if a project would have more pipelines than it may, or its disk is full."""
    before = {name: projects.of(item.pipeline.labels, item.pipeline.scope) for name, item in existing.items()}
    now = dict(before)
    now |= {step.name: step.file.project for step in plan.steps if step.file is not None and step.file.project}
    had, has = (Counter(project.id for project in each.values()) for each in (before, now))
    for project in {project.id: project for project in now.values()}.values():
        limit = project.quotas.pipelines
        if limit is not None and has[project.id] > max(limit, had[project.id]):
            wanted = f"it has {had[project.id]} and this would make {has[project.id]}"
            raise _over(project, "pipelines", f"{limit} pipelines", wanted)
    runs_on = (Action.CREATE, Action.UPGRADE, Action.START)
    grown = {now[step.name].id: now[step.name] for step in plan.steps if step.action in runs_on and step.name in now}
    for project in grown.values():
        refuse_full_disk(project, disk_use(project))


def refuse_other_project(project: Project, other: Project, file: Checked, name: str) -> None:
    """Raises PROJECT_CHANGE_REFUSED unless a file that takes state over belongs to the project that the state is of."""
    for each in (other, file.project or other):
        if each.id != project.id:
            reason = f"it would begin with state that holds rows of {project}"
            raise PenstockError.of("PROJECT_CHANGE_REFUSED", name=name, before=project, after=each, reason=reason)


def refuse_one_more(projects: Projects, project: Project, known: Iterable[Pipeline]) -> None:
    """Raises QUOTA_EXCEEDED if a project has as many pipelines as it may have."""
    limit = project.quotas.pipelines
    has = sum(projects.of(each.labels, each.scope).id == project.id for each in known)
    if limit is not None and has >= limit:
        wanted = f"it has {has} and this would make {has + 1}"
        raise _over(project, "pipelines", f"{limit} pipelines", wanted)


def refuse_full_disk(project: Project, used: int | None) -> None:
    """Raises QUOTA_EXCEEDED."""
    limit = project.quotas.disk
    if limit is not None and used is not None and used > limit.bytes:
        raise _over(project, "disk", f"{limit} of the disk", f"it uses {_size(used)}")


def _over(project: Project, quota: str, limit: str, wanted: str) -> PenstockError:
    return PenstockError.of("QUOTA_EXCEEDED", project=project, quota=quota, limit=limit, wanted=wanted)


def _size(count: int) -> str:
    """In the largest unit of which there is one at least."""
    for unit in (1024**4, 1024**3, 1024**2, 1024):
        if count >= unit:
            return str(Size(count // unit * unit))
    return str(Size(count))
