"""Brings the rows of a batch to the driver in pieces, whatever their number.

Tasks write rows as Arrow streams into files of a folder that they share with the driver, which reads one piece at a
time. So neither the driver's JVM nor its Python process ever holds a whole batch. What a task has little of travels in
its answer, without a file.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.components.shared.arrow import in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

AT_HAND = 64 << 10
"""The most bytes that a task sends in its answer."""
_ANSWER = "path string, content binary, rows bigint, bytes bigint"


@dataclass(frozen=True)
class _Spooling:
    """What each task does with its rows; called by Spark's workers."""

    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        waiting: list[pa.RecordBatch] = []
        size = rows = 0
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if size > AT_HAND:
                break
        if not rows:
            return
        if size <= AT_HAND:
            sink = pa.BufferOutputStream()
            _write(sink, waiting)
            yield _answer(None, sink.getvalue().to_pybytes(), rows, size)
            return
        path = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        with pa.OSFile(path, "wb") as file, _stream(file, waiting[0].schema) as stream:
            while waiting:
                stream.write_batch(waiting.pop(0))
            for batch in batches:
                stream.write_batch(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        yield _answer(path, None, rows, size)


@dataclass(frozen=True)
class RowSpool:
    """The rows of a batch, to be read as often as need be."""

    parts: Sequence[tuple[str | None, bytes | None]]
    rows: int
    bytes: int
    """As they are in memory."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for path, content in self.parts:
            source = pa.BufferReader(content) if path is None else pa.OSFile(path, "rb")
            with source, pa.ipc.open_stream(source) as stream:
                yield from stream

    def pieces(self, size: int) -> Iterator[pa.Table]:
        """The rows in tables of about so many bytes."""
        import pyarrow as pa

        waiting: list[pa.RecordBatch] = []
        held = 0
        for batch in self.batches():
            waiting.append(batch)
            held += batch.nbytes
            if held >= size:
                yield pa.Table.from_batches(waiting)
                waiting, held = [], 0
        if waiting:
            yield pa.Table.from_batches(waiting)


@contextmanager
def spooled(rows: DataFrame, folder: Path | None) -> Iterator[RowSpool]:
    """Lets Spark compute the rows, once, and keeps them until the end of the block."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = tempfile.mkdtemp(prefix="rows-", dir=folder)
    try:
        answers = in_arrow(rows, _Spooling(place), _ANSWER).toArrow().to_pylist()
        parts = [(item["path"], item["content"]) for item in answers]
        yield RowSpool(parts, sum(item["rows"] for item in answers), sum(item["bytes"] for item in answers))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _stream(target: Any, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
    import pyarrow as pa

    return pa.ipc.new_stream(target, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))


def _write(target: Any, batches: Sequence[pa.RecordBatch]) -> None:
    with _stream(target, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def _answer(path: str | None, content: bytes | None, rows: int, size: int) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch(
        {
            "path": pa.array([path], pa.string()),
            "content": pa.array([content], pa.binary()),
            "rows": pa.array([rows], pa.int64()),
            "bytes": pa.array([size], pa.int64()),
        }
    )
