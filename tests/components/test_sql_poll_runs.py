"""A polled table in a pipeline: crashes between batches, dead letters, a backlog in several tasks, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.components.polling import url_of
from tests.components.sql_stores import Store, made
from tests.engine.running import Outcome, run, table
from tests.faults.victim import committed_rows

from penstock.components.sources import sql_poll
from penstock.errors import PenstockError
from penstock.testing.rewire import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

pytestmark = pytest.mark.spark

BODY = """
    sources:
      rows:
        sql_poll: {url: "${secret:env/DB_URL}", table: t, %s}
        eventTime: {column: ts, maxDelay: 1 minute}
    sinks:
      out: {from: rows, sqlite: {path: out/rows.db, table: rows}}
"""
ORDER = "order: ts, every: 1 second, overlap: 10 seconds"


def fill(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a table with rows 0 to 9, and tells where it is."""
    kind = {"sqlite": "TIMESTAMP", "postgres": "timestamptz", "mysql": "DATETIME(6)"}[store.name]
    store.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, ts {kind} NOT NULL, born DATE)")
    add(store, *range(10))
    monkeypatch.setenv("DB_URL", url_of(store))


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store(tmp_path)
    fill(store, monkeypatch)
    return store


def add(store: Store, *numbers: int) -> None:
    rows = ", ".join(f"({number}, '2024-01-01 10:00:{number:02d}', NULL)" for number in numbers)
    store.execute(f"INSERT INTO t VALUES {rows}")


def go(project: Project, settings: str = ORDER, die_at: str | None = None) -> Outcome:
    return run(project.build(BODY % settings), project.folder / "state", die_at=die_at)


def stored(project: Project) -> list[Any]:
    return [id for (id,) in table(project.folder / "out" / "rows.db", "SELECT id FROM rows ORDER BY 1")]


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_rows_are_stored_once_over_a_crash_and_a_late_commit(
    name: str, project: Project, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(name, request, project.folder)
    fill(store, monkeypatch)
    add(store, 15)
    batches = f"{ORDER}, maxRowsPerBatch: 8"
    go(project, batches, die_at="batch.after_sinks@1")
    store.execute("DELETE FROM t WHERE id IN (3, 9)", "UPDATE t SET born = '2024-01-01' WHERE id = 8")
    add(store, 11, 20)
    outcome = go(project, batches)
    assert stored(project) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 11, 15, 20]
    assert sum(entry.rows_in["rows"] for entry in outcome.ledger) == 14


def test_a_large_backlog_is_read_by_several_tasks(
    project: Project, local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_poll, "_PIECE_ROWS", 10)
    add(local, *range(10, 60))
    go(project, die_at="sink.staged@0")
    spool = project.folder / "state" / "spool" / "sql_poll" / "rows"
    (plan,) = [file.stem for file in spool.glob("000000000001-*.json")]
    assert len(list(spool.glob(f"{plan}.[0-9]"))) == 5
    local.execute("DELETE FROM t WHERE id < 5")
    go(project)
    assert stored(project) == list(range(60))


def test_values_that_fit_no_type_are_dead_letters(project: Project, local: Store) -> None:
    local.execute("INSERT INTO t VALUES (30, '2024-01-01 10:00:30', 'soon')")
    outcome = go(project)
    assert stored(project) == list(range(10))
    (letter,) = committed_rows(outcome.state / "dead")
    assert (letter["error"], letter["place"]) == ("column 'born': cannot read 'soon' as date", "t/2024-01-01 10:00:30")


def test_a_test_knows_the_columns_without_any_server(project: Project, local: Store, spark: SparkSession) -> None:
    file = project.load("""
        sources:
          polled: {sql_poll: {url: "${secret:env/DB_URL}", table: t, order: ts}}
          changed: {cdc: {kafka: {bootstrap: "h:1", topic: t}, schema: {id: int}, columns: {gone: deleted}}}
          packed:
            kafka: {bootstrap: "h:1", topic: t}
            format: {avro: {schema: {type: record, name: R, fields: [{name: id, type: long}]}}}
        sinks:
          out: {from: polled, memory: {}}
    """)
    found = [schema_of(source, file, spark, project.folder).as_mapping() for source in file.pipeline.sources]
    assert found == [
        {"id": "bigint", "ts": "timestamp", "born": "date"}, {"id": "int", "gone": "boolean"}, {"id": "bigint"},
    ]  # fmt: skip


def test_what_goes_wrong_while_reading_has_a_code(project: Project, local: Store) -> None:
    local.execute("INSERT INTO t VALUES (50, '2024-99-99', NULL)")
    with pytest.raises(PenstockError) as unordered:
        go(project)
    assert unordered.value.code == "SOURCE_FAILED"
    assert "'2024-99-99' in column 'ts' is no time" in unordered.value.problems[0].message
