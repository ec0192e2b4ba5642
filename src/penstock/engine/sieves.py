"""Rows that a step sets aside: those that break its rules, and those on which an expression of its fails.

A sieve is a condition in the plan, with a marker before and after it, so that what it drops is counted for free. Only
when a batch has such rows are they read once more and stored as dead letters.

Whether an expression fails is looked at only after one has: the pipeline runs without any care, and when a batch
fails for a row it is run again with a guard below each operator that computes something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from penstock.engine.markers import execution, number_of, walk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Stage = Literal["step", "expectation"]
Sift = Callable[["DataFrame", "Column"], "DataFrame"]
"""Keeps the rows for which the condition holds, and accounts for the others."""
_SAFE = {
    "Alias", "And", "AttributeReference", "CaseWhen", "Coalesce", "Contains", "CreateNamedStruct", "EndsWith",
    "EqualNullSafe", "EqualTo", "GetStructField", "GreaterThan", "GreaterThanOrEqual", "If", "In", "InSet", "IsNotNull",
    "IsNull", "LessThan", "LessThanOrEqual", "Literal", "Lower", "Not", "Or", "StartsWith", "Upper",
}  # fmt: skip
"""Expressions that fail for no value."""
_OPAQUE = {"PythonUDF", "ScalarSubquery", "Exists", "InSubquery", "ListQuery", "OuterReference"}


@dataclass(frozen=True)
class Sieve:
    """A sieve of the streaming query."""

    node: str
    stage: Stage
    before: int
    after: int
    reason: Column | None
    """Why a row is dropped; None to tell it by the expressions that fail."""
    replayable: bool
    """Whether what is dropped is a row of the step's input, so that it can be given to it again."""


@dataclass(frozen=True)
class Sifted:
    """What a sieve after the streaming query drops of one batch, and how many rows came to it and went on."""

    node: str
    stage: Stage
    dropped: DataFrame
    before: Observation
    after: Observation
    reason: Column | None
    replayable: bool


def dropped_rows(query: StreamingQuery, sieve: Sieve, plain: SparkSession) -> DataFrame:
    """The rows that a sieve of the query has dropped in the running batch, read anew."""
    from pyspark.sql import DataFrame as Frame

    for node in walk(execution(query).analyzed()):
        if number_of(node) == sieve.after:
            jvm: Any = plain._jvm
            below = jvm.org.apache.spark.sql.classic.Dataset.ofRows(plain._jsparkSession, node.children().head())
            return Frame(below, plain).where(~_column(plain, node.condition()))
    raise LookupError(f"no marker {sieve.after} in the plan")


def failing(rows: DataFrame) -> Column:
    """The expressions that fail on a row, by the guard on top of the frame's plan."""
    from pyspark.sql import functions as F

    top = rows._jdf.queryExecution().analyzed()
    guards = [node for node in walk(top.condition()) if _kind(node) == "TryEval"]
    texts = [str(guard.child().children().last().sql()).replace("`", "") for guard in guards]
    told = [
        F.when(_column(rows.sparkSession, guard).isNull(), F.lit(text))
        for guard, text in zip(guards, texts, strict=True)
    ]
    return F.concat(F.lit("cannot be computed: "), F.concat_ws("; ", *told))


def guarded(frame: DataFrame, floors: set[int], sift: Sift) -> DataFrame:
    """The frame with the rows sifted out on which an expression above the floors would fail."""
    from pyspark.sql import DataFrame as Frame

    spark = frame.sparkSession
    plan = frame._jdf.queryExecution().analyzed()
    changed = _guard(spark, plan, floors, sift)
    if changed is plan:
        return frame
    jvm: Any = spark._jvm
    return Frame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, changed), spark)


def _guard(spark: SparkSession, plan: Any, floors: set[int], sift: Sift) -> Any:
    if number_of(plan) in floors:
        return plan
    children = _items(plan.children())
    guarded_ones = [_guard(spark, child, floors, sift) for child in children]
    risky = [item for item in _expressions(plan) if _can_fail(item)]
    if risky and len(children) == 1:
        guarded_ones = [_sifted(spark, guarded_ones[0], risky, sift)]
    if all(new is old for new, old in zip(guarded_ones, children, strict=True)):
        return plan
    return plan.withNewChildren(_sequence(spark, guarded_ones))


def _expressions(plan: Any) -> list[Any]:
    """What a node computes for each row by itself."""
    if plan.nodeName() == "Project":
        return _items(plan.projectList())
    if plan.nodeName() == "Filter" and number_of(plan) is None:
        return [plan.condition()]
    return []


def _can_fail(expression: Any) -> bool:
    kinds = {_kind(node) for node in walk(expression)}
    return not kinds <= _SAFE and not kinds & _OPAQUE and bool(expression.deterministic())


def _sifted(spark: SparkSession, plan: Any, risky: list[Any], sift: Sift) -> Any:
    from pyspark.sql import DataFrame as Frame

    jvm: Any = spark._jvm
    below = Frame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
    keep = reduce(lambda left, right: left & right, (_computes(spark, expression) for expression in risky))
    return sift(below, keep)._jdf.queryExecution().analyzed()


def _computes(spark: SparkSession, expression: Any) -> Column:
    """Whether an expression has a value, null included, or fails."""
    from pyspark.sql import functions as F

    jvm: Any = spark._jvm
    value = expression.child() if _kind(expression) == "Alias" else expression
    wrapped = _expression(spark, F.struct(_column(spark, value).alias("value")))
    return _column(spark, jvm.org.apache.spark.sql.catalyst.expressions.TryEval(wrapped)).isNotNull()


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = spark._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _expression(spark: SparkSession, column: Column) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return list(_iterated(sequence.iterator()))


def _iterated(items: Any) -> Iterator[Any]:
    while items.hasNext():
        yield items.next()


def _sequence(spark: SparkSession, items: list[Any]) -> Any:
    jvm: Any = spark._jvm
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.PythonUtils.toSeq(found)
