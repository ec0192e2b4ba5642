"""A polled table as a Spark data source: when it is looked at, and who reads which rows.

Apart from the component, because Spark's workers import these classes by name and the component must not import Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa  # noqa: TID253 - imported by the source only when it is read
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition  # noqa: TID253
from pyspark.sql.pandas.types import from_arrow_schema  # noqa: TID253
from pyspark.sql.streaming.datasource import (  # noqa: TID253
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType  # noqa: TID253

from penstock.components.shared.retry import Patience, persist
from penstock.components.shared.source_errors import SourceError
from penstock.components.shared.sql_database import Connection, Database, Fault
from penstock.components.shared.sql_poll_plan import COUNTED, Changed, Plan, Planner, Unordered
from penstock.components.shared.sql_poll_position import Position
from penstock.components.shared.sql_poll_query import Query
from penstock.components.shared.sql_poll_spool import Missing, Piece, Spool
from penstock.components.shared.sql_tables import ReadColumn, database_at, opened
from penstock.components.shared.sql_values import arrow_rows, arrow_schema
from penstock.errors import Problem

FORMAT = "penstock_sql_poll"
SETTINGS = "secret_settings"
"""The option with everything a reader needs. By its name Spark keeps its value out of plans and logs."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """What is read and how, as it goes to the workers in one option."""

    node: str
    url: str
    folder: str
    """What a path in the URL is relative to."""
    spool: str
    table: str
    columns: tuple[ReadColumn, ...]
    order: tuple[ReadColumn, ...]
    every_seconds: float
    overlap_seconds: float
    start: str
    max_rows_per_batch: int | None
    piece_rows: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        values = json.loads(text)
        listed = {name: tuple(ReadColumn(**column) for column in values[name]) for name in ("columns", "order")}
        return cls(**{**values, **listed})

    @property
    def kinds(self) -> dict[str, str]:
        return {column.name: column.kind for column in self.columns}

    @property
    def database(self) -> Database:
        return database_at(self.url, Path(self.folder))

    @property
    def query(self) -> Query:
        return Query(self.database, self.table, self.columns, self.order)


@dataclass(frozen=True)
class Part(InputPartition):
    piece: Piece


class SqlPollReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the length of a query; copies of it read pieces in the workers."""

    def __init__(
        self,
        settings: Settings,
        patience: Patience | None = None,
        now: Callable[[Connection], dt.datetime] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._patience = patience or Patience()
        self._spool = Spool(Path(settings.spool))
        overlap = dt.timedelta(seconds=settings.overlap_seconds)
        self._planner = Planner(settings.query, overlap, settings.piece_rows, now)
        self._monotonic = monotonic
        self._due = 0.0
        self._known: tuple[str, Position] | None = None
        """The position of the plan last used, as far as it has moved on since."""
        self._waiting = 0
        self._bounded = False
        self._until: list[Any] | None = None
        """With one element: the value up to which a bounded run reads."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    # --- in the driver -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        name = self._spool.first()
        if name is None:
            start = self._ask(lambda connection: self._planner.start(connection, self._settings.start))
            name = self._spool.write(0, start, [], [])
        return {"batch": 0, "plan": name}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._settings.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._bounded = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._monotonic() < self._due:
            return dict(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        plan = self._ask(lambda connection: self._plan(connection, str(start["plan"]), most))
        self._waiting = plan.waiting
        if not plan.more:
            self._due = float("inf") if self._bounded else self._monotonic() + self._settings.every_seconds
        if plan.empty:
            self._known = (str(start["plan"]), plan.position)
            return dict(start)
        number = int(start["batch"]) + 1
        step = self._settings.piece_rows
        parts = [plan.rows[first : first + step] for first in range(0, len(plan.rows), step)]
        tables = [arrow_rows(self._settings.kinds, part) for part in parts]
        name = self._spool.write(number, plan.position, tables, plan.ranges)
        self._known = (name, plan.position)
        return {"batch": number, "plan": name}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"waiting": self._waiting, "counted": COUNTED}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Part]:
        # The start says nothing: the end names the rows of the batch itself.
        return [] if start == end else [Part(piece) for piece in self._told(lambda: self._spool.pieces(end["plan"]))]

    def commit(self, end: Mapping[str, Any]) -> None:
        # The batch itself stays: it is run again if Spark's note of its commit is lost.
        self._spool.forget(int(end["batch"]))

    def _plan(self, connection: Connection, name: str, most: int | None) -> Plan:
        if self._known is None or self._known[0] != name:
            self._known = (name, self._spool.position(name))
        if self._bounded and self._until is None:
            self._until = [self._planner.last(connection)]
        until = self._until[0] if self._until else None
        if self._bounded and until is None:
            return Plan(self._known[1])
        return self._planner.plan(connection, self._known[1], most, until)

    # --- in a worker -------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            raise TypeError(f"{type(partition).__name__} is not a part of a table")
        piece, wanted = partition.piece, arrow_schema(self._settings.kinds)
        if piece.range is not None and not self._spool.has(piece):
            self._spool.keep(piece, self._ask(lambda connection: self._read_range(connection, piece)))
        batches = self._spool.rows(piece)
        while (batch := self._told(lambda: next(batches, None))) is not None:
            yield _as(batch, wanted)

    def _read_range(self, connection: Connection, piece: Piece) -> pa.Table:
        query, found = self._planner.query, piece.range
        assert found is not None
        where = query.with_order() & query.up_to(found.up_to)
        where = where if found.start is None else where & query.since(found.start)
        return arrow_rows(self._settings.kinds, query.rows(connection, where))

    # --- errors ------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Connection], _T]) -> _T:
        """What the database answers, asked again for a while if that may help."""
        database = self._planner.query.database

        def once() -> _T:
            connection = opened(database)
            try:
                return question(connection)
            finally:
                with suppress(*database.errors):
                    connection.close()

        def passes(error: Exception) -> bool:
            return isinstance(error, database.errors) and database.fault(error) is Fault.PASSING

        try:
            return self._told(lambda: persist(once, passes, self._patience))
        except database.errors as error:
            raise SourceError(failure(self._settings.node, database, error)) from None

    def _told(self, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except Missing as error:
            raise SourceError(Problem("STATE_UNREADABLE", {"path": error.path, "reason": error.reason})) from None
        except Changed as error:
            raise SourceError(Problem("STATE_SOURCES_CHANGED", {"reason": error})) from None
        except Unordered as error:
            advice = "Correct the value, or order by another column."
            params = {"node": self._settings.node, "reason": error, "advice": advice}
            raise SourceError(Problem("SOURCE_FAILED", params)) from None


def failure(node: str, database: Database, error: Exception) -> Problem:
    """An error while reading, in words."""
    advice = {
        Fault.PASSING: "It was tried again for a while. Start the pipeline again when the database is well.",
        Fault.DENIED: "Give the user of the source the right to read the table.",
    }.get(database.fault(error), "Check the table; its columns are looked up when the pipeline starts.")
    return Problem("SOURCE_FAILED", {"node": node, "reason": database.reason(error), "advice": advice})


def _as(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of today: it may have been written before a column was added to the table."""
    if batch.schema == wanted:
        return batch
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


class SqlTableReader(DataSourceReader):
    """Reads the rows that are there now, once: as a stream would that ends with them."""

    def __init__(self, settings: Settings) -> None:
        self._reader = SqlPollReader(settings)

    def partitions(self) -> list[InputPartition]:
        self._reader.prepareForTriggerAvailableNow()
        at, found = self._reader.initialOffset(), list[InputPartition]()
        while (end := self._reader.latestOffset(at, ReadAllAvailable())) != at:
            found += self._reader.partitions(at, end)
            at = end
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class SqlTable(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(self._settings().kinds))

    def reader(self, schema: StructType) -> SqlTableReader:
        return SqlTableReader(self._settings())

    def streamReader(self, schema: StructType) -> SqlPollReader:
        return SqlPollReader(self._settings())

    def _settings(self) -> Settings:
        return Settings.from_json(self.options[SETTINGS])
