"""Counts that a stateful step keeps of each batch, added up from all tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from penstock.kernels.base import TIME, Late

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
    late_times: tuple[tuple[int, int], ...] = ()
    """Late rows by the start of their window of the ledger, in milliseconds."""


class Counters:
    """Spark's accumulators of one step. They only grow; `taken` gives what was added since it was last asked."""

    def __init__(self, spark: SparkSession, window_ms: int | None = None) -> None:
        context = spark.sparkContext
        self.window_ms = window_ms
        self.late_times: Any = context.accumulator({}, _ByTime())
        self.late: Any = context.accumulator(0)
        self.late_rows: Any = context.accumulator(0)
        self.corrections: Any = context.accumulator(0)
        self.dead: Any = context.accumulator(0)

    def add_late(self, late: Late, rows: pa.Table) -> None:
        """Counts what a kernel has judged of these rows."""
        missed = int(late.missed.sum())
        if missed:
            self.late.add(missed)
            self.late_rows.add(int((late.missed > 0).sum()))
            if self.window_ms is not None:
                times = rows.column(TIME).to_numpy()[late.missed > 0]
                starts, counts = np.unique(times // (self.window_ms * 1000), return_counts=True)
                self.late_times.add(
                    {int(start) * self.window_ms: int(count) for start, count in zip(starts, counts, strict=True)}
                )
        if late.dead is not None:
            self.dead.add(int(late.dead.sum()))

    def now(self) -> Counts:
        numbers = (self.late.value, self.late_rows.value, self.corrections.value, self.dead.value)
        return Counts(*numbers, late_times=tuple(sorted(self.late_times.value.items())))


class _ByTime(AccumulatorParam[dict[int, int]]):
    """Adds up counts by time."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:
        for start, rows in value2.items():
            value1[start] = value1.get(start, 0) + rows
        return value1


def since(now: Counts, before: Counts) -> Counts:
    known = dict(before.late_times)
    return Counts(
        now.late - before.late,
        now.late_rows - before.late_rows,
        now.corrections - before.corrections,
        now.dead - before.dead,
        tuple((start, left) for start, rows in now.late_times if (left := rows - known.get(start, 0))),
    )
