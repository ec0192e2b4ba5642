"""Data files that Spark's tasks write themselves, each straight to the place where it stays.

No two attempts of a task use the same name, and a file counts only once the driver has heard of it from an attempt
that succeeded. So nothing has to be renamed, and what failed or overtaken attempts leave is never taken for data.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from penstock.components.shared.arrow import in_arrow
from penstock.components.shared.s3 import Access, S3Failed, Trouble, answered, store
from penstock.spec.schema import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FileFormat = Literal["parquet", "json", "csv"]
LARGE = 128 << 20
"""Bytes after which a file is full."""
_ROW_GROUP = 64 << 20
_AT_ONCE = 8
_RECORD = "path string, bytes bigint, rows bigint, partition string, stats string, failure string"
_LINE = "line"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset([*(chr(code) for code in range(1, 32)), *"\"#%'*/:=?\\\x7f{[]^"])


@dataclass(frozen=True)
class Written:
    """A data file that a task has finished."""

    path: str
    """Relative to the root."""
    bytes: int
    rows: int
    partition: dict[str, str | None] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A folder, or a prefix in a bucket; it travels to the tasks."""

    root: str
    access: Access | None = None

    def open(self, name: str) -> Out:
        if self.access is None:
            target = Path(self.root, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            return Out(target.open("xb"))
        import obstore

        return Out(obstore.open_writer(store(self.access), name, max_concurrency=4), self.access)

    def read(self, name: str) -> bytes:
        if self.access is None:
            return Path(self.root, name).read_bytes()
        import obstore

        with answered(self.access):
            return bytes(obstore.get(store(self.access), name).bytes())


class Out:
    """A file on its way; it knows its length."""

    def __init__(self, sink: IO[bytes] | Any, found: Access | None = None) -> None:
        self._sink = sink
        self._found = found
        self.closed = False
        self.bytes = 0

    def write(self, content: Any) -> int:
        size = len(memoryview(content).cast("B"))
        self._run(lambda: self._sink.write(content))
        self.bytes += size
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Parquet asks for it after each part; a file counts as a whole."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._run(self._sink.close)

    def _run(self, action: Any) -> None:
        if self._found is None:
            action()
            return
        with answered(self._found):
            action()


# --- encodings -----------------------------------------------------------------------------------------------


class Encoder(ABC):
    def __init__(self, out: Out) -> None:
        self.out = out
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.encode(rows)

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> None: ...

    def finish(self) -> dict[str, Any]:
        """Ends the file; what is known of its columns."""
        self.out.close()
        return {}


class Lines(Encoder):
    """Text that Spark has made of each row."""

    def __init__(self, out: Out, header: str | None) -> None:
        super().__init__(out)
        if header is not None:
            self.out.write(f"{header}\n".encode())

    def encode(self, rows: pa.RecordBatch) -> None:
        self.out.write("".join(f"{line}\n" for line in rows.column(0).to_pylist()).encode())


class Parquet(Encoder):
    def __init__(self, out: Out, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        super().__init__(out)
        self._writer = pq.ParquetWriter(out, schema, compression="snappy")
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def encode(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._held_bytes = [], 0

    def finish(self) -> dict[str, Any]:
        if self._held:
            self._flush()
        self._writer.close()
        self.out.close()
        return {}


# --- in a task -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """What each task does with its rows; called by Spark's workers. The partition columns come first, as texts."""

    place: Place
    folder: str
    """Below the root; empty for the root itself."""
    format: FileFormat
    partition_by: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """The columns in the files."""
    header: str | None = None
    entropy: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        task = _Task(self, context.partitionId())
        try:
            for batch in batches:
                task.add(batch)
            task.end_file()
        except S3Failed as failed:
            for _ in batches:
                pass
            yield _record(failure=failed)
            return
        for written in task.written:
            yield _record(written)

    def encoder(self, out: Out, schema: pa.Schema) -> Encoder:
        return Parquet(out, schema) if self.format == "parquet" else Lines(out, self.header)

    def path(self, number: int, values: Sequence[str | None]) -> str:
        folders = [partition_folder(*pair) for pair in zip(self.partition_by, values, strict=True)]
        return new_path([self.folder, *folders], number, self.format, self.entropy)


class _Task:
    """One attempt of a task: one file is open at a time, as rows come in the order of their partitions."""

    def __init__(self, writing: Writing, number: int) -> None:
        self.writing = writing
        self.number = number
        self.written: list[Written] = []
        self._open: tuple[str, tuple[str | None, ...], Encoder] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        count = len(self.writing.partition_by)
        rows = batch.select(range(count, batch.num_columns))
        if self.writing.format == "parquet":
            rows = rows.rename_columns(list(self.writing.columns))
        for first, stop, values in runs(batch.columns[:count], batch.num_rows):
            self._encoder(values, rows.schema).add(rows.slice(first, stop - first))

    def _encoder(self, values: tuple[str | None, ...], schema: pa.Schema) -> Encoder:
        if self._open is not None:
            _, current, encoder = self._open
            if current == values and encoder.out.bytes < LARGE:
                return encoder
            self.end_file()
        path = self.writing.path(self.number, values)
        encoder = self.writing.encoder(self.writing.place.open(path), schema)
        self._open = (path, values, encoder)
        return encoder

    def end_file(self) -> None:
        if self._open is None:
            return
        path, values, encoder = self._open
        self._open = None
        stats = encoder.finish()
        partition = dict(zip(self.writing.partition_by, values, strict=True))
        self.written.append(Written(path, encoder.out.bytes, encoder.rows, partition, stats))


def runs(columns: Sequence[pa.Array], rows: int) -> Iterator[tuple[int, int, tuple[str | None, ...]]]:
    """Where rows with the same values begin and end."""
    import numpy as np

    if not rows:
        return
    changed = np.zeros(rows, dtype=bool)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        changed[1:] |= codes[1:] != codes[:-1]
    starts = [0, *np.flatnonzero(changed).tolist()]
    for first, stop in zip(starts, [*starts[1:], rows], strict=True):
        yield first, stop, tuple(column[first].as_py() for column in columns)


def new_path(folders: Sequence[str], number: int, format: FileFormat, entropy: bool) -> str:
    """Where a new file goes; no other has that name."""
    name = f"part-{number:05d}-{uuid.uuid4().hex}.{format}"
    return "/".join(filter(None, [shard(name) if entropy else "", *folders, name]))


def partition_folder(name: str, value: str | None) -> str:
    """`column=value`, as Spark writes and reads it."""
    return f"{_escaped(name)}={_escaped(value) if value else _NO_VALUE}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def shard(name: str) -> str:
    """One of 256 folders, so that an object store spreads what it is asked for over as many places."""
    return f"shard={hashlib.sha256(name.encode()).hexdigest()[:2]}"


@dataclass(frozen=True)
class Group:
    """Files that become one, and the folder of their partition."""

    partition: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Merging:
    """Makes one file of each group, byte by byte or row by row as they are encoded; called by Spark's workers."""

    place: Place
    folder: str
    format: FileFormat
    header: str | None = None
    entropy: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, text in enumerate(batch.column(0).to_pylist()):
                partition, paths = json.loads(text)
                try:
                    yield _record(self._merged(number, Group(partition, tuple(paths))))
                except S3Failed as failed:
                    yield _record(failure=failed)

    def _merged(self, number: int, group: Group) -> Written:
        path = new_path([self.folder, group.partition], number, self.format, self.entropy)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = pool.map(self.place.read, group.paths)
            out = self.place.open(path)
            rows = self._parquet(contents, out) if self.format == "parquet" else self._lines(contents, out)
        return Written(path, out.bytes, rows)

    def _parquet(self, contents: Iterator[bytes], out: Out) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        encoder: Parquet | None = None
        for content in contents:
            table = pq.read_table(pa.BufferReader(content))
            encoder = encoder or Parquet(out, table.schema)
            for rows in table.to_batches():
                encoder.add(rows)
        assert encoder is not None
        encoder.finish()
        return encoder.rows

    def _lines(self, contents: Iterator[bytes], out: Out) -> int:
        first = b"" if self.header is None else f"{self.header}\n".encode()
        out.write(first)
        for content in contents:
            if not content.startswith(first):
                raise ValueError(f"a file does not begin with the columns {self.header}")
            out.write(content[len(first) :])
        out.close()
        return 0


# --- in the driver -------------------------------------------------------------------------------------------


def written(rows: DataFrame, writing: Writing) -> list[Written]:
    """Lets tasks write the rows, and hears which files there are; raises S3Failed."""
    from pyspark.sql import functions as F

    columns = [name for name in rows.columns if name not in writing.partition_by]
    folders = [F.col(quote(name)).cast("string").alias(f"p{i}") for i, name in enumerate(writing.partition_by)]
    prepared = rows.select(*folders, *_content(writing.format, columns))
    if folders:
        prepared = prepared.sortWithinPartitions(*(F.col(f"p{i}") for i in range(len(folders))))
    return _heard(in_arrow(prepared, writing, _RECORD).toArrow())


def merged(spark: SparkSession, groups: Sequence[Group], merging: Merging) -> list[Written]:
    """Lets tasks make one file of each group; raises S3Failed."""
    told = [(json.dumps([group.partition, group.paths]),) for group in groups]
    tasks = min(len(groups), spark.sparkContext.defaultParallelism)
    frame = spark.createDataFrame(told, "files string").repartition(tasks)
    return _heard(in_arrow(frame, merging, _RECORD).toArrow())


def _heard(records: pa.Table) -> list[Written]:
    told = records.to_pylist()
    for record in told:
        if record["failure"] is not None:
            trouble, reason, place = json.loads(record["failure"])
            raise S3Failed(Trouble[trouble], reason, place)
    return [
        Written(item["path"], item["bytes"], item["rows"], json.loads(item["partition"]), json.loads(item["stats"]))
        for item in told
    ]


def _content(format: FileFormat, columns: Sequence[str]) -> list[Any]:
    from pyspark.sql import functions as F

    wanted = [F.col(quote(name)).alias(name) for name in columns]
    if format == "json":
        return [F.to_json(F.struct(*wanted)).alias(_LINE)]
    if format == "csv":
        return [F.to_csv(F.struct(*wanted)).alias(_LINE)]
    return wanted


def header(columns: Sequence[str]) -> str:
    """The first line of a CSV file."""
    return ",".join(_quoted(name) for name in columns)


def _quoted(name: str) -> str:
    special = any(char in name for char in ',"\n\r') or name != name.strip()
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' if special else name


def _record(item: Written | None = None, failure: S3Failed | None = None) -> pa.RecordBatch:
    import pyarrow as pa

    told = None if failure is None else json.dumps([failure.trouble.name, failure.reason, failure.place])
    return pa.record_batch(
        {
            "path": pa.array([item and item.path], pa.string()),
            "bytes": pa.array([item and item.bytes], pa.int64()),
            "rows": pa.array([item and item.rows], pa.int64()),
            "partition": pa.array([item and json.dumps(item.partition)], pa.string()),
            "stats": pa.array([item and json.dumps(item.stats)], pa.string()),
            "failure": pa.array([told], pa.string()),
        }
    )
