"""What Spark calls for each bucket of a stateful step: woken by rows or by the watermark.

Spark starts a process of its own for each stateful step when a query begins, only to hear which state the step keeps.
So this module loads nothing, and the work is unpacked when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from penstock.engine.state.advance import Advance


class Carrier(StatefulProcessor):
    """Carries a kernel on Spark's state store."""

    def __init__(self, advance: Advance) -> None:
        self.packed: bytes = cloudpickle.dumps(advance)  # type: ignore[no-untyped-call]
        self.unpacked: Advance | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.store = handle.getMapState("chunks", "number bigint", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[pd.DataFrame]:
        return self._advance().with_rows(self.handle, self.store, int(key[0]), rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        return self._advance().woken(self.handle, self.store, int(key[0]), timerValues)

    def _advance(self) -> Advance:
        if self.unpacked is None:
            found: Advance = cloudpickle.loads(self.packed)
            self.unpacked = found
        return self.unpacked

    def close(self) -> None:
        """Nothing is held beyond a task but chunks a later one may use."""
