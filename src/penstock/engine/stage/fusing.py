"""What a kernel reads, as columns over the rows of the node below it, so that several kernels share one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.markers import number_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def fused(rows: DataFrame) -> tuple[list[Column], list[Column]] | None:
    """A frame of columns computed from the rows below the first marker, as these columns and the conditions on rows.

    None if it is more than that: then it cannot be computed beside others.
    """
    jvm: Any = rows.sparkSession._jvm
    collapse = jvm.org.apache.spark.sql.catalyst.optimizer.CollapseProject
    plan = collapse.apply(rows._jdf.queryExecution().analyzed(), True)
    conditions: list[Any] = []
    while plan.nodeName() == "Project" and plan.child().nodeName() == "Filter" and number_of(plan.child()) is None:
        conditions.append(plan.child().condition())
        plan = collapse.apply(plan.withNewChildren(_one(jvm, plan.child().child())), True)
    if plan.nodeName() != "Project" or number_of(plan.child()) is None:
        return None
    items = plan.projectList()
    expressions = [items.apply(index) for index in range(items.size())]
    below = plan.child().outputSet()
    if not all(item.deterministic() and item.references().subsetOf(below) for item in (*expressions, *conditions)):
        return None
    return [_column(jvm, item) for item in expressions], [_column(jvm, item) for item in conditions]


def _one(jvm: Any, plan: Any) -> Any:
    found = jvm.java.util.ArrayList()
    found.add(plan)
    return jvm.PythonUtils.toSeq(found)


def _column(jvm: Any, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    inner = expression.child() if expression.nodeName() == "Alias" else expression
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(inner))
