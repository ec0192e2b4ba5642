"""MariaDB as the system has it, with everything off that only guards against power cuts."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pymysql
from tests.servers.base import HOST, PASSWORD, USER, Server, answers, free_port, program
from tests.servers.sql import Database

_ACCOUNT = f"""\
CREATE USER IF NOT EXISTS '{USER}'@'{HOST}' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;
"""
_SETTINGS = (
    f"--bind-address={HOST}",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--performance-schema=off",
)


class MariaDb(Server):
    """A server that asks for a password; each test has a database of its own."""

    title: ClassVar[str] = "MariaDB"
    user: ClassVar[str | None] = "mysql"

    def __init__(self) -> None:
        self._program = str(program("mariadbd", (), "mariadb-server"))
        super().__init__()
        self.port = free_port()
        self._numbers = itertools.count(1)

    def start(self) -> None:
        data, account = self.folder / "data", self.folder / "account.sql"
        if not data.exists():
            account.write_text(_ACCOUNT, "utf-8")
            installer = str(program("mariadb-install-db", (), "mariadb-server"))
            small = [setting for setting in _SETTINGS if setting.startswith("--innodb")]
            self.run(installer, "--no-defaults", f"--datadir={data}", "--skip-test-db", *small)
        files = [f"--datadir={data}", f"--socket={self.folder / 'socket'}", f"--init-file={account}"]
        files += [f"--tmpdir={self.folder}", f"--pid-file={self.folder / 'pid'}"]
        self.launch([self._program, "--no-defaults", *files, f"--port={self.port}", *_SETTINGS], self._ready)

    def restart(self) -> None:
        """Ends it in order and starts it again with the same port and data."""
        self.end()
        self.start()

    def _ready(self) -> bool:
        if not answers(self.port):
            return False
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """A connection that commits each statement."""
        return pymysql.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, database=database, autocommit=True
        )

    def create_database(self) -> Database:
        database = Database(self.port, f"test_{next(self._numbers)}")
        self._execute(f"CREATE DATABASE {database.name} CHARACTER SET utf8mb4")
        return database

    def drop_database(self, database: Database) -> None:
        self._execute(f"DROP DATABASE {database.name}")

    def _execute(self, statement: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
