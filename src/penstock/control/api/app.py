"""The API as one application."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from penstock import __version__
from penstock.control.api import problems
from penstock.control.api.guard import refuse_open_routes
from penstock.control.api.middleware import BodyLimit, SafeHeaders
from penstock.control.api.proxies import TrustedProxies
from penstock.control.api.routes import (
    access,
    alerts,
    apply,
    charts,
    console,
    cutover,
    drafts,
    health,
    history,
    live,
    login,
    operations,
    pipelines,
    projects,
    reference,
    remembered,
    rows,
    savepoints,
    scaling,
    targets,
)
from penstock.control.api.services import Services

_TURN = 0.0005
"""Seconds after which a thread makes room for another."""
_COLLECTED_AFTER = (2_000, 10, 500)
"""New objects until the young are looked at, and how often that until the older and the old are. To look through all
objects of a server of hundreds of pipelines stops every request for a sixth of a second; what is garbage in cycles is
nearly always young."""
PUBLIC = health.PUBLIC | login.PUBLIC | console.PUBLIC
"""All that answers without a token."""


def create_app(services: Services) -> FastAPI:
    """The application over these services; raises if a route would be open that must not be."""
    app = FastAPI(
        title="Penstock",
        version=__version__,
        description="Pipelines as they should be, as they are, and what happened to them.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        lifespan=_prepared,
    )
    app.state.services = services
    app.state.streams = Counter[str]()
    guarded = (
        *(pipelines, savepoints, operations, cutover, remembered, rows, apply, drafts),
        *(history, charts, live, alerts, scaling, access, projects, targets, reference),
    )
    further = (health.router, health.guarded, login.router, login.guarded, console.router)
    for router in (*(part.router for part in guarded), *further):
        app.router.routes.extend(router.routes)
    problems.install(app)
    app.add_middleware(BodyLimit, limit=services.config.limits.body)
    app.add_middleware(SafeHeaders, secure=services.secure)
    app.add_middleware(TrustedProxies, networks=services.config.trusted_proxies)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    refuse_open_routes(app, PUBLIC)
    return app


@asynccontextmanager
async def _prepared(app: FastAPI) -> AsyncIterator[None]:
    """Threads that take turns quickly let the event loop, on which all requests meet, go on within a short time."""
    sys.setswitchinterval(_TURN)
    gc.set_threshold(*_COLLECTED_AFTER)
    gc.freeze()
    yield


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        parts = found["components"]
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        details = problems.ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        parts["schemas"] |= {**details.pop("$defs"), "ProblemDetails": details}
        app.openapi_schema = found
    return app.openapi_schema
