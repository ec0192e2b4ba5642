"""Errors as RFC 9457 has them: made from the same codes as everywhere else, and never more than their text."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from penstock.errors import Owner, PenstockError, Problem
from penstock.spec.secrets import hidden

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("penstock.api")
_STATUS = {
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "CODE_NOT_ALLOWED": 403,
    "REFUSED": 409,
    "STALE_REVISION": 412,
    "REQUEST_TOO_SLOW": 408,
    "REQUEST_TOO_LARGE": 413,
    "REQUEST_INVALID": 422,
    "TOO_MANY_ATTEMPTS": 429,
    "TOO_MANY_REQUESTS": 429,
    "INTERNAL": 500,
    "SERVER_BUSY": 503,
    "STORE_DOWN": 503,
    "STORE_UNUSABLE": 503,
}
_WAIT = ("TOO_MANY_ATTEMPTS", "TOO_MANY_REQUESTS", "SERVER_BUSY")
"""They say in `Retry-After` when another try is worth it."""
_MOST_SHOWN = 200
_LONGEST = 2_000
"""Characters of a parameter: what a message shows of what was sent."""


class ProblemItem(BaseModel):
    """One mistake."""

    code: str
    severity: str
    message: str
    hint: str
    owner: str
    params: dict[str, str]
    location: dict[str, Any] | None


class ProblemDetails(BaseModel):
    """What went wrong, after RFC 9457."""

    type: str = Field(description="`urn:penstock:error:` and the code.")
    title: str = Field(description="What happened.")
    status: int
    detail: str = Field(description="What to do.")
    instance: str = Field(description="The path that was asked for.")
    code: str
    problems: list[ProblemItem] = Field(description="Every mistake, each with its place.")


_SCHEMA = "#/components/schemas/ProblemDetails"
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMA}}}}
    for status in (400, 401, 403, 404, 405, 408, 409, 412, 413, 422, 429, 500, 503)
}  # fmt: skip
"""What any route may answer when it cannot do what was asked."""


def status_of(problem: Problem) -> int:
    """The status of HTTP that says the same."""
    if problem.code in _STATUS:
        return _STATUS[problem.code]
    if problem.definition.exit_code == 3:
        return 404
    return 422 if problem.definition.owner is Owner.AUTHOR else 409


def answer(error: PenstockError, path: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    error = hidden(error)
    first = error.problems[0]
    status = 403 if any(status_of(problem) == 403 for problem in error.problems) else status_of(first)
    content = {
        "type": f"urn:penstock:error:{first.code}",
        "title": first.message,
        "status": status,
        "detail": first.hint,
        "instance": path,
        "code": first.code,
        "problems": [problem.as_dict() for problem in error.problems],
    }
    extra = dict(headers or {})
    if status == 401:
        extra["WWW-Authenticate"] = "Bearer"
    if first.code in _WAIT:
        extra["Retry-After"] = str(first.params["seconds"])
    return JSONResponse(content, status, extra, media_type=MEDIA_TYPE)


def shortened(error: PenstockError) -> PenstockError:
    """The error with as many problems, and as much of each, as an answer shows."""
    found = [
        Problem(one.code, {key: _cut(value) for key, value in one.params.items()}, one.location, one.at)
        for one in error.problems[:_MOST_SHOWN]
    ]
    left = len(error.problems) - _MOST_SHOWN
    return PenstockError([*found, Problem("MORE_PROBLEMS", {"count": left})] if left > 0 else found)


def _cut(value: Any) -> Any:
    text = value if isinstance(value, int | float) else str(value)
    return text if not isinstance(text, str) or len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def install(app: FastAPI) -> None:
    app.add_exception_handler(PenstockError, _told)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def _told(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PenstockError)
    return answer(error, request.url.path)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem("REQUEST_INVALID", {"reason": f"{'.'.join(map(str, item['loc']))[:200]}: {item['msg'][:500]}"})
        for item in error.errors()[:_MOST_SHOWN]
    ]
    found = answer(PenstockError(problems), request.url.path)
    if any(item["type"] == "json_invalid" for item in error.errors()):
        found.status_code = 400
    return found


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        found = answer(PenstockError.of("NOT_FOUND", what="page", name=request.url.path), request.url.path)
    else:
        reason = f"{request.method} {request.url.path}: {error.detail}"
        found = answer(PenstockError.of("REQUEST_INVALID", reason=reason), request.url.path, error.headers)
    found.status_code = error.status_code
    return found


def unexpected(error: Exception, method: str, path: str) -> JSONResponse:
    """For what nobody thought of: the log has the trace, the caller a mark to find it by."""
    mark = secrets.token_hex(4)
    _log.error("%s: %s %s failed", mark, method, path, exc_info=error)
    return answer(PenstockError.of("INTERNAL", mark=mark), path)
