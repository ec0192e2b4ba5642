"""A SQL query over the inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator

from penstock.components.base import Carried, KernelInput, Step, StepContext
from penstock.components.shared.aggregates import Written, argument_columns
from penstock.components.shared.event_time import DELAY, shift_of
from penstock.components.shared.kernel_inputs import REPLAYED, arrow_schema, key_column, key_labels, time_column
from penstock.components.shared.spark_sql import expression, queried
from penstock.components.shared.sql_window import CALL, KEY, WINDOW, WindowQuery, understand
from penstock.errors import PenstockError
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from penstock.kernels.window import Window

_SIMPLE = {
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
}  # fmt: skip
"""Types whose values kernels compare as Spark does; so are decimals."""
_ROWS = f"{CALL}rows"


class Sql(Step):
    """A Spark SQL query. Each input is a table under its own name.

    Windowed aggregation (`GROUP BY window(ts, '1 minute')`) gives a row when the watermark has passed the window's
    end. Only queries are allowed: no commands, no tables but the inputs, and no functions that call Java, read files or
    tell about the server, in this step as in every field with SQL. A `python` step may do such things.

    Over one input, windows of its event time with `count`, `sum`, `avg`, `min`, `max`, `stddev`, `percentile`,
    `count(DISTINCT ...)` and `approx_count_distinct` are computed like a `window` step, and `late` means the same
    there. Other queries run on Spark's own operators, which drop late rows; the ledger counts these, and any other
    `late` is refused there. `penstock explain` tells which way a query runs.
    """

    name: ClassVar[str] = "sql"
    shorthand: ClassVar[str] = "query"
    inputs_expected: ClassVar[tuple[int, int]] = (1, 64)
    example: ClassVar[str] = """\
from: views
sql: SELECT user, article, ms / 1000 AS seconds FROM views WHERE article IS NOT NULL
"""

    query: Annotated[str, AfterValidator(str.rstrip)] = field(
        holds=Holds.SQL, doc="The query, in Spark SQL.", change=Change.LOSES_STATE, min_length=1
    )

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        return queried(self.query, inputs)

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried | None:
        from pyspark.errors import PySparkException

        if len(inputs) != 1 or "window" not in self.query.lower():
            return None
        ((name, frame),) = inputs.items()
        try:
            return _carried(self.query, name, frame, context)
        except (PySparkException, PenstockError, ValueError):
            # What is wrong with it shows when Spark is given the query as it is.
            return None


# --- on the window kernel ----------------------------------------------------------------------------------


def _carried(text: str, name: str, frame: DataFrame, context: StepContext) -> Carried | None:
    """The query as the window kernel computes it; None if it cannot, or if it is not certain that it can.

    May raise what Spark or the kernel has against it.
    """
    query = _understood(text, name, frame, context)
    if query is None:
        return None
    native = queried(text, {name: frame})
    restated = queried(query.restated, {name: frame})
    if not _same(native, restated) or _repeats(native.columns):
        return None
    rows = _Rows(query, name, frame, context)
    kernel = rows.kernel(context)
    result = _Result(query, rows.frame.schema, kernel, native.schema, rows.call_types())
    if not rows.are_plain() or not result.is_as(frame):
        return None
    time = query.event_time
    return Carried(
        kernel,
        (KernelInput(rows.frame, rows.keys, query.where),),
        result.finished,
        event_time=None if time is None else native.columns[time[0]],
        shift=0 if time is None else time[1],
        changes=context.late.policy == "correct",
        keys=query.words,
        labels={
            **key_labels(map(_as_written, query.keys), rows.keys),
            **{call.written.name: _as_written(call.native) for call in query.calls},
        },
    )


def _as_written(text: str) -> str:
    """An expression as people write it: names that need no quotes have none."""
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", text)


def _understood(text: str, name: str, frame: DataFrame, context: StepContext) -> WindowQuery | None:
    from pyspark.sql.types import StructType

    column = context.times.get(name)
    if column is None or frame.sparkSession.conf.get("spark.sql.caseSensitive") != "false":
        return None
    time = frame.schema[column]
    if shift_of(time):
        # For Spark a row of a window happened at the window's end, which is in the next one already.
        return None
    columns = [item for item in frame.columns if item != REPLAYED]
    return understand(text, name, columns, column, struct=isinstance(time.dataType, StructType))


class _Rows:
    """What the kernel reads."""

    def __init__(self, query: WindowQuery, name: str, frame: DataFrame, context: StepContext) -> None:
        from pyspark.sql import functions as F

        self.query = query
        self.input = frame
        self.source = frame if query.where is None else frame.where(expression(query.where))
        written = [call.written for call in query.calls] or [Written(_ROWS, "count", None)]
        arguments, self.aggregates = argument_columns(self.source, context.node, written)
        time = time_column(frame, context, name)
        self.keys = tuple(f"{KEY}{number}" for number in range(len(query.keys)))
        keys = [expression(key).alias(name) for name, key in zip(self.keys, query.keys, strict=True)]
        replayed = [REPLAYED] if REPLAYED in frame.columns else []
        self.frame = self.source.select(time, *replayed, *keys, *arguments.values())
        others = [item for item in self.frame.columns if item not in self.keys]
        # Taken on their own names, keys are compared as those of other steps are.
        self.frame = self.frame.select(
            *(F.col(item) for item in others), *(key_column(self.frame, key) for key in self.keys)
        )

    def kernel(self, context: StepContext) -> Window:
        from penstock.kernels.window import Window

        kept = context.late.allowed.millis * 1000
        replays = context.late.policy == "side" and REPLAYED in self.input.columns
        return Window(
            arrow_schema(self.frame),
            self.keys,
            self.aggregates,
            size=self.query.size,
            slide=self.query.slide,
            allowed=kept if context.late.policy == "correct" else 0,
            retained=kept if replays else 0,
        )

    def call_types(self) -> dict[str, DataType]:
        """The types that Spark gives to the aggregates."""

        if not self.query.calls:
            return {}
        calls = [expression(call.native).alias(call.written.name) for call in self.query.calls]
        return {item.name: item.dataType for item in self.input.groupBy().agg(*calls).schema}

    def are_plain(self) -> bool:
        """Whether each row is computed from one row of the input, always the same, and of types a kernel knows."""
        plan, nodes = _analysed(self.frame), []
        below = _analysed(self.input)
        while not plan.fastEquals(below):
            if plan.nodeName() not in ("Project", "Filter") or not _is_deterministic(plan):
                return False
            nodes.append(plan.nodeName())
            plan = plan.children().head()
        return nodes == ["Project", "Project", *["Filter"] * (self.query.where is not None)] and all(
            _is_simple(item.dataType) for item in self.frame.schema
        )


class _Result:
    """What is made of the rows of the kernel."""

    def __init__(
        self, query: WindowQuery, rows: StructType, kernel: Window, native: StructType, calls: dict[str, DataType]
    ) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        self.query = query
        self.rows = rows
        self.given = from_arrow_schema(kernel.output, prefer_timestamp_ntz=True)
        self.native = native
        self.calls = calls

    def finished(self, rows: DataFrame) -> DataFrame:
        """The columns of the query, named and noted as Spark does it."""
        from pyspark.sql import functions as F

        bounds = F.struct(F.col("window_start").alias("start"), F.col("window_end").alias("end"))
        keys = [item for item in rows.columns if item.startswith(KEY)]
        calls = [F.col(item).cast(kind).alias(item) for item, kind in self.calls.items()]
        parts = rows.select(*keys, bounds.alias(WINDOW), *calls)
        if self.query.having is not None:
            parts = parts.where(expression(self.query.having))
        return parts.select(
            *(
                expression(text).alias(item.name, metadata=_without_time(item.metadata or {}))
                for text, item in zip(self.query.columns, self.native, strict=True)
            )
        )

    def is_as(self, frame: DataFrame) -> bool:
        """Whether it has the types that Spark gives to the query, and is computed row by row."""
        from pyspark.sql import functions as F

        same = all(
            self.given[key].dataType == self.rows[key].dataType for key in self.given.names if key in self.rows.names
        )
        if not same or not all(_keeps_values(self.given[call].dataType, kind) for call, kind in self.calls.items()):
            return False
        nothing = [F.lit(None).cast(item.dataType).alias(item.name) for item in self.given]
        finished = self.finished(frame.sparkSession.range(0).select(*nothing))
        plans = list(_down(_analysed(finished)))
        plain = all(plan.nodeName() in ("Project", "Filter", "Range") and _is_deterministic(plan) for plan in plans)
        types = [[item.dataType.simpleString() for item in schema] for schema in (finished.schema, self.native)]
        return plain and types[0] == types[1]


def _without_time(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What Spark notes on a column, but for the event time, which the engine notes."""
    return {key: value for key, value in metadata.items() if key != DELAY and not key.startswith("penstock.")}


def _keeps_values(given: DataType, wanted: DataType) -> bool:
    """Whether a cast changes no value."""
    from pyspark.sql.types import DecimalType

    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
    names = (given.simpleString(), wanted.simpleString())
    wider = ("tinyint", "smallint", "int", "bigint")
    if all(name in wider for name in names):
        return wider.index(names[0]) <= wider.index(names[1])
    return names[0] == names[1] or names == ("float", "double")


def _is_simple(kind: DataType) -> bool:
    return kind.simpleString() in _SIMPLE or kind.simpleString().startswith("decimal(")


def _repeats(names: list[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two queries mean the same to Spark, but for how constants and names are written."""
    plans = [_analysed(frame) for frame in (one, other)]
    if plans[0].sameResult(plans[1]):
        return True
    jvm: Any = one.sparkSession._jvm
    folding = getattr(jvm.org.apache.spark.sql.catalyst.optimizer, "ConstantFolding$")
    folded = [getattr(folding, "MODULE$").apply(plan) for plan in plans]
    return bool(folded[0].sameResult(folded[1]))


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _down(plan: Any) -> Iterator[Any]:
    yield plan
    for index in range(plan.children().size()):
        yield from _down(plan.children().apply(index))


def _is_deterministic(plan: Any) -> bool:
    expressions = plan.expressions()
    return all(bool(expressions.apply(index).deterministic()) for index in range(expressions.size()))
