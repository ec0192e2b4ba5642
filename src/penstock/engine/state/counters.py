"""Counts that a stateful step keeps of each batch, added up from all tasks."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from penstock.kernels.base import Late

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Counts:
    """Of one step in one batch."""

    late: int = 0
    """Results that rows came too late for: a row counts once for each window it missed."""
    late_rows: int = 0
    corrections: int = 0
    dead: int = 0
    """Rows that the step could not use."""


class Counters:
    """Spark's accumulators of one step. They only grow; `taken` gives what was added since it was last asked."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self.late: Any = context.accumulator(0)
        self.late_rows: Any = context.accumulator(0)
        self.corrections: Any = context.accumulator(0)
        self.dead: Any = context.accumulator(0)

    def add_late(self, late: Late) -> None:
        missed = int(late.missed.sum())
        if missed:
            self.late.add(missed)
            self.late_rows.add(int((late.missed > 0).sum()))
        if late.dead is not None:
            self.dead.add(int(late.dead.sum()))

    def now(self) -> Counts:
        return Counts(self.late.value, self.late_rows.value, self.corrections.value, self.dead.value)


def since(now: Counts, before: Counts) -> Counts:
    return Counts(*(new - old for new, old in zip(astuple(now), astuple(before), strict=True)))
