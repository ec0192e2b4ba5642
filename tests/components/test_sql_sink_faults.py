"""Lost connections, deadlocks and tasks that are run twice: each row is stored once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.components.sql_stores import Store, batch, frame, opened, stored
from tests.servers.base import free_port
from tests.servers.cutting import CuttingProxy

from penstock.components.shared.retry import Patience, persist
from penstock.components.shared.sql_stage import Loading, Task
from penstock.components.shared.sql_url import Server
from penstock.errors import PenstockError

if TYPE_CHECKING:
    pass

spark_needed = pytest.mark.spark


# --- loading by tasks ------------------------------------------------------------------------------------------


@spark_needed
@pytest.mark.parametrize("key", [(), ("id",)])
def test_loaded_by_tasks_or_sent_to_the_driver_is_the_same(
    server: Store, spark: SparkSession, at_point: Any, key: tuple[str, ...]
) -> None:
    rows = spark.range(10_000).selectExpr("cast(id % 7000 as string) id", "cast(id as int) n", "cast(1 as int) v")
    results = []
    for bulk in (100, 100_000):
        writer = opened(server, spark, key=key, bulk_rows=bulk, table=f"t{bulk}")
        seen: list[str] = []
        at_point("sink.staged", partial(_note, server, seen))
        writer.write(batch(0), rows.repartition(3))
        assert len(seen) == (3 if bulk == 100 else 0)
        assert server.staged() == []
        # Which row of a key comes last is up to the partitions.
        column = "id" if key else "id, n"
        results.append(sorted(server.query(f"SELECT {column} FROM t{bulk}")))
        server.execute("DELETE FROM _penstock_batches")
    assert results[0] == results[1]
    assert len(results[0]) == (7000 if key else 10_000)


def _note(server: Store, seen: list[str]) -> None:
    seen.extend(server.staged())


@spark_needed
def test_what_an_attempt_loaded_that_was_overtaken_is_not_stored(server: Store, spark: SparkSession) -> None:
    writer = opened(server, spark, bulk_rows=1)
    loading = Loading(writer.database, writer.layout, f"{writer._prefix}_1_0", 1)
    lost = Task(loading, partition=0, attempt=999_999)
    lost.add(
        pa.record_batch({"id": ["lost", "lost"], "n": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())})
    )
    lost.close()
    assert len(server.staged()) == 1
    writer.write(batch(0), frame(spark, ("a", 1), ("b", 2), ("c", 3)))
    assert stored(server) == [("a", 1), ("b", 2), ("c", 3)]
    opened(server, spark, epoch=2)
    assert server.staged() == []


@spark_needed
@pytest.mark.parametrize("delivered", [True, False])
def test_a_task_that_loses_its_connection_loads_each_row_once(
    server: Store, spark: SparkSession, proxy: CuttingProxy, delivered: bool
) -> None:
    writer = opened(server, spark, bulk_rows=1)
    task = Task(Loading(writer.database, writer.layout, f"{writer._prefix}_1_0", 1), partition=0, attempt=7)
    for number in range(3):
        if number == 1:
            proxy.arm(delivered=delivered)
        values = pa.array([number, number], pa.int32())
        task.add(pa.record_batch({"id": ["a", "b"], "n": values, "v": values}))
    part = task.finish()
    task.close()
    assert proxy.cuts == 1
    assert part.rows == 6
    assert server.query(f"SELECT COUNT(*), COUNT(DISTINCT seq) FROM {part.stage}") == [(6, 6)]


@spark_needed
def test_rows_that_a_restart_of_the_server_took_away_are_missed(
    server: Store, spark: SparkSession, at_point: Any
) -> None:
    writer = opened(server, spark, bulk_rows=1)
    at_point("sink.staged", lambda: server.execute(*(f"DELETE FROM {name}" for name in server.staged())))
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(0), frame(spark, ("a", 1), ("b", 2)))
    assert raised.value.code == "SINK_FAILED"
    assert stored(server) == []
    assert writer.write(batch(0), frame(spark, ("a", 1), ("b", 2))) is True


# --- lost connections ------------------------------------------------------------------------------------------


@spark_needed
@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("bulk", [1, 50_000])
def test_a_connection_cut_at_the_commit_stores_the_batch_once(
    server: Store, spark: SparkSession, proxy: CuttingProxy, at_point: Any, delivered: bool, bulk: int
) -> None:
    writer = opened(server, spark, bulk_rows=bulk)
    at_point("sink.in_transaction", lambda: proxy.arm(delivered=delivered))
    assert writer.write(batch(0), frame(spark, ("a", 1), ("b", 2))) is True
    assert proxy.cuts == 1
    assert stored(server) == [("a", 1), ("b", 2)]
    assert server.query("SELECT batch FROM _penstock_batches") == [(0,)]
    writer.write(batch(1), frame(spark, ("c", 3)))
    assert stored(server) == [("a", 1), ("b", 2), ("c", 3)]


def end_sessions(store: Store) -> None:
    with store.connected() as connection:
        cursor = connection.cursor()
        if store.name == "postgres":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'penstock' AND datname = current_database()"
            )
            return
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL {number}")


@spark_needed
def test_a_session_ended_in_the_middle_of_its_transaction_is_taken_up_again(
    server: Store, spark: SparkSession, at_point: Any
) -> None:
    writer = opened(server, spark)
    at_point("sink.in_transaction", lambda: end_sessions(server))
    assert writer.write(batch(0), frame(spark, ("a", 1))) is True
    end_sessions(server)
    assert writer.write(batch(1), frame(spark, ("b", 2))) is True
    assert stored(server) == [("a", 1), ("b", 2)]


@spark_needed
def test_a_deadlock_is_resolved_by_trying_again(
    server: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(server, spark, key=("id",))
    errors: list[Exception] = []
    passes = writer._passes

    def noted(error: Exception) -> bool:
        errors.append(error)
        return passes(error)

    monkeypatch.setattr(writer, "_passes", noted)
    writer.write(batch(0), frame(spark, ("a", 1), ("b", 1), *((f"z{n}", 1) for n in range(50))))
    waits = {
        "postgres": "SELECT COUNT(*) FROM pg_locks WHERE NOT granted",
        "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[server.name]
    with server.connected() as other:
        cursor = other.cursor()
        if server.name == "postgres":
            # Who finds the deadlock gives up; this one does not look for it.
            cursor.execute("SET deadlock_timeout = '60s'")
        cursor.execute("BEGIN")
        # The one that has changed more rows wins in MariaDB.
        cursor.execute("UPDATE t SET n = n + 1 WHERE id LIKE 'z%' OR id = 'b'")
        found: list[Any] = []
        writing = threading.Thread(
            target=lambda: found.append(writer.write(batch(1), frame(spark, ("a", 5), ("b", 5)))), daemon=True
        )
        writing.start()
        deadline = time.monotonic() + 60
        while server.query(waits)[0][0] == 0 and time.monotonic() < deadline:
            # InnoDB shows a table of transactions that is as old as the last look at it, if that was just now.
            time.sleep(0.15)
        cursor.execute("UPDATE t SET n = 7 WHERE id = 'a'")
        cursor.execute("COMMIT")
        writing.join(60)
    assert found == [True]
    assert any("deadlock" in str(error).lower() for error in errors)
    assert server.query("SELECT id, n FROM t WHERE id IN ('a', 'b') ORDER BY id") == [("a", 5), ("b", 5)]


@spark_needed
def test_patience_ends_with_one_line(server: Store, spark: SparkSession) -> None:
    writer = opened(server, spark)
    writer.patience = Patience(attempts=3, first=0.01)
    writer.close()
    reached = writer.database.server  # type: ignore[attr-defined]
    nowhere = Server(reached.host, free_port(), reached.database, "u", "pass-word")
    writer.database = type(writer.database)(nowhere)  # type: ignore[call-arg]
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(4), frame(spark, ("a", 1)))
    problem = raised.value.problems[0]
    assert (problem.code, problem.params["batch"], "\n" in problem.message) == ("SINK_FAILED", 4, False)
    assert "pass-word" not in str(raised.value)


def test_waits_grow_and_end() -> None:
    patience = Patience(attempts=4, seconds=10, first=1, longest=3)
    assert [patience.wait(attempt, 0) for attempt in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert patience.wait(1, 9.5) is None
    slept: list[float] = []
    answers: Iterator[OSError | str] = iter([OSError(), OSError(), "done"])

    def action() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert persist(action, lambda error: True, patience, lambda: 0.0, slept.append) == "done"
    assert slept == [1, 2]
    with pytest.raises(ValueError):
        persist(lambda: int("x"), lambda error: False, patience, lambda: 0.0, slept.append)


def test_an_attempt_that_took_long_is_tried_again() -> None:
    times = iter([100.0, 100.0])
    answers: Iterator[OSError | str] = iter([OSError(), "done"])

    def action() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    # The first look at the clock is after the failure: what came before it does not count.
    assert persist(action, lambda error: True, Patience(seconds=1), lambda: next(times), lambda _: None) == "done"
