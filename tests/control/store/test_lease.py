"""One server per store, whatever becomes of the connection that says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from tests.control.store.databases import url_of
from tests.control.supervisor.world import MemoryStore, Pretended, TestFolders
from tests.servers.postgres import Postgres
from tests.servers.sql import Database

from penstock.control.serve import PenstockServer, ServeOptions
from penstock.control.store.database import Store
from penstock.control.store.lease import FileLease, PostgresLease, lease_of
from penstock.control.supervisor.loop import Supervisor
from penstock.control.supervisor.ports import Lease, Target
from penstock.errors import PenstockError
from penstock.testing.processes import until


@pytest.fixture
def leases(store_url: str) -> Iterator[tuple[Lease, Lease]]:
    """Those of two servers over one store."""
    first, second = lease_of(Store(store_url).url), lease_of(Store(store_url).url)
    yield first, second
    first.close()
    second.close()


def test_only_one_has_it_and_the_other_is_told_who(leases: tuple[Lease, Lease]) -> None:
    first, second = leases
    first.take()
    with pytest.raises(PenstockError) as raised:
        second.take()

    assert raised.value.code == "STORE_IN_USE"
    assert f"process {os.getpid()}" in raised.value.problems[0].message
    assert (first.held(), second.held()) == (True, False)
    first.close()
    second.take()
    assert second.held()


def test_a_file_is_one_store_however_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first, second = (FileLease(Path(folder, "penstock.db")) for folder in (tmp_path, tmp_path / "link"))
    first.take()
    with pytest.raises(PenstockError, match="STORE_IN_USE"):
        second.take()
    first.close()


def cut(postgres: Postgres, database: Database) -> None:
    """Ends every connection to a database, as its operator can."""
    with postgres.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database.name,)
        )


def test_a_lock_whose_connection_is_cut_is_taken_again(postgres: Postgres, postgres_database: Database) -> None:
    lease = PostgresLease(make_url(url_of(postgres_database)))
    lease.take()
    cut(postgres, postgres_database)
    assert lease.held()
    assert lease.trouble is None
    lease.close()


def test_a_lock_that_another_server_took_meanwhile_stays_with_it(
    postgres: Postgres, postgres_database: Database
) -> None:
    first, second = (PostgresLease(make_url(url_of(postgres_database))) for _ in range(2))
    first.take()
    cut(postgres, postgres_database)
    second.take()

    assert (first.held(), first.taken, first.trouble) == (False, True, "another server has the store")
    assert second.held()
    second.close()
    assert (first.held(), first.taken, first.trouble) == (True, False, None)
    first.close()


class Pretend:
    """A lease that tests give and take."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.taken = False

    def take(self) -> None: ...

    def held(self) -> bool:
        return self.trouble is None

    def close(self) -> None: ...


def supervised(folder: Path, store: MemoryStore, processes: Pretended, lease: Pretend) -> Supervisor:
    """A supervisor of one pipeline."""
    store.want("a")
    targets = {"local": Target()}
    return Supervisor(store, TestFolders(folder), lambda: targets, base=folder, processes=processes, lease=lease)


def test_without_the_lock_a_supervisor_looks_and_does_nothing(tmp_path: Path) -> None:
    store, processes, lease = MemoryStore(), Pretended(), Pretend()
    supervisor = supervised(tmp_path, store, processes, lease)
    supervisor.tick()
    processes.report(0)
    supervisor.tick()
    saves, started = store.saves, list(processes.orders)

    lease.trouble = "its lock on the store is lost"
    store.want("a", desired="stopped")
    store.want("b")
    processes.report(1)
    supervisor.tick()

    status = supervisor.live()["a"].status
    assert status is not None
    assert status.batches == 2  # It has looked.
    assert (store.saves, list(processes.orders), processes.signals) == (saves, started, [])
    assert sorted(batch for _, batch in store.batches) == [0]

    lease.trouble = None
    supervisor.tick()
    assert sorted(batch for _, batch in store.batches) == [0, 1]  # What was seen meanwhile is noted now.
    assert [kind for kind, _ in processes.signals] == ["stop"]
    assert len(processes.orders) == 2


def test_what_another_server_decided_meanwhile_is_not_undone(tmp_path: Path) -> None:
    store, processes, lease = MemoryStore(), Pretended(), Pretend()
    supervisor = supervised(tmp_path, store, processes, lease)
    supervisor.tick()
    lease.trouble = "its lock on the store is lost"
    processes.report(0)
    supervisor.tick()
    lease.trouble, lease.taken = "another server has the store", True
    saves = store.saves
    supervisor.tick()
    assert (store.saves, supervisor.live(), len(processes.orders)) == (saves, {}, 1)

    lease.trouble, lease.taken = None, False
    supervisor.tick()
    assert sorted(batch for _, batch in store.batches) == [0]  # It is read again from the run's own folder.
    assert len(processes.orders) == 1


def test_a_second_server_is_refused_and_a_restarted_database_is_waited_for(
    tmp_path: Path, postgres: Postgres, postgres_database: Database
) -> None:
    url = url_of(postgres_database)
    with PenstockServer(ServeOptions(tmp_path / "one", port=0, store=url)) as server:
        with pytest.raises(PenstockError) as raised, PenstockServer(ServeOptions(tmp_path / "two", port=0, store=url)):
            pass
        assert raised.value.code == "STORE_IN_USE"
        assert url not in str(raised.value)

        until(lambda: server.troubles() == [], "the server is ready")
        postgres.end()
        until(lambda: "its lock on the store is lost" in server.troubles(), "it notices", 90)
        postgres.start()
        until(lambda: server.troubles() == [], "it has its lock again", 90)
        with pytest.raises(PenstockError, match="STORE_IN_USE"):
            PenstockServer(ServeOptions(tmp_path / "two", port=0, store=url)).start()
