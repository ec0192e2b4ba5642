"""Around every request: a limit to its size, and headers that keep browsers from helping attackers."""

from __future__ import annotations

from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.control.api.problems import answer
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


class TooLarge(Exception):
    """More came than the limit."""


class BodyLimit:
    """Refuses larger requests, whether they tell their size or not."""

    def __init__(self, app: ASGIApp, limit: Size) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > self._limit.bytes:
            await self._refuse(scope, receive, send)
            return
        count, begun = 0, False

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._limit.bytes:
                raise TooLarge
            return message

        async def unless_too_large(message: Message) -> None:
            # Whoever reads the body may have an answer of their own to what `counted` raises.
            nonlocal begun
            if begun or count <= self._limit.bytes:
                begun = True
                await send(message)

        with suppress(TooLarge):
            await self._app(scope, counted, unless_too_large)
        if count > self._limit.bytes and not begun:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = PenstockError.of("REQUEST_TOO_LARGE", limit=self._limit)
        await answer(error, scope["path"], {"Connection": "close"})(scope, receive, send)


class SafeHeaders:
    """What browsers are told about every answer."""

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
                if self._secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        await self._app(scope, receive, with_headers)
