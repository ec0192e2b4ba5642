"""What a kernel is: a stateful step as pure functions over Arrow columns, with no Spark inside.

A kernel is carried by the engine, bucket by bucket: rows with the same keys always meet in the same bucket. In each
batch the engine calls `prepare` where rows are read (before they are shuffled), sends the results to their buckets,
and calls `advance` there with the bucket's state. State is a set of numbered chunks, each an Arrow table; only the
chunks an advance names are written, so a kernel keeps what does not change in chunks of its own.

Times are event times in microseconds since 1970, as int64. Watermarks are event times too: a row with `time <=
watermark` of the batch before is late. An advance is told the watermark of its own batch, which is what results are
closed by: all rows up to that time are there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

TIME = "_time"
"""The column of a row's event time in what `prepare` and `late` get: int64 microseconds, never null."""
BUCKET = "_bucket"
"""The column that says to which bucket a row belongs: int32. It must be kept by `prepare`, and is gone in `advance`."""
NO_WATERMARK = -(1 << 62)
"""The watermark before there is one."""

State = Mapping[int, pa.Table]
"""The chunks of a bucket by number. Reading one may cost a round trip; asking which there are costs nothing."""


@dataclass(frozen=True)
class Late:
    """What came too late among rows."""

    missed: np.ndarray
    """For each row, how many results it was too late for (int64); 0 for timely rows."""
    dropped: np.ndarray
    """For each row, whether it goes no further (bool): it is too late for all it could still change, or dead."""
    dead: np.ndarray | None = None
    """For each row, whether it cannot be used at all (bool); None if all can."""


@dataclass(frozen=True)
class Result:
    """What an advance gives: rows by tag, and what changes in the state."""

    main: pa.Table
    """Rows of the step, in the kernel's output schema."""
    corrections: pa.Table | None = None
    """Rows that replace ones given earlier, in the same schema."""
    put: Mapping[int, pa.Table] = field(default_factory=dict)
    """Chunks to write, whole. Nothing else is written."""
    drop: Sequence[int] = ()
    """Chunks to remove."""
    wake: int | None = None
    """The least watermark at which an advance without rows would give or remove something; None if none would."""


class Kernel(ABC):
    """A stateful step. Instances are frozen and pickled to where the rows are."""

    cannot_use: ClassVar[str] = "the step cannot use the row"
    """What is wrong with rows that `late` calls dead."""

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """The columns of `Result.main`."""

    @abstractmethod
    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        """Which rows of an input come too late, given the watermark of the batch before."""

    def prepare(self, side: int, rows: pa.Table) -> pa.Table:
        """What is sent to the buckets for rows of an input; combining here saves traffic. Keeps `BUCKET`."""
        return rows

    @abstractmethod
    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        """One step of a bucket: `rows[side]` are the prepared tables of this batch for each input, maybe none.

        `before` is the watermark by which the rows were judged, that of the batch before: a bucket that had nothing to
        do for a while cannot know it. Must not depend on the order of tables and of rows in them.
        """


def timely(rows: pa.Table) -> Late:
    """Nothing of it is late."""
    return Late(np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, bool))


def late_by_time(rows: pa.Table, watermark: int) -> Late:
    """Rows are late by their own time, each for one result."""
    late = rows.column(TIME).to_numpy() <= watermark
    return Late(late.astype(np.int64), late)
