"""Drops repeated rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
from penstock.components.shared.event_time import delay_of
from penstock.components.shared.kernel_inputs import (
    arrow_schema,
    floating_keys,
    key_labels,
    need_columns,
    only,
    time_column,
)
from penstock.errors import Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Dedupe(KernelStep):
    """Keeps the first row of each key and drops those that repeat it within a time.

    First is the row with the least event time; of rows at one time the least one. Rows that follow it within `within`
    are repetitions and are dropped; the next one after that is kept again. Rows wait until the watermark has passed
    them, so that the answer is the same however they arrive. With `emit: at once` a row leaves in the batch it came
    in, unless one of its key within that time has left already.
    """

    name: ClassVar[str] = "dedupe"
    needs_event_time: ClassVar[bool] = True
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side")
    example: ClassVar[str] = """\
from: views
dedupe: {by: [id], within: 10 minutes}
"""

    by: tuple[str, ...] = field(
        holds=Holds.NAME, doc="Columns that together tell rows apart.", change=Change.LOSES_STATE, min_length=1
    )
    within: Duration | None = field(
        None, doc="How far apart in event time repetitions are caught. Default: the source's `maxDelay`."
    )
    emit: Literal["complete", "at once"] = field(
        "complete", doc="`complete`: when the watermark has passed the row; `at once`: in the batch it came in."
    )

    def state_key(self) -> tuple[str, ...]:
        return self.by

    def check(self, context: CheckContext) -> Iterator[Problem]:
        if self.within is not None and self.within.millis <= 0:
            where = f"dedupe of '{context.node}'"
            yield Problem(
                "SPEC_BAD_VALUE", {"where": where, "reason": "`within` must be more than zero"}, at=("within",)
            )

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.dedupe import Dedupe as DedupeKernel

        frame = only(inputs)
        need_columns(frame, context.node, self.by, ("by",))
        time = time_column(frame, context, next(iter(inputs)))
        keys, extra = floating_keys(frame, self.by)
        rows = frame.select(time, *extra, *(F.col(f"`{name}`") for name in frame.columns))
        within = self.within.millis if self.within is not None else delay_of(frame)
        kernel = DedupeKernel(
            arrow_schema(rows), keys, within * 1000, tuple(frame.columns), exact=self.emit == "complete"
        )
        labels = key_labels(self.by, keys)
        return Carried(kernel, (KernelInput(rows, keys),), labels=labels, event_time=context.event_time)
