"""Fixtures for real servers: each starts when a test first asks for it and ends with the tests.

A server that cannot be had skips the test with the reason, or fails it where `CI=true`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

import pytest
from tests.servers.base import Unavailable

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka
    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres
    from tests.servers.s3 import S3
    from tests.servers.sql import Database


def pytest_sessionstart(session: pytest.Session) -> None:
    """When all tests run, in several processes, what takes longest to be had is begun at once."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        from tests.servers.s3 import build_ahead

        build_ahead()


class _Startable(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...


AnyServer = TypeVar("AnyServer", bound=_Startable)


def missing(title: str, reason: object) -> NoReturn:
    """Ends a test whose server, or whose jars, cannot be had."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{title}: {reason}", pytrace=False)
    pytest.skip(f"{title}: {reason}")


def _running(title: str, make: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    try:
        server = make()
    except Unavailable as error:
        missing(title, error)
    try:
        try:
            server.start()
        except Unavailable as error:
            missing(title, error)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker."""
    from tests.servers.kafka import Kafka

    yield from _running("Kafka", Kafka)


@pytest.fixture
def kafka_topic(kafka: Kafka) -> Iterator[str]:
    """A new topic with one partition."""
    topic = kafka.create_topic()
    yield topic
    if topic in kafka.admin.list_topics(timeout=10).topics:
        kafka.delete_topic(topic)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    from tests.servers.postgres import Postgres

    yield from _running("PostgreSQL", Postgres)


@pytest.fixture
def postgres_database(postgres: Postgres) -> Iterator[Database]:
    """An empty database on it."""
    database = postgres.create_database()
    yield database
    postgres.drop_database(database)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A MariaDB server."""
    from tests.servers.mariadb import MariaDb

    yield from _running("MariaDB", MariaDb)


@pytest.fixture
def mariadb_database(mariadb: MariaDb) -> Iterator[Database]:
    """An empty database on it."""
    database = mariadb.create_database()
    yield database
    mariadb.drop_database(database)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An object store."""
    from tests.servers.s3 import S3

    yield from _running("S3", S3)


@pytest.fixture
def s3_bucket(s3: S3) -> Iterator[str]:
    """An empty bucket in it."""
    bucket = s3.create_bucket()
    yield bucket
    s3.drop_bucket(bucket)
