"""Aggregates over windows of event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
from penstock.components.shared.aggregates import FUNCTIONS, argument_columns, check_values, parse, same_but
from penstock.components.shared.kernel_inputs import (
    REPLAYED,
    arrow_schema,
    key_column,
    need_columns,
    only,
    time_column,
)
from penstock.components.shared.spark_sql import expression
from penstock.components.shared.windows import check_lengths, window_state_after
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.kernels.base import Kernel


class Window(KernelStep):
    """Groups rows by windows of event time and by keys, and computes aggregates over each group.

    With `size` alone windows follow each other; with `slide` one starts every `slide` and they overlap; with `gap` a
    window is a session that ends when no row has come for that long. A row leaves when the watermark has passed the
    window's end, and is final; with `emit: update` it leaves whenever it changes, for sinks with a key. Windows are
    aligned to 1970-01-01T00:00:00Z.

    Values are aggregates of columns or SQL expressions, each with a filter of its own if wanted:
    `count(*) filter (where status >= 500)`.
    """

    name: ClassVar[str] = "window"
    needs_event_time: ClassVar[bool] = True
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side", "correct")
    example: ClassVar[str] = """\
from: views
window: {size: 1 minute, by: [article], values: {views: count(*), readers: count_distinct(user)}}
"""

    size: Duration | None = field(None, doc="How long a window is.", change=Change.LOSES_STATE)
    slide: Duration | None = field(
        None, doc="How far apart windows start, if they overlap; at most `size`.", change=Change.LOSES_STATE
    )
    gap: Duration | None = field(
        None, doc="Instead of `size`: how long no row may come before a session ends.", change=Change.LOSES_STATE
    )
    by: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns to group by; none gives one row per window.", change=Change.LOSES_STATE
    )
    values: dict[str, str] = field(
        holds=Holds.SQL,
        doc="Columns of the result, each an aggregate: `{views: count(*)}`.",
        change=Change.BOOTSTRAP,
        min_length=1,
    )
    having: str | None = field(
        None, holds=Holds.SQL, doc="A SQL condition on the result; rows for which it is not true are left out."
    )
    emit: Literal["close", "update"] = field(
        "close", doc="`close`: final rows only; `update`: the new row whenever it changes, for sinks with a key."
    )

    def state_key(self) -> tuple[str, ...]:
        return (*self.by, "window")

    @property
    def takes_replays(self) -> bool:
        # A row that is late for some of several windows has its place in the others already.
        return self.gap is None and self.slide is None

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from check_lengths(f"window of '{context.node}'", self.size, self.slide, self.gap)
        yield from check_values(self.values, tuple(FUNCTIONS))
        if self.gap is not None and self.emit == "update":
            reason = "`emit: update` does not go with `gap`: a session that grows would leave its earlier rows behind"
            yield Problem("SPEC_BAD_VALUE", {"where": f"window of '{context.node}'", "reason": reason})

    def state_after(self, before: Self) -> tuple[Change, str] | None:
        return window_state_after(before, self) if same_but(before, self, "values", "having", "emit") else None

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        frame = only(inputs)
        need_columns(frame, context.node, self.by, ("by",))
        written = [parse(name, text) for name, text in self.values.items()]
        arguments, aggregates = argument_columns(frame, context.node, written)
        time = time_column(frame, context, next(iter(inputs)))
        replayed = [REPLAYED] if REPLAYED in frame.columns else []
        rows = frame.select(time, *replayed, *(key_column(frame, name) for name in self.by), *arguments.values())
        kernel = self._kernel(rows, aggregates, context)

        def finish(result: DataFrame) -> DataFrame:
            return result if self.having is None else result.where(expression(self.having))

        return Carried(
            kernel,
            (KernelInput(rows, self.by),),
            finish,
            event_time="window_end",
            # A session may end a moment after the watermark; just before its end it would be late for what follows.
            shift=0 if self.gap is not None else -1,
            changes=self.emit == "update" or context.late.policy == "correct",
        )

    def _kernel(self, rows: DataFrame, aggregates: tuple, context: StepContext) -> Kernel:  # type: ignore[type-arg]
        from penstock.kernels.window import Window as WindowKernel

        schema = arrow_schema(rows)
        if self.gap is not None:
            if context.late.policy == "correct":
                reason = "sessions cannot be corrected: a late row may join two of them"
                raise PenstockError.of("LATE_NOT_SUPPORTED", node=context.node, component=self.name, policy="correct",
                                       offered="drop, side", advice=reason)  # fmt: skip
            from penstock.kernels.session import Session

            return Session(schema, self.by, aggregates, self.gap.millis * 1000)
        assert self.size is not None
        kept = context.late.allowed.millis * 1000
        return WindowKernel(
            schema,
            self.by,
            aggregates,
            size=self.size.millis * 1000,
            slide=None if self.slide is None else self.slide.millis * 1000,
            emit=self.emit,
            allowed=kept if context.late.policy == "correct" else 0,
            retained=kept if context.late.policy == "side" and self.takes_replays else 0,
        )
