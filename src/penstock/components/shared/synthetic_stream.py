"""A synthetic stream as a Spark data source: which rows are there by now, and who makes which of them.

Apart from the component, because Spark's workers import these classes by name and the component must not import Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import pyarrow as pa  # noqa: TID253 - imported by the source only when it is read
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition  # noqa: TID253
from pyspark.sql.pandas.types import from_arrow_schema  # noqa: TID253
from pyspark.sql.streaming.datasource import (  # noqa: TID253
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType  # noqa: TID253

from penstock.components.shared.synthetic import MAX_ROWS, Synthetic

FORMAT = "penstock_generator"
BATCH_ROWS = 65_536
"""The most rows of one Arrow batch."""
_TASK_ROWS = 4096
"""A read is not cut into pieces smaller than this: a task costs more than making so few rows."""


@dataclass(frozen=True)
class Plan:
    """What is generated and how it is handed out, as it goes to the workers in one option."""

    stream: Synthetic
    rows: int | None = None
    """None for an endless stream, whose rows appear by the wall clock at the stream's rate."""
    from_first_start: bool = False
    """Whether event time begins when the stream is first started, not at the stream's own start."""
    max_rows_per_batch: int | None = None
    partitions: int = 2

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        values = json.loads(text)
        return cls(**{**values, "stream": Synthetic(**values["stream"])})


@dataclass(frozen=True)
class Position:
    """A place in the stream as Spark's checkpoint keeps it, with what must outlive a restart."""

    row: int
    start_micros: int
    """Event time of row 0, before disorder."""
    clock_micros: int
    """Wall clock at the first start, from which an endless stream is paced."""


@dataclass(frozen=True)
class RowRange(InputPartition):
    first: int
    stop: int
    start_micros: int


def _wall_clock() -> int:
    return time.time_ns() // 1000


class SyntheticReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the length of a query; copies of it read the row ranges in the workers."""

    def __init__(self, plan: Plan, clock: Callable[[], int] = _wall_clock) -> None:
        self._plan = plan
        self._clock = clock
        self._until: int | None = None
        self._seen: Position | None = None

    def initialOffset(self) -> dict[str, int]:
        now = self._now()
        start = now if self._plan.from_first_start else self._plan.stream.start_micros
        return asdict(Position(0, start, now))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._plan.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        # Called before any offset is known, so the moment is kept and not a row number.
        self._until = self._clock()

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        position = Position(**start)
        available = self._available(position)
        row = min(available, position.row + limit.max_rows) if isinstance(limit, ReadMaxRows) else available
        self._seen = replace(position, row=row)
        return asdict(self._seen)

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._seen is None else asdict(replace(self._seen, row=self._available(self._seen)))

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[RowRange]:
        # A first batch that is run again gets a fresh initial offset as its start; the end is as it was recorded.
        first, stop, start_micros = start["row"], end["row"], end["start_micros"]
        pieces = min(self._plan.partitions, -(-(stop - first) // _TASK_ROWS))
        cuts = [first + (stop - first) * piece // pieces for piece in range(pieces + 1)] if pieces > 0 else []
        return [RowRange(low, high, start_micros) for low, high in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RowRange):
            raise TypeError(f"{type(partition).__name__} is not a range of rows")
        stream = replace(self._plan.stream, start_micros=partition.start_micros)
        for first in range(partition.first, partition.stop, BATCH_ROWS):
            yield stream.batch(first, min(first + BATCH_ROWS, partition.stop))

    def _now(self) -> int:
        return self._clock() if self._until is None else self._until

    def _available(self, position: Position) -> int:
        """How many rows there are by now, never less than have been read."""
        if self._plan.rows is not None:
            return max(position.row, self._plan.rows)
        # Row 0 is there at once. Else a first run until "now" would read nothing, and Spark would not record its start.
        elapsed = self._now() - position.clock_micros
        return max(position.row, min(int(elapsed * self._plan.stream.rate / 1e6) + 1, MAX_ROWS))


class SyntheticSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self._plan().stream.schema)

    def streamReader(self, schema: StructType) -> SyntheticReader:
        return SyntheticReader(self._plan())

    def _plan(self) -> Plan:
        return Plan.from_json(self.options["plan"])
