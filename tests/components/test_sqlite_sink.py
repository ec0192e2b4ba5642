"""The SQLite sink stores a batch once in one transaction, replaces by key, and says what is wrong with a table."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.running import Died, json_lines, run, table

from penstock.components.base import Batch, CheckContext, SinkContext, SinkWriter
from penstock.components.shared import crashpoints
from penstock.components.sinks import sqlite
from penstock.components.sinks.sqlite import Sqlite
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "n": "int", "v": "int"}


def opened(
    spark: SparkSession, folder: Path, lineage: str = "l1", epoch: int = 1, columns: dict[str, str] | None = None,
    **config: Any,
) -> SinkWriter:  # fmt: skip
    sink = Sqlite(path="out.db", table="t", **config)
    return sink.open(SinkContext(spark, "out", folder, "demo", lineage, epoch, columns or COLUMNS))


def batch(number: int, lineage: str = "l1", epoch: int = 1) -> Batch:
    return Batch("demo", lineage, epoch, number)


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(
        [(*row, *(None,) * (3 - len(row))) for row in rows], "id string, n int, v int"
    ).coalesce(1)


def stored(folder: Path, columns: str = "id, n") -> list[tuple[Any, ...]]:
    return table(folder / "out.db", f"SELECT {columns} FROM t ORDER BY 1, 2")


def refusal(spark: SparkSession, folder: Path, **options: Any) -> PenstockError:
    with pytest.raises(PenstockError) as raised:
        opened(spark, folder, **options)
    return raised.value


def test_without_a_key_rows_are_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path)
    assert writer.write(batch(0), frame(spark, ("a", 1), ("a", 1))) is True
    assert writer.write(batch(0), frame(spark, ("a", 1))) is False
    assert opened(spark, tmp_path, epoch=2).write(batch(0, epoch=2), frame(spark, ("a", 1))) is False
    writer = opened(spark, tmp_path, epoch=3)
    assert writer.write(batch(1, epoch=3), frame(spark, ("b", 2))) is True
    assert stored(tmp_path) == [("a", 1), ("a", 1), ("b", 2)]
    assert table(tmp_path / "out.db", "SELECT batch, rows FROM _penstock_batches") == [(1, 3)]


def test_with_a_key_a_later_row_replaces_an_earlier_one(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, key=("id",))
    writer.write(batch(0), frame(spark, ("a", 1), ("b", 2), ("a", 3)))
    writer.write(batch(1), frame(spark, ("b", 1), ("c", 5)))
    assert stored(tmp_path) == [("a", 3), ("b", 1), ("c", 5)]


def test_a_key_of_all_columns_keeps_one_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("a",), ("a",), ("b",)], "id string")
    opened(spark, tmp_path, columns={"id": "string"}, key=("id",)).write(batch(0), rows)
    assert stored(tmp_path, "id, 1") == [("a", 1), ("b", 1)]


def test_keys_may_be_null(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, key=("id", "n"))
    writer.write(batch(0), frame(spark, (None, 1, 1), ("a", None, 1), (None, None, 1), ("a", 1, 1)))
    writer.write(batch(1), frame(spark, (None, 1, 2), ("a", None, 2), (None, None, 2), ("a", 1, 2), (None, 1, 3)))
    assert stored(tmp_path, "id, n, v") == [(None, None, 2), (None, 1, 3), ("a", None, 2), ("a", 1, 2)]


@pytest.mark.parametrize("key", ["a", None])
def test_the_newer_version_stays_whichever_comes_first(key: str | None, spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path, key=("id",), version="v")
    writer.write(batch(0), frame(spark, (key, 10, 2), (key, 20, 9), (key, 30, 3)))
    assert stored(tmp_path) == [(key, 20)]
    writer.write(batch(1), frame(spark, (key, 40, 8)))
    writer.write(batch(2), frame(spark, (key, 50, None)))
    assert stored(tmp_path) == [(key, 20)]
    writer.write(batch(3), frame(spark, (key, 60, 9)))
    assert stored(tmp_path) == [(key, 60)]
    writer.write(batch(4), frame(spark, (key, 70, 10)))
    assert stored(tmp_path) == [(key, 70)]


@pytest.mark.parametrize("key", ["a", None])
def test_versions_that_are_decimals_are_compared_as_numbers(
    key: str | None, spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"id": "string", "n": "int", "v": "decimal(10,2)"}
    writer = opened(spark, tmp_path, columns=columns, key=("id",), version="v")
    for number, (n, version) in enumerate([(1, "9.50"), (2, "10.00"), (3, "9.75")]):
        rows = spark.createDataFrame([(key, n, Decimal(version))], "id string, n int, v decimal(10,2)")
        writer.write(batch(number), rows)
    assert stored(tmp_path) == [(key, 2)]


def test_rows_of_another_lineage_are_not_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(0), frame(spark, ("a", 1)))
    assert refusal(spark, tmp_path, lineage="l2").code == "SINK_OF_ANOTHER_RUN"
    assert stored(tmp_path) == [("a", 1)]


def test_a_table_in_which_nothing_was_stored_may_change_hands(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path, epoch=5)
    opened(spark, tmp_path, lineage="l2").write(batch(0, "l2"), frame(spark, ("a", 1)))
    assert stored(tmp_path) == [("a", 1)]


def test_a_table_with_a_key_takes_another_lineage_over_and_fences_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    older = opened(spark, tmp_path, key=("id",), epoch=4)
    older.write(batch(7, epoch=4), frame(spark, ("a", 1)))
    newer = opened(spark, tmp_path, key=("id",), lineage="l2")
    assert newer.write(batch(0, "l2"), frame(spark, ("a", 2), ("b", 1))) is True
    with pytest.raises(PenstockError) as raised:
        older.write(batch(8, epoch=4), frame(spark, ("a", 9)))
    assert raised.value.code == "SINK_FENCED"
    assert stored(tmp_path) == [("a", 2), ("b", 1)]


def test_an_older_run_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    older = opened(spark, tmp_path, epoch=1)
    opened(spark, tmp_path, epoch=2).write(batch(0, epoch=2), frame(spark, ("new", 1)))
    for number in (0, 1):
        with pytest.raises(PenstockError) as raised:
            older.write(batch(number), frame(spark, ("old", 1)))
        assert raised.value.code == "SINK_FENCED"
    assert refusal(spark, tmp_path, epoch=1).code == "SINK_FENCED"
    assert stored(tmp_path) == [("new", 1)]


def test_a_batch_that_dies_in_its_transaction_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    writer = opened(spark, tmp_path)

    def die(point: str, number: int) -> None:
        raise Died(point)

    crashpoints.install(die)
    try:
        with pytest.raises(Died):
            writer.write(batch(0), frame(spark, ("lost", 1)))
    finally:
        crashpoints.install(None)
    assert stored(tmp_path) == []
    assert writer.write(batch(0), frame(spark, ("a", 1))) is True
    assert stored(tmp_path) == [("a", 1)]


def existing(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_a_table_that_is_there_is_used_with_its_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    made = "CREATE TABLE t (extra TEXT DEFAULT 'x', V INTEGER, N INTEGER, id TEXT)"
    existing(tmp_path, made, "INSERT INTO t (id, n) VALUES ('old', 0)")
    opened(spark, tmp_path).write(batch(0), frame(spark, ("a", 1, 2)))
    assert stored(tmp_path, "id, n, v, extra") == [("a", 1, 2, "x"), ("old", 0, None, "x")]


def test_a_missing_column_is_named(spark: SparkSession, tmp_path: Path) -> None:
    existing(tmp_path, "CREATE TABLE t (id TEXT, v INTEGER)")
    error = refusal(spark, tmp_path)
    assert error.code == "SINK_TABLE_DIFFERS"
    assert error.problems[0].params["reason"] == "column n is missing in the table"


def test_a_table_with_repeated_keys_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    existing(tmp_path, "CREATE TABLE t (id TEXT, n INTEGER, v INTEGER)", "INSERT INTO t (id) VALUES ('a'), ('a')")
    assert refusal(spark, tmp_path, key=("id",)).code == "SINK_TABLE_DIFFERS"


def test_a_constraint_of_the_table_fails_the_batch_and_nothing_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    existing(tmp_path, "CREATE TABLE t (id TEXT, n INTEGER CHECK (n < 10), v INTEGER)")
    writer = opened(spark, tmp_path)
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(0), frame(spark, ("a", 1), ("b", 10)))
    assert raised.value.code == "SINK_FAILED"
    assert raised.value.problems[0].params["batch"] == 0
    assert stored(tmp_path) == []


def test_a_locked_file_is_said(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.05)
    writer = opened(spark, tmp_path)
    with closing(sqlite3.connect(tmp_path / "out.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(PenstockError) as raised:
            writer.write(batch(0), frame(spark, ("a", 1)))
        assert raised.value.code == "SINK_FAILED"
        assert "close it" in raised.value.problems[0].hint
        assert refusal(spark, tmp_path, epoch=2).code == "PATH_NOT_WRITABLE"
    assert writer.write(batch(0), frame(spark, ("a", 1))) is True
    assert stored(tmp_path) == [("a", 1)]


def test_a_file_that_is_no_database_is_said(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out.db").write_text("this is text, and long enough to be no header of a database at all" * 20)
    error = refusal(spark, tmp_path)
    assert (error.code, error.problems[0].params["path"]) == ("PATH_NOT_WRITABLE", tmp_path / "out.db")


def test_every_type_is_stored_as_documented(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "i": "bigint", "x": "double", "ok": "boolean", "b": "binary", "d": "decimal(10,2)", "at": "timestamp",
        "day": "date", "tags": "array<string>", "m": "map<string,int>", "s": "struct<a:int,b:string>",
        "odd name\"`": "string",
    }  # fmt: skip
    time = dt.datetime(2024, 1, 2, 3, 4, 5, 600000, dt.UTC)
    row = (2**53 + 1, 1.5, True, bytearray(b"\x00\xff"), Decimal("12.30"), time,
           dt.date(2024, 1, 2), ["x"], {"k": 1}, (1, "z"), "q")  # fmt: skip
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
    nothing = tuple(None for _ in columns)
    opened(spark, tmp_path, columns=columns).write(batch(0), spark.createDataFrame([row, nothing], schema))
    expected = (2**53 + 1, 1.5, 1, b"\x00\xff", "12.30", "2024-01-02 03:04:05.6", "2024-01-02", '["x"]', '{"k":1}',
                '{"a":1,"b":"z"}', "q")  # fmt: skip
    assert sorted(stored(tmp_path, "*"), key=str) == sorted([expected, nothing], key=str)


def test_an_empty_batch_is_noted_and_stores_nothing(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).write(batch(3), frame(spark))
    assert stored(tmp_path) == []
    assert table(tmp_path / "out.db", "SELECT batch, rows FROM _penstock_batches") == [(3, 0)]


def test_a_version_needs_a_key(tmp_path: Path) -> None:
    (problem,) = Sqlite(path="o.db", table="t", version="v").check(CheckContext("out"))
    assert (problem.code, problem.params["key"]) == ("SPEC_MISSING_KEY", "key")
    unknown = Sqlite(path="o.db", table="t", key=("idd",), version="w").check_columns("out", COLUMNS)
    assert [(problem.code, problem.params["column"]) for problem in unknown] == [
        ("SINK_COLUMN_UNKNOWN", "idd"),
        ("SINK_COLUMN_UNKNOWN", "w"),
    ]


@pytest.mark.parametrize("point", ["sink.in_transaction", "sink.after_commit", "batch.after_sinks"])
def test_each_row_is_stored_once_wherever_the_run_dies(point: str, project: Project) -> None:
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": f"{number}-{n}"} for n in range(2)]))
    graph = project.build("""
        sources:
          views: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: string}}}}
        sinks:
          out: {from: views, sqlite: {path: out.db, table: t}}
          copy: {from: views, sqlite: {path: out.db, table: copy}}
    """)
    run(graph, project.folder / "state", die_at=f"{point}@1")
    outcome = run(graph, project.folder / "state")
    expected = [(f"{number}-{n}",) for number in range(3) for n in range(2)]
    assert table(project.folder / "out.db", "SELECT id FROM t ORDER BY id") == expected
    assert table(project.folder / "out.db", "SELECT id FROM copy ORDER BY id") == expected
    assert [entry.rows_out for entry in outcome.ledger] == [{"out": 2, "copy": 2}] * 3
