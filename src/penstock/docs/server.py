"""The page of the server: its settings and the routes of its API; and the document of the API."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute

from penstock.control.api.app import create_app
from penstock.control.api.guard import role_of
from penstock.control.api.services import Services
from penstock.control.auth.roles import Role
from penstock.control.config import Quotas, ServerConfig
from penstock.control.files import DataFolder
from penstock.control.store.database import Store
from penstock.docs.fields import default, type_in_words
from penstock.docs.markdown import NOTE, doc, table
from penstock.spec.fields import Config


def server_page() -> str:
    """The server's configuration, roles and routes."""
    roles = [[f"`{role}`", role.meaning] for role in Role]
    sections = "\n".join(
        f"## {' '.join(('Settings of', heading)) if heading else 'Settings'}\n\n{doc(cls)}\n\n{_settings_table(cls)}"
        for heading, cls in _server_settings()
    )
    return f"""\
{NOTE}
# The server

{sections}
## Roles

Each role may do all that the ones before it may.

{table(["Role", "What it may do"], roles)}
## Routes

All but the first few need a token, as `Authorization: Bearer TOKEN`. Lists come in pages: `next` of one is `after` of
the following. What changes a pipeline takes its `ETag` as `If-Match`. Errors are `application/problem+json` (RFC 9457)
with the codes of [the list](errors.md). [OpenAPI](openapi.json) has the shapes. The console stands at `/`; its pages
hold nothing by themselves and ask these routes.

{table(["Route", "Role", "What it does"], _routes())}"""


def _server_settings() -> Iterator[tuple[str, type[Config]]]:
    """The configurations that make up the server's, each with the key under which it stands."""
    yield "", ServerConfig
    for name, info in ServerConfig.model_fields.items():
        inner = [info.annotation, *typing.get_args(info.annotation)]
        for cls in (cls for cls in inner if isinstance(cls, type) and issubclass(cls, Config)):
            yield f"`{info.alias or name}`", cls
    yield "`projects.NAME.quotas`", Quotas


def _settings_table(cls: type[Config]) -> str:
    rows = [
        [f"`{info.alias or name}`", type_in_words(info), default(info), info.description or ""]
        for name, info in cls.model_fields.items()
    ]
    return table(["Key", "Type", "Default", "What it is"], rows)


def _routes() -> Iterator[list[str]]:
    routes = [route for route in api().routes if isinstance(route, APIRoute) and route.include_in_schema]
    for route in sorted(routes, key=lambda route: (role_of(route) is not None, route.path)):
        verbs = ", ".join(sorted(route.methods or ()))
        yield [f"`{verbs} {route.path}`", f"`{role_of(route)}`" if role_of(route) else "none", route.description]


@cache
def api() -> FastAPI:
    return create_app(Services(Store("sqlite:///penstock.db"), ServerConfig(), DataFolder(Path())))
