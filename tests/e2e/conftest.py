"""Commands inside the test's process."""

from __future__ import annotations

import pytest
from tests.e2e.commands import Command, command


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls `penstock` with these arguments; gives its answer."""
    return command(monkeypatch, capsys)
