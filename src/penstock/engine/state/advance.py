"""Advances the kernel of a stateful step by one batch, a bucket at a time, on Spark's state store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine.state.chunks import StoredChunks, decode
from penstock.engine.state.counters import Counters
from penstock.engine.state.pack import micros, watermark_before
from penstock.kernels.base import Kernel, Result

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

_ROWS_OUT = 1 << 17


@dataclass(frozen=True)
class Advance:
    """What a step does with a bucket. `sides` is how many inputs the kernel has."""

    kernel: Kernel
    step: str
    sides: int
    hold: int
    counters: Counters | None

    def with_rows(
        self, handle: StatefulProcessorHandle, store: Any, bucket: int, rows: Iterator[Any], timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        parts: list[list[pa.Table]] = [[] for _ in range(self.sides)]
        for frame in rows:
            for side, data in zip(frame["side"], frame["rows"], strict=True):
                parts[side].append(decode(data))
        chunks = StoredChunks(store, self.step, bucket, fitted=self.kernel.fitted)
        if chunks.index.timer is not None:
            # Were it due, Spark would call a second time for what is done now.
            handle.deleteTimer(chunks.index.timer)
            chunks.index.timer = None
        yield from self._advance(handle, chunks, parts, timer_values)

    def woken(
        self, handle: StatefulProcessorHandle, store: Any, bucket: int, timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        chunks = StoredChunks(store, self.step, bucket, fitted=self.kernel.fitted)
        chunks.index.timer = None
        yield from self._advance(handle, chunks, [[] for _ in range(self.sides)], timer_values)

    def _advance(
        self,
        handle: StatefulProcessorHandle,
        chunks: StoredChunks,
        parts: Sequence[Sequence[pa.Table]],
        timer_values: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        watermark = micros(_watermark(timer_values), self.hold)
        try:
            result = self.kernel.advance(chunks, parts, watermark, watermark_before(self.hold))
        except OverflowError as error:
            raise OverflowError(f"step '{self.step}': {error}") from None
        chunks.save(result.put, result.drop, self._timer(handle, result))
        if result.corrections is not None and result.corrections.num_rows:
            if self.counters is not None:
                self.counters.corrections.add(result.corrections.num_rows)
            yield from as_pandas(result.corrections)
        yield from as_pandas(result.main)

    def _timer(self, handle: StatefulProcessorHandle, result: Result) -> int | None:
        """Sets Spark's timer for when the kernel wants to be woken."""
        if result.wake is None:
            return None
        timer = -(-(result.wake + self.hold) // 1000)
        handle.registerTimer(timer)
        return timer


def _watermark(timer_values: TimerValues) -> int:
    return max(int(timer_values.getCurrentWatermarkInMs()), 0)


@cache
def _frame_class() -> type[pd.DataFrame]:
    """A class of rows whose columns stay as they are; made when first needed, as few processes have use for pandas."""
    import pandas as pd

    class Column(pd.Series):
        """Spark takes nested values apart with `apply`, which would lose NaN and stumble over nulls and maps."""

        def apply(self, *_: Any, **__: Any) -> Any:
            return self

    class Frame(pd.DataFrame):
        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return Frame

        @property
        def _constructor_sliced(self) -> type[pd.Series[Any]]:
            return Column

    return Frame


def as_pandas(rows: pa.Table) -> Iterator[pd.DataFrame]:
    """Rows as Spark takes them: pandas in name, Arrow inside, so that nothing is converted."""
    if not rows.num_rows:
        return
    import pandas as pd

    frame = _frame_class()
    for start in range(0, rows.num_rows, _ROWS_OUT):
        yield frame(rows.slice(start, _ROWS_OUT).combine_chunks().to_pandas(types_mapper=pd.ArrowDtype))
