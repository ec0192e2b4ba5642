"""Where pipelines run, and that a place will be taken away."""

from __future__ import annotations

import datetime as dt

from penstock.control.api.answers import Answer
from penstock.control.api.asked import ReclaimRequest
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.auth.roles import Role
from penstock.control.store import access, failover
from penstock.control.supervisor.ports import Notice

router = GuardedRouter(prefix="/api/v1/targets", tags=["targets"])


class NoticeAnswer(Answer):
    target: str
    heard_from: str
    at: dt.datetime
    deadline: dt.datetime | None


class TargetAnswer(Answer):
    name: str
    kind: str
    default: bool
    role: Role
    failover: list[str]
    notices: list[NoticeAnswer]


@router.guarded(Role.VIEWER, "GET", "")
def list_targets(services: ServicesOf, grant: Caller) -> list[TargetAnswer]:
    """The targets of the caller's projects in their order, with the notices that hold.

    Options of Spark are not shown: they may be private.
    """
    with services.store.reading() as connection:
        notices = failover.open_notices(connection)
    config, projects = services.config, services.projects.seen_by(grant)
    seen = {name for project in projects for name in project.targets}
    default = config.default_target if grant.whole else projects[0].default_target
    return [
        TargetAnswer(
            name=name,
            kind=target.master.partition("[")[0].partition(":")[0],
            default=name == default,
            role=target.role,
            failover=[other for other in config.supervised[name].failover if other in seen],
            notices=[NoticeAnswer.model_validate(item) for item in notices if item.target == name],
        )
        for name, target in config.targets.items()
        if name in seen
    ]


@router.guarded(Role.OPERATOR, "POST", "/{name}/reclaim", status_code=202)
def reclaim_target(services: ServicesOf, grant: Caller, name: str, asked: ReclaimRequest | None = None) -> NoticeAnswer:
    """Tells that a target will be taken away: its pipelines stop with a checkpoint and go on elsewhere."""
    grant.need_whole(to="take a target out of use")
    services.config.target(name)
    now = services.now()
    notice = Notice(name, "hook", now, None if asked is None else asked.deadline)
    with services.store.writing() as connection:
        access.add_audit(connection, now=now, who=grant.who, role=grant.role, action="target.reclaim", what=name)
    services.reclaim(notice)
    services.wake()
    return NoticeAnswer.model_validate(notice)


@router.guarded(Role.OPERATOR, "DELETE", "/{name}/reclaim", status_code=204)
def withdraw_reclaim(services: ServicesOf, grant: Caller, name: str) -> None:
    """Tells that a target stays after all."""
    grant.need_whole(to="put a target into use")
    services.config.target(name)
    now = services.now()
    with services.store.writing() as connection:
        access.add_audit(connection, now=now, who=grant.who, role=grant.role, action="target.withdraw", what=name)
    services.withdraw(name)
    services.wake()
