"""A server without a supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.api.server import Server

from penstock.control.config import SecretRules, ServerConfig
from penstock.control.policy import Policy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig(secrets=SecretRules(env=("PW",))))
    yield server
    server.close()


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return Policy.of(ServerConfig(), tmp_path)
