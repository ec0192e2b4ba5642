"""What a polled table is asked, as SQL: names are quoted, and values travel beside the statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.components.shared.sql_database import Connection, Database
from penstock.components.shared.sql_tables import ReadColumn

Value: TypeAlias = Any
"""A value of a column as its database gives it and takes it back: a number, a text or bytes."""
Place: TypeAlias = tuple[Value, ...]
"""Where a row stands in the order: its values in the columns of the order."""


@dataclass(frozen=True)
class Bound:
    """Where reading begins: at a value of the first column of the order, or behind a place."""

    values: Place
    after: bool = False


@dataclass(frozen=True)
class Condition:
    """A condition in SQL, and the values in it."""

    text: str
    values: tuple[Value, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"{self.text} AND {other.text}", (*self.values, *other.values))


@dataclass(frozen=True)
class Query:
    """Asks one table for rows in an order."""

    database: Database
    table: str
    columns: tuple[ReadColumn, ...]
    order: tuple[ReadColumn, ...]

    # --- conditions ---------------------------------------------------------------------------------------

    def with_order(self) -> Condition:
        """That a row has a place in the order at all."""
        return Condition(" AND ".join(f"{self._named(column)} IS NOT NULL" for column in self.order))

    def compared(self, sign: str, value: Value) -> Condition:
        """How the first column of the order compares with a value."""
        return Condition(f"{self._named(self.order[0])} {sign} {self._mark(self.order[0])}", (value,))

    def behind(self, place: Place) -> Condition:
        return self._beyond(place, ">", ">")

    def up_to(self, place: Place) -> Condition:
        return self._beyond(place, "<", "<=")

    def since(self, bound: Bound) -> Condition:
        return self.behind(bound.values) if bound.after else self.compared(">=", bound.values[0])

    def _beyond(self, place: Place, sign: str, last: str) -> Condition:
        """Comparison column by column. The first condition says nothing new, and lets an index be used."""
        text, values = "", list[Value]()
        for number, (column, value) in reversed(list(enumerate(zip(self.order, place, strict=True)))):
            name, mark = self._named(column), self._mark(column)
            if number == len(place) - 1:
                text, values = f"{name} {last} {mark}", [value]
            else:
                text = f"({name} {sign} {mark} OR ({name} = {mark} AND {text}))"
                values = [value, value, *values]
        return self.compared(f"{sign}=", place[0]) & Condition(text, tuple(values))

    # --- questions ----------------------------------------------------------------------------------------

    def rows(
        self, connection: Connection, where: Condition, flags: Sequence[Condition] = (), most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Rows in order: the columns, the columns of the order, and whether each flag holds, as 0 or 1."""
        marked = [f"CASE WHEN {flag.text} THEN 1 ELSE 0 END" for flag in flags]
        asked = ", ".join([*map(self._asked, self.columns), *map(self._asked, self.order), *marked])
        values = tuple(value for flag in flags for value in flag.values)
        limit = "" if most is None else f" LIMIT {int(most)}"
        statement = f"SELECT {asked} FROM {self._table} WHERE {where.text} ORDER BY {self._sorted()}{limit}"
        return self._ask(connection, statement, *values, *where.values)

    def cuts(self, connection: Connection, where: Condition, every: int, most: int) -> tuple[list[Place], int]:
        """The places of every so-manieth row, and of the last; how many rows there are, at most so many."""
        names = [f"k{number}" for number in range(len(self.order))]
        listed = ", ".join(names)
        keys = ", ".join(f"{self._named(column)} AS {name}" for column, name in zip(self.order, names, strict=True))
        first = f"SELECT {keys} FROM {self._table} WHERE {where.text} ORDER BY {self._sorted()} LIMIT {int(most)}"
        numbered = (
            f"SELECT {listed}, row_number() OVER (ORDER BY {listed}) AS row_place, count(*) OVER () AS row_total "
            f"FROM ({first}) AS found"
        )
        asked = ", ".join(
            f"{column.before}{name}{column.after}" for column, name in zip(self.order, names, strict=True)
        )
        rest = f"row_place {'%%' if self._formats else '%'} {int(every)} = 0"
        chosen = f"{rest} OR row_place = row_total ORDER BY row_place"
        statement = f"SELECT {asked}, row_total FROM ({numbered}) AS placed WHERE {chosen}"
        found = self._ask(connection, statement, *where.values)
        return [tuple(row[:-1]) for row in found], int(found[0][-1]) if found else 0

    def newest(self, connection: Connection, where: Condition | None = None) -> Value | None:
        """The greatest value of the first column of the order."""
        column = self.order[0]
        condition = "" if where is None else f" WHERE {where.text}"
        asked = f"{column.before}max({self._named(column)}){column.after}"
        values = () if where is None else where.values
        return self._ask(connection, f"SELECT {asked} FROM {self._table}{condition}", *values)[0][0]

    def count(self, connection: Connection, where: Condition, most: int) -> int:
        """How many rows there are, counted up to so many."""
        some = f"SELECT 1 AS present FROM {self._table} WHERE {where.text} LIMIT {int(most)}"
        return int(self._ask(connection, f"SELECT count(*) FROM ({some}) AS counted_rows", *where.values)[0][0])

    # --- words --------------------------------------------------------------------------------------------

    @property
    def _formats(self) -> bool:
        """Whether the driver puts values into the text itself, so that a percent sign has to be doubled."""
        return self.database.mark == "%s"

    @property
    def _table(self) -> str:
        return self.database.table(self.table)

    def _named(self, column: ReadColumn) -> str:
        name = self.database.quote(column.name)
        return name.replace("%", "%%") if self._formats else name

    def _asked(self, column: ReadColumn) -> str:
        return f"{column.before}{self._named(column)}{column.after}"

    def _mark(self, column: ReadColumn) -> str:
        return f"CAST({self.database.mark} AS {column.cast})" if column.cast else self.database.mark

    def _sorted(self) -> str:
        return ", ".join(map(self._named, self.order))

    def _ask(self, connection: Connection, statement: str, *values: Value) -> list[tuple[Any, ...]]:
        if self._formats and not values:
            statement = statement.replace("%%", "%")
        return connection.rows(statement, *values)
