"""Adds to every row what its key did in the time before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
from penstock.components.shared.aggregates import argument_columns, argument_labels, check_values, parse, same_but
from penstock.components.shared.kernel_inputs import (
    arrow_schema,
    floating_keys,
    key_labels,
    need_columns,
    only,
    time_column,
)
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FUNCTIONS = ("count", "sum", "avg", "min", "max", "stddev", "count_distinct", "first", "last")


class Rolling(KernelStep):
    """Every row leaves once, with aggregates over the rows of its key in the time before it.

    The interval ends with the row and includes it: for a row at time t it is (t − over, t]. Rows wait until the
    watermark has passed them, so that the answer is exact and the same however rows arrive; with `emit: at once` a
    row leaves in the batch it came in, with the exact answer for what has been seen by then.
    """

    name: ClassVar[str] = "rolling"
    needs_event_time: ClassVar[bool] = True
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side")
    example: ClassVar[str] = """\
from: views
rolling: {by: [user], over: 7 days, values: {articles_7d: count_distinct(article), views_7d: count(*)}}
"""

    by: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns that together are the key.", change=Change.LOSES_STATE
    )
    over: Duration = field(doc="How far back each row looks.", change=Change.BOOTSTRAP)
    values: dict[str, str] = field(
        holds=Holds.SQL,
        doc="Columns that are added, each an aggregate: `{views_7d: count(*)}`.",
        change=Change.BOOTSTRAP,
        min_length=1,
    )
    emit: Literal["complete", "at once"] = field(
        "complete", change=Change.LOSES_STATE,
        doc="`complete`: when the watermark has passed the row; `at once`: in the batch it came in.",
    )  # fmt: skip

    def state_key(self) -> tuple[str, ...]:
        return self.by

    def check(self, context: CheckContext) -> Iterator[Problem]:
        if self.over.millis <= 0:
            where = f"rolling of '{context.node}'"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": "`over` must be more than zero"}, at=("over",))
        yield from check_values(self.values, FUNCTIONS)

    def state_after(self, before: Self) -> tuple[Change, str] | None:
        if not same_but(before, self, "values"):
            return None
        old, new = ([parse(name, text, FUNCTIONS) for name, text in step.values.items()] for step in (before, self))
        distinct = all(item.function == "count_distinct" for item in old)
        if distinct and any(item.function != "count_distinct" for item in new):
            return Change.LOSES_STATE, "only the last row with each different value was kept"
        values = {(item.argument, item.condition) for item in old if item.function != "count"}
        counted = {(item.argument, item.condition) for item in old} - values
        if any((item.argument, item.condition) in counted and item.function != "count" for item in new):
            return Change.LOSES_STATE, "of values that were only counted nothing else is known"
        known = {(item.argument, item.condition) for item in old} | {(None, None)}
        fresh = [item.name for item in new if (item.argument, item.condition) not in known]
        told = f"{', '.join(fresh)}: only rows that come from now on are in it"
        return Change.RESTART, told if fresh else "its state goes on"

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.rolling import Rolling as RollingKernel

        frame = only(inputs)
        need_columns(frame, context.node, self.by, ("by",))
        for name in self.values:
            if name in frame.columns:
                raise PenstockError.of("COLUMN_REPEATED", node=context.node, column=name)
        written = [parse(name, text, FUNCTIONS) for name, text in self.values.items()]
        arguments, aggregates = argument_columns(frame, context.node, written, present=True)
        time = time_column(frame, context, next(iter(inputs)))
        keys, extra = floating_keys(frame, self.by)
        rows = frame.select(time, *extra, *arguments.values(), *(F.col(f"`{name}`") for name in frame.columns))
        kernel = RollingKernel(
            arrow_schema(rows),
            keys,
            aggregates,
            over=self.over.millis * 1000,
            passed=tuple(frame.columns),
            at_once=self.emit == "at once",
        )
        labels = {**key_labels(self.by, keys), **argument_labels(written)}
        return Carried(kernel, (KernelInput(rows, keys),), labels=labels, event_time=context.event_time)
