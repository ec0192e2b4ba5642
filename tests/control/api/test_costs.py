"""What a request costs: statements, and nothing that was just computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.api.server import Server
from tests.control.counting import statements

from penstock.control.auth.roles import Role
from penstock.control.store import history
from penstock.control.store.history import BatchNumbers

RUN = "r0123456789ab"


@pytest.fixture
def busy(server: Server) -> Server:
    """Twenty pipelines, each with some history."""
    names = [f"p{number}" for number in range(20)]
    assert server.client(Role.AUTHOR).apply(*names).status_code == 200
    with server.store.writing() as connection:
        batches = (BatchNumbers(name, RUN, batch, server.time, 10, 1, 1) for name in names for batch in range(5))
        history.add_batches(connection, batches)
    return server


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/api/v1/whoami", 0),
        ("/api/v1/pipelines", 1),
        ("/api/v1/pipelines?limit=5", 1),
        ("/api/v1/pipelines/p3", 1),
        ("/api/v1/pipelines/p3/batches", 2),
        ("/api/v1/pipelines/p3/description", 6),
        ("/api/v1/events", 1),
        ("/api/v1/alerts", 1),
    ],
)
def test_a_request_of_someone_known_takes_few_statements(busy: Server, path: str, count: int) -> None:
    viewer = busy.client(Role.VIEWER)
    viewer.get("/api/v1/whoami")
    with statements(busy.store) as asked:
        assert viewer.get(path).status_code == 200
    assert len(asked) == count, asked


def test_a_page_of_pipelines_reads_no_more_than_it_shows(busy: Server) -> None:
    viewer = busy.client(Role.VIEWER)
    with statements(busy.store) as asked:
        assert len(viewer.get("/api/v1/pipelines?limit=5").json()["items"]) == 5
    assert [statement for statement in asked if "LIMIT" in statement]
    assert not any(column in statement for statement in asked for column in ("document", "versions.text"))


def test_metrics_are_computed_once_however_many_ask(server: Server) -> None:
    computed: list[int] = []

    def metrics() -> bytes:
        computed.append(1)
        return b"penstock_up 1\n"

    server.services = server.app.state.services = replace(server.services, metrics=metrics)
    viewer = server.client(Role.VIEWER)
    assert [viewer.get("/metrics").text for _ in range(5)] == ["penstock_up 1\n"] * 5
    assert len(computed) == 1
