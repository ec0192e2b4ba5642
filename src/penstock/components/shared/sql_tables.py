"""Tables of databases as a reader sees them: which one a URL names, its columns, and how each value is asked for."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from penstock.components.base import resolve_path
from penstock.components.shared.sql_database import Connection, Database
from penstock.components.shared.sql_server import ServerSink
from penstock.components.shared.sql_url import BadUrl
from penstock.components.shared.sql_values import utc
from penstock.components.sinks.mysql import Mysql, MysqlDatabase
from penstock.components.sinks.postgres import Postgres, PostgresDatabase
from penstock.components.sinks.sqlite import SqliteDatabase
from penstock.errors import Problem

SQLITE = "sqlite:///"
_SERVERS: tuple[type[ServerSink], ...] = (Postgres, Mysql)
_WIDEST_DECIMAL = 38
_PRECISION = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")

Order = Literal["number", "time"]


@dataclass(frozen=True)
class ReadColumn:
    """A column of a table."""

    name: str
    kind: str
    """Spark's name of its type."""
    before: str = ""
    after: str = ""
    """What stands around the column where its value is asked for."""
    order: Order | None = None
    """What its values are, if rows can be read in their order."""
    nullable: bool = True
    cast: str = ""
    """The type that a value has to be given before it is compared."""

    @property
    def breaks_ties(self) -> bool:
        """Whether its values, sent back, are found where they were."""
        return not self.nullable and self.kind not in ("float", "double", "boolean")


@dataclass(frozen=True)
class ReadTable:
    columns: tuple[ReadColumn, ...]
    key: tuple[str, ...]
    """The primary key, if there is one that can be used to tell rows of one order apart."""

    def column(self, name: str) -> ReadColumn | None:
        """A column by its name; upper and lower case count only if they have to."""
        same = [column for column in self.columns if column.name == name]
        alike = [column for column in self.columns if column.name.lower() == name.lower()]
        return next(iter(same), alike[0] if len(alike) == 1 else None)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def url_problems(url: str, where: str) -> Iterator[Problem]:
    """What is wrong with the URL of a database, which may hold values of secrets."""
    if url.startswith(SQLITE):
        return
    server = _server(url)
    if server is None:
        advice = f"Write postgresql://…, mysql://… or {SQLITE}FILE."
        reason = "it names no database that can be read"
        yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=("url",))
    else:
        yield from server.url_problems(url, where)


def file_at(url: str, folder: Path) -> Path | None:
    """The file that holds the database, if one does."""
    return Path(_file(url, folder)) if url.startswith(SQLITE) else None


def database_at(url: str, folder: Path) -> Database:
    """The database a URL names, for reading; raises BadUrl."""
    if url.startswith(SQLITE):
        return SqliteDatabase(_file(url, folder), only_read=True)
    server = _server(url)
    if server is None:
        raise BadUrl("it names no database that can be read")
    return server.database(server.server(url))


def opened(database: Database) -> Connection:
    """A connection for reading: times come in ISO 8601, in UTC."""
    connection = database.connect()
    if isinstance(database, PostgresDatabase):
        connection.run("SET datestyle = 'ISO, YMD'")
    return connection


def _server(url: str) -> type[ServerSink] | None:
    return next((server for server in _SERVERS if url.partition("://")[0] in server.schemes), None)


def _file(url: str, folder: Path) -> str:
    return resolve_path(folder, unquote(url.removeprefix(SQLITE)))


def described(database: Database, connection: Connection, table: str) -> ReadTable | None:
    """What the table looks like; None if there is none."""
    if isinstance(database, PostgresDatabase):
        found, key = _in_postgres(connection, database.table(table))
    elif isinstance(database, MysqlDatabase):
        found, key = _in_mysql(connection, table)
    else:
        found, key = _in_sqlite(connection, table)
    usable = {column.name for column in found if column.breaks_ties}
    return ReadTable(tuple(found), key if usable.issuperset(key) else ()) if found else None


def tables(database: Database, connection: Connection) -> list[str]:
    """The tables and views one may mean by a name without a schema."""
    if isinstance(database, PostgresDatabase):
        asked = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(oid)"
        asked += " AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
    elif isinstance(database, MysqlDatabase):
        asked = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    else:
        asked = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
    return [name for (name,) in connection.rows(asked) if not name.startswith("_penstock")]


# --- PostgreSQL -------------------------------------------------------------------------------------------

_POSTGRES = {"bool": "boolean", "int2": "smallint", "int4": "int", "int8": "bigint", "float4": "float",
             "float8": "double", "bytea": "binary", "date": "date", "timestamp": "timestamp",
             "timestamptz": "timestamp"}  # fmt: skip
_NUMBERS = ("tinyint", "smallint", "int", "bigint")


def _in_postgres(connection: Connection, table: str) -> tuple[list[ReadColumn], tuple[str, ...]]:
    columns = (
        "SELECT a.attname, COALESCE(b.typname, t.typname), COALESCE(b.typcategory, t.typcategory), "
        "CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END, a.attnotnull OR t.typnotnull "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = t.typbasetype "
        "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
    key = (
        "SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE i.indrelid = to_regclass(%s) AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place"
    )
    found = [_postgres_column(*row) for row in connection.rows(columns, table)]
    return found, tuple(name for (name,) in connection.rows(key, table))


def _postgres_column(name: str, type_name: str, category: str, modifier: int, required: bool) -> ReadColumn:
    nullable = not required
    if type_name == "numeric":
        precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
        kind = _decimal(precision, scale) if modifier >= 0 else "string"
        return ReadColumn(name, kind, "", "::text", "number", nullable)
    if type_name == "oid":
        return ReadColumn(name, "bigint", "", "::int8", None, nullable)
    kind = _POSTGRES.get(type_name, "string")
    if kind in ("date", "timestamp"):
        before, after = ("(", " AT TIME ZONE 'UTC')::text") if type_name == "timestamptz" else ("", "::text")
        return ReadColumn(name, kind, before, after, "time", nullable)
    if category == "A":
        return ReadColumn(name, "string", "array_to_json(", ")::text")
    if category == "C":
        return ReadColumn(name, "string", "row_to_json(", ")::text")
    order: Order | None = "number" if kind in _NUMBERS else None
    return ReadColumn(name, kind, "", "::text" if kind == "string" else "", order, nullable)


# --- MySQL and MariaDB ------------------------------------------------------------------------------------

_MYSQL = {"tinyint": "tinyint", "smallint": "smallint", "mediumint": "int", "int": "int", "bigint": "bigint",
          "float": "float", "double": "double", "year": "int", "date": "date", "datetime": "timestamp",
          "timestamp": "timestamp"}  # fmt: skip
_WIDER = {"tinyint": "smallint", "smallint": "int", "int": "bigint", "bigint": "decimal(20,0)"}
"""What holds the values of unsigned numbers."""
_MYSQL_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_AS_TEXT = ("CAST(", " AS CHAR)")
_EXACT = "DECIMAL(65,30)"
_LONGEST_BIGINT_BITS = 63


def _in_mysql(connection: Connection, table: str) -> tuple[list[ReadColumn], tuple[str, ...]]:
    schema, _, name = table.rpartition(".")
    where = "WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"
    what = "column_name, data_type, column_type, numeric_precision, numeric_scale, is_nullable = 'YES'"
    columns = f"SELECT {what} FROM information_schema.columns {where} ORDER BY ordinal_position"
    key = (
        f"SELECT column_name, sub_part FROM information_schema.statistics {where} AND index_name = 'PRIMARY' "
        "ORDER BY seq_in_index"
    )
    found = [_mysql_column(*row) for row in connection.rows(columns, schema or None, name)]
    parts = connection.rows(key, schema or None, name)
    return found, tuple(column for column, _ in parts) if all(part is None for _, part in parts) else ()


def _mysql_column(name: str, type_name: str, whole: str, precision: Any, scale: Any, nullable: int) -> ReadColumn:
    type_name, optional = type_name.lower(), bool(nullable)
    if type_name == "bit":
        kind = "boolean" if precision == 1 else "bigint" if precision <= _LONGEST_BIGINT_BITS else "decimal(20,0)"
        return ReadColumn(name, kind, "(", " + 0)")
    if type_name == "decimal":
        return ReadColumn(name, _decimal(precision, scale), *_AS_TEXT, "number", optional, _EXACT)
    kind = _MYSQL.get(type_name, "binary" if type_name in _MYSQL_BYTES or _is_geometry(type_name) else "string")
    if "unsigned" in whole and kind in _WIDER:
        kind = _WIDER[kind]
    if kind in ("date", "timestamp"):
        return ReadColumn(name, kind, *_AS_TEXT, "time", optional)
    if kind.startswith("decimal"):
        return ReadColumn(name, kind, *_AS_TEXT, "number", optional, _EXACT)
    if kind in _NUMBERS:
        return ReadColumn(name, kind, order="number", nullable=optional)
    # Enums are sorted by number and compared as texts.
    sorts_otherwise = type_name in ("enum", "set", "json")
    return ReadColumn(name, kind, *(_AS_TEXT if type_name == "time" else ("", "")), None, optional or sorts_otherwise)


def _is_geometry(type_name: str) -> bool:
    return type_name.endswith(("geometry", "point", "linestring", "polygon", "geometrycollection", "geomcollection"))


# --- SQLite -----------------------------------------------------------------------------------------------

_SQLITE = (("BOOL", "boolean"), ("DATETIME", "timestamp"), ("TIMESTAMP", "timestamp"), ("DATE", "date"),
           ("INT", "bigint"), ("CHAR", "string"), ("CLOB", "string"), ("TEXT", "string"), ("BLOB", "binary"),
           ("REAL", "double"), ("FLOA", "double"), ("DOUB", "double"))  # fmt: skip
"""Types by what their declared name contains, the first that fits: SQLite itself goes by that."""


def _in_sqlite(connection: Connection, table: str) -> tuple[list[ReadColumn], tuple[str, ...]]:
    schema, _, name = table.rpartition(".")
    columns = 'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?, ?) WHERE hidden <> 1'
    rows = connection.rows(columns, name, schema or "main")
    key = [column for _, column in sorted((row[3], row[0]) for row in rows if row[3])]
    found = [
        _sqlite_column(column, declared, bool(required), [column] == key) for column, declared, required, _ in rows
    ]
    return found, tuple(key)


def _sqlite_column(name: str, declared: str, required: bool, is_key: bool) -> ReadColumn:
    written = declared.upper()
    # The one type of key that is never null without saying so.
    nullable = not (required or (is_key and written == "INTEGER"))
    kind = next((kind for part, kind in _SQLITE if part in written), None)
    if kind is None:
        sized = _PRECISION.search(written)
        known = sized is not None and ("DEC" in written or "NUM" in written)
        kind = _decimal(int(sized[1]), int(sized[2] or 0)) if sized is not None and known else "string"
    order: Order | None = {"bigint": "number", "timestamp": "time", "date": "time", "string": "time"}.get(kind)  # type: ignore[assignment]
    if "DEC" in written or "NUM" in written:
        order = "number"
    return ReadColumn(name, kind, order=order, nullable=nullable)


def _decimal(precision: int, scale: int) -> str:
    """A decimal, or text for one that is wider than Spark's."""
    return f"decimal({precision},{scale})" if scale <= precision <= _WIDEST_DECIMAL else "string"


# --- clocks -----------------------------------------------------------------------------------------------


def clock(database: Database, connection: Connection) -> dt.datetime:
    """What time it is where the rows are: in UTC, without saying so."""
    if isinstance(database, PostgresDatabase):
        asked = "(clock_timestamp() AT TIME ZONE 'UTC')::text"
    elif isinstance(database, MysqlDatabase):
        asked = "CAST(UTC_TIMESTAMP(6) AS CHAR)"
    else:
        asked = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    return utc(connection.rows(f"SELECT {asked}")[0][0])
