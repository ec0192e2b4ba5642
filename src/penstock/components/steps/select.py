"""Chooses and computes columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Step, StepContext
from penstock.components.shared.spark_sql import expression
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Select(Step):
    """Chooses columns by name, or computes them from SQL expressions. Columns that are not named are dropped."""

    name: ClassVar[str] = "select"
    passes: ClassVar[Literal["all", "some", "other"]] = "all"
    shorthand: ClassVar[str] = "columns"
    example: ClassVar[str] = """\
from: views
select: {user: user, seconds: ms / 1000, day: date(ts)}
"""

    columns: dict[str, str] | tuple[str, ...] = field(
        holds=Holds.SQL, doc="A list of column names, or a mapping of new names to SQL expressions.",
        change=Change.BOOTSTRAP, min_length=1,
    )  # fmt: skip

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        (frame,) = inputs.values()
        if isinstance(self.columns, dict):
            return frame.select(*(expression(f"({text}) AS {quote(name)}") for name, text in self.columns.items()))
        return frame.select(*(quote(name) for name in self.columns))
