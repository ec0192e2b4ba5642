"""A table in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import Batch, CheckContext, Sink, SinkContext, SinkWriter, resolve_path
from penstock.components.shared.crashpoints import reach
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCHES = "_penstock_batches"
_BUSY_SECONDS = 30
_NUMBERS = {"tinyint": "INTEGER", "smallint": "INTEGER", "int": "INTEGER", "bigint": "INTEGER", "boolean": "INTEGER",
            "float": "REAL", "double": "REAL", "binary": "BLOB"}  # fmt: skip


class Sqlite(Sink):
    """Stores rows in a table of a SQLite file, exactly once.

    Without a key rows are appended; with a key a later row replaces an earlier one. Rows and the number of the
    batch are written in one transaction, so a batch that comes again after a crash changes nothing. The table is
    made if it does not exist. Timestamps are stored as text in UTC, decimals as text, nested values as JSON.
    """

    name: ClassVar[str] = "sqlite"
    example: ClassVar[str] = """\
from: views
sqlite: {path: ./out.db, table: views, key: [id]}
"""

    path: str = field(doc="The SQLite file, relative to the pipeline file.", change=Change.LOSES_STATE, min_length=1)
    table: str = field(doc="The table.", change=Change.LOSES_STATE, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    key: tuple[str, ...] = field((), doc="Columns that identify a row; none means append.", change=Change.LOSES_STATE)
    version: str | None = field(
        None, doc="Column that says which of two rows of one key is newer; default: the one that comes later."
    )

    @property
    def accepts_updates(self) -> bool:
        return bool(self.key)

    def check(self, context: CheckContext) -> Iterator[Problem]:
        if self.version is not None and not self.key:
            where = f"sqlite of '{context.node}'"
            yield Problem("SPEC_MISSING_KEY", {"key": "key", "where": where, "advice": "`version` goes with a `key`."})

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        for column in (*self.key, *([self.version] if self.version else [])):
            if column not in columns:
                hint = did_you_mean(column, columns)
                yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})

    def open(self, context: SinkContext) -> SinkWriter:
        return _SqliteWriter(self, Path(resolve_path(context.folder, self.path)), context)


class _SqliteWriter(SinkWriter):
    def __init__(self, sink: Sqlite, file: Path, context: SinkContext) -> None:
        self.sink = sink
        self.file = file
        self.node = context.node
        self.columns = dict(context.schema)
        self.identity = (context.pipeline, context.node)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._transaction() as db:
                self._make_tables(db)
                self._take_over(db, context)
        except sqlite3.Error as error:
            code = "DISK_FULL" if "full" in str(error) else "PATH_NOT_WRITABLE"
            raise PenstockError.of(code, path=file, reason=error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # A connection per transaction: batches come from Spark's callback thread, and none is held while idle.
        db = sqlite3.connect(self.file, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        finally:
            db.close()

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline TEXT, sink TEXT, lineage TEXT NOT NULL, epoch INTEGER "
            "NOT NULL, batch INTEGER NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (pipeline, sink))"
        )
        columns = ", ".join(f"{_name(name)} {_sqlite_type(kind)}" for name, kind in self.columns.items())
        db.execute(f"CREATE TABLE IF NOT EXISTS {_name(self.sink.table)} ({columns})")
        present = [row[1] for row in db.execute(f"PRAGMA table_info({_name(self.sink.table)})")]
        missing = [name for name in self.columns if name.lower() not in {column.lower() for column in present}]
        if missing:
            self._differs(f"column {', '.join(missing)} is missing in the table")
        if self.sink.key:
            index = f"{self.sink.table} by {', '.join(self.sink.key)}"
            keys = ", ".join(_name(column) for column in self.sink.key)
            try:
                db.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {_name(index)} ON {_name(self.sink.table)} ({keys})")
            except sqlite3.IntegrityError:
                self._differs(f"it holds several rows of one key ({', '.join(self.sink.key)})")

    def _differs(self, reason: str) -> None:
        raise PenstockError.of("SINK_TABLE_DIFFERS", node=self.node, table=self.sink.table, reason=reason)

    def _take_over(self, db: sqlite3.Connection, context: SinkContext) -> None:
        """Refuses to append to what other state has written, then fences out older runs of this state."""
        found = self._position(db)
        if found is None or (found[0] != context.lineage and self.sink.key):
            position = (*self.identity, context.lineage, context.epoch)
            db.execute(f"INSERT OR REPLACE INTO {BATCHES} VALUES (?, ?, ?, ?, -1, 0)", position)
            return
        lineage, epoch, batch = found
        if lineage != context.lineage and batch >= 0:
            raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=f"{self.file}, table {self.sink.table}")
        if lineage == context.lineage:
            self._refuse_if_fenced(epoch, context.epoch)
        update = f"UPDATE {BATCHES} SET lineage = ?, epoch = ? WHERE pipeline = ? AND sink = ?"
        db.execute(update, (context.lineage, context.epoch, *self.identity))

    def _position(self, db: sqlite3.Connection) -> tuple[str, int, int] | None:
        query = f"SELECT lineage, epoch, batch FROM {BATCHES} WHERE pipeline = ? AND sink = ?"
        found: tuple[str, int, int] | None = db.execute(query, self.identity).fetchone()
        return found

    def _refuse_if_fenced(self, newer: int, epoch: int) -> None:
        if newer > epoch:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=epoch)

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        try:
            with self._transaction() as db:
                if self._applied(db, batch):
                    return False
            # Spark computes outside the transaction: a slow batch must not lock the file for others.
            values = self._values(rows)
            with self._transaction() as db:
                if self._applied(db, batch):
                    return True
                self._store(db, values)
                reach("sink.in_transaction", batch.id)
                db.execute(
                    f"UPDATE {BATCHES} SET epoch = ?, batch = ?, rows = rows + ? WHERE pipeline = ? AND sink = ?",
                    (batch.epoch, batch.id, len(values), *self.identity),
                )
        except sqlite3.Error as error:
            raise self._failed(batch, error) from error
        return True

    def _applied(self, db: sqlite3.Connection, batch: Batch) -> bool:
        found = self._position(db)
        if found is None or found[0] != batch.lineage:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer="of another state", epoch=batch.epoch)
        self._refuse_if_fenced(found[1], batch.epoch)
        return found[2] >= batch.id

    def _failed(self, batch: Batch, error: sqlite3.Error) -> PenstockError:
        if "full" in str(error):
            return PenstockError.of("DISK_FULL", path=self.file)
        locked = "locked" in str(error)
        advice = "Another program holds the file; close it." if locked else "Check the table and the rows."
        return PenstockError.of("SINK_FAILED", node=self.node, batch=batch.id, reason=error, advice=advice)

    def _values(self, rows: DataFrame) -> list[tuple[Any, ...]]:
        table = rows.select(*(_storable(name, kind) for name, kind in self.columns.items())).toArrow()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def _store(self, db: sqlite3.Connection, values: list[tuple[Any, ...]]) -> None:
        names = list(self.columns)
        columns = ", ".join(_name(name) for name in names)
        marks = ", ".join("?" for _ in names)
        insert = f"INSERT INTO {_name(self.sink.table)} ({columns}) VALUES ({marks})"
        if not self.sink.key:
            db.executemany(insert, values)
            return
        places = [names.index(column) for column in self.sink.key]
        db.executemany(insert + self._on_conflict(), (row for row in values if None not in (row[i] for i in places)))
        # Null never conflicts with null in a unique index, so rows with a null in their key are replaced by hand.
        same_key = " AND ".join(f"{_name(column)} IS ?" for column in self.sink.key)
        for row in values:
            key = tuple(row[i] for i in places)
            if None in key and self._newest(db, row, key, same_key):
                db.execute(f"DELETE FROM {_name(self.sink.table)} WHERE {same_key}", key)
                db.execute(insert, row)

    def _newest(self, db: sqlite3.Connection, row: tuple[Any, ...], key: tuple[Any, ...], same_key: str) -> bool:
        if self.sink.version is None:
            return True
        column = _name(self.sink.version)
        version = row[list(self.columns).index(self.sink.version)]
        newer = f"{self._ordered(column)} > {self._ordered('?')}" if version is not None else f"{column} IS NOT ?"
        query = f"SELECT 1 FROM {_name(self.sink.table)} WHERE {same_key} AND {newer}"
        return db.execute(query, (*key, version)).fetchone() is None

    def _ordered(self, expression: str) -> str:
        """A version as it can be compared: decimals are stored as text."""
        kind = self.columns[self.sink.version] if self.sink.version is not None else ""
        return f"CAST({expression} AS NUMERIC)" if kind.startswith("decimal") else expression

    def _on_conflict(self) -> str:
        key = ", ".join(_name(column) for column in self.sink.key)
        others = [_name(name) for name in self.columns if name not in self.sink.key]
        if not others:
            return f" ON CONFLICT ({key}) DO NOTHING"
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        condition = ""
        if self.sink.version is not None:
            column = _name(self.sink.version)
            stored = f"{_name(self.sink.table)}.{column}"
            condition = f" WHERE {stored} IS NULL OR {self._ordered(f'excluded.{column}')} >= {self._ordered(stored)}"
        return f" ON CONFLICT ({key}) DO UPDATE SET {changes}{condition}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sqlite_type(kind: str) -> str:
    return _NUMBERS.get(kind, "TEXT")


def _storable(name: str, kind: str) -> Column:
    """A column as SQLite can hold it."""
    from pyspark.sql import functions as F

    column = F.col(f"`{name.replace('`', '``')}`")
    if kind in _NUMBERS or kind == "string":
        return column
    if kind.startswith(("array", "map", "struct")):
        return F.to_json(column).alias(name)
    return column.cast("string").alias(name)
