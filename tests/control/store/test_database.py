"""The database itself: migrations, whole transactions, and what is said when it does not answer."""

from __future__ import annotations

import datetime as dt
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from tests.control.store.databases import T0, create, url_of
from tests.servers.postgres import Postgres
from tests.servers.sql import Database

from penstock.control.store import pipelines
from penstock.control.store.database import Store, revision_of
from penstock.control.store.schema import metadata
from penstock.errors import PenstockError

_INTERRUPTED = """\
import os, signal, sys
from alembic import op
from penstock.control.store.database import Store
made = []
make = op.create_table
def create_table(*args, **kwargs):
    if len(made) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    made.append(make(*args, **kwargs))
op.create_table = create_table
Store(sys.argv[1]).migrate()
"""


def test_migrations_make_the_tables_that_the_code_knows(store: Store) -> None:
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, metadata) == []


def test_migrating_twice_changes_nothing(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
    store.migrate()
    with store.reading() as connection:
        assert pipelines.get(connection, "a").revision == 1


def test_a_migration_killed_halfway_is_as_if_it_had_not_begun(store_url: str) -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(_INTERRUPTED), store_url], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = Store(store_url)
    with store.reading() as connection:
        assert "runs" not in inspect(connection).get_table_names()
    store.migrate()
    with store.reading() as connection:
        assert set(metadata.tables) <= set(inspect(connection).get_table_names())
    store.close()


def test_two_servers_may_migrate_at_once(postgres_database: Database) -> None:
    store_url = url_of(postgres_database)
    program = "import sys; from penstock.control.store.database import Store; Store(sys.argv[1]).migrate()"
    both = [subprocess.Popen([sys.executable, "-c", program, store_url], stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_tables_of_a_newer_program_are_refused(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(PenstockError) as raised:
        store.migrate()
    assert raised.value.code == "STORE_UNUSABLE"
    with store.reading() as connection:
        assert revision_of(connection) == "9999"


def test_a_transaction_is_kept_whole_or_not_at_all(store: Store) -> None:
    with pytest.raises(PenstockError), store.writing() as connection:  # noqa: PT012 - the whole is meant
        create(connection, "a")
        pipelines.get(connection, "nobody")
    with store.reading() as connection:
        assert pipelines.find(connection, "a") is None


def test_times_keep_their_moment_whatever_their_zone(store: Store) -> None:
    moment = dt.datetime(2026, 3, 1, 14, 30, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    with store.writing() as connection:
        pipelines.create(connection, "a", pipelines.Draft("yaml", "x", {}), now=moment, by="ann")
        created = pipelines.get(connection, "a").created_at
    assert created == moment
    assert created.tzinfo is dt.UTC


@pytest.mark.parametrize(
    "url", ["mysql://host/db", "nonsense", "sqlite+aiosqlite:///x", "sqlite://", "sqlite:///:memory:"]
)
def test_other_databases_are_refused_in_words(url: str) -> None:
    with pytest.raises(PenstockError) as raised:
        Store(url)
    assert raised.value.code == "STORE_UNUSABLE"


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    store = Store("postgresql://someone:canary-password@127.0.0.1:1/db")
    with pytest.raises(PenstockError) as raised:
        store.check()
    assert raised.value.code == "STORE_DOWN"
    assert "canary-password" not in str(raised.value)


def test_a_database_that_comes_back_is_used_again(postgres: Postgres) -> None:
    database = postgres.create_database()
    store = Store(url_of(database))
    store.migrate()
    postgres.end()
    try:
        with pytest.raises(PenstockError) as raised:
            store.check()
        assert raised.value.code == "STORE_DOWN"
    finally:
        postgres.start()
    with store.writing() as connection:
        create(connection, "a")
    store.close()
    postgres.drop_database(database)


def test_a_locked_sqlite_is_told_and_recovers(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'penstock.db'}")
    store.migrate()
    impatient = Store(f"sqlite:///{tmp_path / 'penstock.db'}")
    with impatient.reading() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=10")
    with store.writing() as connection:
        create(connection, "a")
        with pytest.raises(PenstockError) as raised, impatient.writing():
            pass
        assert raised.value.code == "STORE_DOWN"
        assert "locked" in str(raised.value)
    with impatient.writing() as connection:
        assert pipelines.get(connection, "a").name == "a"


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'penstock.db'}")
    store.migrate()
    with pytest.raises(PenstockError) as raised, store.writing() as connection:  # noqa: PT012 - the whole is meant
        connection.exec_driver_sql("PRAGMA max_page_count=1")
        pipelines.create(connection, "a", pipelines.Draft("yaml", "x" * 1_000_000, {}), now=T0, by="ann")
    assert raised.value.code == "STORE_DOWN"
    assert "full" in str(raised.value)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").write_text("not a database at all, but a text of some length\n" * 20)
    with pytest.raises(PenstockError) as raised:
        Store(f"sqlite:///{tmp_path / 'penstock.db'}").migrate()
    assert raised.value.code == "STORE_DOWN"


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path)
    before = os.umask(0o022)
    try:
        store.migrate()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "penstock.db").stat().st_mode) == 0o600
