"""A server without a supervisor, and callers of every role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.api.server import Server

from penstock.control.config import SecretRules, ServerConfig


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig(secrets=SecretRules(env=("CANARY", "NEVER_SET", "PLACE"))))
    yield server
    server.close()
