"""Keeps the rows for which a condition holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Step, StepContext
from penstock.components.shared.spark_sql import expression
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Filter(Step):
    """Keeps the rows for which a SQL condition is true; rows for which it is false or null are dropped."""

    name: ClassVar[str] = "filter"
    shorthand: ClassVar[str] = "where"
    passes: ClassVar[Literal["all", "some", "other"]] = "some"
    example: ClassVar[str] = """\
from: views
filter: article IS NOT NULL AND ms > 0
"""

    where: str = field(
        holds=Holds.SQL, doc="A boolean SQL expression over the columns.", change=Change.RESTART, min_length=1
    )

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        (frame,) = inputs.values()
        return frame.where(expression(self.where))
