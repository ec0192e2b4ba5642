"""Rows in the binary form of PostgreSQL's COPY, which neither side has to write or read as text.

A row is the number of its fields, and for each field its length, or -1 for null, and its bytes. Values of a fixed size
are put together as one array of records; only texts, and columns with nulls, are pieces of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TAIL = b"\xff\xff"
_MICROS_TO_2000 = 946_684_800_000_000
_DAYS_TO_2000 = 10_957
_FIXED = {"boolean": "u1", "tinyint": ">i2", "smallint": ">i2", "int": ">i4", "bigint": ">i8", "float": ">f4",
          "double": ">f8", "date": ">i4", "timestamp": ">i8", "timestamp_ntz": ">i8"}  # fmt: skip
_LENGTH = ">i4"
_ROWS_AT_ONCE = 1 << 14


def is_binary(kinds: Mapping[str, str]) -> bool:
    """Whether columns of these types have a binary form here."""
    return all(kind in _FIXED or kind == "string" for kind in kinds.values())


def binary_rows(rows: pa.Table, kinds: Mapping[str, str]) -> Iterator[bytes]:
    """The rows, in parts that are to be sent one after the other; `kinds` are the types of the columns in order."""
    yield _HEAD
    for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
        part = rows.slice(start, _ROWS_AT_ONCE).combine_chunks()
        yield _encoded(part, list(kinds.values()))
    yield _TAIL


class _Records:
    """Fields of a fixed size that follow each other in every row."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.fields: list[tuple[str, Any]] = []

    def add(self, kind: str, values: Any) -> None:
        self.fields.append((kind, values))

    def taken(self) -> pa.Array:
        """The bytes of each row; begins anew."""
        import numpy as np

        record = np.dtype([(f"f{number}", kind) for number, (kind, _) in enumerate(self.fields)])
        found = np.empty(self.rows, record)
        for number, (_, values) in enumerate(self.fields):
            found[f"f{number}"] = values
        self.fields = []
        return _binary(found, np.arange(self.rows + 1, dtype="int32") * record.itemsize)


def _binary(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets.astype("int32")), pa.py_buffer(np.ascontiguousarray(data).view("u1"))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _encoded(rows: pa.Table, kinds: list[str]) -> bytes:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    records, pieces = _Records(rows.num_rows), list[pa.Array]()
    records.add(">i2", rows.num_columns)
    for column, kind in zip(rows.columns, kinds, strict=True):
        values = pa.concat_arrays(column.chunks)
        if kind == "string":
            records.add(_LENGTH, pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False))
            pieces += [records.taken(), pc.fill_null(values, "").cast(pa.binary())]
            continue
        size = np.dtype(_FIXED[kind]).itemsize
        if not values.null_count:
            records.add(_LENGTH, size)
            records.add(_FIXED[kind], _numbers(values, kind))
            continue
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        records.add(_LENGTH, np.where(valid, size, -1))
        there = _numbers(values.drop_null(), kind).astype(_FIXED[kind])
        pieces += [records.taken(), _binary(there, np.concatenate([[0], np.cumsum(valid * size)]))]
    if records.fields:
        pieces.append(records.taken())
    joined = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, b"")
    return bytes(joined.buffers()[2])


def _numbers(values: pa.Array, kind: str) -> np.ndarray:
    """Values as the server counts them; there are no nulls among them."""
    import numpy as np
    import pyarrow as pa

    if kind.startswith("timestamp"):
        micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        return np.asarray(micros.to_numpy() - _MICROS_TO_2000)
    if kind == "date":
        return np.asarray(values.cast(pa.int32()).to_numpy() - _DAYS_TO_2000)
    return np.asarray(values.to_numpy(zero_copy_only=False))
