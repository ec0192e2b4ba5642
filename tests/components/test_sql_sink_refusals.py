"""Rows that a table does not take are dead letters once, and servers that cannot be used are named."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.components.sql_stores import COLUMNS, Store, batch, frame, made, opened, refusal, stored
from tests.engine.running import json_lines, run
from tests.servers.base import free_port

from penstock import read_files
from penstock.components.base import CheckContext
from penstock.components.shared.sql_url import BadUrl, read_url
from penstock.components.sinks.mysql import Mysql
from penstock.components.sinks.postgres import Postgres
from penstock.components.sinks.sqlite import Sqlite
from penstock.errors import PenstockError
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

spark_needed = pytest.mark.spark
HARD = "tab\t newline\n return\r back\\slash \\N 'quote' \"double\""
AT = dt.datetime(2024, 1, 2, 3, 4, 5, 600001, dt.UTC)


# --- rows that do not fit --------------------------------------------------------------------------------------


def constrained(store: Store, key: bool = False) -> None:
    name = {"sqlite": "TEXT", "postgres": "TEXT", "mysql": "VARCHAR(50)"}[store.name]
    unique = ", UNIQUE (id)" if key else ""
    store.execute(f"CREATE TABLE t (id {name} NOT NULL, n INTEGER CHECK (n < 100), v INTEGER UNIQUE{unique})")


@spark_needed
@pytest.mark.parametrize("key", [(), ("id",)])
@pytest.mark.parametrize("bulk", [1, 50_000])
def test_rows_that_violate_a_constraint_are_left_out_and_named(
    store: Store, spark: SparkSession, key: tuple[str, ...], bulk: int
) -> None:
    constrained(store, bool(key))
    config: dict[str, Any] = {} if store.name == "sqlite" else {"bulk_rows": bulk}
    writer = opened(store, spark, key=key, on_violation="dead", **config)
    rows = [(f"r{n:02d}", 1000 if n in (3, 30) else n, 5 if n == 40 else n) for n in range(50)]
    assert writer.write(batch(0), frame(spark, *rows)) is True
    refused = [json.loads(item.row) for item in writer.refused(batch(0))]
    assert refused == [
        {"id": "r03", "n": 1000, "v": 3}, {"id": "r30", "n": 1000, "v": 30}, {"id": "r40", "n": 40, "v": 5},
    ]  # fmt: skip
    assert all(item.error and "\n" not in item.error for item in writer.refused(batch(0)))
    assert [row[0] for row in stored(store)] == [row[0] for n, row in enumerate(rows) if n not in (3, 30, 40)]
    again = opened(store, spark, key=key, on_violation="dead", epoch=2, **config)
    assert again.write(batch(0, epoch=2), frame(spark, *rows)) is False
    assert again.refused(batch(0, epoch=2)) == writer.refused(batch(0))
    again.write(batch(1, epoch=2), frame(spark, ("new", 1, 99)))
    assert again.refused(batch(1, epoch=2)) == []
    assert store.query("SELECT COUNT(*) FROM _penstock_refused") == [(0,)]


@spark_needed
def test_with_stop_a_violation_fails_the_batch_and_nothing_is_stored(store: Store, spark: SparkSession) -> None:
    constrained(store)
    writer = opened(store, spark, on_violation="stop")
    with pytest.raises(PenstockError) as raised:
        writer.write(batch(0), frame(spark, ("a", 1, 1), ("b", 100, 2)))
    assert (raised.value.code, raised.value.problems[0].params["batch"]) == ("SINK_FAILED", 0)
    assert stored(store) == []


@spark_needed
def test_values_that_do_not_fit_are_left_out_not_cut(server: Store, spark: SparkSession) -> None:
    server.execute("CREATE TABLE t (id VARCHAR(3), n SMALLINT, v INTEGER)")
    writer = opened(server, spark)
    writer.write(batch(0), frame(spark, ("abc", 1), ("abcd", 2), ("x", 40_000), ("y", 3)))
    assert stored(server) == [("abc", 1), ("y", 3)]
    assert [json.loads(item.row)["n"] for item in writer.refused(batch(0))] == [2, 40_000]


@spark_needed
def test_postgres_takes_texts_into_its_own_types_and_refuses_the_null_character(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    store = made("postgres", request, tmp_path)
    store.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
    store.execute("CREATE TABLE t (id uuid PRIMARY KEY, m mood, j jsonb, c char(3), extra int DEFAULT 7)")
    columns = dict.fromkeys(("id", "m", "j", "c"), "string")
    writer = opened(store, spark, columns=columns, key=("id",))
    one, two = "0" * 31 + "a", "0" * 31 + "B"
    schema = "id string, m string, j string, c string"
    rows = [(one, "good", "{}"), (one.upper(), "bad", "[1]"), (two, "ugly"), ("x",), (two, "good", "{"),
            (two, "bad", "{}", "long"), (two, "bad", '"\0"')]  # fmt: skip
    writer.write(batch(0), frame(spark, *rows, schema=schema))
    assert store.query("SELECT right(id::text, 1), m::text, j::text, extra FROM t") == [("a", "bad", "[1]", 7)]
    errors = [item.error for item in writer.refused(batch(0))]
    assert "U+0000" in errors[0]
    assert any("uuid" in error for error in errors)
    writer.write(batch(1), frame(spark, (two, "good", '{"a": "b"}', "ok"), schema=schema))
    assert store.query("SELECT c, j->>'a' FROM t WHERE m = 'good'") == [("ok ", "b")]


@spark_needed
@pytest.mark.parametrize(
    "point", ["sink.in_transaction", "sink.after_commit", "batch.after_sinks", "batch.after_ledger"]
)
def test_refused_rows_are_dead_letters_once_wherever_the_run_dies(
    store: Store, project: Project, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    constrained(store)
    if store.name != "sqlite":
        monkeypatch.setenv("DB_URL", store.url())
    for number in range(2):
        rows = [{"id": f"{number}-{n}", "n": 100 if n == number else n, "v": 10 * number + n} for n in range(3)]
        project.put(f"in/{number}.json", json_lines(rows))
    graph = project.build(f"""
        sources:
          views:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: string, n: int, v: int}}}}}}
        sinks:
          out: {{from: views, {store.yaml()}, onViolation: dead}}}}
    """)
    run(graph, project.folder / "state", die_at=f"{point}@1")
    outcome = run(graph, project.folder / "state")
    letters = read_files(shared_session(), str(outcome.state / "dead" / "out")).collect()
    found = sorted((row["batch_id"], row["source"], row["stage"], json.loads(row["raw"])["id"]) for row in letters)
    assert found == [(0, "out", "sink", "0-0"), (1, "out", "sink", "1-1")]
    assert [row[0] for row in stored(store)] == ["0-1", "0-2", "1-0", "1-2"]
    assert [(entry.rows_in, entry.rows_dead, entry.rows_out) for entry in outcome.ledger] == [
        ({"views": 3}, {"views": 0, "out": 1}, {"out": 2})
    ] * 2


# --- servers that cannot be used -------------------------------------------------------------------------------


@spark_needed
def test_why_a_server_cannot_be_used_is_said_without_the_password(server: Store, spark: SparkSession) -> None:
    wrong = server.url("hunter2hunter2")
    assert server.database is not None
    unreachable = wrong.replace(f":{server.database.port}/", f":{free_port()}/")
    missing = server.url().replace(f"/{server.database.name}", "/no_such_database")
    cases = {wrong: "SINK_DENIED", unreachable: "SINK_UNREACHABLE", missing: "SINK_UNREACHABLE"}
    for url, code in cases.items():
        error = refusal(server, spark, url=url)
        assert (error.code, error.exit_code) == (code, 1)
        assert server.database.host in str(error)
        assert not any(secret in str(error) for secret in ("hunter2hunter2", server.database.password))


@spark_needed
def test_a_user_without_rights_is_told(server: Store, spark: SparkSession) -> None:
    assert server.database is not None
    if server.name == "postgres":
        server.execute("DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN PASSWORD 'weak-password'")
    else:
        server.execute("CREATE OR REPLACE USER 'weak'@'%' IDENTIFIED BY 'weak-password'")
        server.execute(f"GRANT SELECT ON {server.database.name}.* TO 'weak'@'%'")
    url = server.url("weak-password").replace(f"//{server.database.user}:", "//weak:")
    error = refusal(server, spark, url=url)
    assert error.code == "SINK_DENIED"
    assert "weak-password" not in str(error)


def test_a_mysql_server_gets_no_file_it_asks_for(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store = made("mysql", request, tmp_path)
    (tmp_path / "secret.txt").write_text("secret\n")
    store.execute("CREATE TABLE stolen (line TEXT)")
    sink = store.sink()
    assert isinstance(sink, Mysql)
    connection = sink.database(sink.server(sink.url)).connect()
    assert connection.run(f"LOAD DATA LOCAL INFILE '{tmp_path / 'secret.txt'}' INTO TABLE stolen") == 0
    connection.close()
    assert store.query("SELECT * FROM stolen") == []


@spark_needed
def test_a_mysql_server_that_takes_no_files_gets_rows_as_statements(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    store = made("mysql", request, tmp_path)
    store.execute("SET GLOBAL local_infile = 0")
    try:
        columns = {"id": "string", "b": "binary", "at": "timestamp"}
        rows = [(HARD, bytearray(b"\0\xff"), AT), (None, None, None)]
        frame_ = spark.createDataFrame(rows, "id string, b binary, at timestamp")
        opened(store, spark, columns=columns).write(batch(0), frame_)
    finally:
        store.execute("SET GLOBAL local_infile = 1")
    assert stored(store, "id, b, at") == sorted(
        [(HARD, b"\0\xff", AT.replace(tzinfo=None)), (None, None, None)], key=str
    )


# --- configuration ---------------------------------------------------------------------------------------------


def test_a_url_is_read_into_fields() -> None:
    url = "postgresql://us%40er:p%2Fa:ss@db.example.com:6543/shop?sslmode=require&connect_timeout=5"
    found = read_url(url, ("postgresql",), 5432, ("sslmode", "connect_timeout"))
    assert (found.user, found.password, found.place) == ("us@er", "p/a:ss", "db.example.com:6543/shop")
    assert found.options == {"sslmode": "require", "connect_timeout": "5"}
    assert "p/a:ss" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h/db?options=-c%20x",
        "postgresql://u:hunter2@h/db?connect_timeout=hunter2",
        "postgresql://u:hunter2@h",
        "postgresql:///db",
        "postgresql://u:hunter2@h:port/db",
        "mysql://u:hunter2@h/db",
        "postgresql://u:hunter2@[h/db",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadUrl) as raised:
        read_url(url, ("postgresql",), 5432, ("sslmode", "connect_timeout"))
    assert "hunter2" not in str(raised.value)
    if url.startswith("postgresql"):
        (problem,) = Postgres(url=url, table="t").check(CheckContext("out"))
        assert (problem.code, problem.at) == ("SPEC_BAD_VALUE", ("url",))
        assert "hunter2" not in str(problem)


def test_a_password_in_plain_text_is_refused(tmp_path: Path) -> None:
    (problem,) = Mysql(url="mysql://u:hunter2@h/db", table="t").check(CheckContext("out"))
    assert problem.code == "SECRET_IN_PLAIN_TEXT"
    assert "hunter2" not in str(problem)
    assert list(Mysql(url="mysql://u@h/db?charset=utf8mb4", table="t").check(CheckContext("out"))) == []
    (problem,) = Mysql(url="mysql://u@h/db?charset=latin1", table="t").check(CheckContext("out"))
    assert problem.code == "SPEC_BAD_VALUE"


def test_version_and_delete_need_a_key_and_delete_is_boolean(tmp_path: Path) -> None:
    context = CheckContext("out")
    found = list(Sqlite(path="o.db", table="t", version="v", delete="d").check(context))
    assert [problem.code for problem in found] == ["SPEC_MISSING_KEY", "SPEC_MISSING_KEY"]
    (problem,) = Sqlite(path="o.db", table="t", key=("d",), delete="d").check(context)
    assert problem.code == "SPEC_BAD_VALUE"
    sink = Sqlite(path="o.db", table="t", key=("id",), delete="n")
    assert [problem.code for problem in sink.check_columns("out", COLUMNS)] == ["COLUMN_TYPE"]
    assert [problem.code for problem in sink.check_columns("out", {"id": "string"})] == ["SINK_COLUMN_UNKNOWN"]
