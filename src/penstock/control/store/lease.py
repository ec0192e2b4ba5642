"""One server per store: two that supervise the same pipelines would start each of them twice.

A PostgreSQL gives a lock to a connection that is kept for nothing else, so that it ends with the server or with the
connection. For an SQLite it is a file beside the database, which the system unlocks when the server ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO

import psycopg
from sqlalchemy.engine import URL

from penstock.control.supervisor.ports import Lease
from penstock.errors import PenstockError

_LOCK = 7361_5075
"""The number of the lock in a PostgreSQL, each of whose databases has numbers of its own."""
_SECONDS = 5
"""How long a database that does not answer is waited for."""
_NAME = "penstock serve"
_HOLDER = """
    SELECT activity.application_name, activity.client_addr::text FROM pg_locks AS locks
    JOIN pg_stat_activity AS activity USING (pid)
    WHERE locks.locktype = 'advisory' AND locks.granted AND locks.classid = 0 AND locks.objid = %s
      AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def lease_of(url: URL) -> Lease:
    """For the store at a URL."""
    return FileLease(Path(url.database or "")) if url.drivername == "sqlite" else PostgresLease(url)


class FileLease:
    """For an SQLite. It is not lost while the process lives."""

    def __init__(self, database: Path) -> None:
        self.trouble: str | None = None
        self.taken = False
        # Two ways of writing its path, or a link to it, are one database.
        self._database = database.resolve()
        self._file: IO[str] | None = None

    def take(self) -> None:
        self._file, holder = locked(self._database.with_name(f"{self._database.name}.lock"))
        if self._file is None:
            raise PenstockError.of("STORE_IN_USE", store=self._database, who=f"process {holder}")

    def held(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class PostgresLease:
    """For a PostgreSQL. It is lost with its connection, as when the database is restarted."""

    def __init__(self, url: URL) -> None:
        self._address = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._shown = f"{url.host or 'localhost'}/{url.database or ''}"
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self.trouble: str | None = None
        self.taken = False

    def take(self) -> None:
        try:
            holder = self._try()
        except psycopg.Error as error:
            self.close()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise PenstockError.of("STORE_DOWN", reason=reason) from error
        if holder is not None:
            raise PenstockError.of("STORE_IN_USE", store=self._shown, who=holder)

    def held(self) -> bool:
        if self._answers():
            return True
        self.trouble, self.taken = "its lock on the store is lost", False
        try:
            self.take()
        except PenstockError as error:
            if error.code == "STORE_IN_USE":
                self.trouble, self.taken = "another server has the store", True
            return False
        self.trouble = None
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answers(self) -> bool:
        """Whether the connection that has the lock is still there."""
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self.close()
            return False
        return True

    def _try(self) -> str | None:
        """Takes the lock; who has it if that is another."""
        connection = psycopg.connect(
            self._address,
            autocommit=True,
            application_name=f"{_NAME}, process {os.getpid()} on {socket.gethostname()}"[:63],
            connect_timeout=_SECONDS,
            # A machine that is gone does not say so.
            tcp_user_timeout=_SECONDS * 1000,
            keepalives_idle=_SECONDS,
            keepalives_interval=1,
            keepalives_count=_SECONDS,
        )
        try:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
            if row == (True,):
                self._connection = connection
                return None
            found = connection.execute(_HOLDER, (_LOCK,)).fetchone()
            return "another server" if found is None else f"{found[0] or 'another server'} ({found[1] or 'local'})"
        finally:
            if self._connection is not connection:
                connection.close()


def locked(path: Path) -> tuple[IO[str] | None, str]:
    """A lock file that ends with this process; None and the number of the process that has it, if another has.

    Raises PATH_NOT_WRITABLE.
    """
    try:
        lock = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise PenstockError.of("PATH_NOT_WRITABLE", path=path, reason=error.strerror or str(error)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        return None, holder
    os.ftruncate(lock.fileno(), 0)
    os.write(lock.fileno(), str(os.getpid()).encode())
    return lock, str(os.getpid())
