"""How rows become data files of a folder: by Spark's own writer, or, in an object store, by tasks that write directly.

Spark's writer renames files into place when a task has succeeded. That is quick and right on a file system; in an
object store it would copy every byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.access.limits import check_files
from penstock.components.shared.file_output import FileFormat
from penstock.components.shared.manifests import File, packed
from penstock.components.shared.place import Place
from penstock.components.shared.storage import LocalStorage, S3Storage, Storage, StoredFile
from penstock.components.shared.task_files import (
    LARGE,
    Group,
    Merging,
    Writing,
    header,
    merged,
    shard,
    written,
)
from penstock.spec.schema import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Schema = dict[str, Any]
"""Columns and their types in Spark's own words."""

_MAYBE_EMPTY = 64 * 1024
"""Only a file smaller than this is opened to see whether it holds rows at all."""


@dataclass(frozen=True)
class Layout:
    """How files are encoded and where they lie."""

    format: FileFormat
    partition_by: tuple[str, ...]
    entropy: bool


class DataFiles(Protocol):
    def write(self, rows: DataFrame, folder: str) -> list[File]:
        """Writes rows into a folder that only this run uses; the files that hold them, and no others."""

    def discard(self, folder: str) -> None:
        """Removes what a write that has failed may have left."""

    def merge(self, files: Sequence[File], schema: Schema, folder: str) -> list[File]:
        """Writes the rows of small files, all with the same columns, into few larger ones."""


def data_files(root: str, store: Storage, layout: Layout, spark: SparkSession) -> DataFiles:
    if isinstance(store, S3Storage):
        return TaskFiles(store, layout, spark)
    return SparkFiles(root, store, layout, spark)


def frame(spark: SparkSession, root: str, format: str, schema: Schema, files: Sequence[str], mode: str) -> DataFrame:
    """The rows of some files. `mode` is Spark's: what becomes of lines that do not fit."""
    from pyspark.sql.types import StructType

    # Neither JSON nor CSV nor the names of folders tell types and order of columns.
    reader = spark.read.option("basePath", root).schema(StructType.fromJson(schema)).option("mode", mode)
    if format == "csv":
        # With this, an empty text that was quoted is not taken for null.
        reader = reader.options(header="true", multiLine="true", nullValue="\0")
    paths = [f"{root}/{file}" for file in files]
    check_files(paths, "a manifest")
    rows = reader.format(format).load(paths)
    return rows.select(*(quote(field["name"]) for field in schema["fields"]))


class TaskFiles:
    def __init__(self, store: S3Storage, layout: Layout, spark: SparkSession) -> None:
        self.store = store
        self.layout = layout
        self.spark = spark
        self.place = Place("", store.access)

    def _header(self, columns: Sequence[str]) -> str | None:
        return header(columns) if self.layout.format == "csv" else None

    def write(self, rows: DataFrame, folder: str) -> list[File]:
        layout = self.layout
        columns = tuple(name for name in rows.columns if name not in layout.partition_by)
        first = self._header(columns)
        writing = Writing(self.place, folder, layout.format, layout.partition_by, columns, first, layout.entropy)
        return [File(file.path, file.bytes) for file in written(rows, writing)]

    def merge(self, files: Sequence[File], schema: Schema, folder: str) -> list[File]:
        layout = self.layout
        columns = [field["name"] for field in schema["fields"] if field["name"] not in layout.partition_by]
        merging = Merging(self.place, folder, layout.format, self._header(columns), layout.entropy)
        groups = [Group(partition, tuple(file.path for file in some)) for partition, some in packed(files, LARGE)]
        return [File(file.path, file.bytes) for file in merged(self.spark, groups, merging)]

    def discard(self, folder: str) -> None:
        # Spread files would have to be looked for in all of the store; they are swept up later.
        if not self.layout.entropy:
            self.store.delete([file.path for file in self.store.files(folder)])


class SparkFiles:
    def __init__(self, root: str, store: Storage, layout: Layout, spark: SparkSession) -> None:
        self.root = root
        self.store = store
        self.layout = layout
        self.spark = spark

    def _place(self, folder: str) -> str:
        return f"{shard(folder)}/{folder}" if self.layout.entropy else folder

    def write(self, rows: DataFrame, folder: str) -> list[File]:
        place = self._place(folder)
        before = {file.path for file in self.store.files(place)}
        writer = rows.write.mode("append").format(self.layout.format)
        if self.layout.format == "csv":
            writer = writer.option("header", "true")
        if not isinstance(self.store, LocalStorage):
            # On a cluster an attempt can die while it moves its files; this way none of them is left among the others.
            writer = writer.option("mapreduce.fileoutputcommitter.algorithm.version", "1")
        if self.layout.partition_by:
            writer = writer.partitionBy(*self.layout.partition_by)
        writer.save(f"{self.root}/{place}")
        found = [file for file in self.store.files(place) if file.path not in before]
        kept = [File(file.path, file.bytes) for file in found if not self._drop_if_empty(file)]
        if isinstance(self.store, LocalStorage):
            self.store.sync([file.path for file in kept])
        return kept

    def discard(self, folder: str) -> None:
        self.store.delete([file.path for file in self.store.files(self._place(folder))])

    def merge(self, files: Sequence[File], schema: Schema, folder: str) -> list[File]:
        session = self.spark.newSession()
        # Spark would start a job of its own to look at more files than this.
        session.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", str(len(files)))
        paths = [file.path for file in files]
        rows = frame(session, self.root, self.layout.format, schema, paths, "FAILFAST")
        count = max(1, math.ceil(sum(file.bytes for file in files) / LARGE))
        if self.layout.partition_by:
            return self.write(rows.repartition(count, *map(quote, self.layout.partition_by)), folder)
        return self.write(rows.coalesce(count), folder)

    def _drop_if_empty(self, file: StoredFile) -> bool:
        """Spark leaves one file without rows for an empty batch."""
        empty = file.bytes == 0
        if not empty and file.bytes < _MAYBE_EMPTY:
            if self.layout.format == "parquet":
                empty = isinstance(self.store, LocalStorage) and _parquet_rows(self.store, file) == 0
            elif self.layout.format == "csv":
                header_only = (self.store.read(file.path) or "").rstrip("\n")
                empty = "\n" not in header_only
        if empty:
            self.store.delete([file.path])
        return empty


def _parquet_rows(store: LocalStorage, file: StoredFile) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.read_metadata(store.root / file.path).num_rows)
