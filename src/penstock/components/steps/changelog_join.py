"""Joins two streams of changes into one table that is always up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Carried, CheckContext, KernelInput, KernelStep, StepContext
from penstock.components.shared.kernel_inputs import (
    arrow_schema,
    key_column,
    need_columns,
    need_type,
    refuse_floating,
    time_column,
)
from penstock.components.shared.two_sides import on_pairs, right_names, same_types, two_sides
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangelogJoin(KernelStep):
    """Joins two streams of changes, without any window, into one table that is always up to date.

    Each row of an input is the new state of its key: of the first under `key`, of the second under the columns of
    `on`. The greatest `version` counts, in whatever order rows arrive, so a change that comes late does no harm. Where
    the column named by `deleted` is true the row is gone. The result has the columns of both, and `deleted`: a row
    leaves whenever the joined row of a key changes. The sink needs a `key`.

    The columns of `on` must belong to the first input's `key`.
    """

    name: ClassVar[str] = "changelog_join"
    inputs_expected: ClassVar[tuple[int, int]] = (2, 2)
    late_policies: ClassVar[tuple[str, ...]] = ("drop", "side", "correct")
    """Any: nothing is late here, versions decide."""
    example: ClassVar[str] = """\
from: accounts
changelog_join: {with: limits, on: [account], version: changed_at, deleted: gone}
"""

    other: str = field(
        alias="with", holds=Holds.NAME, doc="The source or step to join with.", change=Change.LOSES_STATE
    )
    on: tuple[str, ...] | dict[str, str] = field(
        holds=Holds.NAME,
        doc="Columns that must be equal, the whole key of the second input: a list if they have the same names, else "
        "`{left: right}`.",
        change=Change.LOSES_STATE,
        min_length=1,
    )
    key: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="The key of the first input. Default: the columns of `on`.", change=Change.LOSES_STATE
    )
    how: Literal["inner", "left"] = field("inner", doc="Whether rows of the first without a partner are in the table.")
    version: str | None = field(
        None, holds=Holds.NAME, doc="The column, of both inputs, that says which change is newer. Default: event time.",
        change=Change.LOSES_STATE,
    )  # fmt: skip
    deleted: str | None = field(
        None, holds=Holds.NAME, doc="A boolean column, of both inputs or of one, that is true when the row is gone."
    )
    remember: Duration | None = field(
        None, doc="How long, in event time, deletions are remembered, so that an older change does not undo them. "
        "Default: for ever.",
    )  # fmt: skip
    prefix: str = field(
        "", holds=Holds.NAME, doc="What is put before the names of the second's columns.", change=Change.BOOTSTRAP
    )

    def further_inputs(self) -> tuple[str, ...]:
        return (self.other,)

    def state_key(self) -> tuple[str, ...]:
        return self.key or tuple(on_pairs(self.on))

    def check(self, context: CheckContext) -> Iterator[Problem]:
        missing = [column for column in on_pairs(self.on) if self.key and column not in self.key]
        if missing:
            where = f"changelog_join of '{context.node}'"
            reason = f"`on` column {', '.join(missing)} does not belong to `key`, so a row could change its partner"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": "Add it to `key`."})

    def carried(self, inputs: Mapping[str, DataFrame], context: StepContext) -> Carried:
        from pyspark.sql import functions as F

        from penstock.kernels.base import TIME
        from penstock.kernels.changelog_join import ChangelogJoin as ChangelogJoinKernel

        first, second = two_sides(inputs, self.other, context.node)
        left, right = inputs[first], inputs[second]
        pairs = on_pairs(self.on)
        need_columns(left, context.node, (*pairs, *self.state_key()))
        need_columns(right, context.node, pairs.values())
        refuse_floating(left, context.node, self.state_key())
        same_types(left, right, pairs, context.node)
        deleted = self._deleted(left, right, context)
        names = right_names(left, right, pairs, self.prefix, context.node, left_out=deleted[1])
        timed = len(context.times) == 2
        if self.version is None and not timed:
            raise PenstockError.of("EVENT_TIME_REQUIRED", node=context.node, component=self.name)
        sides = []
        for name, frame in ((first, left), (second, right)):
            if self.version is not None:
                need_columns(frame, context.node, [self.version])
            time = time_column(frame, context, name) if timed else F.lit(0).cast("bigint").alias(TIME)
            sides.append(frame.select(time, *(key_column(frame, column) for column in frame.columns)))
        version = TIME if self.version is None else self.version
        kernel = ChangelogJoinKernel(
            arrow_schema(sides[0]),
            arrow_schema(sides[1]),
            self.state_key(),
            tuple(pairs.values()),
            tuple(pairs.items()),
            self.how,
            tuple((name, name) for name in left.columns if name != deleted[0]),
            tuple(names.items()),
            version=(version, version),
            deleted=deleted,
            tombstones=None if self.remember is None or not timed else self.remember.millis * 1000,
        )
        keyed = zip(sides, (tuple(pairs), tuple(pairs.values())), strict=True)
        return Carried(kernel, tuple(KernelInput(*side) for side in keyed), changes=True, timed=timed)

    def _deleted(self, left: DataFrame, right: DataFrame, context: StepContext) -> tuple[str | None, str | None]:
        """The column of deletions of each side that has it."""
        if self.deleted is None:
            return (None, None)
        found = tuple(self.deleted if self.deleted in frame.columns else None for frame in (left, right))
        if found == (None, None):
            need_columns(left, context.node, [self.deleted])
        for frame, column in zip((left, right), found, strict=True):
            if column is not None:
                need_type(frame, context.node, column, "boolean")
        return (found[0], found[1])
