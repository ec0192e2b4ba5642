"""A Delta table as a Spark data source: its versions are looked for in the driver, its files are read by tasks.

Apart from the component, because Spark's workers import these classes by name and the component must not import Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa  # noqa: TID253 - imported by the source only when it is read
import pyarrow.compute as pc  # noqa: TID253
import pyarrow.parquet as pq  # noqa: TID253
from pyspark.sql.datasource import (  # noqa: TID253
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: TID253
from pyspark.sql.streaming.datasource import (  # noqa: TID253
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType  # noqa: TID253

from penstock.components.shared.delta_log import (
    Commit,
    DataFile,
    Position,
    Stretch,
    Unreadable,
    advanced,
    between,
    commit_name,
    cut,
    parse,
    relative,
)
from penstock.components.shared.delta_table import Location, telling
from penstock.components.shared.place import Place
from penstock.components.shared.s3 import Access, S3Failed
from penstock.components.shared.source_errors import SourceError
from penstock.errors import PenstockError, Problem

FORMAT = "penstock_delta"
SETTINGS = "secret_settings"
"""The option with everything a reader needs. By its name Spark keeps its value out of plans and logs."""
_PIECE_ROWS = 500_000
_AT_ONCE = 65_536


@dataclass(frozen=True)
class Settings:
    """What is read and how, as it goes to the workers in one option."""

    node: str
    path: str
    table: str
    """The table's own identity: one that was made anew has another."""
    schema: Mapping[str, Any]
    start: str = "earliest"
    """`earliest`, `latest`, or a version."""
    max_rows_per_batch: int | None = None
    skip_changes: bool = False
    access: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**json.loads(text))

    @property
    def location(self) -> Location:
        return Location(self.path, None if self.access is None else Access(**self.access))

    @property
    def spark_schema(self) -> StructType:
        return StructType.fromJson(dict(self.schema))


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads."""

    stretch: Stretch


@contextmanager
def _told(settings: Settings) -> Iterator[None]:
    """Passes what goes wrong on to the engine, which hears only texts of Spark."""
    try:
        with telling(settings.location, settings.node, reading=True):
            yield
    except S3Failed as failed:
        raise SourceError(failed.told(settings.node, reading=True).problems[0]) from None
    except Unreadable as error:
        params = {"node": settings.node, "reason": str(error), "advice": "Read it with another tool."}
        raise SourceError(Problem("SOURCE_FAILED", params)) from None
    except PenstockError as error:
        raise SourceError(error.problems[0]) from None


class TableFiles:
    """Which files a table has and had; asked for in the driver."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.place = settings.location.place

    def latest(self) -> int:
        """The newest version."""
        table = self.settings.location.load()
        self.refuse_other(str(table.metadata().id))
        return int(table.version())

    def refuse_other(self, table: str) -> None:
        """Refuses a table that is not the one that was read before."""
        if table != self.settings.table:
            raise self._failed("the table was made anew since it was last read")

    def commit(self, version: int) -> Commit | None:
        try:
            text = self.place.read(commit_name(version)).decode()
        except FileNotFoundError:
            return None
        found = parse(text)
        return replace(found, files=tuple(self._counted(file) for file in found.files))

    def snapshot(self, version: int) -> tuple[DataFile, ...]:
        """The files the table had at a version, always in the same order."""
        table = self.settings.location.load(version)
        if pa.table(table.deletion_vectors()).num_rows:
            raise Unreadable("its files have rows that are marked as deleted (deletion vectors)")
        found = pa.table(table.get_add_actions(flatten=True))
        partitions = [name for name in found.column_names if name.startswith("partition.")]
        needed = [name for name in ("path", "size_bytes", "num_records") if name in found.column_names]
        files = [
            DataFile(
                relative(row["path"]), row["size_bytes"], row.get("num_records"),
                {name.removeprefix("partition."): row[name] for name in partitions},
            )
            for row in found.select([*needed, *partitions]).to_pylist()
        ]  # fmt: skip
        return tuple(self._counted(file) for file in sorted(files, key=lambda file: file.path))

    def _counted(self, file: DataFile) -> DataFile:
        """Not every writer says in the log how many rows a file has; the file itself does."""
        if file.rows is not None:
            return file
        with self.place.seekable(file.path, file.bytes) as content:
            return replace(file, rows=pq.ParquetFile(content).metadata.num_rows)

    def _failed(self, reason: str) -> PenstockError:
        advice = "Start anew with another `--state-dir` and another output."
        return PenstockError.of("SOURCE_FAILED", node=self.settings.node, reason=reason, advice=advice)

    def refuse_lost(self, version: int) -> None:
        """Refuses to wait for a version that will not come, because it is no longer in the log."""
        latest = self.latest()
        if latest >= version:
            raise self._failed(f"version {version} is no longer in its log, which goes to {latest}")
        if latest < version - 1:
            raise self._failed(f"its log ends with version {latest}, and {version - 1} was read before")


@dataclass(frozen=True)
class _Offset:
    """As Spark's checkpoint keeps it. `first` is where the first run began: a first batch that is run again begins
    there. `table` is the identity of the table that was read."""

    at: Position
    first: Position
    table: str
    fresh: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> _Offset:
        return cls(Position(**stored["at"]), Position(**stored["first"]), stored["table"], stored["fresh"])


@dataclass
class _Seen:
    """What was looked up, so that it is not asked for with every batch."""

    commits: dict[int, Commit] = field(default_factory=dict)
    snapshots: dict[int, tuple[DataFile, ...]] = field(default_factory=dict)
    waited: set[int] = field(default_factory=set)
    """Versions that are known to come yet."""


class DeltaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the length of a query; copies of it read files in the workers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._seen = _Seen()
        self._until: int | None = None
        self._bounded = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": _Seen()}

    # --- in the driver -----------------------------------------------------------------------------------

    @property
    def files(self) -> TableFiles:
        return TableFiles(self.settings)

    def initialOffset(self) -> dict[str, Any]:
        with _told(self.settings):
            first = self._first()
        return _Offset(first, first, self.settings.table, fresh=True).to_json()

    def _first(self) -> Position:
        start = self.settings.start
        if start == "earliest":
            return Position(self.files.latest(), snapshot=True)
        return Position(self.files.latest() + 1 if start == "latest" else int(start))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.settings.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._bounded = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offset = _Offset.of(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with _told(self.settings):
            self.files.refuse_other(offset.table)
            if self._bounded and self._until is None:
                self._until = self.files.latest()
            end = advanced(offset.at, self._files_at, most)
            if end == offset.at:
                self._refuse_changes(end)
        self._forget(end)
        return _Offset(end, offset.first, offset.table).to_json()

    def _files_at(self, place: Position) -> Sequence[DataFile] | None:
        """The files of a version; none if it is not there yet, or has to be looked at before anybody goes on."""
        if place.snapshot:
            if place.version not in self._seen.snapshots:
                self._seen.snapshots[place.version] = self.files.snapshot(place.version)
            return self._seen.snapshots[place.version]
        found = self._commit(place.version)
        if found is None or not found.changes:
            return None if found is None else found.files
        return () if self.settings.skip_changes else None

    def _commit(self, version: int) -> Commit | None:
        if self._until is not None and version > self._until:
            return None
        if version not in self._seen.commits:
            found = self.files.commit(version)
            if found is None:
                if version not in self._seen.waited:
                    self.files.refuse_lost(version)
                    self._seen.waited.add(version)
                return None
            self._seen.commits[version] = found
        return self._seen.commits[version]

    def _refuse_changes(self, place: Position) -> None:
        """Stops before a version that takes rows away, once all before it has been read."""
        found = None if place.snapshot else self._commit(place.version)
        if found is not None and found.changes and not self.settings.skip_changes:
            params = {"node": self.settings.node, "version": place.version, "path": self.settings.path}
            raise SourceError(Problem("SOURCE_CHANGED", params))

    def _forget(self, end: Position) -> None:
        """Versions before the last one are not asked for again, but by a batch that is run again."""
        for seen in (self._seen.commits, self._seen.snapshots):
            for version in [version for version in seen if version < end.version - 1]:
                seen.pop(version)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Piece]:
        begin, stop = _Offset.of(start), _Offset.of(end)
        # A first batch that is run again gets a new idea of where to begin; the end remembers the first one.
        first = stop.first if begin.fresh else begin.at
        with _told(self.settings):
            self.files.refuse_other(stop.table)
            found = list(between(first, stop.at, self._files_at))
        return [Piece(piece) for stretch in found for piece in cut(stretch, _PIECE_ROWS)]

    # --- in a worker -------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.settings, partition)


class DeltaSnapshot(DataSourceReader):
    """All that a table holds now."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        files = TableFiles(self.settings)
        with _told(self.settings):
            found = files.snapshot(files.latest())
        return [Piece(piece) for file in found for piece in cut(Stretch(file, 0, file.rows or 0), _PIECE_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.settings, partition)


# --- rows ----------------------------------------------------------------------------------------------------


def rows_of(settings: Settings, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Piece):
        raise TypeError(f"{type(partition).__name__} is not a piece of a table")
    schema, stretch = _arrow_schema(json.dumps(settings.schema)), partition.stretch
    with _told(settings):
        for rows in _stored(settings.location.place, stretch):
            yield _fitted(rows, schema, stretch.file.values)


@lru_cache(maxsize=16)
def _arrow_schema(schema: str) -> pa.Schema:
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")


def _stored(place: Place, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch as the file has them; row groups before and after it are not read."""
    with place.seekable(stretch.file.path, stretch.file.bytes) as content:
        file = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
        begin = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if begin < stretch.stop and begin + count > stretch.first:
                at = begin
                for batch in file.iter_batches(_AT_ONCE, row_groups=[group]):
                    first, stop = max(stretch.first - at, 0), min(stretch.stop - at, batch.num_rows)
                    if stop > first:
                        yield batch.slice(first, stop - first)
                    at += batch.num_rows
            begin += count


def _fitted(rows: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows with the columns of the table: those of the partition filled in, those the file is older than null."""
    columns = []
    for wanted in schema:
        if wanted.name in values:
            columns.append(pa.repeat(constant(values[wanted.name], wanted.type), rows.num_rows))
        elif wanted.name in rows.schema.names:
            columns.append(rows.column(wanted.name).cast(wanted.type))
        else:
            columns.append(pa.nulls(rows.num_rows, wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def constant(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value of a partition column: a text as the log has it, or the value itself."""
    if value is None or value == "":
        return pa.scalar(None, kind)
    if not isinstance(value, str) or pa.types.is_string(kind):
        return pa.scalar(value, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        text = value.removesuffix("Z").replace("T", " ")
        return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp("us")), "UTC").cast(kind)
    if pa.types.is_binary(kind):
        return pa.scalar(value.encode(), kind)
    return pa.scalar(value).cast(kind)


class DeltaTables(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return self._settings().spark_schema

    def reader(self, schema: StructType) -> DeltaSnapshot:
        return DeltaSnapshot(self._settings())

    def streamReader(self, schema: StructType) -> DeltaReader:
        return DeltaReader(self._settings())

    def _settings(self) -> Settings:
        return Settings.from_json(self.options[SETTINGS])
