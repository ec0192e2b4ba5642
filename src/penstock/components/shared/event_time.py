"""The event time of rows between steps: which column says it, and what must be added to it.

Spark notes on the column that it is the event time. A window's result happened just before the window's end, and a
joined row may leave later than the watermark says; both are noted on the column too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

DELAY = "spark.watermarkDelayMs"
"""Where Spark keeps the delay of the watermark."""
_SHIFT = "penstock.shiftMicros"
_HOLD = "penstock.holdMicros"


def event_time_of(frame: DataFrame) -> str | None:
    """The column that carries the watermark, if any."""
    return next((item.name for item in frame.schema.fields if DELAY in (item.metadata or {})), None)


def shift_of(field: StructField) -> int:
    """What is added to a timestamp column to make it the event time, in microseconds."""
    return int((field.metadata or {}).get(_SHIFT, 0))


def micros_of(frame: DataFrame, column: str) -> Column:
    """The event time of rows in microseconds since 1970."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    field = frame.schema[column]
    if isinstance(field.dataType, StructType):
        # What Spark's own window() gives.
        return F.unix_micros(F.col(f"`{column}`.`end`")) - F.lit(1)
    shift = shift_of(field)
    time = F.unix_micros(F.col(f"`{column}`"))
    return time + F.lit(shift) if shift else time


def hold_of(frame: DataFrame) -> int:
    """By how much rows may be older than the watermark, in microseconds."""
    column = event_time_of(frame)
    return 0 if column is None else int((frame.schema[column].metadata or {}).get(_HOLD, 0))


def with_event_time(frame: DataFrame, column: str, delay_millis: int, shift: int = 0, hold: int = 0) -> DataFrame:
    """The same rows, with a column noted as their event time; the watermark itself is not moved."""
    noted = {**(frame.schema[column].metadata or {}), DELAY: delay_millis}
    noted |= {key: value for key, value in ((_SHIFT, shift), (_HOLD, hold)) if value}
    return frame.withMetadata(column, noted)


def delay_of(frame: DataFrame) -> int:
    """The delay of the watermark in milliseconds, 0 if there is none."""
    column = event_time_of(frame)
    return 0 if column is None else int(frame.schema[column].metadata[DELAY])
