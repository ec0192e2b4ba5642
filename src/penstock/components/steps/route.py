"""Deals rows to several outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import CheckContext, Step, StepContext
from penstock.components.shared.spark_sql import expression
from penstock.components.steps.filter import Filter
from penstock.errors import Problem
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OTHERWISE = "otherwise"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Route(Step):
    """Deals rows to named outputs, each read as `STEP.OUTPUT`.

    A condition is SQL over the columns; with `by`, it is a value of that column, or a list of values. A row goes to
    the first output whose condition is true, or to all of them (`each: all`). `otherwise` stands for rows that no
    other output takes; without it such rows go nowhere, and the ledger counts them. What all outputs write in a batch
    is committed together with it, or the batch comes again and changes nothing that is there.
    """

    name: ClassVar[str] = "route"
    passes: ClassVar[Literal["all", "some", "other"]] = "some"
    example: ClassVar[str] = """\
from: events
route:
  by: kind
  to: {clicks: click, views: [view, scroll], rest: otherwise}
"""

    to: dict[str, str | tuple[str, ...]] = field(
        holds=Holds.SQL,
        doc="Outputs by name: a condition, a value of `by` or a list of them, or `otherwise`.",
        min_length=1,
    )
    by: str | None = field(
        None, holds=Holds.NAME, doc="The column whose value decides, as text.", change=Change.RESTART
    )
    each: Literal["first", "all"] = field(
        "first", doc="Whether a row goes to the first output that takes it, or to all."
    )

    def check(self, context: CheckContext) -> Iterator[Problem]:
        where = f"route of '{context.node}'"
        for name, condition in self.to.items():
            if not _NAME.fullmatch(name):
                reason = f"'{name}' is no name of an output: lower-case letters, digits and _"
                yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, at=("to", name))
            if self.by is None and not isinstance(condition, str):
                reason = f"output '{name}' lists values, which takes `by`"
                yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, at=("to", name))
        others = [name for name, condition in self.to.items() if condition == OTHERWISE]
        if len(others) > 1:
            reason = f"{' and '.join(others)} are both `otherwise`"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason}, at=("to", others[1]))

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        (frame,) = inputs.values()
        return frame if OTHERWISE in self.to.values() else frame.where(expression(_any(self._conditions().values())))

    def outputs(self) -> Mapping[str, Step]:
        return {name: Filter(where=condition) for name, condition in self._exclusive().items()}

    def _conditions(self) -> dict[str, str]:
        """SQL that is true or false, never null, for all outputs but `otherwise`."""
        return {name: f"coalesce({self._sql(text)}, false)" for name, text in self.to.items() if text != OTHERWISE}

    def _sql(self, condition: str | tuple[str, ...]) -> str:
        if self.by is None:
            return f"({condition})"
        values = (condition,) if isinstance(condition, str) else condition
        column = self.by.replace("`", "``")
        return f"CAST(`{column}` AS string) IN ({', '.join(_quoted(value) for value in values)})"

    def _exclusive(self) -> dict[str, str]:
        """The whole condition of each output."""
        plain = self._conditions()
        found: dict[str, str] = {}
        for name in self.to:
            if name not in plain:
                found[name] = f"NOT ({_any(plain.values())})"
                continue
            earlier = list(plain.values())[: list(plain).index(name)] if self.each == "first" else []
            found[name] = f"{plain[name]} AND NOT ({_any(earlier)})" if earlier else plain[name]
        return found


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(conditions) or "false"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
