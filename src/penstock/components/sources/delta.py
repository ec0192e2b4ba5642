"""Rows that are added to a Delta table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import CheckContext, LookContext, ReadContext, Source, resolve_path
from penstock.components.shared.delta_log import LOG
from penstock.components.shared.delta_table import located, path_problems, telling
from penstock.components.shared.s3 import REACHED, S3, S3Failed
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.components.shared.delta_stream import Settings


class Delta(Source):
    """Reads the rows of a Delta table, and those that later versions add, each once.

    By default it begins with all rows the table holds. The position, a row of a file of a version, is kept in the
    checkpoint. Versions that only rewrite files, as `OPTIMIZE` makes them, are passed over. A version that deletes or
    changes rows stops the pipeline, unless `onChanges` says otherwise.

    Columns that are added to the table are read from the next start on. What is not read yet must stay in the table's
    log, and its files must not be removed by `VACUUM`. Tables with deletion vectors or renamed columns are refused.
    """

    name: ClassVar[str] = "delta"
    own_s3: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True
    batch_limit = "max_rows_per_batch"
    example: ClassVar[str] = """\
delta: {path: "s3a://lake/views", startingVersion: latest}
eventTime: {column: ts, maxDelay: 10 seconds}
"""

    path: str = field(
        holds=Holds.PATH, doc="Folder of the table, relative to the pipeline file, or `s3a://bucket/folder`.",
        change=Change.BOOTSTRAP, min_length=1,
    )  # fmt: skip
    starting_version: Literal["earliest", "latest"] | int = field(
        "earliest",
        doc="Where the first run starts: `earliest` with all rows of the table, `latest` with what is added from then "
        "on, or a number with what that version adds.",
        change=Change.BOOTSTRAP,
    )
    max_rows_per_batch: int | None = field(1_000_000, ge=1, doc="The most rows one batch reads.")
    on_changes: Literal["stop", "skip"] = field(
        "stop", doc="What to do with a version that deletes or changes rows: stop, or leave out all of it."
    )
    s3: S3 = field(S3(), doc=REACHED)

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from path_problems(self.path, self.s3, context.node)
        if isinstance(self.starting_version, int) and self.starting_version < 0:
            params = {"where": f"startingVersion of '{context.node}'", "reason": "versions count from 0"}
            yield Problem("SPEC_BAD_VALUE", params, at=("startingVersion",))

    def look(self, context: LookContext) -> Iterator[Problem]:
        path = resolve_path(context.folder, self.path)
        if "://" not in path and not Path(path, LOG).is_dir():
            yield Problem("PATH_NOT_FOUND", {"where": f"the Delta table of source '{context.node}'", "path": path})

    def read(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.delta_stream import FORMAT, SETTINGS, DeltaTables

        context.spark.dataSource.register(DeltaTables)
        reader = context.spark.readStream.name(context.stream).format(FORMAT)
        return reader.option(SETTINGS, self._settings(context).to_json()).load()

    def read_all(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.delta_stream import FORMAT, SETTINGS, DeltaTables

        context.spark.dataSource.register(DeltaTables)
        return context.spark.read.format(FORMAT).option(SETTINGS, self._settings(context).to_json()).load()

    def _settings(self, context: ReadContext) -> Settings:
        from penstock.components.shared.delta_stream import Settings

        path = resolve_path(context.folder, self.path)
        try:
            location = located(path, self.s3, context.spark)
        except S3Failed as failed:
            raise failed.told(context.node, reading=True) from None
        with telling(location, context.node, reading=True):
            if not location.exists():
                where = f"the Delta table of source '{context.node}'"
                raise PenstockError.of("PATH_NOT_FOUND", where=where, path=path)
            table = location.load()
        about = table.metadata()
        if about.configuration.get("delta.columnMapping.mode", "none") != "none":
            advice = "Read it with another tool."
            reason = "its columns have other names in its files"
            raise PenstockError.of("SOURCE_FAILED", node=context.node, reason=reason, advice=advice)
        return Settings(
            context.node,
            path,
            str(about.id),
            json.loads(table.schema().to_json()),
            str(self.starting_version),
            self.max_rows_per_batch,
            self.on_changes == "skip",
            None if location.access is None else asdict(location.access),
        )
