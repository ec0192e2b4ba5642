"""Tables of databases as sinks: the same promises on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.components.sql_stores import COLUMNS, Store, batch, frame, made, opened, refusal, stored
from tests.engine.running import Died

from penstock.components.shared import crashpoints
from penstock.errors import PenstockError

if TYPE_CHECKING:
    pass

spark_needed = pytest.mark.spark


# --- storing ---------------------------------------------------------------------------------------------------


@spark_needed
def test_without_a_key_rows_are_appended_once(store: Store, spark: SparkSession) -> None:
    writer = opened(store, spark)
    assert writer.write(batch(0), frame(spark, ("a", 1), ("a", 1))) is True
    assert writer.write(batch(0), frame(spark, ("a", 1))) is False
    assert opened(store, spark, epoch=2).write(batch(0, epoch=2), frame(spark, ("a", 1))) is False
    assert opened(store, spark, epoch=3).write(batch(1, epoch=3), frame(spark, ("b", 2))) is True
    assert stored(store) == [("a", 1), ("a", 1), ("b", 2)]
    assert store.query("SELECT batch, epoch FROM _penstock_batches") == [(1, 3)]


@spark_needed
def test_with_a_key_the_last_row_of_a_batch_counts_and_replaces(store: Store, spark: SparkSession) -> None:
    writer = opened(store, spark, key=("id",))
    writer.write(batch(0), frame(spark, ("a", 1), ("b", 2), ("a", 3), ("A", 4), ("a ", 5)))
    writer.write(batch(1), frame(spark, ("b", 1), ("c", 5)))
    assert stored(store) == [("A", 4), ("a ", 5), ("a", 3), ("b", 1), ("c", 5)]


@spark_needed
def test_a_key_of_all_columns_keeps_one_row(store: Store, spark: SparkSession) -> None:
    writer = opened(store, spark, columns={"id": "string"}, key=("id",))
    for number in range(2):
        writer.write(batch(number), frame(spark, ("a",), ("a",), ("b",), schema="id string"))
    assert stored(store, "id, 1") == [("a", 1), ("b", 1)]


@spark_needed
@pytest.mark.parametrize("bulk", [1, 50_000])
def test_the_newer_version_stays_whichever_comes_first(store: Store, spark: SparkSession, bulk: int) -> None:
    config: dict[str, Any] = {} if store.name == "sqlite" else {"bulk_rows": bulk}
    writer = opened(store, spark, key=("id",), version="v", **config)
    writer.write(batch(0), frame(spark, ("a", 10, 2), ("a", 20, 9), ("a", 30, 3), ("b", 1, None), ("b", 2, None)))
    assert stored(store) == [("a", 20), ("b", 2)]
    writer.write(batch(1), frame(spark, ("a", 40, 8), ("b", 3, None)))
    writer.write(batch(2), frame(spark, ("a", 50, None)))
    assert stored(store) == [("a", 20), ("b", 3)]
    writer.write(batch(3), frame(spark, ("a", 60, 9), ("a", 65, 9), ("b", 4, 1)))
    assert stored(store) == [("a", 65), ("b", 4)]


@spark_needed
def test_deletes_go_by_key_and_version(store: Store, spark: SparkSession) -> None:
    columns = {**COLUMNS, "gone": "boolean"}
    schema = "id string, n int, v int, gone boolean"
    writer = opened(store, spark, columns=columns, key=("id",), version="v", delete="gone")

    def write(number: int, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        writer.write(batch(number), frame(spark, *rows, schema=schema))
        return stored(store)

    assert write(0, ("a", 1, 5, False), ("b", 1, 5, None), ("c", 1, 5), ("d", 1, 1), ("d", 1, 2, True)) == [
        ("a", 1), ("b", 1), ("c", 1),
    ]  # fmt: skip
    assert write(1, ("a", None, 5, True), ("b", None, 4, True), ("x", None, 1, True)) == [("b", 1), ("c", 1)]
    # A newer row in the same batch wins over a delete; a delete leaves nothing that an older row would meet later.
    assert write(2, ("c", None, 6, True), ("c", 7, 7, False), ("a", 9, 1)) == [("a", 9), ("b", 1), ("c", 7)]
    assert "gone" not in str(store.query("SELECT * FROM t LIMIT 1")).lower()


@spark_needed
def test_without_versions_the_last_of_upsert_and_delete_counts(store: Store, spark: SparkSession) -> None:
    columns = {"id": "string", "n": "int", "gone": "boolean"}
    writer = opened(store, spark, columns=columns, key=("id",), delete="gone")
    schema = "id string, n int, gone boolean"
    writer.write(batch(0), frame(spark, ("a", 1), ("b", 2), ("a", 3, True), ("c", 4, True), ("c", 5), schema=schema))
    assert stored(store) == [("b", 2), ("c", 5)]
    writer.write(batch(1), frame(spark, ("b", None, True), ("c", 6), schema=schema))
    assert stored(store) == [("c", 6)]


@spark_needed
def test_keys_may_be_null_where_the_database_finds_them_again(store: Store, spark: SparkSession) -> None:
    columns = {**COLUMNS, "gone": "boolean"}
    schema = "id string, n int, v int, gone boolean"
    writer = opened(store, spark, columns=columns, key=("id", "n"), delete="gone", on_violation="dead")
    rows = [(None, 1), ("a", None), (None, None), ("a", 1)]
    for number in (1, 2):
        writer.write(batch(number), frame(spark, *((*row, number) for row in rows), schema=schema))
    null_keys = [(None, 1, 2), (None, None, 2), ("a", None, 2)]
    expected = [("a", 1, 2), *(null_keys if store.name != "mysql" else [])]
    assert stored(store, "id, n, v") == sorted(expected, key=str)
    assert len(writer.refused(batch(2))) == (3 if store.name == "mysql" else 0)
    writer.write(batch(3), frame(spark, *((*row, 3, True) for row in rows), schema=schema))
    assert stored(store) == []


@spark_needed
def test_an_empty_batch_is_noted(store: Store, spark: SparkSession) -> None:
    opened(store, spark).write(batch(3), frame(spark))
    assert store.query("SELECT batch FROM _penstock_batches") == [(3,)]


@spark_needed
@pytest.mark.parametrize("plain", [True, False])
def test_rows_at_hand_are_written_once_where_the_table_can_be_loaded(
    store: Store, spark: SparkSession, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not plain and store.name != "postgres":
        pytest.skip("only PostgreSQL has rules, which loading would pass by")
    writer = opened(store, spark)
    if not plain:
        store.execute("CREATE TABLE heard (n int)")
        store.execute("CREATE RULE hear AS ON INSERT TO t DO ALSO INSERT INTO heard VALUES (NEW.n)")
        writer = opened(store, spark, epoch=2)
    loaded: list[str] = []
    connection: Any = type(writer.database.connect())
    load = connection.load

    def noted(self: Any, table: str, *args: Any, **options: Any) -> None:
        loaded.append(table.strip('"`'))
        load(self, table, *args, **options)

    monkeypatch.setattr(connection, "load", noted)
    writer.write(batch(0, epoch=2), frame(spark, ("a", 1), ("b", 2)))
    assert loaded == (["t"] if plain else ["_penstock_direct"])
    assert stored(store) == [("a", 1), ("b", 2)]
    assert plain or store.query("SELECT n FROM heard ORDER BY n") == [(1,), (2,)]


# --- who may write ---------------------------------------------------------------------------------------------


@spark_needed
def test_rows_of_another_lineage_are_not_appended_to(store: Store, spark: SparkSession) -> None:
    opened(store, spark, epoch=5)
    opened(store, spark, lineage="l2").write(batch(0, "l2"), frame(spark, ("a", 1)))
    assert refusal(store, spark, lineage="l1").code == "SINK_OF_ANOTHER_RUN"
    assert stored(store) == [("a", 1)]


@spark_needed
def test_a_table_with_a_key_takes_another_lineage_over_and_fences_the_old_one(
    store: Store, spark: SparkSession
) -> None:
    older = opened(store, spark, key=("id",), epoch=4)
    older.write(batch(7, epoch=4), frame(spark, ("a", 1)))
    newer = opened(store, spark, key=("id",), lineage="l2")
    assert newer.write(batch(0, "l2"), frame(spark, ("a", 2), ("b", 1))) is True
    with pytest.raises(PenstockError) as raised:
        older.write(batch(8, epoch=4), frame(spark, ("a", 9)))
    assert raised.value.code == "SINK_FENCED"
    assert stored(store) == [("a", 2), ("b", 1)]


@spark_needed
@pytest.mark.parametrize("point", ["", "sink.staged"])
def test_an_older_run_is_fenced_also_between_computing_and_storing(
    store: Store, spark: SparkSession, at_point: Any, point: str
) -> None:
    older = opened(store, spark)
    if point:
        at_point(point, lambda: opened(store, spark, epoch=2))
    else:
        opened(store, spark, epoch=2)
    with pytest.raises(PenstockError) as raised:
        older.write(batch(0), frame(spark, ("old", 1)))
    assert raised.value.code == "SINK_FENCED"
    assert refusal(store, spark).code == "SINK_FENCED"
    assert stored(store) == []


# --- tables that are there -------------------------------------------------------------------------------------


@spark_needed
def test_a_table_that_is_there_is_used_with_its_other_columns(store: Store, spark: SparkSession) -> None:
    store.execute("CREATE TABLE t (extra INTEGER DEFAULT 7, V INTEGER, N BIGINT, id VARCHAR(10))")
    opened(store, spark).write(batch(0), frame(spark, ("a", 1, 2)))
    assert store.query("SELECT id, n, v, extra FROM t") == [("a", 1, 2, 7)]


@spark_needed
def test_what_does_not_fit_about_a_table_is_named(server: Store, spark: SparkSession) -> None:
    cases: dict[str, tuple[str, tuple[str, ...]]] = {
        "id VARCHAR(9), v INTEGER": ("column n is missing in the table", ()),
        "id INTEGER, n INTEGER, v INTEGER": ("column id is", ()),
        "id VARCHAR(9), n VARCHAR(9), v INTEGER": ("column n is", ()),
        "id VARCHAR(9), n INTEGER, v INTEGER": ("it has no unique index on the key (id)", ("id",)),
        "id VARCHAR(9), n INTEGER, v INTEGER, UNIQUE (id, n)": ("it has no unique index on the key (id)", ("id",)),
        "id VARCHAR(9), n INTEGER, v INTEGER, w INTEGER NOT NULL": ("column w must be given", ()),
    }
    for number, (columns, (reason, key)) in enumerate(cases.items()):
        server.execute(f"CREATE TABLE t{number} ({columns})")
        error = refusal(server, spark, key=key, table=f"t{number}")
        assert error.code == "SINK_TABLE_DIFFERS"
        assert error.problems[0].params["reason"].startswith(reason)


@spark_needed
def test_a_table_without_transactions_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    store = made("mysql", request, tmp_path)
    store.execute("CREATE TABLE t (id VARCHAR(9), n INTEGER, v INTEGER) ENGINE = MyISAM")
    assert "transactions" in refusal(store, spark).problems[0].params["reason"]


@spark_needed
def test_a_table_in_a_schema_has_its_bookkeeping_there(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    store = made("postgres", request, tmp_path)
    store.execute("CREATE SCHEMA shop")
    opened(store, spark, table="shop.t", bulk_rows=1).write(batch(0), frame(spark, ("a", 1), ("b", 2)))
    assert store.query("SELECT id FROM shop.t ORDER BY id") == [("a",), ("b",)]
    assert store.query("SELECT batch FROM shop._penstock_batches") == [(0,)]
    assert store.staged() == []


# --- at random -------------------------------------------------------------------------------------------------


@spark_needed
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_with_random_crashes_end_as_a_dictionary_would(
    store: Store, spark: SparkSession, seed: int
) -> None:
    rng = random.Random(seed)
    versioned = rng.random() < 0.7
    config: dict[str, Any] = {} if store.name == "sqlite" else {"bulk_rows": rng.choice([1, 3, 50_000])}
    columns = {**COLUMNS, "gone": "boolean"}
    options = {**config, "columns": columns, "key": ("id",), "version": "v" if versioned else None, "delete": "gone"}
    oracle: dict[str, tuple[int, int]] = {}
    epoch = 1
    writer = opened(store, spark, **options)
    for number in range(6):
        rows = [
            (f"k{rng.randrange(8)}", rng.randrange(1000), rng.randrange(20), rng.random() < 0.3)
            for _ in range(rng.randrange(12))
        ]
        rows_frame = frame(spark, *rows, schema="id string, n int, v int, gone boolean")
        for _ in range(rng.randrange(3)):
            point = rng.choice(["sink.staged", "sink.in_transaction", "replay"])
            crashpoints.install(lambda reached, _, point=point: die() if reached == point else None)  # type: ignore[misc]
            try:
                writer.write(batch(number, epoch=epoch), rows_frame)
            except Died:
                epoch += 1
                writer = opened(store, spark, epoch=epoch, **options)
            finally:
                crashpoints.install(None)
        writer.write(batch(number, epoch=epoch), rows_frame)
        apply(oracle, rows, versioned)
        assert stored(store, "id, n, v") == sorted((key, *value) for key, value in oracle.items()), f"seed {seed}"


def die() -> None:
    raise Died


def apply(oracle: dict[str, tuple[int, int]], rows: list[tuple[str, int, int, bool]], versioned: bool) -> None:
    """Of each key the newest row of the batch, and of equally new ones the last, against what is there."""
    newest: dict[str, tuple[str, int, int, bool]] = {}
    for row in rows:
        if not versioned or row[0] not in newest or row[2] >= newest[row[0]][2]:
            newest[row[0]] = row
    for key, n, version, gone in newest.values():
        if versioned and key in oracle and oracle[key][1] > version:
            continue
        if gone:
            oracle.pop(key, None)
        else:
            oracle[key] = (n, version)
