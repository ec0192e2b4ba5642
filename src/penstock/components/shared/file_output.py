"""One data file on its way: how its rows are encoded, and what is known of its columns at the end."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from penstock.components.shared.place import Out

if TYPE_CHECKING:
    import pyarrow as pa

FileFormat = Literal["parquet", "json", "csv"]
_ROW_GROUP = 64 << 20
_LONGEST_BOUND = 256
"""Longer texts are no bounds of a column: they would make what is known of a file larger than the file."""


class Encoder(ABC):
    def __init__(self, out: Out) -> None:
        self.out = out
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.encode(rows)

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Ends the file."""
        self.out.close()

    def statistics(self) -> dict[str, Any]:
        """What is known of the columns of a file that has ended."""
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
        self._schema = schema
        self._about: list[Any] = []
        self._writer = pq.ParquetWriter(out, schema, compression="snappy", metadata_collector=self._about)
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

    def finish(self) -> None:
        if self._held:
            self._flush()
        self._writer.close()
        self.out.close()

    def statistics(self) -> dict[str, Any]:
        return statistics(self._about[0], self._schema)


# --- what a Parquet file says of itself ----------------------------------------------------------------------


def statistics(about: Any, schema: pa.Schema) -> dict[str, Any]:
    """Nulls and bounds of the columns of a file, in the words of Delta tables; nested columns are left out.

    Numbers with fractions have no bounds here: whether not-a-number lies within them, readers do not agree.
    """
    import pyarrow as pa

    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for place in range(about.num_columns):
        leaf = about.schema.column(place)
        known = leaf.path in schema.names and not pa.types.is_nested(schema.field(leaf.path).type)
        if not known or leaf.max_repetition_level or leaf.max_definition_level > 1:
            continue
        found = [about.row_group(group).column(place).statistics for group in range(about.num_row_groups)]
        if all(item is not None and item.has_null_count for item in found):
            nulls[leaf.path] = sum(item.null_count for item in found)
        bounds = [_bounds(item, schema.field(leaf.path).type) for item in found if item is None or item.num_values]
        told = [pair for pair in bounds if pair is not None]
        if told and len(told) == len(bounds):
            lowest[leaf.path] = min(low for low, _ in told)
            highest[leaf.path] = max(high for _, high in told)
    return {
        "minValues": {name: _written(value) for name, value in lowest.items()},
        "maxValues": {name: _written(value) for name, value in highest.items()},
        "nullCount": nulls,
    }


def _bounds(item: Any, kind: pa.DataType) -> tuple[Any, Any] | None:
    import pyarrow as pa

    if item is None or not item.has_min_max:
        return None
    if pa.types.is_string(kind):
        return (item.min, item.max) if max(len(item.min), len(item.max)) <= _LONGEST_BOUND else None
    plain = pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return (item.min, item.max) if plain else None


def _written(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
