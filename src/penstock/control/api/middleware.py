"""Around every request: a limit to its size, and headers that keep browsers from helping attackers."""

from __future__ import annotations

import math
from contextlib import suppress

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.control.api.problems import answer, unexpected
from penstock.errors import PenstockError
from penstock.spec.units import Size

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


BODY_SECONDS = 60.0
"""How long the body of a request may take."""


class Refused(Exception):
    """More came than the limit, or too slowly."""


class BodyLimit:
    """Refuses larger requests, whether they tell their size or not, and those that come too slowly."""

    def __init__(self, app: ASGIApp, limit: Size) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or len(told) > 15 or int(told) > self._limit.bytes:
            await self._refuse(self._too_large(), scope, receive, send)
            return
        until, complete, refused = anyio.current_time() + BODY_SECONDS, False, None
        count, begun = 0, False

        async def counted() -> Message:
            nonlocal count, complete, refused
            message: Message | None = None
            with anyio.CancelScope(deadline=math.inf if complete else until):
                message = await receive()
            if message is None:
                refused = PenstockError.of("REQUEST_TOO_SLOW", seconds=int(BODY_SECONDS))
                raise Refused
            complete = not message.get("more_body", False)
            count += len(message.get("body", b""))
            if count > self._limit.bytes:
                refused = self._too_large()
                raise Refused
            return message

        async def unless_refused(message: Message) -> None:
            # Whoever reads the body may have an answer of their own to what `counted` raises.
            nonlocal begun
            if begun or refused is None:
                begun = True
                await send(message)

        with suppress(Refused):
            await self._app(scope, counted, unless_refused)
        if refused is not None and not begun:
            await self._refuse(refused, scope, receive, send)

    def _too_large(self) -> PenstockError:
        return PenstockError.of("REQUEST_TOO_LARGE", limit=self._limit)

    async def _refuse(self, error: PenstockError, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(error, scope["path"], {"Connection": "close"})(scope, receive, send)


class SafeHeaders:
    """What browsers are told about every answer, also about one that nobody expected."""

    def __init__(self, app: ASGIApp, secure: bool) -> None:
        self._app = app
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        api = scope["path"].startswith("/api/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", _API_POLICY if api else _PAGE_POLICY)
                if api:
                    headers.setdefault("Cache-Control", "no-store")
                if self._secure or scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
                begun.append(True)
            await send(message)

        begun: list[bool] = []
        try:
            await self._app(scope, receive, with_headers)
        except Exception as error:
            if begun:
                raise
            await unexpected(error, scope["method"], scope["path"])(scope, receive, with_headers)
