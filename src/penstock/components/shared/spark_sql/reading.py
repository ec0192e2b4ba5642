"""Spark's parser and analyser, asked what they have understood. The only place where text of users becomes SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.components.shared.spark_sql import reasons
from penstock.components.shared.spark_sql.trees import PACKAGE, parse
from penstock.components.shared.spark_sql.verdict import (
    By,
    Refusal,
    judge_analysed,
    judge_parsed,
    judge_plan_class,
    viewed,
)
from penstock.errors import PenstockError, Problem

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LONGEST = 200_000
"""Characters; a longer text would keep the parser busy for minutes."""
_LOOKED_AT = 5000
"""So many nodes are looked at for the place of what is refused."""


class SqlRefused(PenstockError):
    """SQL that does what it may not; `text` is the SQL, and `offset` where that stands in it, from 0."""

    def __init__(self, problem: Problem, text: str = "", offset: int | None = None) -> None:
        super().__init__(problem)
        self.text = text
        self.offset = offset


def expression(text: str) -> Column:
    """A SQL expression, if it may be computed. Raises SqlRefused, or what Spark's parser raises."""
    from pyspark.sql import functions as F

    _judge_text(_session(), text, None)
    return F.expr(text)


def queried(text: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query over inputs by name, if it may be run. Raises SqlRefused, or what Spark's analyser raises."""
    # The rows of a batch belong to a session of the query's own, and a view is known only in that of its rows.
    session = next(iter(inputs.values())).sparkSession
    _judge_text(session, text, frozenset(inputs))
    for name, frame in inputs.items():
        # An output of a step has a dot in its name, and is one name nevertheless.
        frame.createOrReplaceTempView(f"`{name}`")
    try:
        rows = session.sql(text)
    finally:
        for name in inputs:
            session.catalog.dropTempView(f"`{name}`")
    judge_frame(rows, (), By.QUERY, tables=inputs, text=text)
    return rows


def judge_frame(
    frame: DataFrame, inputs: Collection[DataFrame], by: By, *, tables: Collection[str] = (), text: str = ""
) -> None:
    """Raises SqlRefused if a frame computes what it may not, looking down to these frames, or tables of these names.

    Nothing of the plan has been optimised or run so far.
    """
    floors = [_analysed(rows) for rows in inputs]
    jvm: Any = frame.sparkSession._jvm
    coalesce = jvm.org.apache.spark.sql.catalyst.expressions.Coalesce
    hidden = [column for floor in floors for column in _items(floor.metadataOutput())]
    waiting = [_analysed(frame)]
    while waiting:
        node = waiting.pop()
        if any(node.fastEquals(floor) for floor in floors):
            continue
        if hidden and _reads(node, hidden):
            raise _error(Refusal("the hidden column '_metadata'", reasons.OF_THE_FILES, ""), text)
        kind = _class_of(node)
        if kind.endswith(".View") and viewed(parse(node.toJSON())) in tables:
            continue
        refused = judge_plan_class(kind, by)
        if refused is not None:
            raise _error(refused, text)
        found = node.expressions()
        if not found.isEmpty():
            # Any function of many arguments puts all of them into one tree.
            refused = judge_analysed(parse(coalesce(found).toJSON()), by, tables)
            if refused is not None:
                raise _error(refused, text)
        waiting.extend(_items(node.children()))


def _judge_text(session: SparkSession, text: str, tables: frozenset[str] | None) -> None:
    refused = _parsed_refusal(text, tables)
    if refused is not None:
        refusal, offset = refused
        raise _error(refusal, text, offset)


@lru_cache(maxsize=4096)
def _parsed_refusal(text: str, tables: frozenset[str] | None) -> tuple[Refusal, int | None] | None:
    """What is wrong with a query that reads these tables, or with an expression; the parser is the same for all."""
    from py4j.protocol import Py4JJavaError

    if len(text) > _LONGEST:
        return Refusal(f"{len(text):,} characters", f"at most {_LONGEST:,} are read", ""), None
    parser: Any = _session()._jsparkSession.sessionState().sqlParser()
    # Spark runs commands as soon as they are given to spark.sql(); parseQuery takes nothing but a query.
    try:
        parsed = parser.parseExpression(text) if tables is None else parser.parseQuery(text)
        refusal = judge_parsed(parse(parsed.toJSON()), tables or ())
    except (Py4JJavaError, RecursionError, ValueError, LookupError, TypeError):
        return Refusal("something that cannot be taken apart", reasons.UNKNOWN, ""), None
    return None if refusal is None else (refusal, _offset(parsed, refusal))


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    # A thread that has run nothing yet has no active session; the process has one session for all.
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _error(refusal: Refusal, text: str, offset: int | None = None) -> SqlRefused:
    name = refusal.name.strip("[]").replace(", ", ".")
    if refusal.unknown == "table":
        return SqlRefused(Problem("SQL_UNKNOWN_TABLE", {"table": name}), text, offset)
    if refusal.unknown == "function":
        return SqlRefused(Problem("SQL_UNKNOWN_FUNCTION", {"function": name}), text, offset)
    return SqlRefused(Problem("SQL_NOT_ALLOWED", {"what": refusal.what, "reason": refusal.reason}), text, offset)


# --- in the JVM --------------------------------------------------------------------------------------------


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _reads(node: Any, columns: Collection[Any]) -> bool:
    """Whether a node of a plan computes with columns that a source of files has beside its own."""
    read = node.references()
    return any(read.contains(column) for column in columns)


def _class_of(node: Any) -> str:
    return str(node.getClass().getName()).removeprefix(PACKAGE)


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _offset(root: Any, refusal: Refusal) -> int | None:
    """Where in the text what is refused begins, if it can be found."""
    waiting = [root]
    for _ in range(_LOOKED_AT):
        if not waiting:
            return None
        node = waiting.pop()
        if _class_of(node) == refusal.kind and (not refusal.name or _name_of(node) == refusal.name):
            start = node.origin().startIndex()
            return int(start.get()) if start.isDefined() else None
        waiting.extend(reversed(list(_below(node))))
    return None


def _name_of(node: Any) -> str | None:
    fields = parse(node.toJSON()).fields
    written = fields.get("nameParts", fields.get("name", fields.get("multipartIdentifier")))
    return None if written is None else str(written)


def _below(node: Any) -> Iterator[Any]:
    """Children, and the trees in the fields of a node."""
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    def is_a(kind: str) -> bool:
        return bool(is_instance_of(SparkContext._gateway, node, f"{PACKAGE}catalyst.{kind}"))

    if is_a("plans.QueryPlan"):
        yield from _items(node.expressions())
        yield from _items(node.innerChildren())
    elif is_a("expressions.PlanExpression"):
        yield node.plan()
    yield from _items(node.children())
