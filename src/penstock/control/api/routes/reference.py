"""What pipelines can be made of, for forms and editors; and this API itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import Request

from penstock.components.registry import all_components
from penstock.control.api.answers import Answer
from penstock.control.api.guard import GuardedRouter
from penstock.control.auth.roles import Role
from penstock.frontends.json_schema import json_schema

router = GuardedRouter(prefix="/api/v1", tags=["reference"])


class ComponentAnswer(Answer):
    kind: str
    name: str
    doc: str
    example: str


@router.guarded(Role.VIEWER, "GET", "/components")
def list_components() -> list[ComponentAnswer]:
    """All sources, formats, steps and sinks."""
    return [
        ComponentAnswer(kind=each.kind, name=each.name, doc=(each.__doc__ or "").strip(), example=each.example)
        for each in all_components()
    ]


@router.guarded(Role.VIEWER, "GET", "/schema")
def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema of a pipeline file."""
    return _schema()


@router.guarded(Role.VIEWER, "GET", "/openapi.json")
def openapi(request: Request) -> dict[str, Any]:
    """This API, as OpenAPI 3.1."""
    found: dict[str, Any] = request.app.openapi()
    return found


@cache
def _schema() -> dict[str, Any]:
    return json_schema()
