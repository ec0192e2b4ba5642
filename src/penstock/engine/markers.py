"""Marks places in a query so that rows passing there can be counted for free, and a batch's source read again.

A marker is a filter that is always true and that Spark must treat as unpredictable (`spark_partition_id() >= -N`):
the optimiser neither removes it nor moves other filters through it, it compiles into the surrounding stage, and
Spark counts its output rows anyway. `observe()` would do the same and costs some 8 % of a JSON-to-Parquet job,
because it cannot be compiled. See docs/decisions/0003.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_FIRST = 1_000_000
_STATEFUL = re.compile("State|Join|Dedup|SessionWindow|Limit")
_LATE = "numRowsDroppedByWatermark"
_ROWS = "number of output rows"
_MARK = re.compile(r"spark_partition_id\(\) (?:>=|<) -(\d+)", re.IGNORECASE)


def marker(number: int) -> Column:
    """A condition that holds for every row and can be found again in a plan."""
    from pyspark.sql import functions as F

    return F.spark_partition_id() >= F.lit(-(_FIRST + number))


def marked(number: int, condition: Column) -> Column:
    """The condition, findable like a marker and kept where it stands.

    Joined by OR with something that is never true but unpredictable, it cannot be split and partly moved: Spark
    would push what does not name the event time below the watermark, and rows left out would no longer move it.
    """
    from pyspark.sql import functions as F

    return condition | (F.spark_partition_id() < F.lit(-(_FIRST + number)))


def reading_all(columns: list[str]) -> Column:
    """A condition that always holds and makes the reader produce all these columns, used or not."""
    from functools import reduce

    from pyspark.sql import functions as F

    always = F.spark_partition_id() >= F.lit(0)
    return reduce(lambda left, name: left | F.col(f"`{name}`").isNull(), columns, always)


def execution(query: StreamingQuery) -> Any:
    """The JVM object of the batch that is running or ran last."""
    return query._jsq.streamingQuery().lastExecution()


def rows_through(query: StreamingQuery) -> dict[int, int]:
    """Rows that passed each marker in the running batch, after its job has run.

    A part of the plan that Spark repeats has its markers repeated, and the same rows pass each of them.
    """
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    counts: dict[int, int] = {}
    for number, accumulator in counters_in(described(execution(query).executedPlan())):
        # Spark forgets a counter only when nothing of the batch is left.
        rows = int(jvm.org.apache.spark.util.AccumulatorContext.get(accumulator).get().value())
        counts[number] = max(counts.get(number, 0), rows)
    return counts


def described(plan: Any) -> dict[str, Any]:
    """A physical plan as Spark's web pages show it, fetched in one piece: each call to the JVM takes its time."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    info = jvm.org.apache.spark.sql.execution.SparkPlanInfo.fromSparkPlan(plan)
    found: dict[str, Any] = json.loads(_writer(jvm).writeValueAsString(info))
    return found


@lru_cache(maxsize=1)
def _writer(jvm: Any) -> Any:
    """Writes values of Scala as JSON."""
    loader = jvm.Thread.currentThread().getContextClassLoader()
    name = "com.fasterxml.jackson.module.scala.DefaultScalaModule$"
    module = jvm.java.lang.Class.forName(name, True, loader).getField("MODULE$").get(None)
    return jvm.com.fasterxml.jackson.databind.ObjectMapper().registerModule(module)


def counters_in(plan: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The markers of a plan that was described, each with the number of its counter of rows."""
    text = _MARK.search(plan["simpleString"]) if plan["nodeName"] == "Filter" else None
    if text is not None and int(text[1]) >= _FIRST:
        (counter,) = (item["accumulatorId"] for item in plan["metrics"] if item["name"] == _ROWS)
        yield int(text[1]) - _FIRST, counter
    for child in plan["children"]:
        yield from counters_in(child)


def late_in_operators(query: StreamingQuery) -> dict[int, int]:
    """Rows that Spark's own operators have dropped as late in the running batch, by the number of the operator.

    An aggregation counts groups, as rows of one group become one before they reach its state.
    """
    counts: dict[int, int] = {}
    for node in walk(execution(query).executedPlan()):
        operator = _operator(node)
        if operator is not None and node.metrics().contains(_LATE):
            counts[operator] = counts.get(operator, 0) + int(node.metrics().apply(_LATE).value())
    return counts


def markers_in(frame: DataFrame) -> list[int]:
    """The markers of a frame, from left to right, each once: the order in which Spark reports sources."""
    found = (number_of(node) for node in walk(frame._jdf.queryExecution().analyzed()))
    return list(dict.fromkeys(number for number in found if number is not None))


def rows_below(query: StreamingQuery, number: int, plain: SparkSession) -> DataFrame:
    """The rows of the running batch as they came to a marker, read anew from the source.

    `plain` is a session in which Spark does not refuse to run a plan that stems from a stream; the plan names
    exactly the files or offsets of this batch, so the rows are the same ones. Give the result to `as_batch`.
    """
    from pyspark.sql import DataFrame as Frame

    for node in walk(execution(query).analyzed()):
        if number_of(node) == number:
            below = node.children().head()
            jvm: Any = plain._jvm
            return Frame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(plain._jsparkSession, below), plain)
    raise LookupError(f"no marker {number} in the plan")


def limited_in_tasks(rows: DataFrame, most: int) -> DataFrame:
    """At most so many rows of each task, without a shuffle."""
    from pyspark.sql import DataFrame as Frame

    spark = rows.sparkSession
    jvm: Any = spark._jvm
    # A limit is one for each task, and above that one for all.
    whole = rows.limit(most)._jdf.queryExecution().analyzed()
    of_tasks = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, whole.children().head())
    return Frame(of_tasks, spark)


def as_batch(rows: DataFrame) -> DataFrame:
    """The same rows without the mark of a stream, so that they can be written and counted like any others."""
    from pyspark.sql import DataFrame as Frame

    session = rows.sparkSession
    plan = rows._jdf.queryExecution().toRdd()
    return Frame(session._jsparkSession.internalCreateDataFrame(plan, rows._jdf.schema(), False), session)


def cached_bytes(frame: DataFrame) -> int | None:
    """How much memory a frame takes that was persisted and has been computed; None if it was not."""
    plan = frame._jdf.queryExecution().withCachedData()
    return int(plan.computeStats().sizeInBytes()) if plan.nodeName() == "InMemoryRelation" else None


def operations_in(frame: DataFrame) -> set[str]:
    """What the plan of a frame does with the rows it begins with, by Spark's names of the nodes."""
    plan = frame._jdf.queryExecution().analyzed()
    return {node.nodeName() for node in walk(plan) if node.children().nonEmpty()}


def plain_session(spark: SparkSession) -> SparkSession:
    """A session beside the given one for `rows_below`."""
    plain = spark.newSession()
    for key, value in spark.sparkContext.getConf().getAll():
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            plain.conf.set(key, value)
    plain.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    return plain


def steps_of_operators(
    plan: Any, marks: Mapping[str, Sequence[Set[int]]], above: Mapping[str, int] | None = None
) -> dict[int, str]:
    """Which step's state each stateful operator keeps, by the operator's number.

    `marks` are the markers at the inputs of each step, once for each time it was built; they lie below its own operator
    and above any other. Steps without such have a marker above their operators, and above any other.
    """
    found: dict[int, str] = {}
    named = {number: name for name, number in (above or {}).items()}

    def below(node: Any, step: str | None) -> set[int]:
        """The markers below a node, down to where state is kept; `step` is the nearest above it with a marker."""
        inside: set[int] = set()
        step = named.get(number_of(node) or -1, step)
        children = list(_children(node))
        for child in children:
            deeper = below(child, step)
            number = number_of(child)
            inside |= ({number} if number is not None else set()) | (set() if _operator(child) is not None else deeper)
        operator = _operator(node)
        if operator is not None:
            carried = [name for name, built in marks.items() if any(one and one <= inside for one in built)]
            name = carried[0] if carried else step
            if name is not None:
                found[operator] = name
        return inside

    below(plan, None)
    return found


def _children(node: Any) -> Iterator[Any]:
    children = node.children().iterator()
    while children.hasNext():
        yield children.next()


def _operator(node: Any) -> int | None:
    """The number of a stateful operator; None for any other node."""
    if not _STATEFUL.search(node.nodeName()):
        return None
    try:
        info = node.stateInfo()
    except Exception:
        return None
    return int(info.get().operatorId()) if info.isDefined() else None


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from walk(child)


def number_of(node: Any) -> int | None:
    if node.nodeName() != "Filter":
        return None
    found = _MARK.search(node.condition().toString())
    return int(found[1]) - _FIRST if found and int(found[1]) >= _FIRST else None
