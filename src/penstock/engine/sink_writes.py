"""Hands the rows of one batch to several sinks: few rows leave Spark in one job for all, and sinks store side by side.

A Spark job costs some fifty milliseconds whatever it does, so the results of a small batch are fetched together, and an
output without rows needs no job. Each sink still applies the batch once and by itself: nothing depends on which of them
is first, and the batch goes on when all have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.util import inheritable_thread_target

from penstock.components.base import SinkWriter
from penstock.engine.markers import cached_bytes, operations_in
from penstock.spec.schema import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FEW_ROWS = 10_000
FEW_BYTES = 8 << 20
"""What the driver fetches at most, in all outputs of a batch."""
_AT_ONCE = 8
_TAG = "_penstock_sink"
_NO_MORE = {"CollectMetrics", "Filter", "GlobalLimit", "LocalLimit", "Project", "SubqueryAlias", "Union", "View"}
"""Operations that give at most the rows they get."""


@dataclass(frozen=True)
class SinkRows:
    """What one sink gets of a batch."""

    sink: str
    writer: SinkWriter
    rows: DataFrame
    empty: bool
    """Whether it is known to have no rows."""


def _nullable(columns: StructType) -> StructType:
    """The rows of one sink are null among those of another."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(item.name, item.dataType, nullable=True) for item in columns.fields])


def is_few(kept: DataFrame, rows: int) -> bool:
    """Whether a batch that has been computed, and is kept, may come to the driver."""
    if not rows:
        return True
    size = cached_bytes(kept) if rows <= FEW_ROWS else None
    return size is not None and size <= FEW_BYTES


def gives_no_more(frames: Iterable[DataFrame]) -> bool:
    """Whether these frames give at most the rows that the batch has: no join, and nothing taken apart into rows."""
    return all(operations_in(frame) <= _NO_MORE for frame in frames)


class SinkWrites:
    """Fetches what sinks take as tables, and lets them store a batch; one for all batches of a pipeline."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._threads: ThreadPoolExecutor | None = None
        self._kinds: dict[str, StructType] = {}
        """The columns that each sink takes."""
        self._tagged: dict[str, list[Column]] = {}

    # --- fetching -----------------------------------------------------------------------------------------

    def fetch(self, outputs: Sequence[SinkRows]) -> dict[str, pa.Table]:
        """The rows of the sinks that take them as tables, in one job."""
        # The columns of a sink are the same in all batches, so one without rows need not be asked again.
        none = [item.sink for item in outputs if item.empty and item.sink in self._kinds]
        asked = [item for item in outputs if item.sink not in none]
        wanted = {item.sink: table for item in asked if (table := item.writer.as_table(item.rows)) is not None}
        for name, table in wanted.items():
            if name not in self._kinds:
                self._kinds[name] = _nullable(table.schema)
        with_rows = {item.sink: wanted[item.sink] for item in outputs if item.sink in wanted and not item.empty}
        found = {name: self._no_rows(name) for name in [*none, *wanted] if name not in with_rows}
        if len(with_rows) == 1:
            ((name, table),) = with_rows.items()
            return found | {name: table.toArrow()}
        return found | self._fetched_together(with_rows)

    def _no_rows(self, sink: str) -> pa.Table:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._kinds[sink], timezone="UTC").empty_table()

    def _fetched_together(self, frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
        """Rows of different columns in one result: each has its own in a struct, under the number of its sink."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not frames:
            return {}
        parts = [frame.select(*self._columns(name)) for name, frame in frames.items()]
        whole = reduce(lambda left, right: left.union(right), parts).toArrow()
        found = {}
        for number, name in enumerate(self._kinds):
            if name in frames:
                own = whole.column(f"{_TAG}_{number}").filter(pc.equal(whole.column(_TAG), number))
                found[name] = pa.Table.from_arrays(own.combine_chunks().flatten(), names=self._kinds[name].names)
        return found

    def _columns(self, sink: str) -> list[Column]:
        """The columns of a sink as one, beside empty ones for all other sinks."""
        from pyspark.sql import functions as F

        if sink not in self._tagged or len(self._tagged[sink]) != len(self._kinds) + 1:
            own = F.struct(*(F.col(quote(name)) for name in self._kinds[sink].names))
            columns = [F.lit(list(self._kinds).index(sink)).alias(_TAG)]
            for number, (name, kind) in enumerate(self._kinds.items()):
                columns.append((own if name == sink else F.lit(None).cast(kind)).alias(f"{_TAG}_{number}"))
            self._tagged[sink] = columns
        return self._tagged[sink]

    # --- storing ------------------------------------------------------------------------------------------

    def run(self, outputs: Sequence[SinkRows], store: Callable[[SinkRows], int]) -> dict[str, int]:
        """What `store` gives for each sink, once all are done; raises what the first of them raised.

        Sinks store side by side, those of one lane one after the other.
        """
        lanes: dict[str, list[SinkRows]] = {}
        for item in outputs:
            lanes.setdefault(item.writer.lane or f"sink {item.sink}", []).append(item)
        if len(lanes) <= 1:
            return {item.sink: store(item) for item in outputs}
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sinks")

        def store_lane(lane: Sequence[SinkRows]) -> dict[str, int]:
            return {item.sink: store(item) for item in lane}

        # Jobs that sinks start belong to the query, so that they end with it.
        in_thread = inheritable_thread_target(self.spark)(store_lane)
        running = [self._threads.submit(in_thread, lane) for lane in lanes.values()]
        found: dict[str, int] = {}
        for one in _ended(running):
            found |= one.result()
        return {item.sink: found[item.sink] for item in outputs}

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _ended(running: Sequence[Future[dict[str, int]]]) -> Sequence[Future[dict[str, int]]]:
    """All of them, when all have ended: nothing of a batch goes on behind the back of the next one."""
    for one in running:
        one.exception()
    return running
