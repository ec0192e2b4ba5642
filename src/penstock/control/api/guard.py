"""Who asks, and whether they may. Every route names the role it takes; one that does not cannot be added."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from penstock.control.api.problems import RESPONSES
from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant, Role
from penstock.control.store import pipelines
from penstock.errors import PenstockError

COOKIE = "penstock_session"
_SAFE = ("GET", "HEAD", "OPTIONS")


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


# These two wait for nothing; were they not async, each would take a turn of a thread.
async def _services(request: Request) -> Services:
    return services_of(request)


async def _caller(request: Request) -> Grant:
    found: Grant = request.state.grant
    return found


ServicesOf = Annotated[Services, Depends(_services)]
Caller = Annotated[Grant, Depends(_caller)]


def bearer(request: Request) -> tuple[str, bool]:
    """The token of a request, and whether it came as a cookie."""
    header = request.headers.get("Authorization")
    if header is not None:
        kind, _, token = header.partition(" ")
        return (token.strip(), False) if kind.lower() == "bearer" else ("", False)
    return request.cookies.get(COOKIE, ""), True


def identified(request: Request, services: Services) -> Grant:
    """Who asks; raises UNAUTHENTICATED, or TOO_MANY_ATTEMPTS for an address that has failed too often."""
    token, cookie = bearer(request)
    if not token:
        raise PenstockError.of("UNAUTHENTICATED", reason="this needs a token")
    grant = services.doorman.recognise(token, services.now()) or logged_in(services, request, token)
    if cookie and request.method not in _SAFE and not _same_origin(request):
        raise PenstockError.of("FORBIDDEN", reason="the request comes from another site")
    return grant


def logged_in(services: Services, request: Request, token: str) -> Grant:
    """Who a token belongs to. Failures are counted by address; a token that is right always opens."""
    address = request.client.host if request.client else "unknown"
    now = services.now()
    try:
        return services.doorman.authenticate(token, now)
    except PenstockError as error:
        if error.code == "UNAUTHENTICATED":
            refuse_if_too_often(services, address)
            services.attempts.note(address, now)
        raise


def refuse_if_too_often(services: Services, address: str) -> None:
    wait = services.attempts.wait(address, services.now())
    if wait:
        raise PenstockError.of("TOO_MANY_ATTEMPTS", seconds=wait)


def _same_origin(request: Request) -> bool:
    """Browsers say where a request comes from; one that does not say so is no browser of today."""
    origin = request.headers.get("Origin")
    if origin is None:
        return request.headers.get("Sec-Fetch-Site") in ("same-origin", "none")
    return urlsplit(origin).netloc == request.headers.get("Host")


class GuardedRoute(APIRoute):
    """A route that asks who calls before it looks at anything else of the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            services = services_of(request)
            if services.doorman.recognise(bearer(request)[0], services.now()) is not None:
                grant = identified(request, services)  # It is known, so this asks nobody.
            else:
                grant = await run_in_threadpool(identified, request, services)
            role = role_of(self)
            if role is None:
                raise PenstockError.of("FORBIDDEN", reason="nobody may do this")
            grant.need(role)
            request.state.grant = grant
            return await handle(request)

        return guarded


class GuardedRouter(APIRouter):
    """A router whose routes all need a role, which its first argument names."""

    def __init__(self, **more: Any) -> None:
        super().__init__(route_class=GuardedRoute, **more)

    def guarded(self, role: Role, method: str, path: str, **more: Any) -> Callable[[Callable[..., Any]], Any]:
        """Adds a route for those who have the role."""

        def add(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            self.add_api_route(
                path,
                _written(endpoint, more.get("status_code", 200)),
                methods=[method],
                responses={**RESPONSES, **more.pop("responses", {})},
                openapi_extra={"x-role": str(role), "security": [{"token": []}]},
                **more,
            )
            return endpoint

        return add


def _written(endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    """The endpoint, whose answer is written as JSON in its own thread rather than where all requests meet."""

    @wraps(endpoint)
    def write(**values: Any) -> Any:
        found = endpoint(**values)
        if not isinstance(found, BaseModel):
            return found
        given = values.get("response")
        headers = dict(given.headers) if isinstance(given, Response) else {}
        content = found.model_dump_json(by_alias=True)
        return Response(content, status, headers | {"Content-Type": "application/json"})

    return write


def role_of(route: BaseRoute) -> Role | None:
    """The role that a route takes; None for one that is open to all."""
    extra = getattr(route, "openapi_extra", None) or {}
    return Role(extra["x-role"]) if "x-role" in extra else None


def refuse_open_routes(app: FastAPI, public: frozenset[str]) -> None:
    """Deny by default: raises if a route that is not among the public ones takes no role."""
    for route in app.routes:
        path = getattr(route, "path", "")
        if path not in public and not (isinstance(route, GuardedRoute) and role_of(route)):
            raise RuntimeError(f"{path} is open to everyone")


def visible(connection: Connection, grant: Grant, name: str) -> pipelines.Pipeline:
    """A pipeline that the caller may see; to others it does not exist. Raises PIPELINE_UNKNOWN."""
    found = pipelines.find(connection, name)
    if found is None or not grant.sees(found.labels):
        raise PenstockError.of("PIPELINE_UNKNOWN", name=name)
    return found


def set_etag(response: Response, revision: int) -> None:
    response.headers["ETag"] = f'"{revision}"'


def expected_revision(found: pipelines.Pipeline, if_match: str | None) -> int:
    """The revision that the caller has seen, if they say so, or else the one that is there."""
    if if_match is None or if_match.strip() == "*":
        return found.revision
    for tag in if_match.split(","):
        if tag.strip() == f'"{found.revision}"':
            return found.revision
    raise PenstockError.of("STALE_REVISION", name=found.name, found=found.revision, expected=if_match)
