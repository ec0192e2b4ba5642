"""Login of people: with a token that becomes a cookie, or by OpenID Connect."""

from __future__ import annotations

import datetime as dt
import hmac
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from penstock.control.api.answers import Answer
from penstock.control.api.asked import LoginRequest
from penstock.control.api.guard import COOKIE, Caller, GuardedRouter, ServicesOf, logged_in, refuse_if_too_often
from penstock.control.api.problems import RESPONSES
from penstock.control.api.services import Services
from penstock.control.auth.roles import Role
from penstock.control.auth.tokens import digest, new_token
from penstock.control.store import access
from penstock.errors import PenstockError

PREFIX = "/api/v1/login"
PUBLIC = frozenset({PREFIX, f"{PREFIX}/oidc", f"{PREFIX}/callback"})
_STATE = "penstock_login"
_SESSION = dt.timedelta(hours=8)

router = APIRouter(prefix="/api/v1", tags=["login"], responses=RESPONSES)
guarded = GuardedRouter(prefix="/api/v1", tags=["login"])


class LoginWays(Answer):
    oidc: bool = Field(description="Whether `login/oidc` leads to an issuer; a token opens always.")


@router.get("/login")
def ways(services: ServicesOf) -> LoginWays:
    """How people log in here."""
    return LoginWays(oidc=services.oidc is not None)


@router.post("/login")
def login(services: ServicesOf, request: Request, asked: LoginRequest) -> JSONResponse:
    """Keeps a token as a cookie that scripts cannot read. It ends with the token."""
    grant = logged_in(services, request, asked.token)
    response = JSONResponse({"who": grant.who, "role": str(grant.role)})
    _set_session(response, asked.token, _SESSION, services)
    return response


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
def begin(services: ServicesOf) -> RedirectResponse:
    """Sends the browser to the issuer."""
    settings = services.config.oidc
    if services.oidc is None or settings is None:
        raise PenstockError.of("NOT_FOUND", what="login by", name="OpenID Connect")
    address, state = services.oidc.begin(settings.redirect)
    response = RedirectResponse(address, 303)
    response.set_cookie(_STATE, state, max_age=600, path=PREFIX, secure=services.secure, httponly=True, samesite="lax")
    return response


@router.get("/login/callback", response_class=HTMLResponse)
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
    address = request.client.host if request.client else "unknown"
    refuse_if_too_often(services, address)
    begun = request.cookies.get(_STATE, "")
    if not state or not hmac.compare_digest(begun.encode(), state.encode()):
        services.attempts.note(address, services.now())
        raise PenstockError.of("UNAUTHENTICATED", reason="this login was not begun in this browser")
    try:
        identity = services.oidc.finish(state, code)
    except PenstockError:
        services.attempts.note(address, services.now())
        raise
    now, token = services.now(), new_token()
    lasts = dt.timedelta(milliseconds=settings.session.millis)
    with services.store.writing() as connection:
        made = access.add_token(
            connection, identity.who, digest(token), role=identity.role, now=now, expires_at=now + lasts, session=True
        )
        access.add_audit(connection, now=now, who=identity.who, role=identity.role, action="login", what=made.id)
    # The browser comes from another site, so a redirect would not carry the strict cookie; a page of our own does.
    response = HTMLResponse("<!doctype html><title>Penstock</title><p>Logged in.</p>", headers={"Refresh": "0; url=/"})
    _set_session(response, token, lasts, services)
    response.delete_cookie(_STATE, path=PREFIX)
    return response


def _set_session(response: Response, token: str, lasts: dt.timedelta, services: Services) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(lasts.total_seconds()),
        path="/",
        secure=services.secure,
        httponly=True,
        samesite="strict",
    )
