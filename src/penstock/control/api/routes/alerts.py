"""Alerts that fire or fired, and silences."""

from __future__ import annotations

from penstock.control.api.answers import (
    AfterNumber,
    AlertAnswer,
    Answer,
    Limit,
    Listed,
    NotificationAnswer,
    SilenceAnswer,
    listed,
)
from penstock.control.api.asked import SilenceRequest, later
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf, visible
from penstock.control.auth.roles import Grant, Role
from penstock.control.store import access, alerts
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1", tags=["alerts"])


class AlertDescription(Answer):
    alert: AlertAnswer
    notifications: list[NotificationAnswer]


@router.guarded(Role.VIEWER, "GET", "/alerts")
def list_alerts(
    services: ServicesOf,
    grant: Caller,
    pipeline: str | None = None,
    state: str | None = None,
    limit: Limit = 100,
    after: AfterNumber = None,
) -> Listed[AlertAnswer]:
    """Alerts, the newest first: `pending`, `firing` and `resolved`."""
    with services.store.reading() as connection:
        page = alerts.listed_alerts(
            connection, pipeline=pipeline, state=state, scopes=grant.scopes, limit=limit, after=after
        )
    return listed(page, AlertAnswer.model_validate)


@router.guarded(Role.VIEWER, "GET", "/alerts/{number}")
def get_alert(services: ServicesOf, grant: Caller, number: int) -> AlertDescription:
    """One alert, and who was told of it."""
    with services.store.reading() as connection:
        found = alerts.get_alert(connection, _number(number))
        try:
            visible(connection, grant, found.pipeline)
        except PenstockError:
            raise PenstockError.of("NOT_FOUND", what="alert", name=number) from None
        told = alerts.notifications_of(connection, found.id)
    return AlertDescription(
        alert=AlertAnswer.model_validate(found),
        notifications=[NotificationAnswer.model_validate(item) for item in told],
    )


@router.guarded(Role.VIEWER, "GET", "/silences")
def list_silences(
    services: ServicesOf, grant: Caller, limit: Limit = 100, after: AfterNumber = None
) -> Listed[SilenceAnswer]:
    """Silences, the newest first."""
    with services.store.reading() as connection:
        page = alerts.listed_silences(connection, scopes=grant.scopes, limit=limit, after=after)
    return listed(page, SilenceAnswer.model_validate)


@router.guarded(Role.OPERATOR, "POST", "/silences", status_code=201)
def add_silence(services: ServicesOf, grant: Caller, asked: SilenceRequest) -> SilenceAnswer:
    """For a while nobody is told of a pipeline's alerts, or of one of them; without a pipeline, of those of all."""
    now = services.now()
    if (asked.until is None) == (asked.lasts is None):
        raise PenstockError.of("REQUEST_INVALID", reason="a silence needs either `until` or `lasts`")
    until = asked.until if asked.until is not None else later(now, asked.lasts or "")
    if until <= now:
        raise PenstockError.of("REQUEST_INVALID", reason="a silence must end in the future")
    with services.store.writing() as connection:
        if asked.pipeline is None:
            grant.need_whole(to="silence all pipelines")
        else:
            visible(connection, grant, asked.pipeline)
        made = alerts.add_silence(
            connection, pipeline=asked.pipeline, rule=asked.rule, until=until, by=grant.who, why=asked.why, now=now
        )
        detail = {"pipeline": asked.pipeline, "rule": asked.rule, "until": until.isoformat(), "why": asked.why}
        access.add_audit(
            connection, now=now, who=grant.who, role=grant.role, action="silence.create", what=str(made.id),
            detail=detail,
        )  # fmt: skip
    return SilenceAnswer.model_validate(made)


@router.guarded(Role.OPERATOR, "DELETE", "/silences/{number}")
def end_silence(services: ServicesOf, grant: Caller, number: int) -> SilenceAnswer:
    """Ends a silence now."""
    now = services.now()
    with services.store.writing() as connection:
        found = alerts.get_silence(connection, _number(number))
        if found.pipeline is None:
            grant.need_whole(to="end a silence of all pipelines")
        elif not _sees(grant, services, found.pipeline):
            raise PenstockError.of("NOT_FOUND", what="silence", name=number)
        ended = alerts.end_silence(connection, found.id, now=now)
        access.add_audit(connection, now=now, who=grant.who, role=grant.role, action="silence.end", what=str(found.id))
    return SilenceAnswer.model_validate(ended)


def _sees(grant: Grant, services: ServicesOf, pipeline: str) -> bool:
    with services.store.reading() as connection:
        try:
            visible(connection, grant, pipeline)
        except PenstockError:
            return False
    return True


def _number(number: int) -> int:
    """What can be a number of a row."""
    return min(max(number, 0), 2**63 - 1)
