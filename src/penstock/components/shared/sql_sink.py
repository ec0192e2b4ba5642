"""A table of a database as a sink: exactly once, because rows and the number of their batch are one transaction.

The table `_penstock_batches` holds how far each sink of each pipeline is, and which run may write. It lies beside
the rows, so a batch that comes again, a run that was overtaken, and a commit whose answer was lost are all told apart
by looking there. Rows that do not fit are kept in `_penstock_refused`, in the same transaction, until the next batch.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from penstock.components.base import (
    Batch,
    CheckContext,
    Refused,
    Sink,
    SinkContext,
    SinkWriter,
    Times,
    cannot_rewind,
)  # fmt: skip
from penstock.components.base import Part as BatchPart
from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.checksum import Change as ContentChange
from penstock.components.shared.checksum import Content
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.keyed import DELETE, KEY, VERSION, key_column_problems, key_problems
from penstock.components.shared.retry import Patience, persist
from penstock.components.shared.sql_database import (
    BATCHES,
    CHANGES,
    REFUSED,
    STAGED,
    Column,
    Connection,
    Database,
    Differs,
    Fault,
    Layout,
)  # fmt: skip
from penstock.components.shared.sql_merge import Merge, Staged, Unmergeable
from penstock.components.shared.sql_rewind import UNKNOWN, Held, Turn, Turns, impossible
from penstock.components.shared.sql_stage import PART, Loading, Part, Task, parts_of
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_T = TypeVar("_T")
OnViolation = Literal["dead", "stop"]
AUTOMATIC = 0
"""As `bulk_rows`: what suits the number of tasks."""
_THROUGH_DRIVER = 128 << 20
"""The most bytes of a batch that the tasks of a cluster send to the driver."""


class SqlSink(Sink):
    """What all tables of databases have in common."""

    guarantee: ClassVar[str] = "Exactly once: rows and the number of the batch are written in one transaction."

    table: str = field(
        holds=Holds.NAME, doc="The table.", change=Change.LOSES_STATE, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"
    )
    key: tuple[str, ...] = field((), holds=Holds.NAME, doc=KEY, change=Change.LOSES_STATE)
    version: str | None = field(None, holds=Holds.NAME, doc=VERSION)
    delete: str | None = field(None, holds=Holds.NAME, doc=DELETE)
    on_violation: OnViolation = field(
        "dead", doc="What becomes of rows that the table does not take: dead letters, or the pipeline stops."
    )

    batch_column: str | None = field(
        None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", change=Change.RESTART,
        holds=Holds.NAME,
        doc="Column, not one of the rows, that the sink fills with the number of the batch, so that a pipeline can go "
        "back to a savepoint though rows are appended. It is made with the table; in one that is there it must be a "
        "bigint (in SQLite an INTEGER) and no other sink may fill it. Not for a sink with a `key`, which needs none.",
    )  # fmt: skip

    @property
    def accepts_updates(self) -> bool:
        return bool(self.key)

    def check(self, context: CheckContext) -> Iterator[Problem]:
        where = f"{self.name} of '{context.node}'"
        yield from key_problems(self, where)
        if self.batch_column is not None and self.key:
            reason, advice = "`batchColumn` goes without a `key`", "Leave one of them out."
            params = {"where": where, "reason": reason, "advice": advice}
            yield Problem("SPEC_BAD_VALUE", params, at=("batchColumn",))

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        yield from key_column_problems(self, node, columns)
        for column, kind in columns.items():
            if self.batch_column is not None and column.lower() == self.batch_column.lower():
                params = {"node": node, "component": self.name, "column": column, "type": kind}
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": "`batchColumn` must not be of the rows."})

    @abstractmethod
    def database_of(self, context: SinkContext) -> Database:
        """Where the table is."""

    def content(self, context: SinkContext, columns: Sequence[str]) -> Content:
        database = self.database_of(context)
        try:
            return database.content(self.table, columns)
        except database.errors as error:
            raise database.refusal(context.node, error) from None

    def as_stored(self, rows: DataFrame, context: SinkContext) -> DataFrame:
        from pyspark.sql import functions as F

        database = self.database_of(context)
        kinds = dict(rows.dtypes)
        return rows.select(*(database.storable(F.col(quote(name)), kinds[name]).alias(name) for name in rows.columns))

    def rows_between(
        self, context: SinkContext, columns: Sequence[str], part: BatchPart
    ) -> list[tuple[Any, ...]] | None:
        if self.batch_column is None:
            return None
        return self._rows(context, columns, Times(self.batch_column, part.after, part.until))

    def rows_within(self, context: SinkContext, columns: Sequence[str], times: Times | None) -> list[tuple[Any, ...]]:
        return self._rows(context, columns, times)

    def _rows(self, context: SinkContext, columns: Sequence[str], span: Times | None) -> list[tuple[Any, ...]]:
        database = self.database_of(context)
        try:
            return database.rows_of(self.table, columns, span)
        except database.errors as error:
            raise database.refusal(context.node, error) from None

    def layout(self, columns: Mapping[str, str]) -> Layout:
        """The table as the sink would make it for such rows."""
        stored = tuple(Column(name, kind, name) for name, kind in columns.items() if name != self.delete)
        return Layout(self.table, stored, self.key, self.version, self.delete, batch_column=self.batch_column)


@dataclass(frozen=True)
class _Position:
    """How far a sink is, and whose it is."""

    lineage: str
    epoch: int
    batch: int
    rows: int


class SqlWriter(SinkWriter):
    """An open table."""

    def __init__(
        self,
        sink: SqlSink,
        database: Database,
        context: SinkContext,
        bulk_rows: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.sink = sink
        self.database = database
        self.context = context
        self.node = context.node
        self.identity = (context.pipeline, context.node)
        self.bulk_rows = bulk_rows
        self.patience = patience or Patience()
        self.layout = sink.layout(context.schema)
        # One transaction at a time can write to a file, and two that merge into one table wait for each other's rows.
        self.lane = f"{database.place} {sink.table}" if database.keeps_connections else database.place
        if sink.key and context.checksum:
            self.layout = replace(self.layout, summed=tuple(item.name for item in self.layout.columns))
        self._changed: dict[int, ContentChange] = {}
        self._open_connection: Connection | None = None
        self._refused: dict[int, Sequence[Refused]] = {}
        try:
            # A server that does not answer now is said at once; one that an older run still holds is waited for.
            self._connection()
            persist(lambda: self._prepare(context), self._passes, self.patience)
        except database.errors as error:
            self.close()
            raise database.refusal(self.node, error) from None

    # --- connections --------------------------------------------------------------------------------------

    def _connection(self) -> Connection:
        if self._open_connection is None:
            self._open_connection = self.database.connect()
        return self._open_connection

    def close(self) -> None:
        if self._open_connection is not None:
            with suppress(*self.database.errors):
                self._open_connection.close()
            self._open_connection = None

    @contextmanager
    def _transaction(self, layout: Layout | None = None) -> Iterator[Connection]:
        connection = self._connection()
        committed = False
        try:
            self.database.begin(connection, layout)
            yield connection
            connection.run("COMMIT")
            committed = True
        finally:
            if not committed:
                with suppress(*self.database.errors):
                    connection.run("ROLLBACK")
            if not committed or not self.database.keeps_connections:
                self.close()

    def _persist(self, batch: Batch, action: Callable[[], _T]) -> _T:
        """Does it, again if need be: each try begins with looking how far the sink is."""
        try:
            return persist(action, self._passes, self.patience)
        except self.database.errors as error:
            raise self.database.failure(self.node, batch.id, error) from None
        except Unmergeable as error:
            raise self._failed(batch, str(error)) from None

    def _passes(self, error: Exception) -> bool:
        self.retried += 1
        return isinstance(error, self.database.errors) and self.database.fault(error) is Fault.PASSING

    def _failed(self, batch: Batch, reason: str) -> PenstockError:
        advice = "Nothing of the batch was stored."
        return PenstockError.of("SINK_FAILED", node=self.node, batch=batch.id, reason=reason, advice=advice)

    # --- opening ------------------------------------------------------------------------------------------

    def _near(self, name: str) -> str:
        return self.database.near(self.layout, name)

    def _named(self, *columns: str) -> str:
        return ", ".join(self.database.quote(column) for column in columns)

    def _values(self, *columns: str) -> str:
        return " AND ".join(f"{self.database.quote(column)} = {self.database.mark}" for column in columns)

    def _prepare(self, context: SinkContext) -> None:
        with self._transaction() as connection:
            self._make_table(connection)
        with self._transaction() as connection:
            self._take_over(connection, context)
            self._claim_column(connection)
        if self.bulk_rows is not None:
            self._drop([self._near(name) for name in self._leftovers()])

    def _make_table(self, connection: Connection) -> None:
        try:
            self.layout = self.database.make_table(connection, self.layout)
        except Differs as error:
            reason = str(error)
            raise PenstockError.of("SINK_TABLE_DIFFERS", node=self.node, table=self.sink.table, reason=reason) from None

    def _take_over(self, connection: Connection, context: SinkContext) -> None:
        """Refuses to append to what other state has written, then fences out older runs of this state."""
        found = self._position(connection)
        if found is None:
            names = self._named("pipeline", "sink", "lineage", "epoch", "batch", "rows")
            marks = ", ".join([self.database.mark] * 4)
            insert = f"INSERT INTO {self._near(BATCHES)} ({names}) VALUES ({marks}, -1, 0)"
            connection.run(insert, *self.identity, context.lineage, context.epoch)
            return
        if found.lineage == context.lineage:
            self._refuse_if_fenced(found.epoch, context.epoch)
        elif found.batch >= 0 and not self.sink.key:
            place = f"{self.database.place}, table {self.sink.table}"
            raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=place)
        else:
            self._set(connection, batch=-1, rows=0)
            connection.run(
                f"DELETE FROM {self._near(REFUSED)} WHERE {self._values('pipeline', 'sink')}", *self.identity
            )
        self._set(connection, lineage=context.lineage, epoch=context.epoch)

    def _claim_column(self, connection: Connection) -> None:
        if self.layout.batch_column is not None and (other := self._turns(connection).claim_column()) is not None:
            reason = f"column {self.layout.batch_column} is filled by {other}; this one needs a column of its own"
            raise PenstockError.of("SINK_TABLE_DIFFERS", node=self.node, table=self.sink.table, reason=reason)

    def _set(self, connection: Connection, **values: Any) -> None:
        changes = ", ".join(f"{self.database.quote(name)} = {self.database.mark}" for name in values)
        where = self._values("pipeline", "sink")
        connection.run(f"UPDATE {self._near(BATCHES)} SET {changes} WHERE {where}", *values.values(), *self.identity)

    def _position(self, connection: Connection, lock: bool = True) -> _Position | None:
        names, where = self._named("lineage", "epoch", "batch", "rows"), self._values("pipeline", "sink")
        query = f"SELECT {names} FROM {self._near(BATCHES)} WHERE {where}{self.database.lock if lock else ''}"
        found = connection.rows(query, *self.identity)
        return _Position(*found[0]) if found else None

    def _refuse_if_fenced(self, newer: int, epoch: int) -> None:
        if newer > epoch:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=epoch)

    # --- writing ------------------------------------------------------------------------------------------

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        # Spark computes outside the transaction: a slow batch must not lock tables for others.
        return self._write(batch, lambda: self._parts(batch, rows))

    def as_table(self, rows: DataFrame) -> DataFrame:
        return rows.select(*self._storable)

    def write_table(self, batch: Batch, rows: pa.Table) -> bool:
        return self._write(batch, lambda: [self._part_of(batch, rows)])

    def _write(self, batch: Batch, compute: Callable[[], list[Part]]) -> bool:
        if self._persist(batch, lambda: self._look_up(batch)):
            return False
        parts = compute()
        try:
            reach("sink.staged", batch.id)
            self._persist(batch, lambda: self._store(batch, parts))
        finally:
            self._drop([self._near(part.stage) for part in parts if part.stage])
            for part in parts:
                if part.file is not None:
                    Path(part.file).unlink(missing_ok=True)
        return True

    def _look_up(self, batch: Batch) -> bool:
        try:
            return self._holds(batch, self._owned(self._connection(), batch, lock=False))
        except self.database.errors:
            self.close()
            raise
        finally:
            if not self.database.keeps_connections:
                self.close()

    def _holds(self, batch: Batch, position: _Position) -> bool:
        if position.batch >= batch.id:
            self.noted = position.batch
            return True
        self.refuse_behind(position.batch)
        return False

    def last_batch(self) -> int:
        def ask() -> int:
            with self._transaction() as connection:
                return self._owned(connection, self._at(-1), lock=False).batch

        return self._persist(self._at(-1), ask)

    def _owned(self, connection: Connection, batch: Batch, lock: bool = True) -> _Position:
        """How far the sink is; refuses if it is no longer this run's."""
        found = self._position(connection, lock)
        if found is None or found.lineage != batch.lineage:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer="of another state", epoch=batch.epoch)
        self._refuse_if_fenced(found.epoch, batch.epoch)
        return found

    def _parts(self, batch: Batch, rows: DataFrame) -> list[Part]:
        """What the tasks have to say; this is where Spark computes the batch."""
        storable = self.as_table(rows)
        if self.bulk_rows is None:
            return [self._part_of(batch, storable.toArrow())]
        loading = self._loading(self._stage_prefix(batch), storable)
        parts = parts_of(in_arrow(storable, loading, PART).toArrow())
        failure = next((part.failure for part in parts if part.failure), None)
        if failure is not None:
            self._drop([self._near(name) for name in self._leftovers()])
            raise self._failed(batch, failure)
        return parts

    def _part_of(self, batch: Batch, rows: pa.Table) -> Part:
        """Rows that are in this process, as a task would hand them over."""
        task = Task(Loading(self.database, self.layout, self._stage_prefix(batch)), 0, 0)
        for some in rows.to_batches():
            task.add(some)
        return task.finish()

    def _stage_prefix(self, batch: Batch) -> str:
        return f"{self._prefix}_{batch.epoch}_{batch.id}"

    def _loading(self, prefix: str, rows: DataFrame) -> Loading:
        """How tasks bring rows here: by way of the driver, as far as it has room for those of all tasks."""
        from pyspark import SparkFiles

        whole = Loading(self.database, self.layout, prefix)
        if self.bulk_rows:
            return replace(whole, most_rows=self.bulk_rows)
        if (rows.sparkSession.sparkContext.master or "").startswith("local"):
            return replace(whole, spool=SparkFiles.getRootDirectory())
        tasks = rows._jdf.queryExecution().toRdd().getNumPartitions()
        return replace(whole, most_bytes=_THROUGH_DRIVER // max(tasks, 1))

    @cached_property
    def _storable(self) -> list[Any]:
        """The columns as the database takes them, made once: it takes many calls to the JVM."""
        from pyspark.sql import functions as F

        def column(name: str, kind: str) -> Any:
            return self.database.storable(F.col(quote(name)), kind).alias(name)

        return [column(name, kind) for name, kind in self.layout.kinds.items()]

    def _store(self, batch: Batch, parts: Sequence[Part]) -> None:
        layout = replace(self.layout, batch=batch.id)
        with self._transaction(layout) as connection:
            position = self._owned(connection, batch)
            if self._holds(batch, position):
                return
            refused = [item for part in parts for item in part.refused]
            if refused and self.sink.on_violation == "stop":
                raise Unmergeable(refused[0].error)
            staged = [Staged(self._near(part.stage), part.rows) for part in parts if part.stage]
            merge = Merge(self.database, connection, layout, stop=self.sink.on_violation == "stop")
            refused += merge.store(staged, _together(parts))
            self._keep_refused(connection, batch, refused)
            change = self._note_change(connection, batch, position, merge.change)
            reach("sink.in_transaction", batch.id)
            stored = sum(part.rows for part in parts) - len(merge.refused)
            self._set(connection, epoch=batch.epoch, batch=batch.id, rows=position.rows + stored)
        self.noted = batch.id
        self._changed = {} if change is None else {batch.id: change}
        self._refused = {batch.id: refused}

    def _keep_refused(self, connection: Connection, batch: Batch, refused: Sequence[Refused]) -> None:
        """Refused rows stay until the next batch, so that one that comes again gives the same dead letters."""
        table = self._near(REFUSED)
        if self._refused.get(batch.id - 1) != []:
            connection.run(f"DELETE FROM {table} WHERE {self._values('pipeline', 'sink')}", *self.identity)
        names = self._named("pipeline", "sink", "batch", "number", "row", "error")
        insert = f"INSERT INTO {table} ({names}) VALUES ({', '.join([self.database.mark] * 6)})"
        for number, item in enumerate(refused):
            connection.run(insert, *self.identity, batch.id, number, item.row, item.error)

    def _note_change(
        self, connection: Connection, batch: Batch, position: _Position, change: Content
    ) -> ContentChange | None:
        """Keeps by how much the table has changed; all that it holds, where the batch before was not summed up."""
        if not self.layout.summed:
            return None
        whose, columns = self._values("pipeline", "sink"), json.dumps(self.layout.summed)
        before = connection.rows(f"SELECT batch, summed FROM {self._near(CHANGES)} WHERE {whose}", *self.identity)
        follows = [(int(number), text) for number, text in before] == [(position.batch, columns)]
        if not follows:
            change = self.database.summed(
                connection, self.layout.stored_sums, f"{self.database.table(self.layout.table)} t"
            )
        connection.run(f"DELETE FROM {self._near(CHANGES)} WHERE {whose}", *self.identity)
        names = self._named("pipeline", "sink", "batch", "summed", "rows", "checksum", "whole")
        marks = ", ".join([self.database.mark] * 7)
        values = (*self.identity, batch.id, columns, change.rows, change.checksum, int(not follows))
        connection.run(f"INSERT INTO {self._near(CHANGES)} ({names}) VALUES ({marks})", *values)
        return self._as_change(change.rows, change.checksum, whole=not follows)

    def _as_change(self, rows: int, checksum: int, *, whole: bool) -> ContentChange:
        return ContentChange(rows, checksum, whole, self.layout.stored_sums if whole else ())

    def changed(self, batch: Batch) -> ContentChange | None:
        if self.layout.summed and batch.id not in self._changed:
            self._persist(batch, lambda: self._look_up_change(batch))
        return self._changed.get(batch.id)

    def _look_up_change(self, batch: Batch) -> None:
        names, whose = self._named("rows", "checksum", "whole"), self._values("pipeline", "sink", "batch")
        with self._transaction() as connection:
            query = f"SELECT {names} FROM {self._near(CHANGES)} WHERE {whose}"
            found = connection.rows(query, *self.identity, batch.id)
        self._changed = {}
        if found:
            rows, checksum, whole = found[0]
            self._changed[batch.id] = self._as_change(int(rows), int(checksum), whole=bool(whole))

    def refused(self, batch: Batch) -> Sequence[Refused]:
        if batch.id not in self._refused:
            self._refused = {batch.id: self._persist(batch, lambda: self._kept(batch))}
        return self._refused[batch.id]

    def _kept(self, batch: Batch) -> list[Refused]:
        names, where = self._named("row", "error"), self._values("pipeline", "sink", "batch")
        query = f"SELECT {names} FROM {self._near(REFUSED)} WHERE {where} ORDER BY {self._named('number')}"
        with self._transaction() as connection:
            return [Refused(*row) for row in connection.rows(query, *self.identity, batch.id)]

    # --- going back ---------------------------------------------------------------------------------------

    def _turns(self, connection: Connection) -> Turns:
        return Turns(self.database, connection, self.layout, self.identity)

    def _at(self, batch: int) -> Batch:
        return Batch(self.context.pipeline, self.context.lineage, self.context.epoch, batch)

    def position(self) -> dict[str, Any]:
        def ask() -> Held:
            with self._transaction() as connection:
                found = self._owned(connection, self._at(-1), lock=False)
                turns = len(self._turns(connection).since(self.context.lineage))
            return Held(found.batch, found.rows, turns, self.layout.batch_column)

        return self._persist(self._at(-1), ask).position()

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        held = Held.of(position)
        if held is None:
            raise cannot_rewind(self.node, batch, *UNKNOWN)
        self._persist(self._at(batch), lambda: self._go_back(batch, held))

    def forget(self, batch: int) -> None:
        self._persist(self._at(batch), lambda: self._go_back(batch, None))

    def _go_back(self, batch: int, held: Held | None) -> None:
        """In one transaction; without what it held, only the number goes back."""
        with self._transaction() as connection:
            found, turns = self._owned(connection, self._at(batch)), self._turns(connection)
            rows = found.rows
            if held is not None:
                since = turns.since(self.context.lineage, held.turns)
                refusal = impossible(self.layout, batch, found.batch, held, since)
                if refusal is not None:
                    raise cannot_rewind(self.node, batch, *refusal)
                if self.layout.key:
                    rows = held.rows if held.batch <= batch else rows
                elif found.batch > batch:
                    rows -= turns.delete_after(batch)
            where = f"{self._values('pipeline', 'sink')} AND batch > {batch:d}"
            connection.run(f"DELETE FROM {self._near(REFUSED)} WHERE {where}", *self.identity)
            if self.layout.summed and found.batch > batch:
                whose = self._values("pipeline", "sink")
                connection.run(f"DELETE FROM {self._near(CHANGES)} WHERE {whose}", *self.identity)
            reach("sink.rewinding", batch)
            if found.batch > batch:
                turns.note(self.context.lineage, Turn(found.batch, batch))
            if found.batch > batch or held is not None:
                self._set(connection, batch=batch, rows=rows)
        self.noted = None
        self._refused = {}

    # --- tables of rows on their way ----------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        """Begins the names of this sink's tables of rows on their way; short, as names are cut at 63 characters."""
        return f"{STAGED}_{hashlib.sha256(repr(self.identity).encode()).hexdigest()[:12]}"

    def _leftovers(self) -> list[str]:
        return self.database.leftovers(self._connection(), f"{self._prefix}_")

    def _drop(self, tables: Sequence[str]) -> None:
        """What cannot be dropped now is dropped when the sink is opened again."""
        for table in tables:
            with suppress(*self.database.errors):
                self._connection().run(f"DROP TABLE IF EXISTS {table}")


def _together(parts: Sequence[Part]) -> pa.Table | None:
    import pyarrow as pa

    tables = [part.table() for part in parts if part.at_hand]
    return pa.concat_tables(tables) if tables else None
