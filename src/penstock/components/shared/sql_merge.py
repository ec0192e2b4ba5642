"""Stores rows on their way in the table itself, inside one transaction, and finds the rows that do not fit.

With a key, of several rows of one key the newest by version counts, and of equally new ones the one that came last.
Rows that violate a constraint are found by halving: a part that fails is undone and tried again in two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.components.base import Refused
from penstock.components.shared.checksum import Content
from penstock.components.shared.sql_database import (
    DELETED,
    DIRECT,
    MERGED,
    NUMBER,
    SEQ,
    Connection,
    Database,
    Fault,
    Layout,
)  # fmt: skip
from penstock.components.shared.sql_stage import numbered
from penstock.components.shared.sql_text import as_json

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_REFUSED = 10_000
"""With more rows refused in a batch it is the table or the pipeline that is wrong."""


class Unmergeable(Exception):
    """Why a batch cannot be stored, when no row and no statement is to blame."""


@dataclass(frozen=True)
class Staged:
    """A table with rows on their way, and how many there must be."""

    table: str
    rows: int


class Merge:
    def __init__(self, database: Database, connection: Connection, layout: Layout, *, stop: bool) -> None:
        self.database = database
        self.connection = connection
        self.layout = layout
        self.stop = stop
        self.refused: list[Refused] = []
        self.change = Content(0, 0)
        """By how much the table has changed, where checksums are kept of it."""

    def store(self, staged: Sequence[Staged], direct: pa.Table | None = None) -> list[Refused]:
        """Stores all rows that fit, those that were staged and those at hand; gives those that do not.

        With `stop` the first of these raises.
        """
        staged = [part for part in staged if part.rows]
        fits = True
        if direct is not None and not (fits := self._load(direct)):
            self.connection.load(DIRECT, self.layout.staged, direct if self.layout.key else numbered(direct, 0))
            staged.append(Staged(DIRECT, direct.num_rows))
        if not staged or (fits and not self.layout.key and self._append(staged)):
            return []
        self._count(staged)
        last = self.connection.run(self._into_merged(staged))
        if not self.layout.summed:
            self._store(1, last)
            return self.refused
        before = self.database.touched(self.connection, self.layout)
        self._store(1, last)
        after = self.database.touched(self.connection, self.layout)
        self.change = Content(after.rows - before.rows, after.checksum - before.checksum)
        return self.refused

    def _load(self, rows: pa.Table) -> bool:
        """Loads rows straight into the table; False if that cannot be, or if one did not fit, and none is there."""
        layout = self.layout
        if layout.key or not layout.loadable:
            return False
        columns = {self.database.quote(column.stored): column.kind for column in layout.columns}
        if layout.batch_column is not None:
            columns[self.database.quote(layout.batch_column)] = "bigint"
            rows = _with_batch(rows, layout.batch)
        same_types = all(column.same_type for column in layout.columns)
        target = self.database.table(layout.table)
        return self._all_or_none(lambda: self.connection.load(target, columns, rows, same_types=same_types))

    def _append(self, staged: Sequence[Staged]) -> bool:
        """Puts all rows into the table as they are; False if one did not fit, and none is there."""
        names, values = self.database.inserted(self.layout)
        target = self.database.table(self.layout.table)

        def append() -> None:
            for part in staged:
                stored = self.connection.run(f"INSERT INTO {target} ({names}) SELECT {values} FROM {part.table} w")
                _refuse_lost(part, stored)

        return self._all_or_none(append)

    def _all_or_none(self, action: Callable[[], None]) -> bool:
        self.connection.run("SAVEPOINT penstock")
        try:
            action()
        except self.database.errors as error:
            if self.database.fault(error) is not Fault.ROWS:
                raise
            # With `stop` too: which row it was is found in the next way, and told then.
            self.connection.run("ROLLBACK TO SAVEPOINT penstock")
            return False
        self.connection.run("RELEASE SAVEPOINT penstock")
        return True

    def _count(self, staged: Sequence[Staged]) -> None:
        for part in staged:
            _refuse_lost(part, self.connection.rows(f"SELECT COUNT(*) FROM {part.table}")[0][0])

    def _into_merged(self, staged: Sequence[Staged]) -> str:
        """Numbers the rows that count."""
        columns = ", ".join(self.layout.staged)
        rows = " UNION ALL ".join(f"SELECT {columns} FROM {part.table}" for part in staged)
        into = f"INSERT INTO {MERGED} ({NUMBER}, {columns})"
        if not self.layout.key:
            return f"{into} SELECT ROW_NUMBER() OVER (ORDER BY {SEQ}), {columns} FROM ({rows}) s"
        own = self.layout.own
        keys = ", ".join(own[name] for name in self.layout.key)
        rank = f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {self._newest_first()}{SEQ} DESC)"
        ranked = f"SELECT {columns}, {rank} AS place FROM ({rows}) s"
        return f"{into} SELECT ROW_NUMBER() OVER (ORDER BY {SEQ}), {columns} FROM ({ranked}) r WHERE place = 1"

    def _newest_first(self) -> str:
        if self.layout.version is None:
            return ""
        version = self.layout.own[self.layout.version]
        ordered = self.database.ordered(version, self.layout.column(self.layout.version))
        return f"CASE WHEN {version} IS NULL THEN 1 ELSE 0 END, {ordered} DESC, "

    def _store(self, first: int, last: int) -> None:
        if first > last:
            return
        self.connection.run("SAVEPOINT penstock")
        try:
            self.database.store(self.connection, self.layout, f"w.{NUMBER} BETWEEN {first} AND {last}")
        except self.database.errors as error:
            if self.stop or self.database.fault(error) is not Fault.ROWS:
                raise
            self.connection.run("ROLLBACK TO SAVEPOINT penstock")
            reason = self.database.reason(error)
        else:
            self.connection.run("RELEASE SAVEPOINT penstock")
            return
        if first == last:
            self._refuse(first, reason)
            return
        if not self.refused:
            self.database.before_search(self.connection)
        middle = (first + last) // 2
        self._store(first, middle)
        self._store(middle + 1, last)

    def _refuse(self, number: int, reason: str) -> None:
        if len(self.refused) == _MOST_REFUSED:
            raise Unmergeable(f"more than {_MOST_REFUSED} rows do not fit; the last: {reason}")
        own = [*self.layout.own.values(), *([DELETED] if self.layout.delete else [])]
        query = f"SELECT {', '.join(own)} FROM {MERGED} WHERE {NUMBER} = {number}"
        self.refused.append(Refused(as_json(self.layout.kinds, self.connection.rows(query)[0]), reason))


def _with_batch(rows: pa.Table, batch: int) -> pa.Table:
    import pyarrow as pa

    return rows.append_column("batch", pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows))


def _refuse_lost(part: Staged, found: int) -> None:
    if found != part.rows:
        raise Unmergeable(f"{part.rows - found} of {part.rows} rows on their way are gone: the server was restarted")
