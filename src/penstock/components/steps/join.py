"""Joins rows with those of another stream, or with a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.access.limits import current
from penstock.components.base import Carried, CheckContext, KernelInput, LookContext, Step, StepContext, resolve_path
from penstock.components.shared.kernel_inputs import arrow_schema, key_column, key_labels, need_columns, time_column
from penstock.components.shared.two_sides import on_pairs, right_names, same_types, two_sides
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Config, Holds, field
from penstock.spec.schema import Schema
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KINDS = ("csv", "json", "parquet")


class TableFile(Config):
    """A file that is read as a table, anew in each batch."""

    path: str = field(
        holds=Holds.PATH, doc="The file, or a folder of files, relative to the pipeline file.", min_length=1
    )
    format: Literal["csv", "json", "parquet"] | None = field(
        None, doc="How it is written. Default: what its name ends with."
    )
    table_schema: Schema | None = field(
        None, alias="schema", doc="Columns and their types. Default: what the file suggests."
    )

    @property
    def kind(self) -> str | None:
        ending = Path(self.path).suffix.lstrip(".").lower()
        return self.format or (ending if ending in _KINDS else None)


class Join(Step):
    """Joins each row with rows of another stream that happened near it, or with a table.

    With `with`, rows of two streams meet when their keys are equal and the time of the second less that of the first
    lies in `within`. Pairs leave as soon as both rows are there; with `how: left`, `right` or `full` a row without a
    partner leaves when the watermark says that none can come. Rows are kept only as long as they can find a partner.

    With `table`, rows are joined with a file that is read anew in each batch, so that changes in it count from the
    next batch on.

    The result has the columns of both, the keys once. Columns of the second whose names are taken need a `prefix`.
    """

    name: ClassVar[str] = "join"
    inputs_expected: ClassVar[tuple[int, int]] = (1, 2)
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side")
    example: ClassVar[str] = """\
from: orders
join: {with: payments, on: [order_id], how: left, within: [0 seconds, 10 minutes]}
"""

    other: str | None = field(
        None, alias="with", holds=Holds.NAME, doc="The source or step to join with.", change=Change.LOSES_STATE
    )
    table: TableFile | None = field(None, doc="The table to join with, instead of `with`.")
    on: tuple[str, ...] | dict[str, str] = field(
        holds=Holds.NAME,
        doc="Columns that must be equal: a list if they have the same names, else `{left: right}`.",
        change=Change.LOSES_STATE,
        min_length=1,
    )
    how: Literal["inner", "left", "right", "full"] = field(
        "inner", doc="Whether rows without a partner leave too: those of the first, the second, or both."
    )
    within: tuple[str, str] | None = field(
        None, holds=Holds.TEXT,
        doc="How much later the second row may be than the first, from and to: `[-5 minutes, 1 hour]`.",
        change=Change.BOOTSTRAP,
    )  # fmt: skip
    prefix: str = field(
        "", holds=Holds.NAME, doc="What is put before the names of the second's columns.", change=Change.BOOTSTRAP
    )

    def further_inputs(self) -> tuple[str, ...]:
        return () if self.other is None else (self.other,)

    def state_key(self) -> tuple[str, ...]:
        return tuple(on_pairs(self.on))

    def check(self, context: CheckContext) -> Iterator[Problem]:
        where = f"join of '{context.node}'"

        def bad(reason: str, advice: str = "", at: tuple[str, ...] = ()) -> Problem:
            return Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=at)

        if (self.other is None) == (self.table is None):
            advice = "Name a source or step under `with`, or a file under `table`."
            yield bad("it needs either `with` or `table`", advice)
        if self.other is not None and self.within is None:
            yield bad("`within` is missing", "Say how far apart the rows may be: `within: [0 seconds, 10 minutes]`.")
        if self.within is not None:
            yield from (bad(reason, at=("within",)) for reason in _wrong_bounds(self.within))
        if self.table is None:
            return
        if self.within is not None:
            yield bad("`within` does not go with `table`")
        if self.how not in ("inner", "left"):
            yield bad(f"`how: {self.how}` does not go with `table`: its rows would leave again in every batch")
        if self.table.kind is None:
            yield bad(f"cannot tell the format of {self.table.path}", "Write `format: csv`.", at=("table", "path"))

    def look(self, context: LookContext) -> Iterator[Problem]:
        if self.table is None:
            return
        path = Path(resolve_path(context.folder, self.table.path))
        if not path.exists():
            params = {"where": f"the table of '{context.node}'", "path": path}
            yield Problem("PATH_NOT_FOUND", params, at=("table", "path"))

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        """The join with a table, which Spark does itself."""
        from pyspark.sql import functions as F

        frame = next(iter(inputs.values()))
        assert self.table is not None
        pairs = on_pairs(self.on)
        need_columns(frame, context.node, pairs)
        table = _table(self.table, context)
        need_columns(table, context.node, pairs.values())
        renamed = table.select(*(F.col(f"`{name}`").alias(f"_table_{name}") for name in table.columns))
        condition = [F.col(f"`{left}`") == F.col(f"`_table_{right}`") for left, right in pairs.items()]
        joined = frame.join(F.broadcast(renamed), condition, self.how)
        kept = right_names(frame, table, pairs, self.prefix, context.node)
        return joined.select(
            *(F.col(f"`{name}`") for name in frame.columns),
            *(F.col(f"`_table_{name}`").alias(new) for name, new in kept.items()),
        )

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried | None:
        """The join of two streams."""
        if self.other is None:
            return None
        from penstock.kernels.interval_join import IntervalJoin

        first, second = two_sides(inputs, self.other, context.node)
        left, right = inputs[first], inputs[second]
        pairs = on_pairs(self.on)
        need_columns(left, context.node, pairs)
        need_columns(right, context.node, pairs.values())
        same_types(left, right, pairs, context.node)
        names = right_names(left, right, pairs, self.prefix, context.node)
        sides = [
            frame.select(
                time_column(frame, context, name),
                *(key_column(frame, key).alias(f"_key_{index}") for index, key in enumerate(keys)),
                *(_column(column) for column in frame.columns),
            )
            for name, frame, keys in ((first, left, pairs), (second, right, pairs.values()))
        ]
        keys = tuple(f"_key_{index}" for index in range(len(pairs)))
        assert self.within is not None
        lower, upper = (_signed(text) * 1000 for text in self.within)
        shared = {there: f"_right_{there}" for here, there in pairs.items() if there not in names}
        kernel = IntervalJoin(
            arrow_schema(sides[0]),
            arrow_schema(sides[1]),
            keys,
            keys,
            self.how,
            lower,
            upper,
            tuple((name, name) for name in left.columns),
            tuple((name, new) for name, new in {**names, **shared}.items()),
        )
        outer = self.how in ("right", "full")

        def finish(rows: DataFrame) -> DataFrame:
            back = {here: there for here, there in pairs.items() if outer and there in shared}
            return rows.select(
                *(_merged(name, shared[back[name]]) if name in back else _column(name) for name in left.columns),
                *(_column(name) for name in names.values()),
            )

        return Carried(
            kernel,
            tuple(KernelInput(side, keys) for side in sides),
            finish,
            event_time=None if outer else context.times[first],
            hold=kernel.hold,
            labels={**key_labels(pairs, keys), **dict.fromkeys(shared.values())},
        )


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name}`")


def _merged(name: str, other: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(_column(name), _column(other)).alias(name)


def _table(table: TableFile, context: StepContext) -> DataFrame:
    """The table as Spark reads it, in each batch anew."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.components.shared import table_file

    path = resolve_path(context.folder, table.path)
    access = current()
    limits = json.dumps(None if access is None else asdict(access.paths))
    context.spark.dataSource.register(table_file.TableFile)
    reader = context.spark.read.format(table_file.FORMAT).options(path=path, kind=str(table.kind), limits=limits)
    if table.table_schema is not None:
        return reader.schema(table.table_schema.ddl).load()
    try:
        found = from_arrow_schema(table_file.read_table(path, str(table.kind), table_file.limits_in(limits)).schema)
    except PenstockError:
        raise
    except Exception as error:
        raise PenstockError.of("TABLE_UNREADABLE", node=context.node, path=path, reason=error) from None
    return reader.schema(found).load()


def _signed(text: str) -> int:
    """A duration in milliseconds, maybe negative."""
    text = str(text).strip()
    negative = text.startswith("-")
    millis = Duration.parse(text.lstrip("+-").strip()).millis
    return -millis if negative else millis


def _wrong_bounds(within: tuple[str, str]) -> Iterator[str]:
    try:
        lower, upper = (_signed(text) for text in within)
    except ValueError as error:
        yield f"`within`: {error}"
        return
    if lower > upper:
        yield f"`within` starts at {within[0]} and ends before, at {within[1]}"
