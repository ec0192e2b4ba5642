"""The last row of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import Carried, KernelInput, KernelStep, StepContext
from penstock.components.shared.kernel_inputs import (
    arrow_schema,
    floating_keys,
    key_labels,
    need_columns,
    need_type,
    only,
    time_column,
)
from penstock.errors import PenstockError
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Latest(KernelStep):
    """Keeps the last row of each key, and gives it whenever it changes: a table that is always up to date.

    Which row is newer is said by `order`, or else by event time, not by which came later; of rows that are equal in
    that, the greater one counts, so the table is the same however rows arrive. The sink needs a `key`.
    """

    name: ClassVar[str] = "latest"
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side")
    example: ClassVar[str] = """\
from: positions
latest: {by: [vehicle]}
"""

    by: tuple[str, ...] = field(
        holds=Holds.NAME, doc="Columns that together are the key.", change=Change.LOSES_STATE, min_length=1
    )
    order: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns that say which row is newer, the first counts most. Default: event time.",
        change=Change.LOSES_STATE,
    )  # fmt: skip
    deleted: str | None = field(
        None,
        holds=Holds.NAME,
        doc="A boolean column that is true when the key is gone; its row leaves once more, and says so.",
    )
    forget: Duration | None = field(
        None, doc="How long after its last row, in event time, a key is forgotten. Default: never."
    )

    def state_key(self) -> tuple[str, ...]:
        return self.by

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.base import TIME
        from penstock.kernels.latest import Latest as LatestKernel

        frame = only(inputs)
        need_columns(frame, context.node, self.by, ("by",))
        need_columns(frame, context.node, self.order, ("order",))
        need_columns(frame, context.node, [self.deleted] if self.deleted else [], ("deleted",))
        if self.deleted is not None:
            need_type(frame, context.node, self.deleted, "boolean")
        timed = context.event_time is not None
        if not timed and (self.forget is not None or not self.order):
            raise PenstockError.of("EVENT_TIME_REQUIRED", node=context.node, component=self.name)
        time = time_column(frame, context, next(iter(inputs))) if timed else F.lit(0).cast("bigint").alias(TIME)
        keys, extra = floating_keys(frame, self.by)
        rows = frame.select(time, *extra, *(F.col(f"`{name}`") for name in frame.columns))
        kernel = LatestKernel(
            arrow_schema(rows),
            keys,
            tuple(frame.columns),
            order=self.order or None,
            forget=None if self.forget is None else self.forget.millis * 1000,
            deleted=self.deleted,
        )
        labels = key_labels(self.by, keys)
        return Carried(
            kernel, (KernelInput(rows, keys),), labels=labels, event_time=context.event_time, changes=True, timed=timed
        )
