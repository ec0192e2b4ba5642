"""Tokens, the audit log, and who the caller is."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from penstock.control.api.answers import AfterName, AfterNumber, Answer, AuditAnswer, Limit, Listed, TokenAnswer, listed
from penstock.control.api.asked import TokenRequest, later
from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.api.services import Services
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import digest, new_token
from penstock.control.store import access
from penstock.errors import PenstockError

router = GuardedRouter(prefix="/api/v1", tags=["access"])


class NewToken(TokenAnswer):
    token: str


class AccessAnswer(Answer):
    role: Role
    scope: dict[str, str]


class WhoAmI(Answer):
    who: str
    role: Role = Field(description="The highest that the caller has.")
    scope: dict[str, str]
    meaning: str
    accesses: list[AccessAnswer] = Field(description="Every role, with the labels of the pipelines it is for.")


@router.guarded(Role.VIEWER, "GET", "/whoami")
def whoami(grant: Caller) -> WhoAmI:
    """Who the caller is, and what they may do."""
    scope = {} if grant.whole else dict(grant.scope)
    accesses = [AccessAnswer(role=each.role, scope=dict(each.scope)) for each in grant.accesses]
    return WhoAmI(who=grant.who, role=grant.highest, scope=scope, meaning=grant.highest.meaning, accesses=accesses)


@router.guarded(Role.ADMIN, "GET", "/tokens")
def list_tokens(
    services: ServicesOf, grant: Caller, limit: Limit = 100, after: AfterName = None
) -> Listed[TokenAnswer]:
    """All tokens, without their texts, which nobody knows."""
    grant.need_whole(to="manage tokens")
    with services.store.reading() as connection:
        page = access.listed_tokens(connection, limit=limit, after=after)
    return listed(page, TokenAnswer.model_validate)


@router.guarded(Role.ADMIN, "POST", "/tokens", status_code=201)
def add_token(services: ServicesOf, grant: Caller, asked: TokenRequest) -> NewToken:
    """Makes a token; its text is in this answer and nowhere else."""
    grant.need_whole(to="manage tokens")
    scope = _scope(services, asked)
    now, text = services.now(), new_token()
    expires = None if asked.lasts is None else later(now, asked.lasts)
    with services.store.writing() as connection:
        made = access.add_token(
            connection, asked.name, digest(text), role=asked.role, now=now, scope=scope, expires_at=expires
        )
        detail = {"name": asked.name, "role": str(asked.role), "scope": dict(scope)}
        access.add_audit(
            connection, now=now, who=grant.who, role=grant.role, action="token.create", what=made.id, detail=detail
        )
    return NewToken(**TokenAnswer.model_validate(made).model_dump(), token=text)


def _scope(services: Services, asked: TokenRequest) -> Mapping[str, str]:
    """Raises PROJECT_UNKNOWN, or REQUEST_INVALID if labels are given beside a project."""
    if asked.project is None:
        return asked.scope
    if asked.scope:
        raise PenstockError.of("REQUEST_INVALID", reason="give `scope` or `project`, not both", advice="")
    return services.projects.named(asked.project).labels


@router.guarded(Role.ADMIN, "DELETE", "/tokens/{token}")
def revoke_token(services: ServicesOf, grant: Caller, token: str) -> TokenAnswer:
    """From now on it opens nothing."""
    grant.need_whole(to="manage tokens")
    now = services.now()
    with services.store.writing() as connection:
        revoked = access.revoke_token(connection, token, now=now)
        if not access.has_admin(connection, now):
            reason = "it is the last token of an admin"
            raise PenstockError.of("REFUSED", reason=reason, advice="Make another one first.")
        access.add_audit(connection, now=now, who=grant.who, role=grant.role, action="token.revoke", what=token)
    services.doorman.forget()
    return TokenAnswer.model_validate(revoked)


@router.guarded(Role.ADMIN, "GET", "/audit")
def list_audit(
    services: ServicesOf, grant: Caller, of: str | None = None, limit: Limit = 100, after: AfterNumber = None
) -> Listed[AuditAnswer]:
    """Who changed what, the newest first."""
    grant.need_whole(to="read the audit log")
    with services.store.reading() as connection:
        page = access.listed_audit(connection, what=of, limit=limit, after=after)
    return listed(page, AuditAnswer.model_validate)
