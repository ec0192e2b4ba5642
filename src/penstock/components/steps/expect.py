"""Rules that every row must meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import CheckContext, Step, StepContext
from penstock.components.shared.spark_sql import expression
from penstock.errors import Problem
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Expect(Step):
    """Lets rows through that meet every rule; the others become dead letters that name the rules they break.

    A rule is a SQL condition. A row for which it is null does not meet it.
    """

    name: ClassVar[str] = "expect"
    shorthand: ClassVar[str] = "expected"
    passes: ClassVar[Literal["all", "some", "other"]] = "all"
    example: ClassVar[str] = """\
from: orders
expect: {positive: amount > 0, has a customer: customer IS NOT NULL}
"""

    expected: dict[str, str] = field(
        alias="rules", holds=Holds.SQL, doc="SQL conditions by name.", change=Change.RESTART, min_length=1
    )

    def check(self, context: CheckContext) -> Iterator[Problem]:
        for name, rule in self.expected.items():
            if not rule.strip():
                where = f"expect of '{context.node}'"
                yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": f"rule '{name}' says nothing"},
                              at=("rules", name))  # fmt: skip

    def rules(self) -> Mapping[str, str]:
        return self.expected

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        (frame,) = inputs.values()
        return reduce(lambda rows, rule: rows.where(expression(rule)), self.expected.values(), frame)
