"""Counts of rows by the window of their event time, taken as rows pass.

A histogram over the numbers of windows, with more bins than a batch has windows, is exact: bins are joined only when
there are too many. It is one pass, and works wherever Spark lets a frame be observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.components.shared.event_time import event_time_of, micros_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BINS = 4_000
"""More windows than this in one batch cannot be told apart, and are not told at all."""
Times = dict[int, int]
"""Rows by the start of the window, in milliseconds since 1970."""
NAME = "times"


def tally(rows: DataFrame, window_ms: int) -> Column | None:
    """What is observed to count the rows by window; None if they have no event time."""
    from pyspark.sql import functions as F

    column = event_time_of(rows)
    if column is None:
        return None
    number = F.floor(micros_of(rows, column) / F.lit(float(window_ms * 1000)))
    return F.histogram_numeric(number.cast("double"), F.lit(BINS)).alias(NAME)


def observed(rows: DataFrame, name: str, window_ms: int | None) -> DataFrame:
    """The rows of a stream, counted by window under a name if windows are wanted and they have a time."""
    found = None if window_ms is None else tally(rows, window_ms)
    return rows if found is None else rows.observe(name, found)


def times_of(bins: Iterable[Any] | None, window_ms: int) -> Times:
    """The counts from a histogram as Spark gives it; empty if there were too many windows."""
    found: Times = {}
    for item in bins or []:
        start = round(float(item["x"])) * window_ms
        found[start] = found.get(start, 0) + round(float(item["y"]))
    return found if len(found) < BINS else {}


def times_below(rows: DataFrame, window_ms: int) -> Times:
    """The counts of rows that are there; runs a job."""
    from pyspark.sql import functions as F

    column = event_time_of(rows)
    if column is None:
        return {}
    number = F.floor(micros_of(rows, column) / F.lit(float(window_ms * 1000))).alias("number")
    found = rows.select(number).where(F.col("number").isNotNull()).groupBy("number").count().collect()
    return {int(item["number"]) * window_ms: int(item["count"]) for item in found}


def difference(before: Mapping[int, int], after: Mapping[int, int]) -> Times:
    """What is in the first and not in the second."""
    return {start: left for start in before if (left := before[start] - after.get(start, 0))}
