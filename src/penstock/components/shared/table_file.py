"""A file as a table that is read anew in every batch, so that a change in it counts from the next batch on.

Spark's own file tables remember which files there were and how long, and fail or read half of a file that has been
replaced. Apart from the step, because Spark's workers import these classes by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - imported by the step only when it is built
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: TID253
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: TID253
from pyspark.sql.types import StructType  # noqa: TID253

from penstock.access.paths import PathLimits
from penstock.errors import PenstockError

FORMAT = "penstock_table"
FORMATS = ("csv", "json", "parquet")


class TableFile(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(read_table(self.options["path"], self.options["kind"], self._limits).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = to_arrow_schema(schema, timezone="UTC")
        return _Reader(self.options["path"], self.options["kind"], self._limits, wanted)

    @property
    def _limits(self) -> PathLimits | None:
        return limits_in(self.options["limits"])


class _Reader(DataSourceReader):
    def __init__(self, path: str, kind: str, limits: PathLimits | None, schema: pa.Schema) -> None:
        self.path = path
        self.kind = kind
        self.limits = limits
        self.fields = [(field.name, field.type) for field in schema]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema(self.fields)
        table = read_table(self.path, self.kind, self.limits, wanted)
        yield from table.combine_chunks().to_batches(max_chunksize=1 << 16)


def limits_in(text: str) -> PathLimits | None:
    """Where files may lie, as it travels to Spark's workers: what lies there is asked again for each batch."""
    found = json.loads(text)
    if found is None:
        return None
    return PathLimits(tuple(found["roots"]), found["closed"], tuple(found["opened"]))


def read_table(path: str, kind: str, limits: PathLimits | None, wanted: pa.Schema | None = None) -> pa.Table:
    """The rows of a file, or of all files of a folder, in the columns wanted."""
    files = sorted(item for item in Path(path).glob(f"*.{kind}")) if Path(path).is_dir() else [Path(path)]
    for file in files:
        if limits is not None and (reason := limits.refusal_of_file(str(file))) is not None:
            allowed = ", ".join(limits.roots)
            raise PenstockError.of("PATH_NOT_ALLOWED", where="a table", path=file, reason=reason, allowed=allowed)
    tables = [_read_file(file, kind, wanted) for file in files]
    table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    if wanted is None:
        return table
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}")
    return table.select(wanted.names).cast(wanted)


def _read_file(file: Path, kind: str, wanted: pa.Schema | None) -> pa.Table:
    if kind == "parquet":
        from pyarrow import parquet

        return parquet.read_table(file)
    if kind == "csv":
        from pyarrow import csv

        types = {} if wanted is None else {field.name: field.type for field in wanted}
        return csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True))
    from pyarrow import json

    return json.read_json(file)
