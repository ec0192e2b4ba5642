"""Rows on their way from Spark's tasks to a database.

A task with few rows sends them to the driver. One with many puts them into a file, where the driver runs on the same
machine, and else loads them itself, into a table of its own that only counts once the driver has heard of it; so what
an attempt that failed or was overtaken has loaded is never stored.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.components.base import Refused
from penstock.components.shared.retry import Patience, persist
from penstock.components.shared.sql_database import SEQ, Connection, Database, Fault, Layout
from penstock.components.shared.sql_text import as_json

if TYPE_CHECKING:
    import pyarrow as pa

PART = "stage string, rows bigint, body binary, file string, refused string, failure string"
_HELD = 1 << 20
"""The most bytes that a task holds before it puts them into a file."""
_NUMBERS_PER_TASK = 40
"""Bits for the number of a row in its task; the number of the task stands above them."""


@dataclass(frozen=True)
class Part:
    """What one task has to say."""

    stage: str | None = None
    """The table it has loaded its rows into."""
    rows: int = 0
    body: bytes | None = None
    """Its rows as an Arrow stream, if they are few."""
    file: str | None = None
    """Where such a stream is, if they are many."""
    refused: tuple[Refused, ...] = ()
    failure: str | None = None

    def record(self) -> pa.RecordBatch:
        import pyarrow as pa

        refused = json.dumps([[item.row, item.error] for item in self.refused])
        return pa.record_batch(
            {
                "stage": pa.array([self.stage], pa.string()),
                "rows": pa.array([self.rows], pa.int64()),
                "body": pa.array([self.body], pa.binary()),
                "file": pa.array([self.file], pa.string()),
                "refused": pa.array([refused], pa.string()),
                "failure": pa.array([self.failure], pa.string()),
            }
        )

    @property
    def at_hand(self) -> bool:
        """Whether the driver can read its rows."""
        return self.body is not None or self.file is not None

    def table(self) -> pa.Table:
        import pyarrow as pa

        return pa.ipc.open_stream(self.body if self.file is None else pa.memory_map(self.file)).read_all()


def parts_of(records: pa.Table) -> list[Part]:
    found = records.to_pylist()
    refused = [tuple(Refused(*item) for item in json.loads(row.pop("refused"))) for row in found]
    return [Part(**row, refused=rows) for row, rows in zip(found, refused, strict=True)]


@dataclass(frozen=True)
class Loading:
    """What each task does with its rows; called by Spark's workers."""

    database: Database
    layout: Layout
    prefix: str
    """How the names of its tables begin; unique for each try of a batch."""
    most_rows: int = sys.maxsize
    """With more than that a task loads its rows itself."""
    most_bytes: int = sys.maxsize
    spool: str | None = None
    """A folder that the driver reads too."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        task = Task(self, context.partitionId(), context.taskAttemptId())
        try:
            for batch in batches:
                task.add(batch)
            part = task.finish()
        except self.database.errors as error:
            for _ in batches:
                pass
            part = Part(failure=self.database.reason(error))
        finally:
            task.close()
        if part.rows or part.refused or part.failure:
            yield part.record()


class Task:
    """One attempt of a task."""

    def __init__(self, loading: Loading, partition: int, attempt: int, patience: Patience | None = None) -> None:
        self.loading = loading
        self.stage = f"{loading.prefix}_{attempt}"
        self.patience = patience or Patience()
        self.next = partition << _NUMBERS_PER_TASK
        self.held: list[pa.Table] = []
        self.loaded = 0
        self.refused: list[Refused] = []
        self.connection: Connection | None = None
        self.spooled = 0
        self._spool: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        good, refused = sifted(pa.Table.from_batches([batch]), self.loading.database, self.loading.layout)
        self.refused += refused
        self.held.append(good.rename_columns([*self.loading.layout.staged][:-1]))
        held = sum(table.nbytes for table in self.held)
        if self.loading.spool is not None:
            if held > _HELD:
                self._put_away()
        elif self._held_rows() > self.loading.most_rows or held > self.loading.most_bytes:
            self._load()

    def _numbered(self) -> pa.Table:
        """The rows it holds, with their numbers."""
        import pyarrow as pa

        rows = numbered(pa.concat_tables(self.held), self.next)
        self.next += rows.num_rows
        return rows

    def _for_driver(self) -> pa.Table:
        """The rows it holds; without a key their order has no meaning, unless one is found that does not fit."""
        import pyarrow as pa

        return self._numbered() if self.loading.layout.key else pa.concat_tables(self.held)

    @property
    def _file(self) -> str:
        return f"{self.loading.spool}/{self.stage}.arrow"

    def _put_away(self) -> None:
        import pyarrow as pa

        rows = self._for_driver()
        if self._spool is None:
            self._spool = pa.ipc.new_stream(self._file, rows.schema)
        self._spool.write_table(rows)
        self.spooled += rows.num_rows
        self.held = []

    def _held_rows(self) -> int:
        return sum(table.num_rows for table in self.held)

    def finish(self) -> Part:
        refused = tuple(self.refused)
        if self._spool is not None:
            if self._held_rows():
                self._put_away()
            self._spool.close()
            return Part(rows=self.spooled, file=self._file, refused=refused)
        if not self.loaded:
            return Part(rows=self._held_rows(), body=self._body(), refused=refused)
        self._load()
        return Part(self.stage, self.loaded, refused=refused)

    def _body(self) -> bytes | None:
        import pyarrow as pa

        if not self._held_rows():
            return None
        rows = self._for_driver()
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(out.getvalue())

    def _load(self) -> None:
        if not self._held_rows():
            return
        rows = self._numbered()
        database = self.loading.database
        persist(lambda: self._load_once(rows), lambda error: database.fault(error) is Fault.PASSING, self.patience)
        self.held = []
        self.loaded += rows.num_rows

    def _load_once(self, rows: pa.Table) -> None:
        database, layout = self.loading.database, self.loading.layout
        table = database.near(layout, self.stage)
        try:
            if self.connection is None:
                self.connection = database.connect()
                database.make_stage(self.connection, table, layout)
                first = rows["seq"][0].as_py()
                # The connection may have been lost after the rows had been loaded.
                if self.connection.rows(f"SELECT 1 FROM {table} WHERE seq = {first}"):
                    return
            database.begin(self.connection)
            self.connection.load(table, layout.staged, rows)
            self.connection.run("COMMIT")
        except database.errors:
            self.close()
            raise

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def numbered(rows: pa.Table, first: int) -> pa.Table:
    """The rows with a number each, in order."""
    import numpy as np
    import pyarrow as pa

    return rows.append_column(SEQ, pa.array(np.arange(first, first + rows.num_rows, dtype="int64")))


def sifted(rows: pa.Table, database: Database, layout: Layout) -> tuple[pa.Table, list[Refused]]:
    """The rows that a database can store, and the others with the reason."""
    import pyarrow.compute as pc

    rows = rows.rename_columns(list(layout.kinds))
    reasons: dict[int, str] = {}
    for bad, reason in database.unstorable(rows, layout):
        for number in pc.indices_nonzero(pc.fill_null(bad, False)).to_pylist():
            reasons.setdefault(number, reason)
    if not reasons:
        return rows, []
    numbers = sorted(reasons)
    found = rows.take(numbers).to_pylist()
    refused = [
        Refused(as_json(layout.kinds, list(row.values())), reasons[number])
        for number, row in zip(numbers, found, strict=True)
    ]
    return rows.take([number for number in range(rows.num_rows) if number not in reasons]), refused
