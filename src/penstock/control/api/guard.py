"""Who asks, and whether they may. Every route names the role it takes; one that does not cannot be added."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from sqlalchemy import Connection
from starlette.routing import BaseRoute

from penstock.control.api.bodies import read_json
from penstock.control.api.problems import RESPONSES, shortened
from penstock.control.api.queues import Kind
from penstock.control.api.services import Services
from penstock.control.auth.roles import Grant, Role
from penstock.control.store import pipelines
from penstock.errors import PenstockError

COOKIE = "penstock_session"
_SAFE = ("GET", "HEAD", "OPTIONS")
_asking: ContextVar[tuple[Services, str]] = ContextVar("_asking")
"""The services that a request uses, and who makes it, as queues and rates count callers."""


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
    if cookie and request.method not in _SAFE:
        refuse_other_sites(request)
    return grant


def logged_in(services: Services, request: Request, token: str) -> Grant:
    """Who a token belongs to. Failures are counted by address; a token that is right always opens."""
    address = address_of(request)
    now = services.now()
    try:
        return services.doorman.authenticate(token, now)
    except PenstockError as error:
        if error.code == "UNAUTHENTICATED":
            refuse_if_too_often(services, address)
            services.attempts.note(address)
        raise


def refuse_if_too_often(services: Services, address: str) -> None:
    wait = services.attempts.wait(address)
    if wait:
        raise PenstockError.of("TOO_MANY_ATTEMPTS", seconds=wait)


def address_of(request: Request) -> str:
    """The address that a request comes from, behind proxies that the server trusts."""
    return request.client.host if request.client else "unknown"


def refuse_other_sites(request: Request) -> None:
    """Raises FORBIDDEN for a request that a page of another site has made a browser send."""
    if not _same_origin(request):
        raise PenstockError.of("FORBIDDEN", reason="the request comes from another site")


def _same_origin(request: Request) -> bool:
    """Browsers say where a request comes from; one that does not say so is no browser of today."""
    origin = request.headers.get("Origin")
    if origin is None:
        return request.headers.get("Sec-Fetch-Site") in ("same-origin", "none")
    return urlsplit(origin).netloc == request.headers.get("Host")


class OpenRoute(APIRoute):
    """A route without a token: its callers are told apart by address, and its bodies are small."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            services = services_of(request)
            caller = f"address {address_of(request)}"
            services.rates.take(caller)
            _asking.set((services, caller))
            if self.body_field is not None:
                await read_json(request, services.queues[Kind.BODIES], caller, large=False)
            return await handle(request)

        return limited


class GuardedRoute(APIRoute):
    """A route that asks who calls before it looks at anything else of the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            services = services_of(request)
            grant = await _grant_of(request, services)
            caller = caller_of(grant)
            services.rates.take(caller)
            role = role_of(self)
            if role is None:
                raise PenstockError.of("FORBIDDEN", reason="nobody may do this")
            # What somebody may only see in one project does not count where it takes more.
            request.state.grant = grant.limited_to(role)
            _asking.set((services, caller))
            if self.body_field is not None:
                large = kind_of(self) in (Kind.FILES, Kind.BENCH)
                await read_json(request, services.queues[Kind.BODIES], caller, large=large)
            return await handle(request)

        return guarded


async def _grant_of(request: Request, services: Services) -> Grant:
    token, _ = bearer(request)
    if not token or services.doorman.recognise(token, services.now()) is not None:
        return identified(request, services)  # This asks nobody.
    # Tokens that are made up must not take the threads of those that are known.
    if services.doorman.has_seen(token):
        return await services.queues[Kind.LOOK].run(token, lambda: identified(request, services))
    address = address_of(request)
    return await services.queues[Kind.LOGIN].run(address, lambda: identified(request, services))


def caller_of(grant: Grant) -> str:
    """Sessions of one person count together, since a person can begin any number of them."""
    return f"person {grant.who}" if grant.session else f"token {grant.token}"


class GuardedRouter(APIRouter):
    """A router whose routes all need a role, which its first argument names."""

    def __init__(self, **more: Any) -> None:
        super().__init__(route_class=GuardedRoute, **more)

    def guarded(
        self, role: Role, method: str, path: str, *, kind: Kind = Kind.LOOK, **more: Any
    ) -> Callable[[Callable[..., Any]], Any]:
        """Adds a route for those who have the role; its work waits in the queue of its kind."""

        def add(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            self.add_api_route(
                path,
                queued(endpoint, kind, more.get("status_code", 200)),
                methods=[method],
                responses={**RESPONSES, **more.pop("responses", {})},
                openapi_extra={"x-role": str(role), "security": [{"token": []}]},
                **more,
            )
            return endpoint

        return add


def queued(endpoint: Callable[..., Any], kind: Kind, status: int = 200) -> Callable[..., Any]:
    """The endpoint in a thread of its kind, where its answer is written as JSON too, and what is wrong shortened."""
    kept: dict[str, TypeAdapter[Any]] = {}

    def write(values: dict[str, Any]) -> Any:
        try:
            found = endpoint(**values)
        except PenstockError as error:
            raise shortened(error) from None
        if found is None or isinstance(found, Response):
            return found
        given = values.get("response")
        headers = dict(given.headers) if isinstance(given, Response) else {}
        if isinstance(found, BaseModel):
            content = found.model_dump_json(by_alias=True).encode()
        else:
            if not kept:
                kept["answer"] = TypeAdapter(get_type_hints(endpoint)["return"])
            content = kept["answer"].dump_json(found, by_alias=True)
        return Response(content, status, headers | {"Content-Type": "application/json"})

    @wraps(endpoint)
    async def serve(**values: Any) -> Any:
        services, caller = _asking.get()
        return await services.queues[kind].run(caller, lambda: write(values))

    serve.kind = kind  # type: ignore[attr-defined]
    return serve


def kind_of(route: APIRoute) -> Kind | None:
    """What the work of a route is, if it has a queue."""
    found: Kind | None = getattr(route.endpoint, "kind", None)
    return found


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
