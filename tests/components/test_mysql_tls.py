"""What `ssl_mode` of a `mysql` sink insists on, before a server that has no TLS."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.servers.sql import Database

from penstock.components.sinks.mysql import Mysql


def url(database: Database, options: str) -> str:
    return f"mysql://{database.user}:{database.password}@{database.host}:{database.port}/{database.name}{options}"


@pytest.mark.parametrize("mode", ["required", "verify-ca", "verify-identity"])
def test_a_server_without_tls_is_refused(mode: str, mariadb_database: Database) -> None:
    database = Mysql.database(Mysql.server(url(mariadb_database, f"?ssl_mode={mode}")))
    with pytest.raises(database.errors, match="SSL"):
        database.connect()


@pytest.mark.parametrize("options", ["", "?ssl_mode=disabled"])
def test_without_a_demand_for_tls_it_is_used(options: str, mariadb_database: Database) -> None:
    database = Mysql.database(Mysql.server(url(mariadb_database, options)))
    with closing(database.connect()) as connection:
        assert connection.rows("SELECT 1") == [(1,)]
