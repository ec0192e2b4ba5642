"""Whether the server lives and is ready, and its metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from penstock.control.api.guard import Caller, GuardedRouter, ServicesOf
from penstock.control.auth.roles import Role

PUBLIC = frozenset({"/healthz", "/readyz"})
router = APIRouter(tags=["health"])
guarded = GuardedRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The server lives. It waits for no thread, no lock and no store."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Not ready"}})
async def readyz(services: ServicesOf) -> JSONResponse:
    """The store answers and the supervisor works; 503 with what is wrong otherwise."""
    troubles = await services.readiness.troubles()
    status = 503 if troubles else 200
    return JSONResponse({"status": "not ready" if troubles else "ready", "troubles": troubles}, status)


@guarded.guarded(
    Role.VIEWER,
    "GET",
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(services: ServicesOf, grant: Caller) -> Response:
    """All metrics, as Prometheus reads them."""
    grant.need_whole(to="read the metrics of all")
    return Response(services.scraped(), media_type="text/plain; version=0.0.4; charset=utf-8")
