"""Files in a folder, all or nothing per batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.components.base import Batch, Sink, SinkContext, SinkWriter, resolve_path
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.storage import LocalStorage, Storage, StoredFile, storage
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFESTS = "_penstock/batches"
OWNER = "_penstock/owner.json"
FOLDERS = ("batch", "epoch")
"""Columns that the folders of the output stand for when it is read as a whole."""
_MAYBE_EMPTY = 64 * 1024
"""Only a file smaller than this is opened to see whether it holds rows at all."""


class Files(Sink):
    """Writes each batch into a folder of its own (`batch=000000000042/epoch=1/`), exactly once.

    The data files are written first and one small manifest last, so a batch is there as a whole or not at all, and
    the output folder can be moved or copied. `penstock.read_files(spark, path)` reads whole batches only;
    `spark.read.parquet(path)` works too and shows the numbers of batch and run as columns.
    """

    name: ClassVar[str] = "files"
    guarantee: ClassVar[str] = (
        "Exactly once for readers that go by the manifests, as `penstock.read_files` does: a batch is there when its "
        "manifest is."
    )
    example: ClassVar[str] = """\
from: views
files: {path: ./out, format: parquet, partitionBy: [country]}
"""

    path: str = field(
        doc="Folder to write to, relative to the pipeline file; any URI Spark writes.",
        change=Change.LOSES_STATE, min_length=1,
    )  # fmt: skip
    format: Literal["parquet", "json", "csv"] = field("parquet", doc="How the files are encoded.")
    partition_by: tuple[str, ...] = field((), doc="Columns whose values become folders, `column=value/`.")

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        for column in self.partition_by:
            if column not in columns:
                hint = did_you_mean(column, columns)
                yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})
        for column, kind in columns.items():
            if self.format == "csv" and kind.startswith(("array", "map", "struct", "variant")):
                params = {"node": node, "component": "files as csv", "column": column, "type": kind}
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": "Use parquet or json, or to_json(column)."})
        for column in FOLDERS:
            if column not in columns:
                continue
            params = {"node": node, "component": "files", "column": column, "type": columns[column]}
            advice = f"`{column}` names a folder of the output; rename the column with a `select` step."
            yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": advice})

    def open(self, context: SinkContext) -> SinkWriter:
        root = resolve_path(context.folder, self.path)
        return _FilesWriter(self, root, storage(root, context.spark), context)


class _FilesWriter(SinkWriter):
    def __init__(self, sink: Files, root: str, store: Storage, context: SinkContext) -> None:
        self.sink = sink
        self.root = root
        self.store = store
        self.node = context.node
        self._take_over(context)
        self.last = self._last_batch()
        self._remove_leftovers()

    def _take_over(self, context: SinkContext) -> None:
        """Refuses output that other state has written, then fences out older runs of this state."""
        owner = self._owner()
        if owner and owner["lineage"] != context.lineage:
            if self.store.names(MANIFESTS):
                raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=self.root)
        else:
            self._refuse_if_fenced(context.lineage, context.epoch)
        mine = {"pipeline": context.pipeline, "sink": self.node, "lineage": context.lineage, "epoch": context.epoch}
        self.store.write(OWNER, json.dumps(mine))

    def _owner(self) -> dict[str, Any]:
        text = self.store.read(OWNER)
        return json.loads(text) if text else {}

    def _refuse_if_fenced(self, lineage: str, epoch: int) -> None:
        owner = self._owner()
        newer = owner.get("epoch", 0) if owner.get("lineage", lineage) == lineage else "of another state"
        if isinstance(newer, str) or newer > epoch:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=epoch)

    def _last_batch(self) -> int:
        return max((int(name.removesuffix(".json")) for name in self.store.names(MANIFESTS)), default=-1)

    def _remove_leftovers(self) -> None:
        """What earlier runs wrote and did not commit: all of later batches, and other runs' part of the last."""
        kept = self._committed_folder(self.last)
        for batch in self.store.names(""):
            if not batch.startswith("batch=") or int(batch.removeprefix("batch=")) < self.last:
                continue
            for name in self.store.names(batch):
                if f"{batch}/{name}" != kept:
                    self.store.delete(f"{batch}/{name}")

    def _committed_folder(self, batch: int) -> str | None:
        manifest = self.store.read(f"{MANIFESTS}/{batch:012d}.json")
        return f"batch={batch:012d}/epoch={json.loads(manifest)['epoch']}" if manifest else None

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        if batch.id <= self.last:
            return False
        self._refuse_if_fenced(batch.lineage, batch.epoch)
        # Each run writes into a folder of its own: one that was overtaken without noticing it spoils nothing.
        folder = f"batch={batch.id:012d}/epoch={batch.epoch}"
        writer = rows.write.mode("overwrite").format(self.sink.format)
        if self.sink.format == "csv":
            writer = writer.option("header", "true")
        if self.sink.partition_by:
            writer = writer.partitionBy(*self.sink.partition_by)
        writer.save(f"{self.root}/{folder}")
        reach("sink.in_transaction", batch.id)
        self._commit(batch, folder, rows.schema.jsonValue())
        return True

    def _commit(self, batch: Batch, folder: str, schema: dict[str, Any]) -> None:
        files = [file for file in self.store.files(folder) if not self._drop_if_empty(file)]
        if not files:
            self.store.delete(folder.split("/")[0])
            return
        self._refuse_if_fenced(batch.lineage, batch.epoch)
        manifest = {
            "pipeline": batch.pipeline,
            "lineage": batch.lineage,
            "epoch": batch.epoch,
            "batch": batch.id,
            "format": self.sink.format,
            "schema": schema,
            "files": [{"path": file.path, "bytes": file.bytes} for file in files],
        }
        self.store.write(f"{MANIFESTS}/{batch.id:012d}.json", json.dumps(manifest))
        self.last = batch.id

    def _drop_if_empty(self, file: StoredFile) -> bool:
        """Spark leaves one file without rows for an empty batch."""
        empty = file.bytes == 0
        if not empty and file.bytes < _MAYBE_EMPTY:
            if self.sink.format == "parquet":
                empty = isinstance(self.store, LocalStorage) and _parquet_rows(self.store, file) == 0
            elif self.sink.format == "csv":
                header_only = (self.store.read(file.path) or "").rstrip("\n")
                empty = "\n" not in header_only
        if empty:
            self.store.delete(file.path)
        return empty


def _parquet_rows(store: LocalStorage, file: StoredFile) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.read_metadata(store.root / file.path).num_rows)


def read_files(spark: SparkSession, path: str) -> DataFrame:
    """The rows a `files` sink has committed, whole batches only, as a DataFrame."""
    store = storage(path, spark)
    manifests = [json.loads(store.read(f"{MANIFESTS}/{name}") or "{}") for name in store.names(MANIFESTS)]
    if not manifests:
        raise PenstockError.of("PATH_NOT_FOUND", where="output of a files sink", path=path)
    newest = manifests[-1]
    reader = spark.read.option("basePath", path)
    if "schema" in newest:
        from pyspark.sql.types import StructType

        # Neither JSON nor CSV nor the names of folders tell types and order of columns.
        reader = reader.schema(StructType.fromJson(newest["schema"]))
    if newest["format"] == "csv":
        reader = reader.options(header="true", multiLine="true")
    files = [f"{path}/{file['path']}" for manifest in manifests for file in manifest["files"]]
    return reader.format(newest["format"]).load(files).drop(*FOLDERS)
