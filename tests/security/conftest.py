"""A server with the default configuration that all attacks of a test run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.security.attacker import AttackedSite, Caller


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedSite]:
    """Shared by many tests: give pipelines names of your own, and delete what you apply."""
    with AttackedSite(tmp_path_factory.mktemp("attacked")) as site:
        yield site


@pytest.fixture(scope="session")
def author_a(attacked: AttackedSite) -> Caller:
    """A token with `role=author, team=a`."""
    return attacked.caller("author", team="a")


@pytest.fixture(scope="session")
def author_b(attacked: AttackedSite) -> Caller:
    """A token with `role=author, team=b`."""
    return attacked.caller("author", team="b")


@pytest.fixture(scope="session")
def viewer(attacked: AttackedSite) -> Caller:
    return attacked.caller("viewer")
