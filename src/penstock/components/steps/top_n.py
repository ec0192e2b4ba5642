"""The greatest rows of each window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
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

_ORDER = re.compile(r"(?P<column>.+?)(?:(?<!\s)\s+(?P<way>asc|desc))?", re.IGNORECASE)
_ADDED = ("window_start", "window_end", "rank")


class TopN(KernelStep):
    """The first `n` rows of each window and key, by an order, with their rank.

    Rows leave when the watermark has passed the window's end. Nulls come last; rows that are equal in the order are
    ranked by their other columns, so the answer is the same however they arrive.
    """

    name: ClassVar[str] = "top_n"
    needs_event_time: ClassVar[bool] = True
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side", "correct")
    example: ClassVar[str] = """\
from: bids
top_n: {size: 10 minutes, by: [auction], order: [price desc], n: 3}
"""

    size: Duration = field(doc="How long a window is.", change=Change.LOSES_STATE)
    by: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns to group by; none ranks all rows of a window.", change=Change.LOSES_STATE
    )
    order: tuple[str, ...] = field(
        holds=Holds.NAME,
        doc="Columns that rank rows, the first counts most: `[price desc, name]`.",
        min_length=1,
        change=Change.BOOTSTRAP,
    )
    n: int = field(doc="How many rows of each window and key.", ge=1, le=10_000, change=Change.BOOTSTRAP)

    def state_key(self) -> tuple[str, ...]:
        return (*self.by, "window")

    def check(self, context: CheckContext) -> Iterator[Problem]:
        if self.size.millis <= 0:
            where = f"top_n of '{context.node}'"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": "`size` must be more than zero"}, at=("size",))

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.top_n import TopN as TopNKernel

        frame = only(inputs)
        order = tuple(_ordered(text) for text in self.order)
        need_columns(frame, context.node, (*self.by, *(column for column, _ in order)))
        for name in _ADDED:
            if name in frame.columns:
                raise PenstockError.of("COLUMN_REPEATED", node=context.node, column=name)
        time = time_column(frame, context, next(iter(inputs)))
        keys, extra = floating_keys(frame, self.by)
        rows = frame.select(time, *extra, *(F.col(f"`{name}`") for name in frame.columns))
        correct = context.late.policy == "correct"
        kernel = TopNKernel(
            arrow_schema(rows),
            keys,
            self.n,
            order,
            self.size.millis * 1000,
            tuple(frame.columns),
            allowed=context.late.allowed.millis * 1000 if correct else 0,
        )
        labels = key_labels(self.by, keys)
        return Carried(
            kernel, (KernelInput(rows, keys),), labels=labels, event_time="window_end", shift=-1, changes=correct
        )


def _ordered(text: str) -> tuple[str, bool]:
    """A column, and whether its greatest values come first."""
    found = _ORDER.fullmatch(text.strip())
    assert found is not None
    return found["column"].strip("`"), (found["way"] or "asc").lower() == "desc"
