"""A SQL query over the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator

from penstock.components.base import Step, StepContext
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sql(Step):
    """A Spark SQL query. Each input is a table under its own name.

    Windowed aggregation (`GROUP BY window(ts, '1 minute')`) gives a row when the watermark has passed the window's
    end. Only queries are allowed: no commands, and no tables but the inputs.
    """

    name: ClassVar[str] = "sql"
    shorthand: ClassVar[str] = "query"
    inputs_expected: ClassVar[tuple[int, int]] = (1, 64)
    example: ClassVar[str] = """\
from: views
sql: SELECT user, article, ms / 1000 AS seconds FROM views WHERE article IS NOT NULL
"""

    query: Annotated[str, AfterValidator(str.rstrip)] = field(
        doc="The query, in Spark SQL.", change=Change.LOSES_STATE, min_length=1
    )

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        # Spark runs commands as soon as they are given to spark.sql(); parseQuery takes nothing but a query.
        context.spark._jsparkSession.sessionState().sqlParser().parseQuery(self.query)
        # The rows of a batch belong to a session of the query's own, and a view is known only in that of its rows.
        session = next(iter(inputs.values())).sparkSession
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name)
        try:
            return session.sql(self.query)
        finally:
            for name in inputs:
                session.catalog.dropTempView(name)
