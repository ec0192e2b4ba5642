"""Rows of a database table, found by a time or a number that grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import RAW, Backlog, CheckContext, LookContext, ReadContext, Source
from penstock.components.shared.malformed import unreadable_fields
from penstock.components.shared.sql_database import Database, Fault
from penstock.components.shared.sql_server import NAMES, REFERENCE
from penstock.components.shared.sql_tables import (
    ReadColumn,
    ReadTable,
    database_at,
    described,
    file_at,
    opened,
    tables,
    url_problems,
)
from penstock.components.shared.sql_url import BadUrl
from penstock.components.shared.sql_values import utc
from penstock.errors import PenstockError, Problem, Severity, did_you_mean
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema, quote
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.sql_poll_stream import Settings

_PIECE_ROWS = 50_000
"""How many rows of a large backlog one task reads."""


class SqlPoll(Source):
    """Reads the rows of a table of PostgreSQL, MySQL, MariaDB or SQLite, and new and changed ones as they appear.

    The table is looked at every so often, in the order of a column that grows: the time of the last change, or a
    number. A row whose time was set anew is read again, as a new version; deleted rows are not noticed. Rows with null
    in a column of `order` are never read. An index on these columns keeps each look short.

    Rows become visible when their transaction commits, which can be later than rows with a higher number or time. So
    each look reads rows of the last `overlap` again and leaves out those it knows: choose it as long as the longest
    transaction that writes. Within it, a row that changes without a new time is read again too. Rows dated in the
    future are read at once and hold nothing up.

    The rows of a batch are kept in the state folder until the next one is done, so a batch that is run again has the
    same rows. A large backlog is read by several tasks at the same time; with a primary key, no batch is larger than
    `maxRowsPerBatch`.

    The columns are those the table has when the pipeline starts. Times without a zone are taken as UTC; if they are
    ahead of it, each look reads rows again until their time has come. Arrays and JSON come as JSON texts, and as texts
    come all types that Spark has not, such as numbers without a precision. Rows with a value that fits no type, such as
    the date 0000-00-00, become dead letters. In SQLite times are texts in ISO 8601, all in one form.

    A URL is written as for the sinks `postgres` and `mysql`, or as `sqlite:///FILE`.
    """

    name: ClassVar[str] = "sql_poll"
    bounded: ClassVar[bool] = True
    batch_limit = "max_rows_per_batch"
    example: ClassVar[str] = """\
sql_poll:
  url: postgresql://shop:${secret:env/PG_PASSWORD}@db.example.com/shop
  table: orders
  order: [updated_at, id]
  every: 10 seconds
  overlap: 1 minute
eventTime: {column: updated_at, maxDelay: 1 minute}
"""

    url: str = field(
        holds=Holds.ADDRESS,
        doc="Where the database is: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, mysql://… or sqlite:///FILE, "
        "relative to the pipeline file; the password is a secret.",
        change=Change.BOOTSTRAP, pattern=rf"^(postgres(ql)?://|mysql://|mariadb://|sqlite:///|{REFERENCE})",
    )  # fmt: skip
    table: str = field(
        holds=Holds.NAME, doc="The table or view, or `schema.table`.", change=Change.BOOTSTRAP, pattern=NAMES
    )
    order: str | tuple[str, ...] = field(
        holds=Holds.NAME,
        doc="The column by which rows are found, a time or a number that grows; more columns tell rows of one time "
        "apart, as the primary key does by itself.",
        change=Change.BOOTSTRAP,
    )
    columns: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="The columns to read; default: all.", change=Change.BOOTSTRAP
    )
    every: Duration = field(Duration(10_000), doc="How often the table is looked at.")
    overlap: Duration = field(Duration(60_000), doc="How much later than its time or number a row may become visible.")
    starting_from: int | str = field(
        "earliest",
        holds=Holds.TEXT,
        doc="Where the first run starts: `earliest`, `latest` for rows behind those that are there, or a value of the "
        "first column of `order`, such as `2024-01-01T00:00:00Z`.",
        change=Change.BOOTSTRAP,
    )
    max_rows_per_batch: int | None = field(200_000, ge=1, doc="The most rows one batch reads.")

    # --- before a run ------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from url_problems(self.url, f"`sql_poll.url` of source '{context.node}'")
        if not self._order or len(set(self._order)) < len(self._order):
            where = f"`sql_poll.order` of '{context.node}'"
            reason = "name one column, or several different ones"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, at=("order",))

    def look(self, context: LookContext) -> Iterator[Problem]:
        file = file_at(self.url, context.folder)
        if file is not None and not file.is_file():
            where = f"`sql_poll.url` of source '{context.node}'"
            yield Problem("PATH_NOT_FOUND", {"where": where, "path": file}, at=("url",))
            return
        table = self._described(context.node, context.folder)
        yield from self._problems(context.node, table)

    @property
    def _order(self) -> tuple[str, ...]:
        return (self.order,) if isinstance(self.order, str) else self.order

    def _described(self, node: str, folder: Path) -> ReadTable:
        try:
            database = database_at(self.url, folder)
        except BadUrl as error:
            params = {"where": f"`sql_poll.url` of source '{node}'", "reason": error}
            raise PenstockError(Problem("SPEC_BAD_VALUE", params, at=("url",))) from None
        try:
            connection = opened(database)
            try:
                found = described(database, connection, self.table)
                known = tables(database, connection) if found is None else []
                if found is not None:
                    # Who may look at the catalogue may not be allowed to read the table.
                    connection.rows(f"SELECT 1 FROM {database.table(self.table)} WHERE 1 = 0")
            finally:
                connection.close()
        except database.errors as error:
            raise PenstockError(_refusal(node, database, error)) from None
        if found is None:
            params = {"node": node, "table": self.table, "server": database.place}
            suggestion = did_you_mean(self.table, known)
            raise PenstockError(Problem("SOURCE_TABLE_MISSING", {**params, "suggestion": suggestion}, at=("table",)))
        return found

    def _problems(self, node: str, table: ReadTable) -> Iterator[Problem]:
        for key, names in (("order", self._order), ("columns", self.columns)):
            for name in names:
                if table.column(name) is None:
                    params = {"node": node, "column": name, "suggestion": did_you_mean(name, table.names)}
                    yield Problem("COLUMN_UNKNOWN", params, at=(key,))
        order = [column for column in map(table.column, self._order) if column is not None]
        if len(order) < len(self._order):
            return
        if order[0].order is None:
            reason = f"column '{order[0].name}' is {order[0].kind}, which is neither a time nor a number that grows"
            yield Problem("SPEC_BAD_VALUE", {"where": f"`sql_poll.order` of '{node}'", "reason": reason}, at=("order",))
            return
        yield from self._start_problems(node, order[0])
        for column in order:
            if column.nullable:
                yield Problem("SOURCE_SKIPS_NULLS", {"node": node, "column": column.name}, at=("order",))

    def _start_problems(self, node: str, first: ReadColumn) -> Iterator[Problem]:
        try:
            self._start(first)
        except ValueError:
            wanted = "a time" if first.order == "time" else "a whole number"
            reason = f"'{self.starting_from}' is neither earliest, latest nor {wanted}, as '{first.name}' is"
            yield Problem("SPEC_BAD_VALUE", {"where": f"`sql_poll.startingFrom` of '{node}'", "reason": reason},
                          at=("startingFrom",))  # fmt: skip

    def _start(self, first: ReadColumn) -> str:
        """The first position as the reader takes it; raises ValueError for what is none."""
        text = str(self.starting_from).strip()
        if text in ("earliest", "latest"):
            return text
        return utc(text).isoformat(" ") if first.order == "time" else str(int(text))

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.sql_poll_stream import FORMAT, SETTINGS, SqlTable

        context.spark.dataSource.register(SqlTable)
        reader = context.spark.readStream.name(context.stream).format(FORMAT)
        return reader.option(SETTINGS, self._settings(context).to_json()).load()

    def read_all(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.sql_poll_stream import FORMAT, SETTINGS, SqlTable

        context.spark.dataSource.register(SqlTable)
        return context.spark.read.format(FORMAT).option(SETTINGS, self._settings(context).to_json()).load()

    def _settings(self, context: ReadContext) -> Settings:
        from penstock.components.shared.sql_poll_stream import Settings

        table = self._described(context.node, context.folder)
        wrong = [item for item in self._problems(context.node, table) if item.severity is Severity.ERROR]
        if wrong:
            raise PenstockError(wrong)
        chosen = [column for column in map(table.column, self.columns or table.names) if column is not None]
        order = [column for column in map(table.column, self._order) if column is not None]
        # The primary key tells rows of one time apart, so that a batch can end between them.
        order += [column for column in map(table.column, table.key) if column is not None and column not in order]
        return Settings(
            node=context.node,
            url=self.url,
            folder=str(context.folder),
            spool=str(context.spool / "sql_poll" / context.stream),
            table=self.table,
            columns=tuple(chosen),
            order=tuple(order),
            every_seconds=self.every.seconds,
            overlap_seconds=self.overlap.seconds,
            start=self._start(order[0]),
            max_rows_per_batch=self.max_rows_per_batch,
            piece_rows=_PIECE_ROWS,
        )

    def place(self) -> Column:
        from pyspark.sql import functions as F

        given = {name.lower() for name in self.columns or self._order}
        shown = [F.col(quote(name)).cast("string") for name in self._order if name.lower() in given]
        return F.concat_ws("/", F.lit(self.table), *shown)

    def explain_malformed(self, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        kinds = {column.name: column.kind for column in self._settings(context).columns}
        parts = F.from_json(F.col(RAW), "map<string,string>")
        return unreadable_fields(Schema.parse(kinds), parts, "a value does not fit the type of its column", None)

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        """Rows behind the last batch, as far as they were counted."""
        latest = progress.get("latestOffset")
        if not isinstance(latest, Mapping):
            return None
        waiting = int(latest["waiting"])
        return Backlog(waiting, "rows" if waiting < int(latest["counted"]) else "rows or more")


def _refusal(node: str, database: Database, error: Exception) -> Problem:
    """An error while the table is looked up, in words."""
    code = "SOURCE_DENIED" if database.fault(error) is Fault.DENIED else "SOURCE_UNREACHABLE"
    return Problem(code, {"node": node, "server": database.place, "reason": database.reason(error)}, at=("url",))
