"""Login of people: with a token that becomes a cookie, or by OpenID Connect."""

from __future__ import annotations

import datetime as dt
import hmac
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from penstock.control.api.answers import Answer
from penstock.control.api.asked import LoginRequest
from penstock.control.api.guard import (
    COOKIE,
    Caller,
    GuardedRouter,
    OpenRoute,
    ServicesOf,
    address_of,
    bearer,
    logged_in,
    queued,
    refuse_if_too_often,
    refuse_other_sites,
)
from penstock.control.api.problems import RESPONSES
from penstock.control.api.queues import Kind
from penstock.control.api.services import Services
from penstock.control.auth.links import LASTS_SECONDS, is_loopback
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import digest, new_token
from penstock.control.store import access
from penstock.errors import PenstockError

PREFIX = "/api/v1/login"
PUBLIC = frozenset({PREFIX, f"{PREFIX}/oidc", f"{PREFIX}/callback"})
_STATE = "penstock_login"
_SESSION = dt.timedelta(hours=8)

router = APIRouter(prefix="/api/v1", tags=["login"], responses=RESPONSES, route_class=OpenRoute)
guarded = GuardedRouter(prefix="/api/v1", tags=["login"])


def in_queue(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Who is not logged in yet waits with others of that kind, and keeps nobody else waiting."""
    return queued(endpoint, Kind.LOGIN)


class LoginWays(Answer):
    oidc: bool = Field(description="Whether `login/oidc` leads to an issuer; a token opens always.")


@router.get("/login")
async def ways(services: ServicesOf) -> LoginWays:
    """How people log in here."""
    return LoginWays(oidc=services.oidc is not None)


@router.post("/login")
@in_queue
def login(services: ServicesOf, request: Request, asked: LoginRequest) -> JSONResponse:
    """Keeps a token as a cookie that scripts cannot read. It ends with the token."""
    refuse_other_sites(request)
    token = asked.token if asked.token is not None else _token_of(services, request, asked.code or "")
    grant = logged_in(services, request, token)
    response = JSONResponse({"who": grant.who, "role": str(grant.role)})
    _set_session(response, token, _SESSION, request, services)
    return response


def _token_of(services: Services, request: Request, code: str) -> str:
    """The token that a link stands for; a wrong code counts as a failed login."""
    address = address_of(request)
    token = services.links.take(code) if is_loopback(address) else None
    if token is None:
        refuse_if_too_often(services, address)
        services.attempts.note(address)
        raise PenstockError.of("UNAUTHENTICATED", reason="this link was used already, or is more than ten minutes old")
    return token


class LoginLink(Answer):
    path: str = Field(description="The path at this server that logs a browser in, once.")
    seconds: int = Field(description="How long it works.")


@guarded.guarded(Role.VIEWER, "POST", "/login/links", status_code=201)
def make_link(services: ServicesOf, request: Request, grant: Caller) -> LoginLink:
    """Makes a link that logs a browser on the machine of the server in, with the token that asks for it."""
    token, cookie = bearer(request)
    if cookie or grant.session or not is_loopback(address_of(request)):
        reason = "login links are made with a token, on the machine of the server"
        raise PenstockError.of("FORBIDDEN", reason=reason, advice="Open the console and log in with a token.")
    with services.store.writing() as connection:
        access.add_audit(
            connection, now=services.now(), who=grant.who, role=grant.role, action="login.link", what=grant.token or ""
        )
    return LoginLink(path=services.links.make(token), seconds=LASTS_SECONDS)


@guarded.guarded(Role.VIEWER, "POST", "/logout", status_code=204)
def logout(services: ServicesOf, grant: Caller) -> Response:
    """Forgets the cookie; a session of OpenID Connect ends."""
    if grant.session and grant.token is not None:
        with services.store.writing() as connection:
            access.revoke_token(connection, grant.token, now=services.now())
        services.doorman.forget()
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/")
    return response


@router.get("/login/oidc", status_code=303, response_class=RedirectResponse)
@in_queue
def begin(services: ServicesOf, request: Request) -> RedirectResponse:
    """Sends the browser to the issuer."""
    settings = services.config.oidc
    if services.oidc is None or settings is None:
        raise PenstockError.of("NOT_FOUND", what="login by", name="OpenID Connect")
    address, state = services.oidc.begin(settings.redirect)
    response = RedirectResponse(address, 303)
    response.set_cookie(
        _STATE, state, max_age=600, path=PREFIX, secure=_secure(request, services), httponly=True, samesite="lax"
    )
    return response


@router.get("/login/callback", response_class=HTMLResponse)
@in_queue
def finish(
    services: ServicesOf,
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> HTMLResponse:
    """Takes the browser back from the issuer."""
    settings = services.config.oidc
    if services.oidc is None or settings is None:
        raise PenstockError.of("NOT_FOUND", what="login by", name="OpenID Connect")
    address = address_of(request)
    begun = request.cookies.get(_STATE, "")
    # Only what was not begun here counts as a failure: others behind the same address must not lock a person out.
    if not hmac.compare_digest(begun.encode(), state.encode()) or not services.oidc.has_begun(state):
        refuse_if_too_often(services, address)
        services.attempts.note(address)
        raise PenstockError.of("UNAUTHENTICATED", reason="this login was not begun in this browser")
    identity = services.oidc.finish(state, code)
    now, token = services.now(), new_token()
    lasts = dt.timedelta(milliseconds=settings.session.millis)
    first = identity.accesses[0]
    with services.store.writing() as connection:
        made = access.add_token(
            connection,
            identity.who,
            digest(token),
            role=first.role,
            scope=first.scope,
            groups=identity.groups,
            now=now,
            expires_at=now + lasts,
            session=True,
        )
        access.add_audit(
            connection,
            now=now,
            who=identity.who,
            role=identity.role,
            action="login",
            what=made.id,
            detail={"from": address},
        )
    # The browser comes from another site, so a redirect would not carry the strict cookie; a page of our own does.
    response = HTMLResponse("<!doctype html><title>Penstock</title><p>Logged in.</p>", headers={"Refresh": "0; url=/"})
    _set_session(response, token, lasts, request, services)
    response.delete_cookie(_STATE, path=PREFIX)
    return response


def _set_session(response: Response, token: str, lasts: dt.timedelta, request: Request, services: Services) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(lasts.total_seconds()),
        path="/",
        secure=_secure(request, services),
        httponly=True,
        samesite="strict",
    )


def _secure(request: Request, services: Services) -> bool:
    """Whether the browser speaks TLS with the server, or with a proxy that the server trusts."""
    return services.secure or request.url.scheme == "https"
