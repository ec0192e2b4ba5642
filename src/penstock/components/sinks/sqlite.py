"""A table in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import SinkContext, SinkWriter, resolve_path
from penstock.components.shared.checksum import python_sum
from penstock.components.shared.sql_database import BATCHES as BATCHES
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
    with_batch_column,
)  # fmt: skip
from penstock.components.shared.sql_sink import OnViolation, SqlSink, SqlWriter
from penstock.durable import make_folders
from penstock.errors import PenstockError
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

_ROW_SUM = "penstock_row_sum"
_BUSY_SECONDS = 30
_NUMBERS = {"tinyint": "INTEGER", "smallint": "INTEGER", "int": "INTEGER", "bigint": "INTEGER", "boolean": "INTEGER",
            "float": "REAL", "double": "REAL", "binary": "BLOB"}  # fmt: skip


class Sqlite(SqlSink):
    """Stores rows in a table of a SQLite file, exactly once.

    Without a key rows are appended; with a key a later row replaces an earlier one, and of several rows of one key in
    a batch the newest by `version` counts, else the last. Rows and the number of the batch are written in one
    transaction, so a batch that comes again after a crash changes nothing. The table is made if it does not exist.
    Timestamps are stored as text in UTC, decimals as text, nested values as JSON.

    With `delete`, rows in which that column is true delete their key, unless the stored version is newer. A delete
    leaves nothing behind: an older row of the key that comes in a later batch is stored again.

    A pipeline can go back to a savepoint. With a key rows then converge: what comes again replaces what is there, and a
    row whose key does not come again stays. Without one it takes a column that tells the batch of each row, as in
    `{table: clicks, batchColumn: batch}`: the rows of later batches are deleted.
    """

    name: ClassVar[str] = "sqlite"
    example: ClassVar[str] = """\
from: views
sqlite: {path: ./out.db, table: views, key: [id]}
"""

    path: str = field(
        holds=Holds.PATH, doc="The SQLite file, relative to the pipeline file.", change=Change.LOSES_STATE, min_length=1
    )
    on_violation: OnViolation = field(
        "stop", doc="What becomes of rows that violate a constraint: dead letters, or the pipeline stops."
    )

    def database_of(self, context: SinkContext) -> Database:
        return SqliteDatabase(resolve_path(context.folder, self.path))

    def open(self, context: SinkContext) -> SinkWriter:
        return SqlWriter(self, self.database_of(context), context)


class _Connection(Connection):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.create_function(_ROW_SUM, -1, python_sum, deterministic=True)

    def run(self, statement: str, *values: Any) -> int:
        return self.connection.execute(statement, values).rowcount

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, values).fetchall()

    def load(self, table: str, columns: Mapping[str, str], rows: pa.Table, *, same_types: bool = True) -> None:
        names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        self.connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class SqliteDatabase(Database):
    file: str
    only_read: bool = False
    """Whether the file stays as it is; then it must be there."""
    mark: ClassVar[str] = "?"
    lock: ClassVar[str] = ""
    # Batches come from Spark's callback thread, and the file is not held while there is nothing to do.
    keeps_connections: ClassVar[bool] = False

    @property
    def place(self) -> str:
        return self.file

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error,)

    def connect(self) -> Connection:
        if self.only_read:
            return _Connection(_opened_to_read(self.file))
        make_folders(Path(self.file).parent)
        connection = sqlite3.connect(self.file, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            for setting in ("journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {setting}")
        except BaseException:
            connection.close()
            raise
        return _Connection(connection)

    def fault(self, error: Exception) -> Fault:
        return Fault.ROWS if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError) else Fault.OTHER

    def failure(self, node: str, batch: int, error: Exception) -> PenstockError:
        if "full" in str(error):
            return PenstockError.of("DISK_FULL", path=self.file)
        if self.fault(error) is Fault.ROWS:
            return super().failure(node, batch, error)
        locked = "locked" in str(error)
        advice = "Another program holds the file; close it." if locked else "Check the table and the rows."
        return PenstockError.of("SINK_FAILED", node=node, batch=batch, reason=error, advice=advice)

    def refusal(self, node: str, error: Exception) -> PenstockError:
        code = "DISK_FULL" if "full" in str(error) else "PATH_NOT_WRITABLE"
        return PenstockError.of(code, path=Path(self.file), reason=error)

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def row_sum(self, columns: Sequence[str], of: str = "") -> str:
        return f"{_ROW_SUM}({', '.join(of + self.quote(name) for name in columns)})"

    join: ClassVar[str] = "CROSS JOIN"

    def found(self, layout: Layout) -> str:
        return self.same_key(layout, "IS")

    # --- tables -------------------------------------------------------------------------------------------

    def make_table(self, connection: Connection, layout: Layout) -> Layout:
        for name, own in self.bookkeeping(layout).items():
            connection.run(f"CREATE TABLE IF NOT EXISTS {name} ({own})")
        target = self.table(layout.table)
        columns = [f"{self.quote(item.name)} {self.own_type(item, layout)}" for item in layout.columns]
        if layout.batch_column is not None:
            columns.append(f"{self.quote(layout.batch_column)} INTEGER")
        connection.run(f"CREATE TABLE IF NOT EXISTS {target} ({', '.join(columns)})")
        present = {row[1]: row[2] for row in connection.rows(f"PRAGMA table_info({target})")}
        # SQLite itself takes every type for this one that has these letters in its name.
        types = {name: "INTEGER" if "INT" in kind.upper() else kind for name, kind in present.items()}
        layout = with_batch_column(layout, types, "INTEGER")
        found_columns(layout, {name.lower(): name for name in present} | {name: name for name in present})
        if layout.key:
            index = self.quote(f"{layout.table} by {', '.join(layout.key)}")
            key = ", ".join(self.quote(column) for column in layout.key)
            try:
                connection.run(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {target} ({key})")
            except sqlite3.IntegrityError:
                raise Differs(f"it holds several rows of one key ({', '.join(layout.key)})") from None
        return layout

    def leftovers(self, connection: Connection, prefix: str) -> list[str]:
        return []

    def make_stage(self, connection: Connection, table: str, layout: Layout) -> None:
        raise NotImplementedError("all rows go through the driver")

    def begin(self, connection: Connection, layout: Layout | None = None) -> None:
        connection.run("BEGIN IMMEDIATE")
        if layout is not None:
            columns = self.own_columns(layout)
            connection.run(f"CREATE TEMP TABLE {DIRECT} ({columns})")
            connection.run(f"CREATE TEMP TABLE {MERGED} ({NUMBER} INTEGER PRIMARY KEY, {columns})")

    # --- values -------------------------------------------------------------------------------------------

    def own_type(self, column: Column, layout: Layout) -> str:
        return _NUMBERS.get(column.kind, "TEXT")

    def storable(self, column: SparkColumn, kind: str) -> SparkColumn:
        return column if kind in _NUMBERS or kind == "string" else as_text(column, kind)

    def ordered(self, expression: str, column: Column) -> str:
        """Decimals are stored as text."""
        return f"CAST({expression} AS NUMERIC)" if column.kind.startswith("decimal") else expression

    # --- storing ------------------------------------------------------------------------------------------

    def store(self, connection: Connection, layout: Layout, where: str) -> None:
        names, values = self.inserted(layout)
        target = self.table(layout.table)
        insert = f"INSERT INTO {target} ({names}) SELECT {values} FROM {MERGED} w"
        if not layout.key:
            connection.run(f"{insert} WHERE {where}")
            return
        # Not ON CONFLICT: null never conflicts with null in a unique index, but IS finds it.
        kept, same, older = f"{where} AND {self.kept(layout)}", self.same_key(layout, "IS"), self.not_older(layout)
        changes = ", ".join(f"{self.quote(item.stored)} = {self.value(item, layout)}" for item in layout.others)
        if changes:
            connection.run(f"UPDATE {target} AS t SET {changes} FROM {MERGED} w WHERE {kept} AND {same} AND {older}")
        connection.run(f"{insert} WHERE {kept} AND NOT EXISTS (SELECT 1 FROM {target} t WHERE {same})")
        if layout.delete is not None:
            found = f"SELECT t.rowid FROM {MERGED} w CROSS JOIN {target} t ON {same} WHERE {where} AND w.{DELETED}"
            connection.run(f"DELETE FROM {target} WHERE rowid IN ({found} AND {older})")


def _opened_to_read(file: str) -> sqlite3.Connection:
    # Not `mode=ro`: with a write-ahead log, readers too must be able to make the files beside it.
    connection = sqlite3.connect(
        f"{Path(file).absolute().as_uri()}?mode=rw", timeout=_BUSY_SECONDS, isolation_level=None, uri=True
    )
    connection.execute("PRAGMA query_only=ON")
    connection.text_factory = _text
    return connection


def _text(stored: bytes) -> str | bytes:
    """SQLite does not check that texts are texts."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
