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
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

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
    """A stateful step. Instances are frozen dataclasses and pickled to where the rows are."""

    cannot_use: ClassVar[str] = "the step cannot use the row"
    """What is wrong with rows that `late` calls dead."""
    not_kept: ClassVar[tuple[str, ...]] = ()
    """Fields on which what is kept does not depend."""

    def layout(self) -> dict[str, Any]:
        """What the meaning of kept chunks depends on, as JSON values. By default all but the fields of `not_kept`."""
        named = [item.name for item in fields(self) if item.name not in self.not_kept]  # type: ignore[arg-type]
        return {"kernel": type(self).__name__, **{name: _as_json(getattr(self, name)) for name in named}}

    def unfit(self, before: Mapping[str, Any]) -> str | None:
        """Why it cannot go on with chunks of that layout; None if it can, once they are `fitted`."""
        return differing(before, self.layout())

    def fitted(self, number: int, chunk: pa.Table) -> pa.Table:
        """A chunk as this kernel would have kept it; it may be of another layout that is not `unfit`."""
        return chunk

    @property
    def reach(self) -> tuple[int | None, int]:
        """How far before and after its event time rows lie that a result depends on; None: as far as there are any."""
        return None, 0

    @property
    def waits(self) -> bool:
        """Whether a result is given only when the watermark has passed its event time."""
        return False

    @property
    def shown_keys(self) -> tuple[str, ...]:
        """The columns of `shown` that hold the key by which rows meet in a bucket."""
        return ()

    def shown(self, state: State, watermark: int) -> pa.Table:
        """What a bucket keeps, for people: only what may still count, given the watermark of the last advance.

        It does not depend on how rows came and how chunks were cut. Without chunks it has no rows, and all columns.
        """
        raise NotImplementedError(f"{type(self).__name__} does not show what it keeps")

    def own_bucket(self, key: pa.Table, buckets: int) -> int | None:
        """The bucket of a key, one row of the columns `shown_keys`, if it chooses buckets itself; else None."""
        return None

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


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """In words, what two layouts do not have in common; None if they are equal."""
    if before.get("kernel") != after.get("kernel"):
        return "it is computed in another way"
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"its {', '.join(name.replace('_', ' ') for name in names)} changed" if names else None


def columns_of(schema: pa.Schema) -> list[list[str]]:
    """Names and types, as JSON."""
    return [[item.name, str(item.type)] for item in schema]


def _as_json(value: Any) -> Any:
    if isinstance(value, pa.Schema):
        return columns_of(value)
    if isinstance(value, tuple | list):
        return [_as_json(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def with_columns(chunk: pa.Table, schema: pa.Schema) -> pa.Table:
    """The chunk with these columns: one that it lacks is null, and others are left out."""
    if chunk.schema.names == schema.names:
        return chunk
    columns = [
        chunk.column(item.name) if item.name in chunk.schema.names else pa.nulls(chunk.num_rows, item.type)
        for item in schema
    ]
    return pa.table(columns, names=schema.names)


def changed_types(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> str | None:
    """In words, the columns in both that have another type now; None if there are none."""
    old = {str(item[0]): item[1] for item in before}
    found = [f"{old[name]} to {kind}" for name, kind in after if old.get(name, kind) != kind]
    return f"the type of a column changed from {', '.join(dict.fromkeys(found))}" if found else None


def timely(rows: pa.Table) -> Late:
    """Nothing of it is late."""
    return Late(np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, bool))


def late_by_time(rows: pa.Table, watermark: int) -> Late:
    """Rows are late by their own time, each for one result."""
    late = rows.column(TIME).to_numpy() <= watermark
    return Late(late.astype(np.int64), late)
