"""Puts the rows of several inputs into one stream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Step, StepContext
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Union(Step):
    """All rows of all inputs, duplicates kept. Columns are matched by name."""

    name: ClassVar[str] = "union"
    passes: ClassVar[Literal["all", "some", "other"]] = "all"
    inputs_expected: ClassVar[tuple[int, int]] = (2, 64)
    example: ClassVar[str] = """\
from: [views_eu, views_us]
union: {allowMissing: true}
"""

    allow_missing: bool = field(
        False, doc="Whether a column may be missing in some inputs; it is null there.", change=Change.RESTART
    )

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        return reduce(
            lambda left, right: left.unionByName(right, allowMissingColumns=self.allow_missing), inputs.values()
        )
