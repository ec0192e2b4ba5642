"""A Delta table."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import (
    Batch,
    CheckContext,
    Sink,
    SinkContext,
    SinkWriter,
    Times,
    cannot_rewind,
    resolve_path,
)  # fmt: skip
from penstock.components.shared.checksum import Change as ContentChange
from penstock.components.shared.checksum import Content, unsuited
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.delta_content import change_of, content_of, transactions
from penstock.components.shared.delta_disk import TableOnDisk
from penstock.components.shared.delta_log import commit_name, is_foreign
from penstock.components.shared.delta_table import Location, located, nullable, path_problems, said, shape, telling
from penstock.components.shared.keyed import DELETE, KEY, VERSION, key_column_problems, key_problems
from penstock.components.shared.row_spool import spooled
from penstock.components.shared.s3 import REACHED, S3, S3Failed
from penstock.components.shared.task_files import Writing, Written, written
from penstock.durable import make_folders
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

_UNKNOWN = re.compile(r"\b(interval|variant|void|time|geometry|geography)\b(?!\s*:)")
"""Types that Delta tables do not have; a field of a struct may be called so."""
_UNUSABLE = re.compile(r"[ ,;{}()\n\t=]")
_UNHEEDED = {
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
    "delta.invariants": "conditions",
}
_TRIES = 5
_AT_ONCE = 16
_AT_HAND = 64 << 20
"""The bytes of rows with a key that are merged at once; merging takes several times as much memory."""
_DELETED = "_penstock_deleted"
_MISSING = re.compile(r"missing file (\S+)")


class Delta(Sink):
    """Stores rows in a Delta table, exactly once.

    Each batch is one commit of the table, and the commit itself holds the number of the batch: one that comes again
    after a crash is recognised, and a run that was overtaken by a newer one cannot commit. The table is made if it is
    not there. Other programs may write to it at the same time.

    Without a key rows are appended: tasks write data files, and the driver commits their names. With a key a later row
    replaces an earlier one, and of several rows of one key in a batch the newest by `version` counts, else the last.
    With `delete`, rows in which that column is true delete their
    key, unless the stored version is newer. Merging small files and removing old ones is left to the table's own
    tools, `OPTIMIZE` and `VACUUM`.

    A pipeline can go back to a savepoint: one commit removes what came later and adds again what has been removed
    since. That cannot be once `VACUUM` has removed files that the table had then, or the log of that time is gone, or
    when other programs have changed rows since.
    """

    name: ClassVar[str] = "delta"
    own_s3: ClassVar[bool] = True
    guarantee: ClassVar[str] = "Exactly once: the commit that adds the rows of a batch also holds its number."
    example: ClassVar[str] = """\
from: views
delta: {path: "s3a://lake/views", partitionBy: [country]}
"""

    path: str = field(
        holds=Holds.PATH, doc="Folder of the table, relative to the pipeline file, or `s3a://bucket/folder`.",
        change=Change.LOSES_STATE, min_length=1,
    )  # fmt: skip
    partition_by: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns by which the table is partitioned.", change=Change.LOSES_STATE
    )
    key: tuple[str, ...] = field((), holds=Holds.NAME, doc=KEY, change=Change.LOSES_STATE)
    version: str | None = field(None, holds=Holds.NAME, doc=VERSION)
    delete: str | None = field(None, holds=Holds.NAME, doc=DELETE)
    s3: S3 = field(S3(), doc=REACHED)

    @property
    def accepts_updates(self) -> bool:
        return bool(self.key)

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from path_problems(self.path, self.s3, context.node)
        yield from key_problems(self, f"delta of '{context.node}'")

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        yield from key_column_problems(self, node, columns)
        for column in self.partition_by:
            if column not in columns:
                hint = did_you_mean(column, columns)
                yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})
        for column, kind in columns.items():
            params = {"node": node, "component": "delta", "column": column, "type": kind}
            if _UNKNOWN.search(kind):
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": "Cast it, or use to_json(column)."})
            elif column in self.partition_by and kind.startswith(("array", "map", "struct", "binary")):
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": "A table is not partitioned by it."})
            elif _UNUSABLE.search(column):
                advice = "Delta takes no spaces and none of ,;{}()= in names; rename it with a `select` step."
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": advice})

    def _located(self, context: SinkContext) -> Location:
        try:
            return located(resolve_path(context.folder, self.path), self.s3, context.spark)
        except S3Failed as failed:
            raise failed.told(context.node) from None

    def rows_within(self, context: SinkContext, columns: Sequence[str], times: Times | None) -> list[tuple[Any, ...]]:
        import pyarrow.compute as pc

        location, span = self._located(context), None
        if times is not None:
            time = pc.field(times.column)
            span = (time > times.after) & (time <= times.until)
        with telling(location, context.node):
            found = location.load().to_pyarrow_dataset().to_table(columns=[*columns], filter=span)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def content(self, context: SinkContext, columns: Sequence[str]) -> Content:
        location = self._located(context)
        with telling(location, context.node):
            return content_of(location.load(), columns)

    def open(self, context: SinkContext) -> SinkWriter:
        try:
            return _DeltaWriter(self, self._located(context), context)
        except S3Failed as failed:
            raise failed.told(context.node) from None


class _DeltaWriter(SinkWriter):
    """An open table. Three numbers in its log are the sink's, each under a name of its own: the last batch and the
    newest epoch of the state that feeds it, and whose the rows are."""

    def __init__(self, sink: Delta, location: Location, context: SinkContext) -> None:
        self.sink = sink
        self.location = location
        self.context = context
        self.node = context.node
        whose = f"penstock/{context.pipeline}/{context.node}"
        self.batches, self.epochs = f"{whose}/{context.lineage}/batch", f"{whose}/{context.lineage}/epoch"
        self.begun = f"{whose}/{context.lineage}/begun"
        self.owner, self.lineage = f"{whose}/lineage", _number(context.lineage)
        self.columns = {name: kind for name, kind in context.schema.items() if name != sink.delete}
        self.disk = TableOnDisk(location.path) if location.access is None else None
        with telling(location, self.node):
            self.table = self._opened()
            self.required = self._fitting()
            self._take_over()

    # --- opening ------------------------------------------------------------------------------------------

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema

        if self.disk is not None:
            make_folders(self.disk.root)
            self.disk.mend(self.node)
        if not self.location.exists():
            schema = Schema.from_json(json.dumps(self._schema()))
            options = self.location.options
            DeltaTable.create(
                self.location.path, schema, mode="ignore", partition_by=[*self.sink.partition_by],
                storage_options=options,
            )  # fmt: skip
        return self.location.load()

    def _schema(self) -> dict[str, Any]:
        """The columns as the table is to have them."""
        from pyspark.sql.types import StructType

        declared = ", ".join(f"{quote(name)} {kind}" for name, kind in self.columns.items())
        schema: dict[str, Any] = nullable(StructType.fromDDL(declared).jsonValue())
        return schema

    def _fitting(self) -> list[str]:
        """Refuses a table that does not fit; which of its columns take no null."""
        found = {item["name"]: item for item in json.loads(self.table.schema().to_json())["fields"]}
        for wanted in self._schema()["fields"]:
            name = wanted["name"]
            if name not in found:
                raise self._differs(f"it has no column {name}")
            if shape(found[name]["type"]) != shape(wanted["type"]):
                kinds = f"{json.dumps(found[name]['type'])}, not {json.dumps(wanted['type'])}"
                raise self._differs(f"column {name} is {kinds}")
        needed = [name for name, item in found.items() if not item["nullable"]]
        missing = [name for name in needed if name not in self.columns]
        if missing:
            raise self._differs(f"it needs a value for column {', '.join(missing)}")
        partitions = self.table.metadata().partition_columns
        if partitions != [*self.sink.partition_by]:
            raise self._differs(f"it is partitioned by {', '.join(partitions) or 'nothing'}")
        self._refuse_unheeded(found)
        return needed

    def _refuse_unheeded(self, found: Mapping[str, Any]) -> None:
        """Rules of a table that its library would not apply to files that it did not write itself."""
        settings = self.table.metadata().configuration
        if settings.get("delta.columnMapping.mode", "none") != "none":
            raise self._differs("its columns have other names in its files")
        if self.sink.key and settings.get("delta.appendOnly") == "true":
            raise self._differs("rows may only be appended to it, and the sink has a `key`")
        rules = [what for note, what in _UNHEEDED.items() if any(note in item["metadata"] for item in found.values())]
        if any(name.startswith("delta.constraints.") for name in settings):
            rules.append("constraints")
        if rules and not self.sink.key:
            raise self._differs(f"it has {' and '.join(rules)}, which appended files would pass by")

    def _differs(self, reason: str) -> PenstockError:
        path = self.location.path
        return PenstockError.of("SINK_TABLE_DIFFERS", node=self.node, table=path, reason=reason)

    def _take_over(self) -> None:
        """Refuses to append to what other state has written, then fences out older runs of this state."""
        whose = self.table.transaction_version(self.owner)
        if whose not in (None, self.lineage) and not self.sink.key:
            raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=self.location.path)
        self._refuse_older()
        mine = {self.epochs: self.context.epoch} | ({self.owner: self.lineage} if self.sink.key else {})
        self._persist(lambda: self._append([], self._transactions(mine)), self._refuse_older)

    def _refuse_older(self) -> bool:
        """Looks at the table anew; whether this run has told it its epoch."""
        self._catch_up()
        newest = self.table.transaction_version(self.epochs) or 0
        if newest > self.context.epoch:
            raise self._fenced(newest)
        return newest == self.context.epoch

    def _catch_up(self) -> None:
        """Reads what is new in the log, or the whole table again where the log has been put back to an older one."""
        try:
            self.location.place.read(commit_name(self.table.version()))
        except FileNotFoundError:
            self.table = self.location.load()
        else:
            self.table.update_incremental()

    def _fenced(self, newer: int | str) -> PenstockError:
        return PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=self.context.epoch)

    # --- writing ------------------------------------------------------------------------------------------

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        with telling(self.location, self.node, batch.id):
            if self._stored(batch):
                return False
        try:
            if self.sink.key:
                self._upsert(batch, rows)
            else:
                self._store(batch, rows)
        except S3Failed as failed:
            raise failed.told(self.node, batch.id) from None
        return True

    def _stored(self, batch: Batch) -> bool:
        """Whether the batch is in the table; refuses if a newer run, or other state, has taken the table over."""
        last = self._last()
        if last < batch.id:
            self.refuse_behind(last)
        self.noted = last
        return last >= batch.id

    def last_batch(self) -> int:
        with telling(self.location, self.node):
            return self._last()

    def _last(self) -> int:
        """The last batch in the table as it is now; refuses like `_stored`."""
        self._refuse_older()
        if self.table.transaction_version(self.owner) not in (None, self.lineage):
            raise self._fenced("of another state")
        last = self.table.transaction_version(self.batches)
        return -1 if last is None else last

    def _store(self, batch: Batch, rows: DataFrame) -> None:
        columns = tuple(name for name in self.columns if name not in self.sink.partition_by)
        writing = Writing(self.location.place, "", "parquet", self.sink.partition_by, columns, stats=True)
        files = written(rows.select(*map(quote, self.columns)), writing)
        for file in files:
            self._refuse_nulls(batch, file)
        reach("sink.in_transaction", batch.id)
        if files:
            if self.disk is not None:
                self.disk.sync_written([file.path for file in files])
            actions = [_action(file) for file in files]
            self._commit(batch, lambda properties: self._append(actions, properties))

    def _refuse_nulls(self, batch: Batch, file: Written) -> None:
        nulls = {**file.stats["nullCount"], **{name: file.rows for name, value in file.partition.items() if not value}}
        for name in self.required:
            if nulls.get(name, 0):
                reason, advice = f"column {name} is null in {nulls[name]} rows", "The table takes no null there."
                raise PenstockError.of("SINK_FAILED", node=self.node, batch=batch.id, reason=reason, advice=advice)

    def _append(self, actions: list[Any], properties: CommitProperties) -> None:
        self.table.create_write_transaction(
            actions, "append", self.table.schema(), [*self.sink.partition_by], commit_properties=properties
        )

    def _commit(self, batch: Batch, action: Callable[[CommitProperties], None]) -> None:
        properties = self._transactions(self._numbers(batch.id))
        with telling(self.location, self.node, batch.id):
            self._persist(lambda: action(properties), lambda: self._stored(batch))
        self.noted = batch.id

    def _persist(self, action: Callable[[], None], done: Callable[[], bool]) -> None:
        """Makes one commit. When another came between, it is looked at what that was, and tried again."""
        from deltalake.exceptions import CommitFailedError

        for left in reversed(range(_TRIES)):
            try:
                action()
                break
            except CommitFailedError:
                self.retried += 1
                if done():
                    break
                if not left:
                    raise
        if self.disk is not None:
            self.disk.sync()

    def _transactions(self, numbers: Mapping[str, int]) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(name, number) for name, number in numbers.items()])

    # --- what has changed ---------------------------------------------------------------------------------

    def changed(self, batch: Batch) -> ContentChange | None:
        """From the log, which names the files that a batch has added and those it has put an end to."""
        if not self.context.checksum:
            return None
        # Values of partitions stand in the log as texts, and not all of them as Python writes them.
        apart = {name for name in self.sink.partition_by if unsuited([name], self.columns)}
        columns = [name for name in self.columns if name not in apart]
        with telling(self.location, self.node, batch.id):
            self._catch_up()
            versions = self._versions_of(batch)
            if self.measured_from is None or batch.id <= self.measured_from:
                table = self.location.load(max(versions)) if versions else self.table
                held = content_of(table, columns)
                self.measured_from = batch.id
                return ContentChange(held.rows, held.checksum, whole=True, columns=columns)
            found = [change_of(self.location, version, columns) for version in versions]
        return ContentChange(sum(item.rows for item in found), sum(item.checksum for item in found))

    def _versions_of(self, batch: Batch) -> list[int]:
        """The commits of a batch, which are among the last ones."""
        found: list[int] = []
        for version in range(self.table.version(), -1, -1):
            numbers = transactions(self.location.place.read(commit_name(version)).decode())
            begun = numbers.get(self.begun, numbers.get(self.batches))
            if begun == batch.id:
                found.append(version)
            elif begun is not None and begun < batch.id:
                break
        return found

    # --- with a key ---------------------------------------------------------------------------------------

    def _upsert(self, batch: Batch, rows: DataFrame) -> None:
        """One commit; a large batch takes several, of which the last one has its number.

        No key is in two of them, so that one that comes again after a crash changes nothing that is there already.
        """
        with spooled(self._newest(rows), self.context.spool) as newest:
            reach("sink.in_transaction", batch.id)
            pieces = newest.pieces(_AT_HAND)
            piece = next(pieces, None)
            while piece is not None:
                following = next(pieces, None)
                numbers = self._numbers(batch.id)
                if following is not None:
                    numbers = {self.begun: batch.id, self.epochs: self.context.epoch, self.owner: self.lineage}
                self._commit_piece(batch, piece, numbers)
                if following is not None:
                    reach("sink.piece_stored", batch.id)
                piece = following
            if newest.rows:
                self.noted = batch.id

    def _commit_piece(self, batch: Batch, piece: pa.Table, numbers: Mapping[str, int]) -> None:
        properties = self._transactions(numbers)
        with telling(self.location, self.node, batch.id):
            self._persist(lambda: self._merge(piece, properties), lambda: self._stored(batch))

    def _newest(self, rows: DataFrame) -> DataFrame:
        """Of several rows of one key the one that counts."""
        from pyspark.sql import functions as F

        deleted = F.coalesce(F.col(quote(self.sink.delete)), F.lit(False)) if self.sink.delete else F.lit(False)
        stored = [F.col(quote(name)).alias(name) for name in self.columns]
        order = [F.monotonically_increasing_id()]
        if self.sink.version is not None:
            version = F.col(quote(self.sink.version))
            order = [version.isNotNull(), version, *order]
        marked = rows.select(F.struct(*stored, deleted.alias(_DELETED)).alias("row"), F.struct(*order).alias("place"))
        keys = [F.col("row")[name] for name in self.sink.key]
        found = marked.groupBy(*keys).agg(F.max_by("row", "place").alias("row"))
        return found.select(*(F.col("row")[name].alias(name) for name in (*self.columns, _DELETED)))

    def _merge(self, rows: pa.Table, properties: CommitProperties) -> None:
        nulls = any(rows[name].null_count for name in self.sink.key)
        # Only with plain equality are files left out that cannot hold any of the keys.
        equal = "IS NOT DISTINCT FROM" if nulls else "="
        same = " AND ".join(f"t.{_name(name)} {equal} s.{_name(name)}" for name in self.sink.key)
        newer = "true"
        if self.sink.version is not None:
            version = _name(self.sink.version)
            newer = f"(t.{version} IS NULL OR s.{version} >= t.{version})"
        values = {_name(name): f"s.{_name(name)}" for name in self.columns}
        merger = self.table.merge(
            rows, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=properties
        )
        merger.when_matched_delete(f"s.{_DELETED} AND {newer}").when_matched_update(values, newer)
        merger.when_not_matched_insert(values, f"NOT s.{_DELETED}").execute()

    # --- going back ---------------------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        with telling(self.location, self.node):
            self._last()
            return {"table": str(self.table.metadata().id), "version": self.table.version()}

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        try:
            with telling(self.location, self.node, batch):
                self._go_back(batch, position)
        except S3Failed as failed:
            raise failed.told(self.node, batch) from None

    def _go_back(self, batch: int, position: Mapping[str, Any]) -> None:
        self._last()
        if position.get("table") != str(self.table.metadata().id):
            raise self._stuck(batch, "the savepoint was taken of another table")
        version = self._version_after(batch, position["version"])
        self._refuse_foreign(batch, version)
        self.noted = None
        reach("sink.rewinding", batch)
        self._persist(lambda: self._restore(batch, version), lambda: self._refuse_foreign(batch, version))

    def forget(self, batch: int) -> None:
        with telling(self.location, self.node, batch):
            self.noted = None
            if self._last() > batch:
                properties = self._transactions(self._numbers(batch))
                self._persist(lambda: self._append([], properties), lambda: self._last() <= batch)

    def _numbers(self, batch: int) -> dict[str, int]:
        return {self.batches: batch, self.begun: batch, self.epochs: self.context.epoch, self.owner: self.lineage}

    def _stuck(self, batch: int, reason: str) -> PenstockError:
        return cannot_rewind(self.node, batch, reason, "Fork the savepoint, into another folder.")

    def _version_after(self, batch: int, version: int) -> int:
        """The version of a savepoint, or an earlier one, if the table was a batch ahead of the savepoint then."""
        from deltalake.exceptions import DeltaError

        for earlier in range(version, -1, -1):
            try:
                table = self.location.load(earlier)
            except DeltaError:
                raise self._stuck(batch, f"its log no longer tells what version {earlier} was") from None
            last, begun = (table.transaction_version(name) for name in (self.batches, self.begun))
            whole = begun is None or begun <= (-1 if last is None else last)
            if whole and (last is None or last <= batch):
                return earlier
        raise self._stuck(batch, f"no version up to {version} is old enough")

    def _refuse_foreign(self, batch: int, version: int) -> bool:
        """Refuses if rows of others would be lost, too. Never says that it is done: doing it again changes nothing."""
        self._last()
        later = range(version + 1, self.table.version() + 1)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number, foreign in zip(later, pool.map(self._is_foreign, later), strict=True):
                if foreign is None:
                    raise self._stuck(batch, f"its log no longer tells what version {number} was")
                if foreign:
                    raise self._stuck(batch, f"another program has changed the table since, in version {number}")
        return False

    def _is_foreign(self, version: int) -> bool | None:
        """Whether another program has made a version; None if its log is gone."""
        try:
            text = self.location.place.read(commit_name(version)).decode()
        except FileNotFoundError:
            return None
        return is_foreign(text, (self.batches, self.epochs))

    def _restore(self, batch: int, version: int) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        properties = self._transactions(self._numbers(batch))
        if self.table.version() == version:
            self._append([], properties)
            return
        try:
            self.table.restore(version, commit_properties=properties)
        except CommitFailedError:
            raise
        except DeltaError as error:
            missing = _MISSING.search(said(error))
            if missing is None:
                raise
            raise self._stuck(batch, f"the file {missing[1]} is gone") from None


def _number(lineage: str) -> int:
    """A number for a lineage, as the log of a table holds only such."""
    return int.from_bytes(hashlib.sha256(lineage.encode()).digest()[:7], "big")


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _action(file: Written) -> Any:
    from deltalake.transaction import AddAction

    stats = json.dumps({"numRecords": file.rows, **file.stats})
    return AddAction(file.path, file.bytes, file.partition, int(time.time() * 1000), True, stats)
