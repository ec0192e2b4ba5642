"""What a Delta table holds, and by how much a commit has changed that, as rows and checksums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.components.shared.checksum import Content, python_sum
from penstock.components.shared.delta_log import commit_name
from penstock.components.shared.delta_table import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def content_of(table: DeltaTable, columns: Sequence[str]) -> Content:
    """What a table holds."""
    return _summed(table.to_pyarrow_dataset().to_batches(columns=[*columns]))


def transactions(commit: str) -> dict[str, int]:
    """The numbers that a commit notes of the programs that write to the table."""
    found = [action["txn"] for action in _actions(commit) if "txn" in action]
    return {item["appId"]: item["version"] for item in found}


def change_of(location: Location, version: int, columns: Sequence[str]) -> Content:
    """What the files hold that a commit has added, less what those held that it has removed."""
    rows = checksum = 0
    for action in _actions(location.place.read(commit_name(version)).decode()):
        for kind, sign in (("add", 1), ("remove", -1)):
            if kind in action:
                found = _of_file(location, action[kind], columns)
                rows, checksum = rows + sign * found.rows, checksum + sign * found.checksum
    return Content(rows, checksum)


def _actions(commit: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.splitlines() if line.strip()]


def _of_file(location: Location, file: dict[str, Any], columns: Sequence[str]) -> Content:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = file.get("partitionValues") or {}
    content = pq.ParquetFile(pa.BufferReader(location.place.read(unquote(file["path"]))))
    inside = [name for name in columns if name not in values]

    def complete(part: pa.RecordBatch) -> pa.RecordBatch:
        held = {name: part.column(place) for place, name in enumerate(inside)}
        held |= {name: pa.repeat(pa.scalar(value, pa.string()), part.num_rows) for name, value in values.items()}
        return pa.record_batch({name: held[name] for name in columns})

    return _summed(complete(part.select(inside)) for part in content.iter_batches(columns=inside or None))


def _summed(parts: Iterable[pa.RecordBatch]) -> Content:
    rows = checksum = 0
    for part in parts:
        rows += part.num_rows
        checksum += sum(python_sum(*row) for row in zip(*(item.to_pylist() for item in part.columns), strict=True))
    return Content(rows, checksum)
