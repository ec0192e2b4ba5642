"""A migrated store on each database that a server may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.store.databases import url_of

from penstock.control.store.database import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'penstock.db'}"
    return url_of(request.getfixturevalue("postgres_database"))


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store(store_url)
    store.migrate()
    yield store
    store.close()
