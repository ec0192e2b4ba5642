"""How a table of a database goes back to what it held after a batch, inside one transaction.

With a key only the number of the last batch goes back: rows that come again replace those that are there. Without one
the rows of later batches are deleted, which are known by the column that the sink fills with the batch's number. Each
time is noted in `_penstock_rewinds`: rows that were taken back are gone, and a savepoint that had them is of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.components.shared.sql_database import COLUMNS, REWINDS, Connection, Database, Layout

_FORK = "Fork the savepoint, into another table."
UNKNOWN = ("the savepoint does not say what it held", _FORK)


@dataclass(frozen=True)
class Turn:
    """A time when a sink went back."""

    origin: int
    """The last batch it had stored before."""
    batch: int
    """The one it went back to."""


@dataclass(frozen=True)
class Held:
    """What a sink held when a savepoint was taken."""

    batch: int
    rows: int
    turns: int
    """How often it had gone back by then."""
    batch_column: str | None

    def position(self) -> dict[str, Any]:
        return {"batch": self.batch, "rows": self.rows, "turns": self.turns, "batchColumn": self.batch_column}

    @classmethod
    def of(cls, position: Mapping[str, Any]) -> Held | None:
        if "batch" not in position:
            return None
        return cls(position["batch"], position["rows"], position["turns"], position["batchColumn"])


def impossible(layout: Layout, batch: int, last: int, held: Held, turns: Sequence[Turn]) -> tuple[str, str] | None:
    """Why a sink that has stored batches up to `last` cannot go back to one, and what to do; None if it can.

    `turns` are the times it went back since the savepoint.
    """
    wanted = min(batch, held.batch)
    if layout.key:
        if max([last, *(turn.origin for turn in turns)]) < wanted:
            return f"it has stored no more than batch {last}", f"Bring the table back too. {_FORK}"
        return None
    least = min((turn.batch for turn in turns), default=last)
    if min(least, last) < wanted:
        return f"its rows after batch {min(least, last)} were taken back since", _FORK
    if last > batch and (layout.batch_column is None or held.batch_column != layout.batch_column):
        reason = "it cannot tell which rows came later"
        if held.batch_column != layout.batch_column:
            reason = "its `batchColumn` was not the same when the savepoint was taken"
        return reason, (
            "Fork the savepoint into another table, or keep all rows, some of them twice. With `batchColumn`, or a "
            "`key`, the pipeline can go back to later savepoints."
        )
    return None


class Turns:
    """The notes about a sink, on an open connection."""

    def __init__(self, database: Database, connection: Connection, layout: Layout, identity: tuple[str, str]) -> None:
        self.database = database
        self.connection = connection
        self.layout = layout
        self.identity = identity

    def since(self, lineage: str, number: int = 0) -> list[Turn]:
        """The times that the rows of some state were taken back, from one on, in order."""
        table, mark = self.database.near(self.layout, REWINDS), self.database.mark
        asked = f"SELECT from_batch, to_batch FROM {table} WHERE pipeline = {mark} AND sink = {mark}"
        found = self.connection.rows(f"{asked} AND lineage = {mark} ORDER BY number", *self.identity, lineage)
        return [Turn(int(origin), int(batch)) for origin, batch in found[number:]]

    def note(self, lineage: str, turn: Turn) -> None:
        table, marks = self.database.near(self.layout, REWINDS), ", ".join([self.database.mark] * 6)
        names = "pipeline, sink, lineage, number, from_batch, to_batch"
        values = (*self.identity, lineage, len(self.since(lineage)), turn.origin, turn.batch)
        self.connection.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values)

    def delete_after(self, batch: int) -> int:
        """Deletes the rows of later batches; how many there were."""
        assert self.layout.batch_column is not None
        column = self.database.quote(self.layout.batch_column)
        return self.connection.run(f"DELETE FROM {self.database.table(self.layout.table)} WHERE {column} > {batch:d}")

    def claim_column(self) -> str | None:
        """Makes the column for batches the sink's own; whose it is, if it is another's."""
        table, mark = self.database.near(self.layout, COLUMNS), self.database.mark
        which = (self.layout.table.rpartition(".")[2], self.layout.batch_column)
        asked = f"SELECT pipeline, sink FROM {table} WHERE table_name = {mark} AND column_name = {mark}"
        found = self.connection.rows(asked, *which)
        if found and tuple(found[0]) != self.identity:
            pipeline, sink = found[0]
            return f"sink '{sink}' of pipeline '{pipeline}'"
        if not found:
            names, marks = "table_name, column_name, pipeline, sink", ", ".join([mark] * 4)
            self.connection.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *which, *self.identity)
        return None
