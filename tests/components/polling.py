"""Drives the reader of a polled table as Spark would, without Spark: batches, replays, restarts and lost plans."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.components.sql_stores import Store

from penstock.components.shared.retry import Patience
from penstock.components.shared.sql_database import Connection
from penstock.components.shared.sql_poll_stream import Settings, SqlPollReader
from penstock.components.shared.sql_tables import database_at, described, opened
from penstock.components.sources.sql_poll import SqlPoll

Row = tuple[Any, ...]


def url_of(store: Store) -> str:
    return f"sqlite:///{store.folder / 'out.db'}" if store.database is None else store.url()


def settings(store: Store, spool: Path, **options: Any) -> Settings:
    """What the reader of the table `t` is told; by default in the order of `ts`."""
    names = options.pop("order", ["ts"])
    database = database_at(url_of(store), store.folder)
    connection = opened(database)
    table = described(database, connection, "t")
    connection.close()
    assert table is not None
    order = [
        column for column in map(table.column, [*names, *(key for key in table.key if key not in names)]) if column
    ]
    chosen: dict[str, Any] = {
        "node": "rows", "url": url_of(store), "folder": str(store.folder), "spool": str(spool), "table": "t",
        "columns": table.columns, "order": tuple(order), "every_seconds": 0.0, "overlap_seconds": 10.0,
        "start": "earliest", "max_rows_per_batch": None, "piece_rows": 50_000,
    }  # fmt: skip
    return Settings(**{**chosen, **options})


@dataclass
class Stream:
    """A stream over the table: where it is, and all it has given."""

    settings: Settings
    now: Callable[[Connection], dt.datetime] | None = None
    got: Counter[Row] = field(default_factory=Counter)
    bounded: bool = False

    def __post_init__(self) -> None:
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self) -> None:
        """What it knew is gone, but for the offset and the files."""
        self.reader = SqlPollReader(self.settings, Patience(attempts=1), now=self.now)
        if self.bounded:
            self.reader.prepareForTriggerAvailableNow()

    def planned(self, most: int | None = None) -> dict[str, Any]:
        """The end of the next batch. Planned and not run, it is as if Spark had died before noting it."""
        limit = self.settings.max_rows_per_batch if most is None else most
        return self.reader.latestOffset(self.offset, ReadAllAvailable() if limit is None else ReadMaxRows(limit))

    def rows(self, end: dict[str, Any]) -> list[list[Row]]:
        """The rows of a batch, by task."""
        parts = self.reader.partitions(self.offset, end)
        return [
            [tuple(row.values())[:-1] for batch in self.reader.read(part) for row in batch.to_pylist()]
            for part in parts
        ]

    def run(self, most: int | None = None, end: dict[str, Any] | None = None) -> list[Row]:
        """Runs the next batch, or the one that was planned, and commits it."""
        end = self.planned(most) if end is None else end
        found = [row for part in self.rows(end) for row in part]
        self.got.update(found)
        self.offset = end
        self.reader.commit(end)
        return found

    def drain(self, most: int | None = None) -> None:
        """Runs until a look finds nothing."""
        while self.run(most):
            pass


def _plain(batch: pa.RecordBatch) -> list[Row]:
    return [tuple(row.values())[:-1] for row in batch.to_pylist()]


def source(store: Store, **options: Any) -> SqlPoll:
    return SqlPoll.model_validate({"url": url_of(store), "table": "t", "order": "ts", **options})
