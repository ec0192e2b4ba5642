"""The databases that SQL sinks are tested on, each with a sink on a table `t` and a way to look into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pymysql
import pytest
from pyspark.sql import SparkSession
from tests.servers.sql import Database

from penstock.components.base import Batch, SinkContext
from penstock.components.shared.sql_sink import SqlSink, SqlWriter
from penstock.components.sinks.mysql import Mysql
from penstock.components.sinks.postgres import Postgres
from penstock.components.sinks.sqlite import Sqlite
from penstock.errors import PenstockError

COLUMNS = {"id": "string", "n": "int", "v": "int"}


@dataclass
class Store:
    """A database with nothing in it."""

    folder: Path
    database: Database | None = None
    port: int | None = None
    """Where sinks find it, if not at its own port."""
    name: ClassVar[str] = "sqlite"

    def url(self, password: str | None = None) -> str:
        assert self.database is not None
        found = self.database
        scheme = {"postgres": "postgresql", "mysql": "mysql"}[self.name]
        return (
            f"{scheme}://{found.user}:{password or found.password}@{found.host}:{self.port or found.port}/{found.name}"
        )

    def sink(self, **config: Any) -> SqlSink:
        return Sqlite(path=str(self.folder / "out.db"), **{"table": "t", **config})

    def yaml(self) -> str:
        """The part of a pipeline file that names the table; secrets come from DB_URL."""
        return f"sqlite: {{path: {self.folder / 'out.db'}, table: t"

    @contextmanager
    def connected(self) -> Iterator[Any]:
        with closing(sqlite3.connect(self.folder / "out.db", isolation_level=None)) as connection:
            yield connection

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with self.connected() as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]

    def execute(self, *statements: str) -> None:
        with self.connected() as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def staged(self) -> list[str]:
        """Tables of rows on their way."""
        return []


class PostgresStore(Store):
    name: ClassVar[str] = "postgres"

    def sink(self, **config: Any) -> SqlSink:
        return Postgres(**{"url": self.url(), "table": "t", **config})

    def yaml(self) -> str:
        return "postgres: {url: '${secret:env/DB_URL}', table: t"

    @contextmanager
    def connected(self) -> Iterator[Any]:
        found = self.database
        assert found is not None
        with psycopg.connect(
            host=found.host,
            port=found.port,
            user=found.user,
            password=found.password,
            dbname=found.name,
            autocommit=True,
        ) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            yield connection

    def staged(self) -> list[str]:
        return [row[0] for row in self.query("SELECT relname FROM pg_class WHERE relname LIKE '\\_penstock\\_rows%'")]


class MysqlStore(Store):
    name: ClassVar[str] = "mysql"

    def sink(self, **config: Any) -> SqlSink:
        return Mysql(**{"url": self.url(), "table": "t", **config})

    def yaml(self) -> str:
        return "mysql: {url: '${secret:env/DB_URL}', table: t"

    @contextmanager
    def connected(self) -> Iterator[Any]:
        found = self.database
        assert found is not None
        with pymysql.connect(
            host=found.host, port=found.port, user=found.user, password=found.password, database=found.name,
            autocommit=True,
        ) as connection:  # fmt: skip
            yield connection

    def staged(self) -> list[str]:
        return [row[0] for row in self.query("SHOW TABLES LIKE '\\_penstock\\_rows%'")]


STORES = {store.name: store for store in (Store, PostgresStore, MysqlStore)}


def opened(
    store: Store,
    spark: SparkSession,
    lineage: str = "l1",
    epoch: int = 1,
    columns: dict[str, str] | None = None,
    **config: Any,
) -> SqlWriter:
    context = SinkContext(spark, "out", store.folder, "demo", lineage, epoch, columns or COLUMNS)
    writer = store.sink(**config).open(context)
    assert isinstance(writer, SqlWriter)
    return writer


def batch(number: int, lineage: str = "l1", epoch: int = 1) -> Batch:
    return Batch("demo", lineage, epoch, number)


def frame(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "id string, n int, v int", parts: int = 1) -> Any:
    width = schema.count(",") + 1
    return spark.createDataFrame([(*row, *(None,) * (width - len(row))) for row in rows], schema).coalesce(parts)


def made(name: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """An empty database of a kind."""
    fixture = {"postgres": "postgres_database", "mysql": "mariadb_database"}.get(name)
    return STORES[name](folder, request.getfixturevalue(fixture) if fixture else None)


def stored(store: Store, columns: str = "id, n") -> list[tuple[Any, ...]]:
    return sorted(store.query(f"SELECT {columns} FROM t"), key=str)


def refusal(store: Store, spark: SparkSession, **options: Any) -> PenstockError:
    """Why a sink cannot be opened."""
    with pytest.raises(PenstockError) as raised:
        opened(store, spark, **options)
    return raised.value
