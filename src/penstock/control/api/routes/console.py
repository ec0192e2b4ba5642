"""The console: one page for all its addresses, and the files that the page loads. Data comes from the API alone."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from penstock.control.api.guard import OpenRoute, ServicesOf
from penstock.control.console import ConsoleFile
from penstock.errors import PenstockError

PAGES = (
    "/",
    "/login",
    "/new",
    "/pipelines/{name}",
    "/pipelines/{name}/{part}",
    "/alerts",
    "/events",
    "/savepoints",
    "/targets",
    "/tokens",
    "/audit",
)
"""Addresses of the console, which it tells apart by itself."""
_ASSETS = "/assets/{file}"
_ICON = "/icon.svg"
PUBLIC = frozenset({*PAGES, _ASSETS, _ICON})
# The page may be another after an upgrade; what it loads is named by its content, and never changes.
_AGAIN = "no-cache"
_FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False, route_class=OpenRoute)


async def page(services: ServicesOf, request: Request) -> Response:
    return _sent(request, services.console.page, _AGAIN)


for path in PAGES:
    router.add_api_route(path, page, methods=["GET"])


@router.get(_ASSETS)
async def asset(services: ServicesOf, request: Request, file: str) -> Response:
    found = services.console.assets.get(file)
    if found is None:
        raise PenstockError.of("NOT_FOUND", what="page", name=request.url.path)
    return _sent(request, found, _FOR_EVER)


@router.get(_ICON)
async def icon(services: ServicesOf, request: Request) -> Response:
    found = services.console.icon
    if found is None:
        raise PenstockError.of("NOT_FOUND", what="page", name=request.url.path)
    return _sent(request, found, _AGAIN)


def _sent(request: Request, file: ConsoleFile, cache: str) -> Response:
    headers = {"Cache-Control": cache, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.etag:
        return Response(status_code=304, headers=headers)
    packs = "gzip" in request.headers.get("Accept-Encoding", "")
    if packs:
        headers["Content-Encoding"] = "gzip"
    return Response(file.packed if packs else file.content, headers=headers, media_type=file.media_type)
