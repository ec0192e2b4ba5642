"""A table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.shared.checksum import BETWEEN, DIGITS, NULL, Content
from penstock.components.shared.postgres_copy import binary_rows, is_binary
from penstock.components.shared.sql_database import (
    DELETED,
    DIRECT,
    MERGED,
    NUMBER,
    Column,
    Connection,
    Database,
    Differs,
    Fault,
    Layout,
    as_text,
    found_columns,
    in_key,
    with_batch_column,
)  # fmt: skip
from penstock.components.shared.sql_server import REFERENCE, ServerSink
from penstock.components.shared.sql_text import is_nested, lines
from penstock.components.shared.sql_url import Server
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

_TYPES = {"boolean": "boolean", "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint",
          "float": "real", "double": "double precision", "string": "text", "binary": "bytea", "date": "date",
          "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}  # fmt: skip
_INTEGERS = ("int2", "int4", "int8", "numeric")
_TAKES = {"boolean": ("bool",), "tinyint": (*_INTEGERS, "float8"), "smallint": (*_INTEGERS, "float8"),
          "int": (*_INTEGERS, "float8"), "bigint": _INTEGERS, "float": ("float4", "float8"), "double": ("float8",),
          "decimal": ("numeric",), "binary": ("bytea",), "date": ("date", "timestamp", "timestamptz"),
          "timestamp": ("timestamptz", "timestamp"), "timestamp_ntz": ("timestamp",)}  # fmt: skip
"""Types that a column of the table may have; text goes into texts, identifiers, addresses, enums and JSON."""
_TEXT_CATEGORIES = "SUIE"
_SAME = {"boolean": ("bool",), "tinyint": ("int2",), "smallint": ("int2",), "int": ("int4",), "bigint": ("int8",),
         "float": ("float4",), "double": ("float8",), "string": ("text", "varchar"), "date": ("date",),
         "timestamp": ("timestamptz",), "timestamp_ntz": ("timestamp",)}  # fmt: skip
"""Types that have the same binary form as the one in which a column travels."""
_SESSION = (
    "SET TIME ZONE 'UTC'; SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = '30s'; "
    "SET client_min_messages = warning"
)
_NULLS_NOT_DISTINCT = 150000
"""The first version in which a unique index can hold null as a value like others."""
_PASSING = ("08", "40", "57P", "25P03", "53300", "55P03")
_ROWS = ("21", "22", "23", "44", "54", "P0001")
_DENIED = ("28", "42501")


class Postgres(ServerSink):
    """Stores rows in a table of PostgreSQL, exactly once.

    Without a key rows are appended; with a key a later row replaces an earlier one, and of several rows of one key in
    a batch the newest by `version` counts, else the last. Rows and the number of the batch are written in one
    transaction, so a batch that comes again after a crash, or after a commit whose answer was lost, changes nothing.
    Lost connections and deadlocks are tried again for a minute.

    The table is made if it does not exist; one that is there must have all columns and, with a key, a unique index on
    it. Nested values are stored as `jsonb`. Rows that violate a constraint or do not fit become dead letters. Keys may
    be null if the index says NULLS NOT DISTINCT, as the one of a table made here does from PostgreSQL 15 on.

    With `delete`, rows in which that column is true delete their key, unless the stored version is newer. A delete
    leaves nothing behind: an older row of the key that comes in a later batch is stored again.

    A pipeline can go back to a savepoint. With a key rows then converge: what comes again replaces what is there, and a
    row whose key does not come again stays. Without one it takes a column that tells the batch of each row, as in
    `{table: clicks, batchColumn: batch}`: the rows of later batches are deleted.

    The URL may set sslmode, sslrootcert, connect_timeout and application_name. The user needs the right to create
    tables beside the table: `_penstock_batches` and others with names that begin so.
    """

    name: ClassVar[str] = "postgres"
    example: ClassVar[str] = """\
from: views
postgres:
  url: postgresql://shop:${secret:env/PG_PASSWORD}@db.example.com/shop?sslmode=require
  table: public.views
  key: [id]
"""
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")
    port: ClassVar[int] = 5432
    options: ClassVar[tuple[str, ...]] = ("sslmode", "sslrootcert", "connect_timeout", "application_name")

    url: str = field(
        holds=Holds.ADDRESS,
        doc="Where the database is: postgresql://USER:PASSWORD@HOST:PORT/DATABASE; the password is a secret.",
        change=Change.LOSES_STATE, pattern=rf"^(postgres(ql)?://|{REFERENCE})",
    )  # fmt: skip

    @classmethod
    def database(cls, server: Server) -> Database:
        return PostgresDatabase(server)


class _Connection(Connection):
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, statement: str, *values: Any) -> int:
        return int(self.connection.execute(statement.encode(), values or None).rowcount)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(query.encode(), values or None).fetchall())

    def load(self, table: str, columns: Mapping[str, str], rows: pa.Table, *, same_types: bool = True) -> None:
        binary = same_types and is_binary(columns)
        copy = f"COPY {table} ({', '.join(columns)}) FROM STDIN{' (FORMAT binary)' if binary else ''}"
        with self.connection.cursor() as cursor, cursor.copy(copy.encode()) as stream:
            for part in binary_rows(rows, columns) if binary else lines(rows):
                stream.write(part)

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class PostgresDatabase(Database):
    server: Server

    @property
    def place(self) -> str:
        return self.server.place

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error,)

    def connect(self) -> Connection:
        import psycopg

        server = self.server
        options: dict[str, Any] = {"connect_timeout": "10", "application_name": "penstock", **server.options}
        connection = psycopg.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=server.database,
            client_encoding="utf8",
            autocommit=True,
            # Prepared statements would outlive their transaction, which poolers do not allow.
            prepare_threshold=None,
            **options,
        )
        connection.execute(_SESSION)
        return _Connection(connection)

    def fault(self, error: Exception) -> Fault:
        import psycopg

        state = getattr(error, "sqlstate", None)
        if state is None:
            return _without_state(str(error)) if isinstance(error, psycopg.OperationalError) else Fault.OTHER
        for codes, fault in ((_PASSING, Fault.PASSING), (_ROWS, Fault.ROWS), (_DENIED, Fault.DENIED)):
            if state.startswith(codes):
                return fault
        return Fault.OTHER

    def reason(self, error: Exception) -> str:
        diagnosis = getattr(error, "diag", None)
        primary = getattr(diagnosis, "message_primary", None)
        detail = getattr(diagnosis, "message_detail", None)
        text = f"{primary}: {detail}" if primary and detail else primary or str(error).rpartition("FATAL:")[2]
        return self.server.without_password(" ".join(text.split()))

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def row_sum(self, columns: Sequence[str], of: str = "") -> str:
        texts = ", ".join(f"COALESCE(CAST({of}{self.quote(name)} AS text), chr({ord(NULL)}))" for name in columns)
        digest = f"md5(concat_ws(chr({ord(BETWEEN)}), {texts}))"
        return f"CAST(CAST('x' || substr({digest}, 1, {DIGITS}) AS bit(32)) AS bigint)"

    def touched(self, connection: Connection, layout: Layout) -> Content:
        found = super().touched(connection, layout)
        null = " OR ".join(f"w.{layout.own[name]} IS NULL" for name in layout.key)
        if not connection.rows(f"SELECT 1 FROM {MERGED} w WHERE {null} LIMIT 1"):
            return found
        same = f"({null}) AND {self.same_key(layout, 'IS NOT DISTINCT FROM')}"
        rows = f"{MERGED} w JOIN {self.table(layout.table)} t ON {same}"
        more = self.summed(connection, layout.stored_sums, rows)
        return Content(found.rows + more.rows, found.checksum + more.checksum)

    # --- tables -------------------------------------------------------------------------------------------

    def make_table(self, connection: Connection, layout: Layout) -> Layout:
        # Two who make the same table at the same time would both fail.
        connection.run("SELECT pg_advisory_xact_lock(hashtext('penstock'))")
        for name, columns in self.bookkeeping(layout).items():
            self._make(connection, self.near(layout, name), columns)
        version = int(connection.rows("SHOW server_version_num")[0][0])
        target = self.table(layout.table)
        self._make(connection, target, self._columns(layout, version))
        return self._checked(connection, layout, version)

    def _make(self, connection: Connection, table: str, columns: str) -> None:
        # Not IF NOT EXISTS: that asks for the right to create even if there is nothing to do.
        if connection.rows("SELECT to_regclass(%s)", table)[0][0] is None:
            connection.run(f"CREATE TABLE {table} ({columns})")

    def _columns(self, layout: Layout, version: int) -> str:
        columns = [f"{self.quote(column.stored)} {_stored_type(column, layout)}" for column in layout.columns]
        if layout.batch_column is not None:
            columns.append(f"{self.quote(layout.batch_column)} bigint")
        key = ", ".join(self.quote(name) for name in layout.key)
        unique = f"UNIQUE NULLS NOT DISTINCT ({key})" if version >= _NULLS_NOT_DISTINCT else f"PRIMARY KEY ({key})"
        return ", ".join([*columns, *([unique] if key else [])])

    def _checked(self, connection: Connection, layout: Layout, version: int) -> Layout:
        target = self.table(layout.table)
        query = (
            "SELECT a.attname, t.typname, t.typcategory, format_type(a.atttypid, NULL), a.attnotnull AND NOT "
            "(a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '') FROM pg_attribute a JOIN pg_type t ON "
            "t.oid = a.atttypid WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
        )
        present = {row[0]: row[1:] for row in connection.rows(query, target)}
        names = {name.lower(): name for name in present} | {name: name for name in present}
        stored = found_columns(layout, names)
        layout = with_batch_column(layout, {name: row[2] for name, row in present.items()}, "bigint")
        given = {*stored.values(), layout.batch_column}
        needed = [name for name, row in present.items() if row[3] and name not in given]
        if needed:
            raise Differs(f"column {', '.join(needed)} must be given and is not among the rows")
        found = {
            column.name: _fitted(column, stored[column.name], *present[stored[column.name]][:3])
            for column in layout.columns
        }
        # Rules and rights by row do not hold for COPY, and a view may not take it.
        plain = "SELECT relkind IN ('r', 'p') AND NOT relhasrules AND NOT relrowsecurity FROM pg_class"
        ((loadable,),) = connection.rows(f"{plain} WHERE oid = to_regclass(%s)", target)
        layout = replace(layout.with_columns(found), loadable=loadable)
        return self._with_index(connection, layout, version) if layout.key else layout

    def _with_index(self, connection: Connection, layout: Layout, version: int) -> Layout:
        together = "i.indnullsnotdistinct" if version >= _NULLS_NOT_DISTINCT else "false"
        query = (
            f"SELECT {together}, array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = "
            "i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid, 1"
        )
        key = {layout.column(name).stored for name in layout.key}
        fitting = [row[0] for row in connection.rows(query, self.table(layout.table)) if set(row[1]) == key]
        if not fitting:
            raise Differs(f"it has no unique index on the key ({', '.join(layout.key)})")
        return replace(layout, nulls_in_key=any(fitting))

    def leftovers(self, connection: Connection, prefix: str) -> list[str]:
        query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
        return [row[0] for row in connection.rows(query, prefix.replace("_", r"\_") + "%")]

    def make_stage(self, connection: Connection, table: str, layout: Layout) -> None:
        connection.run(f"CREATE UNLOGGED TABLE IF NOT EXISTS {table} ({self.own_columns(layout)})")

    def begin(self, connection: Connection, layout: Layout | None = None) -> None:
        connection.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        if layout is None:
            return
        # A violation must show where it can still be undone, not at the end of the transaction.
        connection.run("SET CONSTRAINTS ALL IMMEDIATE")
        columns = self.own_columns(layout)
        for name, more in ((DIRECT, ""), (MERGED, f"{NUMBER} BIGINT, ")):
            connection.run(f"CREATE TEMP TABLE IF NOT EXISTS {name} ({more}{columns}) ON COMMIT DELETE ROWS")

    def before_search(self, connection: Connection) -> None:
        connection.run(f"CREATE INDEX IF NOT EXISTS {MERGED}_by_number ON {MERGED} ({NUMBER})")

    # --- values -------------------------------------------------------------------------------------------

    def own_type(self, column: Column, layout: Layout) -> str:
        return _own_type(column.kind)

    def storable(self, column: SparkColumn, kind: str) -> SparkColumn:
        from pyspark.sql import functions as F

        if kind == "binary":
            return F.concat(F.lit("\\x"), F.hex(column))
        return column if kind in _TYPES or kind.startswith("decimal") else as_text(column, kind)

    def unstorable(self, rows: pa.Table, layout: Layout) -> Iterator[tuple[pa.Array, str]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in () if layout.nulls_in_key else layout.key:
            yield pc.is_null(rows[name]), f"column '{name}' of the key is null"
        for column in rows.schema:
            if pa.types.is_string(column.type):
                reason = f"column '{column.name}' holds the character U+0000, which PostgreSQL cannot store"
                yield pc.match_substring(rows[column.name], "\0"), reason

    def value(self, column: Column, layout: Layout) -> str:
        own = super().value(column, layout)
        return f"{own}::{column.cast}" if column.cast else own

    # --- storing ------------------------------------------------------------------------------------------

    def store(self, connection: Connection, layout: Layout, where: str) -> None:
        names, values = self.inserted(layout)
        insert = f"INSERT INTO {self.table(layout.table)} AS t ({names}) SELECT {values} FROM {MERGED} w"
        conflict = self._on_conflict(layout) if layout.key else ""
        connection.run(f"{insert} WHERE {where} AND {self.kept(layout)}{conflict}")
        if layout.delete is not None:
            self._delete(connection, layout, f"{where} AND w.{DELETED}")

    def _on_conflict(self, layout: Layout) -> str:
        key = ", ".join(self.quote(layout.column(name).stored) for name in layout.key)
        others = [self.quote(column.stored) for column in layout.others]
        if not others:
            return f" ON CONFLICT ({key}) DO NOTHING"
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        new = f"EXCLUDED.{self.quote(layout.column(layout.version).stored)}" if layout.version else None
        return f" ON CONFLICT ({key}) DO UPDATE SET {changes} WHERE {self.not_older(layout, new)}"

    def _delete(self, connection: Connection, layout: Layout, where: str) -> None:
        delete = f"DELETE FROM {self.table(layout.table)} t USING {MERGED} w WHERE {where} AND {self.not_older(layout)}"
        connection.run(f"{delete} AND {self.same_key(layout)}")
        null = " OR ".join(f"w.{layout.own[name]} IS NULL" for name in layout.key)
        # Apart and only if need be, because no index helps to find what IS NOT DISTINCT FROM something.
        if connection.rows(f"SELECT 1 FROM {MERGED} w WHERE {where} AND ({null}) LIMIT 1"):
            connection.run(f"{delete} AND ({null}) AND {self.same_key(layout, 'IS NOT DISTINCT FROM')}")


def _without_state(text: str) -> Fault:
    """Errors while connecting come as text only."""
    denied = ("authentication failed", "no pg_hba.conf entry", "no password supplied", "permission denied for database")
    if any(sign in text for sign in denied) or ("role" in text and "does not exist" in text):
        return Fault.DENIED
    return Fault.OTHER if "does not exist" in text else Fault.PASSING


def _own_type(kind: str) -> str:
    if kind.startswith("decimal"):
        return kind.replace("decimal", "numeric")
    return _TYPES.get(kind, "text")


def _stored_type(column: Column, layout: Layout) -> str:
    return "jsonb" if is_nested(column.kind) and not in_key(column, layout) else _own_type(column.kind)


def _fitted(column: Column, stored: str, type_name: str, category: str, written: str) -> Column:
    """The column as the table has it; raises Differs if its values do not fit there."""
    taken = _TAKES.get("decimal" if column.kind.startswith("decimal") else column.kind)
    fits = category in _TEXT_CATEGORIES and type_name != "bytea" if taken is None else type_name in taken
    if not fits:
        raise Differs(f"column {stored} is {written}, and the rows have {column.kind}")
    # Texts are converted without a cast, as a cast would cut off what is too long.
    cast = "" if category == "S" or taken is not None else written
    return replace(column, stored=stored, cast=cast, same_type=type_name in _SAME.get(column.kind, ()))
