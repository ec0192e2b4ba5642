"""What tests of SQL sinks share: empty databases, a proxy before them, and things done at a point of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.components.sql_stores import STORES, Store, made
from tests.servers.cutting import CuttingProxy

from penstock.components.shared import crashpoints


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return made(request.param, request, tmp_path)


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The same without SQLite, which has no server."""
    return made(request.param, request, tmp_path)


@pytest.fixture
def proxy(server: Store) -> Iterator[CuttingProxy]:
    """A proxy through which sinks of `server` go."""
    assert server.database is not None
    with CuttingProxy(server.database.port) as proxy:
        server.port = proxy.port
        yield proxy


@pytest.fixture
def at_point() -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Installs what is done when a batch reaches a point, once."""

    def install(point: str, action: Callable[[], object]) -> None:
        def hook(reached: str, number: int) -> None:
            if reached == point:
                crashpoints.install(None)
                action()

        crashpoints.install(hook)

    yield install
    crashpoints.install(None)
