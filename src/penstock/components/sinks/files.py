"""Files in a folder or an object store, all or nothing per batch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import (
    Batch,
    CheckContext,
    Part,
    Sink,
    SinkContext,
    SinkWriter,
    Times,
    cannot_rewind,
    resolve_path,
)  # fmt: skip
from penstock.components.shared.checksum import Content, spark_sum
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.data_files import Layout, data_files, frame
from penstock.components.shared.file_output import FileFormat
from penstock.components.shared.going_back import (
    Gone,
    pin_for,
    pin_path,
    pinned_files,
    planned,
    read_each,
    read_manifests,
    read_pins,
    read_timeline,
    settle,
    up_to,
    write_pin,
    write_timeline,
)  # fmt: skip
from penstock.components.shared.manifests import (
    FOLDER,
    Cover,
    File,
    Manifest,
    Span,
    due,
    merged,
    spans,
    to_rewrite,
    visible,
    written_for,
)
from penstock.components.shared.s3 import REACHED, S3, S3Failed
from penstock.components.shared.storage import LocalStorage, Storage, storage
from penstock.components.shared.task_files import LARGE
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import quote
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWNER = "_penstock/owner.json"
_SWEPT = "_penstock/swept.json"
FOLDERS = ("shard", "batch", "epoch")
"""Columns that the folders of the output stand for when it is read as a whole."""
_LISTED = 600
"""Seconds for which a reader may go by a list of manifests; then those that were merged are removed."""
_AT_ONCE = 16


class Files(Sink):
    """Writes each batch into files of its own, exactly once.

    The data files are written first and one small manifest last, so a batch is there as a whole or not at all, and
    the output can be moved or copied. `penstock.read_files(spark, path)` reads whole batches only. In an object store
    nothing is renamed or copied, and `entropy` spreads the files over many prefixes.

    Small files of many batches are merged into larger ones, which a reader does not notice: the files that were
    merged stay for the time of `keep`. So do files of runs that ended before their batch was stored. Only the
    manifests in `_penstock/batches` tell which files count; a manifest for several batches stands in for all of them.

    A pipeline can go back to a savepoint: what was written since then counts no more from one moment to the next, and
    is removed after the time of `keep`. Files that a savepoint counts on stay as long as the savepoint does.
    """

    name: ClassVar[str] = "files"
    read_with_spark: ClassVar[bool] = True
    own_s3: ClassVar[bool] = True
    guarantee: ClassVar[str] = (
        "Exactly once for readers that go by the manifests, as `penstock.read_files` does: a batch is there when its "
        "manifest is."
    )
    example: ClassVar[str] = """\
from: views
files: {path: "s3a://lake/views", partitionBy: [country], entropy: true}
"""

    path: str = field(
        holds=Holds.PATH,
        doc="Folder to write to, relative to the pipeline file; `s3a://bucket/folder`; or any other URI Spark writes.",
        change=Change.LOSES_STATE, min_length=1,
    )  # fmt: skip
    format: FileFormat = field("parquet", doc="How the files are encoded.")
    partition_by: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns whose values become folders, `column=value/`."
    )
    entropy: bool = field(
        False, doc="Whether files are spread over 256 prefixes `shard=…/`, so that an object store does not slow down."
    )
    compact: int | None = field(
        100, ge=2, doc="After how many batches their small files are merged into larger ones; null for never."
    )
    keep: Duration = field(
        Duration(86_400_000), doc="For how long files stay that have been merged, or that belong to no batch."
    )
    s3: S3 = field(S3(), doc=REACHED)

    @property
    def folders(self) -> tuple[str, ...]:
        return FOLDERS if self.entropy else FOLDERS[1:]

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from self.s3.problems(self.path, context.node)
        if self.path.startswith("s3://"):
            where, reason = f"path of '{context.node}'", "Spark reads object stores as s3a://"
            advice = f"Write s3a://{self.path[5:]}."
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": reason, "advice": advice}, at=("path",))

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        for column in self.partition_by:
            if column not in columns:
                hint = did_you_mean(column, columns)
                yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})
        for column, kind in columns.items():
            if self.format == "csv" and kind.startswith(("array", "map", "struct", "variant")):
                params = {"node": node, "component": "files as csv", "column": column, "type": kind}
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": "Use parquet or json, or to_json(column)."})
        for column in self.folders:
            if column not in columns:
                continue
            params = {"node": node, "component": "files", "column": column, "type": columns[column]}
            advice = f"`{column}` names a folder of the output; rename the column with a `select` step."
            yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": advice})

    def content(self, context: SinkContext, columns: Sequence[str]) -> Content:
        from pyspark.sql import functions as F

        rows = read_files(context.spark, resolve_path(context.folder, self.path), self.s3)
        (found,) = rows.agg(F.count(F.lit(1)).alias("rows"), spark_sum(columns)).collect()
        return Content(int(found["rows"]), int(found["checksum"]))

    def rows_between(self, context: SinkContext, columns: Sequence[str], part: Part) -> list[tuple[Any, ...]] | None:
        root = resolve_path(context.folder, self.path)
        store = storage(root, context.spark, self.s3)
        found = [manifest for manifest in read_manifests(store) if manifest.span.last > part.after]
        if any(manifest.span.first <= part.until < manifest.span.last for manifest in found):
            return None
        found = [manifest for manifest in found if manifest.span.last <= part.until]
        # Some may have been merged with what was there before.
        merged = [manifest.span for manifest in found if manifest.span.first <= part.after]
        before = [span for span in visible(spans(part.position.get("manifests", ()))) if span.last <= part.after]
        known = read_each(store, [span for span in before if any(by.covers(span) for by in merged)])
        if not found:
            return []
        rows = _rows_of(context.spark, root, found).select(*map(quote, columns))
        if known:
            rows = rows.exceptAll(_rows_of(context.spark, root, [*known.values()]).select(*map(quote, columns)))
        return _values(rows)

    def rows_within(self, context: SinkContext, columns: Sequence[str], times: Times | None) -> list[tuple[Any, ...]]:
        from pyspark.sql import functions as F

        rows = read_files(context.spark, resolve_path(context.folder, self.path), self.s3)
        if times is not None:
            time = F.col(quote(times.column))
            rows = rows.where((time > F.lit(times.after)) & (time <= F.lit(times.until)))
        return _values(rows.select(*map(quote, columns)))

    def open(self, context: SinkContext) -> SinkWriter:
        root = resolve_path(context.folder, self.path)
        try:
            return FilesWriter(self, root, storage(root, context.spark, self.s3), context)
        except S3Failed as failed:
            raise failed.told(context.node) from None


class FilesWriter(SinkWriter):
    def __init__(
        self, sink: Files, root: str, store: Storage, context: SinkContext, clock: Callable[[], float] = time.time
    ) -> None:
        self.sink = sink
        self.root = root
        self.store = store
        self.data = data_files(root, store, Layout(sink.format, sink.partition_by, sink.entropy), context.spark)
        self.context = context
        self.node = context.node
        self.clock = clock
        self._take_over()
        self.timeline = read_timeline(store)
        if not self.timeline.settled:
            self.timeline = settle(store, self.timeline)
        self.went_back = False
        self._look_around()
        self.swept = self._last_sweep()
        self._sweep()

    def _look_around(self) -> None:
        """Finds the manifests that count, each with the timeline it was written in."""
        if isinstance(self.store, LocalStorage):
            # A run that was killed may have put a manifest there, and not synced its name.
            self.store.sync_folder(FOLDER)
        found = spans(self.store.names(FOLDER))
        self.spans = dict.fromkeys(found, 0) if self.timeline.number == 0 else self._counting(found)
        self.last = max((span.last for span in self.spans), default=-1)

    def _counting(self, found: Sequence[Span]) -> dict[Span, int]:
        manifests = read_each(self.store, found)
        return {span: item.timeline for span, item in manifests.items() if self.timeline.counts(item)}

    # --- whose it is --------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Refuses output that other state has written, then fences out older runs of this state."""
        found = self._found_owner()
        if found and found["lineage"] != self.context.lineage:
            if self.store.names(FOLDER):
                raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=self.root)
        else:
            self._refuse_if_fenced()
        context = self.context
        mine = {"pipeline": context.pipeline, "sink": self.node, "lineage": context.lineage, "epoch": context.epoch}
        self.store.write(OWNER, json.dumps(mine))

    def _found_owner(self) -> dict[str, Any]:
        text = self.store.read(OWNER)
        return json.loads(text) if text else {}

    def _refuse_if_fenced(self) -> None:
        found = self._found_owner()
        same = found.get("lineage", self.context.lineage) == self.context.lineage
        self._refuse(found.get("epoch", 0) if same else "of another state")

    def _refuse(self, newer: int | str) -> None:
        if isinstance(newer, str) or newer > self.context.epoch:
            raise PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=self.context.epoch)

    # --- batches ------------------------------------------------------------------------------------------

    def last_batch(self) -> int:
        return self.last

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        if batch.id <= self.last:
            self.noted = self.last
            return False
        with self._told(batch):
            self._refuse_if_fenced()
            files = self._written(rows, _folder(batch.id, batch.epoch))
            reach("sink.in_transaction", batch.id)
            self.noted = self.last
            if files:
                self._commit(self._manifest(Span(batch.id, batch.id), rows.schema.jsonValue(), files))
                self.noted = self.last = batch.id
                self._compact(batch)
                self._sweep()
        return True

    @contextmanager
    def _told(self, batch: Batch | None = None) -> Iterator[None]:
        try:
            yield
        except S3Failed as failed:
            raise failed.told(self.node, None if batch is None else batch.id) from None

    def _written(self, rows: DataFrame, folder: str) -> list[File]:
        try:
            return self.data.write(rows, folder)
        except S3Failed:
            raise
        except Exception:
            # Where this very run has gone back, files may lie there that a savepoint counts on.
            if not self.went_back:
                with suppress(Exception):
                    self.data.discard(folder)
            raise

    def _manifest(self, span: Span, schema: dict[str, Any], files: Sequence[File]) -> Manifest:
        context, format, timeline = self.context, self.sink.format, self.timeline.number
        return Manifest(span, context.pipeline, context.lineage, context.epoch, format, schema, tuple(files), timeline)

    def _commit(self, manifest: Manifest) -> None:
        """The moment a batch is stored. A run that was overtaken right before it finds what the newer one has put."""
        self._refuse_if_fenced()
        if not self.store.create(manifest.span.path, manifest.to_json()):
            found = self._needed(manifest.span)
            self._refuse(found.epoch)
            anew = manifest.span.level == 0 or not self.timeline.counts(found)
            if anew and found.epoch < self.context.epoch:
                # A run that was overtaken has put it there after all; this one has computed the batch anew.
                self.store.write(manifest.span.path, manifest.to_json())
        self.spans[manifest.span] = manifest.timeline

    def _needed(self, span: Span) -> Manifest:
        text = self.store.read(span.path)
        if text is None:
            reason, advice = f"the manifest {span.path} is gone", "Something else has removed it; put it back."
            raise PenstockError.of("SINK_FAILED", node=self.node, batch=self.last, reason=reason, advice=advice)
        return Manifest.from_json(text)

    # --- merging ------------------------------------------------------------------------------------------

    def _compact(self, batch: Batch) -> None:
        """Merges what is due; a run that dies in it has stored its batches all the same."""
        before = len(self.spans)
        while self.sink.compact is not None and (group := due(self.spans, self.sink.compact)):
            self._merge(group, batch)
        if len(self.spans) > before:
            reach("sink.compacted", batch.id)
            self._forget_hidden()

    def _merge(self, group: Sequence[Span], batch: Batch) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            manifests = list(pool.map(self._needed, group))
        small = to_rewrite(manifests, LARGE)
        gone = {file.path for file in small}
        files = [file for item in manifests for file in item.files if file.path not in gone]
        schema = manifests[-1].schema
        if small:
            files += self.data.merge(small, schema, _folder(group[-1].last, batch.epoch))
        reach("sink.compacting", batch.id)
        self._commit(self._manifest(merged(group), schema, files))

    # --- what is no longer needed -------------------------------------------------------------------------

    def _listed(self) -> dict[Span, float]:
        """All manifests, and when they were written."""
        found = {Span.of(file.path): file.modified for file in self.store.files(FOLDER)}
        listed = {span: modified for span, modified in found.items() if span is not None}
        strange = [span for span in listed if span not in self.spans]
        # A run that was overtaken may have written one; where the output has gone back since, it does not count.
        self.spans |= self._counting(strange)
        return {span: modified for span, modified in listed.items() if span in self.spans}

    def _forget_hidden(self) -> None:
        """Removes manifests in whose place another has stood for long enough, but those that savepoints count on."""
        listed = self._listed()
        cover = Cover(listed)
        limit = self.clock() - min(_LISTED, self.sink.keep.seconds)
        pinned = {span for pin in read_pins(self.store).values() for span in spans(pin.manifests)}
        hidden = [span for span in sorted(listed) if (by := cover.of(span)) is not None and by != span]
        old = [span for span in hidden if listed[cover.of(span) or span] <= limit and span not in pinned]
        self.store.delete([span.path for span in old])
        self.spans = {span: self.spans[span] for span in sorted(listed) if span not in old}

    def _last_sweep(self) -> float:
        text = self.store.read(_SWEPT)
        if text is None:
            self._note_sweep(self.clock())
        return float(json.loads(text)["at"]) if text else self.clock()

    def _note_sweep(self, now: float) -> None:
        self.store.write(_SWEPT, json.dumps({"at": now}))

    def _sweep(self) -> None:
        """Removes data files that no manifest names, each time they may have lain there for long enough."""
        now, keep = self.clock(), self.sink.keep.seconds
        if now - self.swept < keep:
            return
        listed, manifests = self._listed(), read_manifests(self.store)
        live = {file.path for manifest in manifests for file in manifest.files}
        live |= pinned_files(self.store, read_pins(self.store).values())
        cover = Cover(listed)
        useless = []
        for file in self.store.files(""):
            made_for = written_for(file.path)
            if made_for is None or made_for.epoch > self.context.epoch or file.path in live:
                continue
            # One that was merged was needed until the manifest came that does not name it.
            by = cover.of(Span(made_for.batch, made_for.batch))
            if max(file.modified, listed[by] if by else 0.0, self.timeline.since) <= now - keep:
                useless.append(file.path)
        self._refuse_if_fenced()
        self.store.delete(useless)
        self.swept = now
        self._note_sweep(now)

    # --- going back ---------------------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        shown = visible(self.spans)
        # A run may have died with the last batch stored and not committed. If that has been merged with others, going
        # back to the one before takes what it was merged from.
        newest = [span for span in shown if span.last == self.last]
        parts = [span for span in self.spans if newest and newest[0].covers(span)]
        return {"manifests": {span.name: self.spans[span] for span in sorted([*shown, *parts])}}

    @contextmanager
    def _going_back(self, batch: int) -> Iterator[None]:
        try:
            yield
        except Gone as gone:
            advice = "Put it back, or fork the savepoint into another folder."
            raise cannot_rewind(self.node, batch, str(gone), advice) from None

    def pin(self, name: str, position: Mapping[str, Any]) -> None:
        with self._told(), self._going_back(self.last):
            write_pin(self.store, name, pin_for(self.store, position["manifests"]))

    def release(self, name: str) -> None:
        with self._told():
            self.store.delete([pin_path(name)])

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        with self._told():
            self._refuse_if_fenced()
            with self._going_back(batch):
                if "manifests" not in position:
                    raise Gone("the savepoint does not say what it held")
                way = planned(self.store, up_to(batch, position["manifests"]))
            for name, pin in way.pins_with_texts().items():
                write_pin(self.store, name, pin)
            self._refuse_if_fenced()
            self.timeline = way.timeline(read_timeline(self.store).number + 1, self.clock())
            write_timeline(self.store, self.timeline)
            reach("sink.rewinding", batch)
            self.timeline = settle(self.store, self.timeline)
            self.went_back = True
            self._look_around()
            self.noted = None


def _folder(batch: int, epoch: int) -> str:
    """Each run writes into folders of its own: one that was overtaken without noticing it spoils nothing."""
    return f"batch={batch:012d}/epoch={epoch}"


# --- reading -------------------------------------------------------------------------------------------------


def read_files(spark: SparkSession, path: str, s3: S3 | None = None) -> DataFrame:
    """The rows a `files` sink has committed, whole batches only, as a DataFrame."""
    try:
        manifests = read_manifests(storage(path, spark, s3))
    except S3Failed as failed:
        raise failed.told(path) from None
    if not manifests:
        raise PenstockError.of("PATH_NOT_FOUND", where="output of a files sink", path=path)
    return _rows_of(spark, path, manifests)


def _values(rows: DataFrame) -> list[tuple[Any, ...]]:
    found = rows.toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _rows_of(spark: SparkSession, path: str, manifests: Sequence[Manifest]) -> DataFrame:
    schema = manifests[-1].schema
    by_format: dict[str, list[str]] = {}
    for manifest in manifests:
        for file in manifest.files:
            by_format.setdefault(file.format, []).append(file.path)
    frames = [frame(spark, path, format, schema, files, "PERMISSIVE") for format, files in by_format.items()]
    return reduce(lambda left, right: left.unionByName(right), frames)
