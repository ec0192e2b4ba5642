"""Drops repeated rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from penstock.components.base import Step, StepContext
from penstock.errors import PenstockError, did_you_mean
from penstock.spec.fields import Change, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELAY = "spark.watermarkDelayMs"
"""Column metadata in which Spark keeps the watermark's delay, and from which it takes how long a key is kept."""


class Dedupe(Step):
    """Keeps the first row of each key and drops those that repeat it within a time.

    A key is remembered until the watermark has passed its first row's event time by `within`. Repetitions no
    further apart than that are always dropped; later ones may pass.
    """

    name: ClassVar[str] = "dedupe"
    needs_event_time: ClassVar[bool] = True
    example: ClassVar[str] = """\
from: views
dedupe: {by: [id], within: 10 minutes}
"""

    by: tuple[str, ...] = field(doc="Columns that together tell rows apart.", change=Change.LOSES_STATE, min_length=1)
    within: Duration | None = field(
        None, doc="How far apart in event time repetitions are caught. Default: the source's `maxDelay`."
    )

    def state_key(self) -> tuple[str, ...]:
        return self.by

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        (frame,) = inputs.values()
        for column in self.by:
            if column not in frame.columns:
                suggestion = did_you_mean(column, frame.columns)
                raise PenstockError.of("COLUMN_UNKNOWN", node=context.node, column=column, suggestion=suggestion)
        if self.within is None or context.event_time is None:
            return frame.dropDuplicatesWithinWatermark(list(self.by))
        delay = frame.schema[context.event_time].metadata[DELAY]
        kept = _with_delay(frame, context.event_time, self.within.millis).dropDuplicatesWithinWatermark(list(self.by))
        return _with_delay(kept, context.event_time, delay)


def _with_delay(frame: DataFrame, column: str, millis: int) -> DataFrame:
    """The same rows, with the delay noted on the event time column replaced; the watermark itself is not moved."""
    metadata = {**frame.schema[column].metadata, DELAY: millis}
    return frame.withMetadata(column, metadata)
