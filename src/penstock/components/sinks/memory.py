"""Keeps rows in the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import Batch, Sink, SinkContext, SinkWriter
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Row = dict[str, Any]
_batches: dict[tuple[str, str, str], dict[int, list[Row]]] = {}
"""Rows by (lineage, sink, key columns) and batch."""


class Memory(Sink):
    """Keeps rows in the process, for tests and notebooks; `penstock.testing` reads them. Gone when the process ends."""

    name: ClassVar[str] = "memory"
    guarantee: ClassVar[str] = "Once, while the process lives; nothing is left when it ends."
    example: ClassVar[str] = """\
from: views
memory: {key: [id]}
"""

    key: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns by which a later row replaces an earlier one.", change=Change.RESTART
    )

    @property
    def accepts_updates(self) -> bool:
        return True

    def open(self, context: SinkContext) -> SinkWriter:
        return _MemoryWriter(_batches.setdefault((context.lineage, context.node, ",".join(self.key)), {}))


class _MemoryWriter(SinkWriter):
    def __init__(self, batches: dict[int, list[Row]]) -> None:
        self.batches = batches

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        return batch.id not in self.batches and self.write_table(batch, rows.toArrow())

    def as_table(self, rows: DataFrame) -> DataFrame:
        return rows

    def write_table(self, batch: Batch, rows: pa.Table) -> bool:
        if batch.id in self.batches:
            return False
        self.batches[batch.id] = rows.to_pylist()
        return True

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        """Later batches go; in a process that was started since, nothing is there in any case."""
        for later in [number for number in self.batches if number > batch]:
            del self.batches[later]


def stored_batches(lineage: str, node: str, key: tuple[str, ...] = ()) -> Mapping[int, list[Row]]:
    """What a memory sink holds, by batch."""
    return _batches.get((lineage, node, ",".join(key)), {})


def stored_rows(lineage: str, node: str, key: tuple[str, ...] = ()) -> list[Row]:
    """The rows a memory sink holds, in the order of batches; with a key, the last row of each."""
    rows = [row for _, batch in sorted(stored_batches(lineage, node, key).items()) for row in batch]
    if not key:
        return rows
    return list({tuple(row[column] for column in key): row for row in rows}.values())


def forget(lineage: str) -> None:
    """Gives the memory of one run's sinks back."""
    for stored in [stored for stored in _batches if stored[0] == lineage]:
        del _batches[stored]
