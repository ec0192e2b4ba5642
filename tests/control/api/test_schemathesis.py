"""Requests made up from the API's own description: none breaks it, and every answer is one that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.control.api.server import T0, Server, with_state

from penstock.control.auth.roles import Role
from penstock.control.config import Limits, ServerConfig
from penstock.control.store import alerts, history, operations, runs
from penstock.control.supervisor.ports import Failure, Run
from penstock.errors import Problem

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in which there is something of everything."""
    folder: Path = tmp_path_factory.mktemp("server")
    server = Server(folder, ServerConfig(limits=Limits(failed_logins=1_000_000)))
    server.client(Role.AUTHOR).apply("a", "b", labels="{team: news}")
    with server.store.writing() as connection:
        runs.put(connection, [Run("r0123456789ab", "a", 1, 1, "local", T0)])
        history.add_batches(connection, [history.BatchNumbers("a", "r0123456789ab", 1, T0, 10, 5, 4)])
        full = Problem("DISK_FULL", {"path": "/"}).as_dict()
        history.add_exceptions(connection, [Failure("a", "r0123456789ab", T0, full)])
        alerts.open_alert(connection, "a", "lag", severity="warn", state="firing", since=T0, evidence="x")
        operations.ask(connection, "a", "savepoint", {"name": "x"}, now=T0, by="ann")
    with_state(server, "a", "s")
    yield server
    server.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_route_keeps_to_its_description(filled: Server, mode: GenerationMode) -> None:
    headers = {"Authorization": f"Bearer {filled.token(Role.ADMIN)}"}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", filled.app, headers=headers)
    asked = 0
    # Streams have no end.
    for found in schema.exclude(path_regex="/stream$").get_all_operations():
        assert isinstance(found, Ok)

        @hypothesis.settings(
            max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        @hypothesis.given(found.ok().as_strategy(generation_mode=mode))
        def keeps(case: schemathesis.Case[Any]) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(headers=headers, checks=CHECKS)

        try:
            keeps()
        except hypothesis.errors.Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # Nothing can be wrong with a request that has no parts.
    assert asked > 200


def test_the_description_covers_every_route(filled: Server) -> None:
    described = filled.app.openapi()["paths"]
    shown = [route for route in filled.app.routes if getattr(route, "include_in_schema", True)]
    assert {getattr(route, "path", "") for route in shown} == set(described)
