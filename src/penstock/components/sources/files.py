"""Files that appear in a folder."""

from __future__ import annotations

import fnmatch
import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote, urlsplit

from penstock.components.base import RAW, Backlog, CheckContext, Format, LookContext, ReadContext, Source, resolve_path
from penstock.components.shared.found_files import only_allowed
from penstock.components.shared.s3 import REACHED, S3, S3Failed, is_s3
from penstock.components.shared.storage import storage
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Files(Source):
    """Reads the files of a folder, and each new one once, in the order of their modification time.

    Files must appear whole: write them elsewhere and move them in. Names that start with `_` or `.` are ignored.
    """

    name: ClassVar[str] = "files"
    reads_ranges: ClassVar[bool] = True
    lists_files: ClassVar[bool] = True
    takes_format: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True
    batch_limit = "max_files_per_batch"
    example: ClassVar[str] = """\
files: {path: ./in, pattern: "*.json", maxFilesPerBatch: 100}
format: {json: {schema: {id: string, ts: timestamp}}}
eventTime: {column: ts, maxDelay: 10 seconds}
"""

    path: str = field(
        holds=Holds.PATH,
        doc="Folder, file or glob such as `./in/*/part-*.json`, relative to the pipeline file; any URI Spark reads.",
        change=Change.BOOTSTRAP, min_length=1,
    )  # fmt: skip
    pattern: str | None = field(
        None, holds=Holds.NAME, doc="Only files whose name matches this glob, for example `*.json`."
    )
    recursive: bool = field(False, doc="Whether folders below are read too.")
    max_files_per_batch: int | None = field(1000, ge=1, doc="The most files one batch reads.")
    archive_to: str | None = field(
        None, holds=Holds.PATH, doc="Folder into which files are moved after they have been read."
    )
    ignore_older_than: Duration | None = field(
        None, doc="Files this much older than the newest one are ignored, if not read by then."
    )
    s3: S3 = field(S3(), doc=REACHED)

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from self.s3.problems(self.path, context.node)

    def look(self, context: LookContext) -> Iterator[Problem]:
        path = resolve_path(context.folder, self.path)
        if "://" not in path and not glob.glob(path, recursive=True):
            yield Problem("PATH_NOT_FOUND", {"where": f"path of source '{context.node}'", "path": path})

    def read(self, context: ReadContext) -> DataFrame:
        path = resolve_path(context.folder, self.path)
        found, schema, options = self._encoding(context, path)
        reader = context.spark.readStream.name(context.stream).format(found.spark_format).schema(schema)
        reader = reader.options(**options, **self._stream_options(context.folder))
        return found.unpack(reader.load(_as_glob(path)), context, path)

    def read_all(self, context: ReadContext) -> DataFrame:
        path = resolve_path(context.folder, self.path)
        found, schema, options = self._encoding(context, path)
        reader = context.spark.read.format(found.spark_format).schema(schema).options(**options)
        return found.unpack(only_allowed(reader.load(path), context.node), context, path)

    def _encoding(self, context: ReadContext, path: str) -> tuple[Format, str, dict[str, str]]:
        """The format, with schema and options of Spark's reader, whether it streams or not."""
        if context.format is None:
            raise PenstockError.of("FORMAT_MISSING", name=context.node, component=self.name)
        self._introduce(context, path)
        schema = context.format.reader_schema(context, path)
        options = {**context.format.reader_options(), "recursiveFileLookup": str(self.recursive).lower()}
        if self.pattern is not None:
            options["pathGlobFilter"] = self.pattern
        if context.format.malformed:
            schema = f"{schema}, `{RAW}` string"
            options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        return context.format, schema, options

    def _introduce(self, context: ReadContext, path: str) -> None:
        """Tells Spark how an object store is reached, and sees at once whether it is."""
        if is_s3(path):
            try:
                storage(path, context.spark, self.s3)
            except S3Failed as failed:
                raise failed.told(context.node, reading=True) from None

    def place(self) -> Column:
        from pyspark.sql import functions as F

        return F.input_file_name()

    def explain_malformed(self, context: ReadContext) -> Column | None:
        from pyspark.sql import functions as F

        return None if context.format is None else context.format.explain_malformed(F.col(RAW), context)

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        """Files in the folder that have not been read, for local folders."""
        path = resolve_path(context.folder, self.path)
        log = progress.get("log")
        if "://" in path or not isinstance(log, Path):
            return None
        read = _files_read(log)
        return Backlog(sum(str(file) not in read for file in self._present(path)), "files")

    def _stream_options(self, folder: Path) -> dict[str, str]:
        options = {}
        if self.max_files_per_batch is not None:
            options["maxFilesPerTrigger"] = str(self.max_files_per_batch)
        if self.ignore_older_than is not None:
            options["maxFileAge"] = f"{self.ignore_older_than.millis}ms"
        if self.archive_to is not None:
            options |= {"cleanSource": "archive", "sourceArchiveDir": resolve_path(folder, self.archive_to)}
        return options

    def _present(self, path: str) -> Iterator[Path]:
        for found in glob.glob(path, recursive=True):
            entry = Path(found)
            inside = [entry] if entry.is_file() else entry.rglob("*") if self.recursive else entry.iterdir()
            for file in inside:
                visible = not file.name.startswith((".", "_")) and file.is_file()
                if visible and (self.pattern is None or fnmatch.fnmatch(file.name, self.pattern)):
                    yield file


def _files_read(log: Path) -> set[str]:
    """The files that Spark's log of the source names; a compacted log repeats the ones before it."""
    read: set[str] = set()
    entries = sorted((int(item.name.split(".")[0]), item) for item in log.iterdir() if item.name[0].isdigit())
    compacted = [number for number, item in entries if item.suffix == ".compact"]
    start = max(compacted, default=0)
    for number, item in entries:
        if number < start or (number == start and compacted and item.suffix != ".compact"):
            continue
        for line in item.read_text("utf-8").splitlines()[1:]:
            read.add(unquote(urlsplit(json.loads(line)["path"]).path))
    return read


def _as_glob(path: str) -> str:
    """A single file as a glob that matches only it: Spark streams from folders and globs."""
    return f"{path[:-1]}[{path[-1]}]" if "://" not in path and Path(path).is_file() else path
