"""Prints rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import Batch, Sink, SinkContext, SinkWriter
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Console(Sink):
    """Prints the first rows of each batch. For looking, not for keeping: after a crash a batch may be printed again."""

    name: ClassVar[str] = "console"
    guarantee: ClassVar[str] = "At least once: after a crash a batch may be printed again."
    example: ClassVar[str] = """\
from: views
console: {rows: 10}
"""

    rows: int = field(20, ge=1, le=10_000, doc="The most rows printed of one batch.", change=Change.RESTART)

    @property
    def accepts_updates(self) -> bool:
        return True

    def open(self, context: SinkContext) -> SinkWriter:
        return _ConsoleWriter(context.node, self.rows)


class _ConsoleWriter(SinkWriter):
    def __init__(self, node: str, rows: int) -> None:
        self.node = node
        self.rows = rows

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        """What is printed is not stored, so there is nothing to take back."""

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        from rich.console import Console as Terminal
        from rich.table import Table
        from rich.text import Text

        # The whole batch is evaluated, so that counts and state are right; only its head comes to the driver.
        kept = rows.persist()
        try:
            total = kept.count()
            shown = kept.limit(self.rows).toArrow()
        finally:
            kept.unpersist()
        if total == 0:
            return True
        more = f", first {self.rows} shown" if total > self.rows else ""
        # Names and values are shown as they are: in a plain text brackets would be taken for markup.
        table = Table()
        for column in shown.column_names:
            table.add_column(Text(column), overflow="fold")
        for row in shown.to_pylist():
            table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
        terminal = Terminal()
        terminal.print(Text(f"{self.node} · batch {batch.id} · {total:,} rows{more}"))
        terminal.print(table)
        return True
