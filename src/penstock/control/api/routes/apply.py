"""Desired state: files are checked, compared with what is there, and made so."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from sqlalchemy import Connection

from penstock.control.api.answers import Answer
from penstock.control.api.asked import ApplyRequest, PlanRequest, ValidateRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.api.problems import ProblemItem
from penstock.control.api.queues import Kind
from penstock.control.api.routes.pipelines import may_use_target
from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant, Role
from penstock.control.desired import Action, Plan, Wish, carry_out, look, plan, refuse_losses
from penstock.control.placing import refuse_moves, refuse_over_quota
from penstock.control.submitted import Checked, Submitted, check_all
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1", tags=["apply"])


class ChangeAnswer(Answer):
    path: str
    before: Any
    after: Any
    cost: str
    reason: str = Field(description="Why it costs that.")
    node: str | None = Field(description="The source or step whose state begins anew or is given up.")


class StepAnswer(Answer):
    """What is to be done, or was done, with one pipeline."""

    action: Action
    name: str
    reason: str
    cost: str
    changes: list[ChangeAnswer]
    flow: list[str] = Field(description="How rows flow, with + and - before lines that come and go; empty if it stays.")
    stages: list[str] = Field(description="What it consists of, in order: stop, savepoint, rescale, graft, start.")
    loses: list[str] = Field(description="Whose state is given up; `apply` needs them in `lose`.")
    warnings: list[ProblemItem]


class PlanAnswer(Answer):
    changes: bool
    checksum: str
    steps: list[StepAnswer]


class ValidAnswer(Answer):
    """Files that are sound."""

    names: list[str]
    warnings: list[ProblemItem]


@router.guarded(Role.AUTHOR, "POST", "/validate", kind=Kind.FILES)
def validate_files(services: ServicesOf, grant: Caller, asked: ValidateRequest) -> ValidAnswer:
    """Checks files without doing anything with them."""
    checked = _checked(services, grant, asked)
    warnings = [ProblemItem(**problem.as_dict()) for file in checked for problem in file.warnings]
    return ValidAnswer(names=[file.pipeline.name for file in checked], warnings=warnings)


@router.guarded(Role.AUTHOR, "POST", "/plan", kind=Kind.FILES)
def plan_files(services: ServicesOf, grant: Caller, asked: PlanRequest) -> PlanAnswer:
    """What `apply` would do with the same request."""
    checked = _checked(services, grant, asked)
    with services.store.reading() as connection:
        found = _planned(services, connection, grant, checked, _wish(asked))
    return shown(found)


@router.guarded(Role.AUTHOR, "POST", "/apply", kind=Kind.FILES)
def apply_files(services: ServicesOf, grant: Caller, asked: ApplyRequest) -> PlanAnswer:
    """Makes it so: all of it, or nothing."""
    checked = _checked(services, grant, asked)
    wish, now = _wish(asked), services.now()
    with services.store.writing() as connection:
        found = _planned(services, connection, grant, checked, wish)
        if asked.plan is not None and asked.plan != found.checksum:
            reason = "what would be done now is not what was planned"
            raise PenstockError.of("REFUSED", reason=reason, advice="Look at the plan again.")
        refuse_losses(found, wish.lose)
        changed = carry_out(connection, found, grant, now)
    if changed:
        services.wake()
    return shown(found)


def _checked(services: Services, grant: Grant, asked: ValidateRequest) -> list[Checked]:
    files = (Submitted(file.path, file.text) for file in asked.files)
    return check_all(files, services.rules(grant), grant.highest)


def _wish(asked: PlanRequest) -> Wish:
    return Wish(asked.absent, asked.selector, asked.start, asked.target, tuple(asked.lose))


def _planned(services: Services, connection: Connection, grant: Grant, checked: list[Checked], wish: Wish) -> Plan:
    """The plan; raises whatever keeps it from being carried out."""
    existing = look(connection)
    found = plan(existing, checked, wish, grant, services.state_facts)
    refuse_moves(services.projects, existing, checked, grant, lambda name: services.folder.state(name).is_dir())
    refuse_over_quota(services.projects, existing, found, services.disk_use)
    for file in checked:
        # A pipeline that names no target goes to the default one, which may take a higher role too.
        if file.project is not None and (wish.target is not None or file.pipeline.name not in existing):
            role = grant.role_for(file.pipeline.labels)
            may_use_target(services, grant, role, file.project, wish.target)
    return found


def shown(found: Plan) -> PlanAnswer:
    steps = [
        StepAnswer(
            action=step.action,
            name=step.name,
            reason=step.reason,
            cost=str(step.cost),
            changes=[
                ChangeAnswer(
                    path=each.path,
                    before=each.before,
                    after=each.after,
                    cost=str(each.cost),
                    reason=each.reason,
                    node=each.node,
                )
                for each in step.differences
            ],
            flow=list(step.flow),
            stages=[str(stage) for stage in step.stages],
            loses=list(step.loses),
            warnings=[ProblemItem(**problem.as_dict()) for problem in (step.file.warnings if step.file else ())],
        )
        for step in found.steps
    ]
    return PlanAnswer(changes=found.changes, checksum=found.checksum, steps=steps)
