"""What a SQL sink needs to know of a database: how to reach it, what its errors mean, and how it says things.

How rows are stored exactly once is the same everywhere and lies in `sql_sink` and `sql_merge`. A `Database` travels
to Spark's tasks, so it holds plain values only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import Times
from penstock.components.shared.checksum import Content
from penstock.components.shared.sql_text import is_nested
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

BATCHES = "_penstock_batches"
REFUSED = "_penstock_refused"
REWINDS = "_penstock_rewinds"
CHANGES = "_penstock_changes"
COLUMNS = "_penstock_columns"
STAGED = "_penstock_rows"
DIRECT = "_penstock_direct"
MERGED = "_penstock_merged"
SEQ = "seq"
DELETED = "deleted"
NUMBER = "n"


class Fault(Enum):
    """Whose fault an error of a database is."""

    PASSING = auto()
    """Trying again may help: a lost connection, a deadlock, a server that restarts."""
    ROWS = auto()
    """A row does not fit the table."""
    DENIED = auto()
    """Who asks has no right to."""
    OTHER = auto()


@dataclass(frozen=True)
class Column:
    """One column of the rows and of the table."""

    name: str
    kind: str
    """Spark's name of its type."""
    stored: str
    """Its name in the table, which may differ in upper and lower case."""
    cast: str = ""
    """The type in the table, where the database does not convert to it by itself."""
    collation: str = ""
    same_type: bool = False
    """Whether the table holds it in the type in which it travels."""


@dataclass(frozen=True)
class Layout:
    """A table as a sink writes it. In tables of Penstock's own its columns are called c0, c1 and so on."""

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    version: str | None = None
    delete: str | None = None
    nulls_in_key: bool = False
    """Whether the table finds a row again whose key holds a null."""
    loadable: bool = True
    """Whether the table itself can be loaded like one of Penstock's own."""
    batch_column: str | None = None
    """The column, beside those of the rows, that holds the number of the batch."""
    batch: int = -1
    """The batch that is being stored."""
    summed: tuple[str, ...] = ()
    """The columns of the checksums that are kept of a table with a key."""

    @property
    def staged(self) -> dict[str, str]:
        """The columns of rows on their way in order, with Spark's types."""
        names = [*self.own.values(), *([DELETED] if self.delete else [])]
        return {**dict(zip(names, self.kinds.values(), strict=True)), SEQ: "bigint"}

    @property
    def own(self) -> dict[str, str]:
        """Columns on their way by name."""
        return {column.name: f"c{number}" for number, column in enumerate(self.columns)}

    @property
    def kinds(self) -> dict[str, str]:
        """Spark's types of the columns that came, by name."""
        return {column.name: column.kind for column in self.columns} | ({self.delete: "boolean"} if self.delete else {})

    @property
    def stored_sums(self) -> list[str]:
        """The columns of the checksums, as the table calls them."""
        return [self.column(name).stored for name in self.summed]

    @property
    def others(self) -> list[Column]:
        """The columns beside the key."""
        return [column for column in self.columns if column.name not in self.key]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def with_columns(self, columns: dict[str, Column]) -> Layout:
        return replace(self, columns=tuple(columns.get(column.name, column) for column in self.columns))


class Differs(Exception):
    """Why a table that is there does not fit."""


class Connection(ABC):
    """An open connection. What it runs counts at once, unless a transaction has been begun."""

    @abstractmethod
    def run(self, statement: str, *values: Any) -> int:
        """How many rows it concerned."""

    @abstractmethod
    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def load(self, table: str, columns: Mapping[str, str], rows: pa.Table, *, same_types: bool = True) -> None:
        """Puts rows into a table: its columns in the order of the rows', with Spark's types.

        `same_types` says that they have the types in which rows travel.
        """

    @abstractmethod
    def close(self) -> None: ...


class Database(ABC):
    mark: ClassVar[str] = "%s"
    """Where a value goes in a statement."""
    keeps_connections: ClassVar[bool] = True
    lock: ClassVar[str] = " FOR UPDATE"
    name_type: ClassVar[str] = "TEXT"
    text_type: ClassVar[str] = "TEXT"

    @property
    @abstractmethod
    def place(self) -> str:
        """What may be shown of where it is."""

    @property
    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    @abstractmethod
    def connect(self) -> Connection: ...

    @abstractmethod
    def fault(self, error: Exception) -> Fault: ...

    def reason(self, error: Exception) -> str:
        """What the database says, in one line."""
        return " ".join(str(error).split())

    @abstractmethod
    def quote(self, name: str) -> str: ...

    @abstractmethod
    def make_table(self, connection: Connection, layout: Layout) -> Layout:
        """Makes the table, or raises Differs; what was found of it."""

    @abstractmethod
    def begin(self, connection: Connection, layout: Layout | None = None) -> None:
        """Begins a transaction; with a layout, one that has empty tables for rows on their way."""

    @abstractmethod
    def own_type(self, column: Column, layout: Layout) -> str:
        """The type in which a column travels; every value of Spark's type fits."""

    @abstractmethod
    def storable(self, column: SparkColumn, kind: str) -> SparkColumn:
        """A column as it travels."""

    def unstorable(self, rows: pa.Table, layout: Layout) -> Iterator[tuple[pa.Array, str]]:
        """Which rows it could not store in any table, and why."""
        yield from ()

    @abstractmethod
    def store(self, connection: Connection, layout: Layout, where: str) -> None:
        """Stores the rows of MERGED for which a condition on `w` holds."""

    @abstractmethod
    def leftovers(self, connection: Connection, prefix: str) -> list[str]:
        """Tables of Penstock's own that begin so."""

    @abstractmethod
    def make_stage(self, connection: Connection, table: str, layout: Layout) -> None: ...

    def bookkeeping(self, layout: Layout) -> dict[str, str]:
        """Penstock's own tables beside the rows, and their columns."""
        who = f"pipeline {self.name_type} NOT NULL, sink {self.name_type} NOT NULL"
        rows, row, error = (self.quote(name) for name in ("rows", "row", "error"))
        changes = {
            CHANGES: f"{who}, batch BIGINT NOT NULL, summed {self.text_type} NOT NULL, {rows} BIGINT NOT NULL, "
            "checksum BIGINT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (pipeline, sink)"
        }
        return (changes if layout.summed else {}) | {
            BATCHES: f"{who}, lineage {self.name_type} NOT NULL, epoch BIGINT NOT NULL, batch BIGINT NOT NULL, "
            f"{rows} BIGINT NOT NULL, PRIMARY KEY (pipeline, sink)",
            REFUSED: f"{who}, batch BIGINT NOT NULL, number BIGINT NOT NULL, {row} {self.text_type} NOT NULL, "
            f"{error} {self.text_type} NOT NULL, PRIMARY KEY (pipeline, sink, batch, number)",
            REWINDS: f"{who}, lineage {self.name_type} NOT NULL, number BIGINT NOT NULL, from_batch BIGINT NOT NULL, "
            "to_batch BIGINT NOT NULL, PRIMARY KEY (pipeline, sink, lineage, number)",
            COLUMNS: f"table_name {self.name_type} NOT NULL, column_name {self.name_type} NOT NULL, {who}, "
            "PRIMARY KEY (table_name, column_name)",
        }

    def before_search(self, connection: Connection) -> None:  # noqa: B027
        """Makes MERGED quick to read by number."""

    @abstractmethod
    def row_sum(self, columns: Sequence[str], of: str = "") -> str:
        """The checksum of a row over these columns, as an expression; `of` says of which table, as `t.`."""

    def content(self, table: str, columns: Sequence[str]) -> Content:
        """What a table holds."""
        connection = self.connect()
        try:
            return self.summed(connection, columns, f"{self.table(table)} t")
        finally:
            connection.close()

    def summed(self, connection: Connection, columns: Sequence[str], rows: str) -> Content:
        """Rows of a table `t`, which a FROM clause names, and their checksums."""
        query = f"SELECT COUNT(*), COALESCE(SUM({self.row_sum(columns, 't.')}), 0) FROM {rows}"
        ((found, checksum),) = connection.rows(query)
        return Content(int(found), int(checksum))

    def touched(self, connection: Connection, layout: Layout) -> Content:
        """The rows of the table whose key one of MERGED has."""
        target = self.table(layout.table)
        return self.summed(connection, layout.stored_sums, f"{MERGED} w {self.join} {target} t ON {self.found(layout)}")

    join: ClassVar[str] = "JOIN"
    """Joins so that the index of the table is used."""

    def found(self, layout: Layout) -> str:
        """That a row `t` has the key of a row `w`, nulls included."""
        return self.same_key(layout)

    def rows_of(self, table: str, columns: Sequence[str], span: Times | None) -> list[tuple[Any, ...]]:
        """Rows of a table; those of a span of values, if there is one."""
        query = f"SELECT {', '.join(map(self.quote, columns))} FROM {self.table(table)}"
        values: tuple[Any, ...] = ()
        if span is not None:
            column = self.quote(span.column)
            query += f" WHERE {column} > {self.mark} AND {column} <= {self.mark}"
            values = (span.after, span.until)
        connection = self.connect()
        try:
            return connection.rows(query, *values)
        finally:
            connection.close()

    def table(self, name: str) -> str:
        """A table as it stands in a statement; `schema.table` names one in a schema."""
        return ".".join(self.quote(part) for part in name.split("."))

    def near(self, layout: Layout, name: str) -> str:
        """A table of Penstock's own, in the schema of the table."""
        schema = layout.table.rpartition(".")[0]
        return self.table(f"{schema}.{name}" if schema else name)

    def failure(self, node: str, batch: int, error: Exception) -> PenstockError:
        """An error while writing, in words."""
        advice = {
            Fault.PASSING: "It was tried again for a while. Start the pipeline again when the database is well.",
            Fault.ROWS: "Correct the rows, or set them aside with `onViolation: dead`.",
            Fault.DENIED: "Give the user of the sink the right to do it.",
        }.get(self.fault(error), "Nothing of the batch was stored.")
        return PenstockError.of("SINK_FAILED", node=node, batch=batch, reason=self.reason(error), advice=advice)

    def refusal(self, node: str, error: Exception) -> PenstockError:
        """An error while opening, in words."""
        code = "SINK_DENIED" if self.fault(error) is Fault.DENIED else "SINK_UNREACHABLE"
        return PenstockError.of(code, node=node, server=self.place, reason=self.reason(error))

    def own_columns(self, layout: Layout) -> str:
        """The columns of a table of rows on their way."""
        columns = [f"{layout.own[column.name]} {self.own_type(column, layout)}" for column in layout.columns]
        flag = [f"{DELETED} {self.own_type(Column('', 'boolean', ''), layout)}"] if layout.delete else []
        return ", ".join([*columns, *flag, f"{SEQ} BIGINT NOT NULL"])

    def value(self, column: Column, layout: Layout) -> str:
        """A column of a row `w` on its way, as the table takes it."""
        return f"w.{layout.own[column.name]}"

    def inserted(self, layout: Layout) -> tuple[str, str]:
        """The columns of the table, and the values for them."""
        values = {self.quote(column.stored): self.value(column, layout) for column in layout.columns}
        if layout.batch_column is not None:
            values[self.quote(layout.batch_column)] = f"{layout.batch:d}"
        return ", ".join(values), ", ".join(values.values())

    def same_key(self, layout: Layout, equal: str = "=") -> str:
        """That a row `t` of the table and a row `w` have the same key."""
        columns = [layout.column(name) for name in layout.key]
        return " AND ".join(f"t.{self.quote(item.stored)} {equal} {self.value(item, layout)}" for item in columns)

    def ordered(self, expression: str, column: Column) -> str:
        """A version as it can be compared."""
        return expression

    def not_older(self, layout: Layout, new: str | None = None) -> str:
        """That a row `w`, or the version `new`, is not older than the row `t` of the table."""
        if layout.version is None:
            return "1 = 1"
        column = layout.column(layout.version)
        stored = f"t.{self.quote(column.stored)}"
        newer = self.ordered(new or self.value(column, layout), column)
        return f"({stored} IS NULL OR {newer} >= {self.ordered(stored, column)})"

    def kept(self, layout: Layout) -> str:
        """That a row `w` is to be stored, not deleted."""
        return f"(w.{DELETED} IS NULL OR NOT w.{DELETED})" if layout.delete else "1 = 1"


def in_key(column: Column, layout: Layout) -> bool:
    return column.name in layout.key


def as_text(column: SparkColumn, kind: str) -> SparkColumn:
    """A column of a type that databases do not know: nested ones as JSON, others as Spark writes them."""
    from pyspark.sql import functions as F

    return F.to_json(column) if is_nested(kind) else column.cast("string")


def found_columns(layout: Layout, present: dict[str, str]) -> dict[str, str]:
    """The name in the table of each column; `present` has all names of the table, by lower case too.

    Raises Differs if one is missing.
    """
    found = {column.name: present.get(column.name) or present.get(column.name.lower()) for column in layout.columns}
    missing = [name for name, stored in found.items() if stored is None]
    if missing:
        raise Differs(f"column {', '.join(missing)} is missing in the table")
    return {name: stored for name, stored in found.items() if stored is not None}


def with_batch_column(layout: Layout, types: Mapping[str, str], wanted: str) -> Layout:
    """The layout with the name that the column for batches has in the table, which has columns of such types.

    Raises Differs if it has none, or one of another type.
    """
    if layout.batch_column is None:
        return layout
    name = layout.batch_column
    alike = [found for found in types if found.lower() == name.lower()]
    stored = name if name in types else next(iter(alike), None)
    if stored is None:
        raise Differs(f"it has no column {name}, which `batchColumn` names; add one of type {wanted}")
    if types[stored].lower() != wanted.lower():
        raise Differs(f"column {stored}, which `batchColumn` names, is {types[stored]}, not {wanted}")
    return replace(layout, batch_column=stored)
