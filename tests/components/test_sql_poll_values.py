"""Types of databases as Spark's, values that fit none, odd names, and what is refused before anything is read."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.components.looking import problems_of
from tests.components.polling import Stream, settings, source
from tests.components.sql_stores import Store, made
from tests.servers.base import free_port

from penstock.components.base import RAW
from penstock.errors import PenstockError, Problem
from penstock.spec import secrets

UTC = dt.UTC


def read(store: Store, tmp_path: Path, **options: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Spark's types of the columns, and the rows."""
    told = settings(store, tmp_path / "spool", order=["id"], **options)
    stream = Stream(told)
    end = stream.planned()
    parts = stream.reader.partitions(stream.offset, end)
    return told.kinds, [row for part in parts for batch in stream.reader.read(part) for row in batch.to_pylist()]


def test_types_of_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store = made("postgres", request, tmp_path)
    store.execute(
        "CREATE DOMAIN cents AS numeric(7,2)",
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE t (id bigserial PRIMARY KEY, b bool, s int2, i int4, f float4, d float8, n numeric(10,3), "
        "c cents, free numeric, x bytea, t text, v varchar(5), u uuid, j jsonb, m mood, a int[], day date, "
        "at timestamp, atz timestamptz, span interval, big numeric(60,2))",
        "INSERT INTO t VALUES (1, true, -7, 8, 0.5, 1e300, 12.345, 1.5, 1e-30, '\\x00ff', 'é', 'ab', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"k\": [1]}', 'glad', '{1,NULL}', '0099-02-03', "
        "'2024-01-02 03:04:05.000006', '2024-01-02 03:04:05+02', '1 day', 7)",
        "INSERT INTO t (id) VALUES (2)",
        "INSERT INTO t (id, n, day, atz, t) VALUES (3, 'NaN', 'infinity', '-infinity', 'kept')",
    )
    kinds, (one, nothing, bad) = read(store, tmp_path)
    assert kinds == {
        "id": "bigint", "b": "boolean", "s": "smallint", "i": "int", "f": "float", "d": "double", "n": "decimal(10,3)",
        "c": "decimal(7,2)", "free": "string", "x": "binary", "t": "string", "v": "string", "u": "string",
        "j": "string", "m": "string", "a": "string", "day": "date", "at": "timestamp", "atz": "timestamp",
        "span": "string", "big": "string",
    }  # fmt: skip
    assert one == {
        "id": 1, "b": True, "s": -7, "i": 8, "f": 0.5, "d": 1e300, "n": Decimal("12.345"), "c": Decimal("1.50"),
        "free": "0.000000000000000000000000000001", "x": b"\x00\xff", "t": "é", "v": "ab",
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "j": '{"k": [1]}', "m": "glad", "a": "[1,null]",
        "day": dt.date(99, 2, 3), "at": dt.datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
        "atz": dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC), "span": "1 day", "big": "7.00", RAW: None,
    }  # fmt: skip
    assert {key for key, value in nothing.items() if value is not None} == {"id"}
    assert (bad["id"], bad["t"], bad["n"], bad["day"], bad["atz"]) == (3, "kept", None, None, None)
    assert json.loads(bad[RAW]) == {"id": 3, "n": "NaN", "t": "kept", "day": "infinity", "atz": "-infinity"}


def test_types_of_mariadb(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store = made("mysql", request, tmp_path)
    store.execute(
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, b BOOLEAN, s SMALLINT UNSIGNED, m MEDIUMINT, i INT UNSIGNED, "
        "f FLOAT, d DOUBLE, n DECIMAL(10,3), wide DECIMAL(60,2), x VARBINARY(9), t TEXT, e ENUM('a','b'), j JSON, "
        "day DATE, at DATETIME(6), atz TIMESTAMP NULL, y YEAR, clock TIME, flag BIT(1), bits BIT(9))",
        "SET time_zone = '+00:00'",
        "INSERT INTO t VALUES (18446744073709551615, 1, 65535, -5, 4294967295, 0.5, 1e300, 12.345, 7, X'00FF', 'é', "
        "'b', '{\"k\": 1}', '0099-02-03', '2024-01-02 03:04:05.000006', '2024-01-02 03:04:05', 2024, '25:00:00', "
        "b'1', b'100000001')",
        "INSERT INTO t (id) VALUES (2)",
    )
    with store.connected() as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT INTO t (id, day, at, t) VALUES (3, '0000-00-00', '2024-02-30 00:00:00', 'kept')")
    kinds, rows = read(store, tmp_path)
    nothing, bad, one = rows
    assert kinds == {
        "id": "decimal(20,0)", "b": "tinyint", "s": "int", "m": "int", "i": "bigint", "f": "float", "d": "double",
        "n": "decimal(10,3)", "wide": "string", "x": "binary", "t": "string", "e": "string", "j": "string",
        "day": "date", "at": "timestamp", "atz": "timestamp", "y": "int", "clock": "string", "flag": "boolean",
        "bits": "bigint",
    }  # fmt: skip
    at = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert one == {
        "id": Decimal(18446744073709551615), "b": 1, "s": 65535, "m": -5, "i": 4294967295, "f": 0.5, "d": 1e300,
        "n": Decimal("12.345"), "wide": "7.00", "x": b"\x00\xff", "t": "é", "e": "b", "j": '{"k": 1}',
        "day": dt.date(99, 2, 3), "at": at.replace(microsecond=6), "atz": at, "y": 2024, "clock": "25:00:00",
        "flag": True, "bits": 257, RAW: None,
    }  # fmt: skip
    assert {key for key, value in nothing.items() if value is not None} == {"id"}
    assert (bad["t"], bad["day"], bad["at"]) == ("kept", None, None)
    assert json.loads(bad[RAW])["day"] == "0000-00-00"


def test_types_of_sqlite(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BOOLEAN, d REAL, n DECIMAL(10,2), x BLOB, t TEXT, day DATE, "
        "at TIMESTAMP, loose, i INT)",
        "INSERT INTO t VALUES (1, 1, 2, '1.5', X'00FF', 'é', '2024-01-02', '2024-01-02T03:04:05+02:00', 7, 5)",
        "INSERT INTO t VALUES (2, 0, 2.5, 3, NULL, 8, '2024-01-02', '2024-01-02 03:04', 'x', 6)",
        "INSERT INTO t VALUES (3, 2, 'much', 'x', NULL, CAST(X'FFFE' AS TEXT), 'soon', 1700000000, NULL, 1.5)",
    )
    kinds, (one, two, bad) = read(store, tmp_path)
    assert list(kinds.values()) == [
        "bigint", "boolean", "double", "decimal(10,2)", "binary", "string", "date", "timestamp", "string", "bigint",
    ]  # fmt: skip
    assert list(one.values()) == [
        1, True, 2.0, Decimal("1.50"), b"\x00\xff", "é", dt.date(2024, 1, 2),
        dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC), "7", 5, None,
    ]  # fmt: skip
    assert list(two.values())[1:] == [
        False, 2.5, Decimal("3.00"), None, "8", dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "x", 6,
        None,
    ]  # fmt: skip
    assert {key for key, value in bad.items() if value is not None} == {"id", RAW}
    assert json.loads(bad[RAW]) == {
        "id": 3, "b": 2, "d": "much", "n": "x", "t": "//4=", "day": "soon", "at": 1700000000, "i": 1.5,
    }  # fmt: skip


def test_names_and_values_are_never_taken_for_sql(store: Store, tmp_path: Path) -> None:
    names = ['a"b', "c`d", "e%sf", "g;h --", "%%"]
    quoted = [f"`{name.replace('`', '``')}`" if store.name == "mysql" else '"' + name.replace('"', '""') + '"'
              for name in names]  # fmt: skip
    columns = ", ".join(f"{name} INT NOT NULL" for name in quoted)
    store.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({quoted[2]}, {quoted[0]}))")
    for number in range(30):
        store.execute(f"INSERT INTO t VALUES ({', '.join([str(number)] * len(names))})")
    stream = Stream(settings(store, tmp_path / "spool", order=[names[1], names[4]], piece_rows=5, overlap_seconds=0.0))
    assert [len(stream.run(12)) for _ in range(4)] == [12, 12, 6, 0]
    assert sum(stream.got.values()) == len(stream.got) == 30


# --- what is refused -------------------------------------------------------------------------------------------


def problems(store: Store, **options: Any) -> list[Problem]:
    try:
        return problems_of(source(store, **options), "rows", store.folder)
    except PenstockError as error:
        return list(error.problems)


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"table": "orders"}, "SOURCE_TABLE_MISSING", "Did you mean 'order'?", "table"),
    ({"table": "nowhere"}, "SOURCE_TABLE_MISSING", "Known: order, t.", "table"),
    ({"order": "tss"}, "COLUMN_UNKNOWN", "Did you mean 'ts'?", "order"),
    ({"columns": ["id", "nme"]}, "COLUMN_UNKNOWN", "Did you mean 'name'?", "columns"),
    ({"order": "flag"}, "SPEC_BAD_VALUE", "neither a time nor a number that grows", "order"),
    ({"order": ["ts", "ts"]}, "SPEC_BAD_VALUE", "several different", "order"),
    ({"order": []}, "SPEC_BAD_VALUE", "name one column", "order"),
    ({"order": "maybe"}, "SOURCE_SKIPS_NULLS", "NOT NULL", "order"),
    ({"startingFrom": "soon"}, "SPEC_BAD_VALUE", "'soon' is neither earliest, latest nor a time", "startingFrom"),
    ({"order": "id", "startingFrom": "1.5"}, "SPEC_BAD_VALUE", "nor a whole number", "startingFrom"),
]


def test_what_does_not_fit_the_table_is_told_at_its_place(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    name, flag = ("`order`", "BIT(1)") if store.name == "mysql" else ('"order"', "BOOLEAN")
    store.execute(
        f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, ts TIMESTAMP NOT NULL, name VARCHAR(9), flag {flag}, maybe INT)",
        f"CREATE TABLE {name} (id INT)",
    )
    monkeypatch.setattr(secrets, "_resolved", {})
    if store.database is not None:
        assert [problem.code for problem in problems(store)] == ["SECRET_IN_PLAIN_TEXT"]
        # As if it had been looked up.
        monkeypatch.setitem(secrets._resolved, store.database.password, "${secret:env/PASSWORD}")
    assert problems(store, order=["TS", "id"], startingFrom="2024-01-01T00:00:00Z", columns=["ID"]) == []
    for options, code, text, at in REFUSED:
        (found,) = problems(store, **options)
        assert (found.code, found.at) == (code, (at,)), options
        assert text in f"{found.message} {found.hint}"


def test_wrong_passwords_missing_rights_and_servers_that_are_not_there_are_told(server: Store) -> None:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL)")
    assert server.database is not None
    denied = _reading(server, server.url("wr0ng-canary"))
    assert (denied.code, "wr0ng-canary" in str(denied)) == ("SOURCE_DENIED", False)
    away = server.url().replace(f":{server.database.port}/", f":{free_port()}/")
    gone = _reading(server, away)
    assert (gone.code, server.database.password in str(gone)) == ("SOURCE_UNREACHABLE", False)


def _reading(server: Store, url: str) -> PenstockError:
    """Why the table cannot be looked up at that address."""
    with pytest.raises(PenstockError) as raised:
        source(server, url=url)._described("rows", server.folder)
    return raised.value


def test_a_user_without_the_right_to_read_is_told(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store = made("postgres", request, tmp_path)
    assert store.database is not None
    store.execute("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL)")
    store.execute(
        "DO $$ BEGIN CREATE ROLE reader LOGIN PASSWORD 'weak'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    error = _reading(store, store.url("weak").replace(f"//{store.database.user}:", "//reader:"))
    assert (error.code, "permission denied" in error.problems[0].message) == ("SOURCE_DENIED", True)


@pytest.mark.parametrize(
    ("url", "code", "part"),
    [
        ("sqlite:///nowhere.db", "PATH_NOT_FOUND", "nowhere.db"),
        ("postgresql://h", "SPEC_BAD_VALUE", "must name one database"),
        ("postgresql://u:p@h/d?host=/etc", "SPEC_BAD_VALUE", "sets option 'host', which is not allowed"),
        ("mysql://u:p@h/d?ssl_mode=maybe", "SPEC_BAD_VALUE", "'ssl_mode' must be"),
    ],
)
def test_bad_urls_are_found_without_a_server(tmp_path: Path, url: str, code: str, part: str) -> None:
    (found,) = problems(Store(tmp_path), url=url)
    assert found.code == code
    assert part in found.message
    assert not (tmp_path / "nowhere.db").exists()
