"""A database of its own for one test, on a server that all tests share."""

from __future__ import annotations

from dataclasses import dataclass

from tests.servers.base import HOST, PASSWORD, USER


@dataclass(frozen=True)
class Database:
    """Where a database is and who may use it."""

    port: int
    name: str
    host: str = HOST
    user: str = USER
    password: str = PASSWORD
