"""Changes of a database table, as Debezium records them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from penstock.components.base import RAW, Backlog, CheckContext, LookContext, ReadContext, Source
from penstock.components.shared.debezium_format import KEY, Changes, Part, Unit
from penstock.components.sources.files import Files
from penstock.components.sources.kafka import Kafka
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPES: dict[Part, str] = {"op": "string", "deleted": "boolean", "ts": "timestamp", "version": "string"}


class Cdc(Source):
    """Reads changes of one table as Debezium records them in JSON, with or without their schema.

    A row is the state of its key after a change, with what the change was: `op` is `c`, `u` or `d` for created, updated
    and deleted, and `r` for a row that was there before; `deleted` is true for `d`, whose columns are those before the
    deletion, as far as the record has them, else those of the message's key; `ts` is when the database changed it.
    `version` is a text that sorts as the changes of a key were made, whatever the order in which they come: the
    position in the database's log (PostgreSQL, MySQL, SQL Server, Oracle), else the time. So a table is followed by
    `latest: {by: [id], order: [version], deleted: deleted}` and a sink with `key: [id], version: version, delete:
    deleted`, or joined with another by `changelog_join: {version: version, deleted: deleted}`.

    Dates, times, decimals and bytes are read as the declared column asks for. What a number or text stands for is told
    by the record's schema; records without it need `units`, if times are numbers, and `decimals`. A time as a number
    whose unit is not told is malformed. Columns that are not declared are ignored.

    Tombstones, heartbeats, records about transactions or schemas, and empty lines are left out and not counted.
    Dead letters are records that cannot be read, emptied tables (TRUNCATE), and rows of which a large value was not
    sent.
    """

    name: ClassVar[str] = "cdc"
    in_python: ClassVar[bool] = True
    example: ClassVar[str] = """\
cdc:
  kafka: {bootstrap: "localhost:9092", topic: shop.public.orders, startingOffsets: earliest}
  schema: {id: bigint, state: string, total: "decimal(10,2)", placed: timestamp}
  units: micros
eventTime: {column: ts, maxDelay: 1 minute}
"""

    kafka: Kafka | None = field(None, doc="Where the records are: the settings of the source `kafka`.")
    files: Files | None = field(None, doc="Instead of `kafka`: the settings of the source `files`; a record a line.")
    table_schema: Schema = field(
        alias="schema", doc="Columns of the table and their types, those to be read.", change=Change.BOOTSTRAP
    )
    columns: dict[str, Part] = field(
        default={"op": "op", "deleted": "deleted", "ts": "ts", "version": "version"},
        holds=Holds.NAME,
        doc="Further columns, by what they hold of the change: op, deleted, ts or version. Give them other names if "
        "the table has columns that are called so.",
        change=Change.BOOTSTRAP,
    )
    units: Unit | dict[str, Unit] | None = field(
        None,
        holds=Holds.NAME,
        doc="Unit of times that come as numbers, if records have no schema: millis, micros or nanos, for all columns "
        "or by column.",
        change=Change.BOOTSTRAP,
    )
    decimals: Literal["base64", "text"] = field(
        "base64", doc="How decimals are written, if records have no schema.", change=Change.BOOTSTRAP
    )

    @property
    def row_schema(self) -> Schema:
        """All columns it gives."""
        further = {name: _TYPES[part] for name, part in self.columns.items()}
        return Schema.parse({**self.table_schema.as_mapping(), **further})

    # --- before a run ------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> Iterator[Problem]:
        where = f"cdc of '{context.node}'"
        if (self.kafka is None) == (self.files is None):
            advice = "Say where the records are, in one place: `kafka: {...}` or `files: {...}`."
            yield Problem("SPEC_MISSING_KEY", {"key": "kafka", "where": where, "advice": advice})
            return
        for name in set(self.columns) & set(self.table_schema.names):
            yield Problem("COLUMN_REPEATED", {"node": context.node, "column": name}, at=("columns",))
        for column in self.table_schema.columns:
            if "variant" in column.type:
                reason = f"column '{column.name}' is {column.type}; declare it as string and parse it in a step"
                yield Problem("SPEC_BAD_VALUE", {"where": f"`schema` of {where}", "reason": reason}, at=("schema",))
        if isinstance(self.units, dict):
            for name in set(self.units) - set(self.table_schema.names):
                reason = f"'{name}' is no column of the schema"
                yield Problem("SPEC_BAD_VALUE", {"where": f"`units` of {where}", "reason": reason}, at=("units",))
        yield from self._inside(self._inner.check(context))

    def look(self, context: LookContext) -> Iterator[Problem]:
        yield from self._inside(self._inner.look(context))

    def _inside(self, problems: Iterator[Problem]) -> Iterator[Problem]:
        return (replace(problem, at=(self._inner.name, *problem.at)) for problem in problems)

    @property
    def _inner(self) -> Kafka | Files:
        """The source that reads the records."""
        if self.kafka is not None:
            # Of a deletion only the key may be told, and that outside of the record.
            return self.kafka.model_copy(update={"columns": {**self.kafka.columns, KEY: "key"}})
        assert self.files is not None
        return self.files

    @property
    def read_through(self) -> Source:
        return self._inner if self.kafka is not None or self.files is not None else self

    def limited_to(self, amount: int) -> Self:
        if self.kafka is not None:
            return self.model_copy(update={"kafka": self.kafka.limited_to(amount)})
        assert self.files is not None
        return self.model_copy(update={"files": self.files.limited_to(amount)})

    # --- reading -----------------------------------------------------------------------------------------

    def _context(self, context: ReadContext) -> ReadContext:
        changes = Changes(
            row_schema=self.table_schema,
            columns=self.columns,
            units=self.units,
            decimals=self.decimals,
            keyed=self.kafka is not None,
        )
        return replace(context, format=changes)

    def read(self, context: ReadContext) -> DataFrame:
        from pyspark.sql import functions as F

        from penstock.components.shared.debezium import KEPT

        if (self.kafka is None) == (self.files is None):
            raise PenstockError.of("SPEC_MISSING_KEY", key="kafka", where=f"cdc of '{context.node}'")
        records = self._inner.read(self._context(context))
        return records.where(F.col(KEPT) | F.col(RAW).isNotNull()).drop(KEPT, KEY)

    def explain_malformed(self, context: ReadContext) -> Column | None:
        return self._inner.explain_malformed(self._context(context))

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        return self._inner.backlog(self._context(context), progress)
