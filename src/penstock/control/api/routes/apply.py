"""Desired state: files are checked, compared with what is there, and made so."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from penstock.control.api.answers import Answer
from penstock.control.api.asked import ApplyRequest, PlanRequest, ValidateRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.api.problems import ProblemItem
from penstock.control.api.routes.pipelines import may_use_target
from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant, Role
from penstock.control.desired import Action, Plan, Wish, carry_out, look, plan, refuse_losses
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


@router.guarded(Role.AUTHOR, "POST", "/validate")
def validate_files(services: ServicesOf, grant: Caller, asked: ValidateRequest) -> ValidAnswer:
    """Checks files without doing anything with them."""
    checked = _checked(services, grant, asked)
    warnings = [ProblemItem(**problem.as_dict()) for file in checked for problem in file.warnings]
    return ValidAnswer(names=[file.pipeline.name for file in checked], warnings=warnings)


@router.guarded(Role.AUTHOR, "POST", "/plan")
def plan_files(services: ServicesOf, grant: Caller, asked: PlanRequest) -> PlanAnswer:
    """What `apply` would do with the same request."""
    checked = _checked(services, grant, asked)
    with services.store.reading() as connection:
        found = plan(look(connection), checked, _wish(services, grant, asked), grant, services.state_facts)
    _may_place(services, grant, found)
    return shown(found)


@router.guarded(Role.AUTHOR, "POST", "/apply")
def apply_files(services: ServicesOf, grant: Caller, asked: ApplyRequest) -> PlanAnswer:
    """Makes it so: all of it, or nothing."""
    checked = _checked(services, grant, asked)
    wish, now = _wish(services, grant, asked), services.now()
    with services.store.writing() as connection:
        found = plan(look(connection), checked, wish, grant, services.state_facts)
        _may_place(services, grant, found)
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
    return check_all(files, services.policy, grant.role)


def _wish(services: Services, grant: Grant, asked: PlanRequest) -> Wish:
    may_use_target(services, grant, asked.target)
    return Wish(asked.absent, asked.selector, asked.start, asked.target, tuple(asked.lose))


def _may_place(services: Services, grant: Grant, found: Plan) -> None:
    """A pipeline that names no target goes to the default one, which may take a higher role too."""
    if any(step.action is Action.CREATE and step.target is None for step in found.steps):
        may_use_target(services, grant, services.config.default_target)


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
