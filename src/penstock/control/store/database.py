"""Opens the server's database, brings it to the newest form, and says so in words when it does not answer."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.errors import PenstockError

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 7361_5074
"""The number of the lock under which one server at a time migrates a PostgreSQL."""
_PATIENCE = 5
"""Seconds to wait for a connection, a lock or a free place in the pool."""


class Store:
    """The database of a server. Work happens in `reading()` or in `writing()`, which is one transaction."""

    def __init__(self, url: str | URL) -> None:
        self.url = _checked(url)
        self.engine = _engine(self.url)

    @classmethod
    def in_folder(cls, folder: Path) -> Store:
        """An SQLite file that only its owner can read: pipelines are nobody else's business."""
        os.close(os.open(folder / "penstock.db", os.O_CREAT | os.O_RDWR, 0o600))
        return cls(URL.create("sqlite", database=str(folder / "penstock.db")))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to look."""
        with _told(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of it is kept, or none if the block fails."""
        with (
            _told(),
            self.engine.connect().execution_options(penstock_writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    def check(self) -> None:
        """Raises STORE_DOWN if it does not answer."""
        with self.reading() as connection:
            connection.execute(text("SELECT 1"))

    def migrate(self) -> None:
        """Brings the tables to the form this program knows; an interrupted migration is as if it had not begun."""
        with self.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
            _refuse_newer(connection)
            command.upgrade(_alembic(connection), "head")

    def close(self) -> None:
        self.engine.dispose()


def revision_of(connection: Connection) -> str | None:
    """The migration the tables stand at."""
    return MigrationContext.configure(connection).get_current_revision()


def _checked(url: str | URL) -> URL:
    try:
        found = make_url(url)
    except ArgumentError:
        raise _unusable("its URL cannot be read", "Write postgresql://user@host/database.") from None
    if found.drivername in ("postgresql", "postgres"):
        found = found.set(drivername="postgresql+psycopg")
    if found.drivername == "sqlite" and found.database in (None, "", ":memory:"):
        raise _unusable("its URL names no file", "Write sqlite:///FILE.")
    if found.drivername not in ("sqlite", "postgresql+psycopg"):
        raise _unusable(f"'{found.drivername}' is not supported", "Use sqlite:///FILE or postgresql://….")
    return found


def _unusable(reason: str, advice: str) -> PenstockError:
    return PenstockError.of("STORE_UNUSABLE", reason=reason, advice=advice)


def _engine(url: URL) -> Engine:
    if url.drivername == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _PATIENCE}, pool_timeout=_PATIENCE)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    arguments = {"connect_timeout": _PATIENCE, "options": f"-c lock_timeout={_PATIENCE}s -c statement_timeout=60s"}
    return create_engine(url, connect_args=arguments, pool_timeout=_PATIENCE, pool_pre_ping=True)


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # Transactions are begun below, so that DDL is part of them.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", f"busy_timeout={_PATIENCE * 1000}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # Who will write says so at once: two readers that both turn writers would wait for each other.
    writes = connection.get_execution_options().get("penstock_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except (DataError, UnicodeEncodeError) as error:
        raise PenstockError.of("REQUEST_INVALID", reason="a value cannot be stored") from error
    except DBAPIError as error:
        raise PenstockError.of("STORE_DOWN", reason=_reason(error.orig)) from error
    except PoolTimeout as error:
        raise PenstockError.of("STORE_DOWN", reason="all connections to it are busy") from error


def _reason(error: BaseException | None) -> str:
    """The first line, which names host and port, but no password."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _alembic(connection: Connection) -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _refuse_newer(connection: Connection) -> None:
    found = revision_of(connection)
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    if found is not None and found not in known:
        raise _unusable(f"a newer Penstock has changed it (to {found})", "Install that version, or restore a copy.")
