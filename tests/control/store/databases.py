"""What tests of the store say often."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection
from tests.servers.sql import Database

from penstock.control.store import pipelines

T0 = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def url_of(database: Database) -> str:
    return f"postgresql://{database.user}:{database.password}@{database.host}:{database.port}/{database.name}"


def draft(text: str = "one", **labels: str) -> pipelines.Draft:
    return pipelines.Draft("yaml", text, labels)


def create(connection: Connection, name: str, **labels: str) -> pipelines.Pipeline:
    return pipelines.create(connection, name, draft(**labels), now=T0, by="ann")
