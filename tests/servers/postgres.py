"""PostgreSQL as the system has it, with everything off that only guards against power cuts."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from tests.servers.base import HOST, PASSWORD, USER, Server, answers, free_port, program
from tests.servers.sql import Database

_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_prepared_transactions": "20",
    "wal_level": "logical",
}


class Postgres(Server):
    """A server that asks for a password; each test has a database of its own."""

    title: ClassVar[str] = "PostgreSQL"
    user: ClassVar[str | None] = "postgres"
    # "Fast" and "immediate" shutdown: both leave no shared memory behind, unlike SIGKILL.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    death_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self) -> None:
        self._programs = _program("postgres").parent
        super().__init__()
        self.port = free_port()
        self._numbers = itertools.count(1)

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            password = self.folder / "password"
            password.write_text(PASSWORD, "utf-8")
            options = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "-E", "UTF8"]
            self.run(str(self._programs / "initdb"), "-D", str(data), "--locale=C.UTF-8", *options)
        settings = [item for key, value in _SETTINGS.items() for item in ("-c", f"{key}={value}")]
        self.launch([str(self._programs / "postgres"), "-D", str(data), "-p", str(self.port), *settings], self._ready)

    def restart(self) -> None:
        """Ends it in order and starts it again with the same port and data."""
        self.end()
        self.start()

    def _ready(self) -> bool:
        if not answers(self.port):
            return False
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that commits each statement."""
        return psycopg.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def create_database(self) -> Database:
        database = Database(self.port, f"test_{next(self._numbers)}")
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database.name)))
        return database

    def drop_database(self, database: Database) -> None:
        """Also if someone is still connected to it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database.name)))


def _program(name: str) -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4))
    return program(name, versions[::-1], "postgresql")
