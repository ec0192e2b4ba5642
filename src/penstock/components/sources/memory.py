"""Rows handed over in the process or written in the file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.components.base import HEARTBEAT, RAW, ReadContext, Source
from penstock.components.shared.malformed import unreadable_fields
from penstock.spec.fields import Change, Holds, field
from penstock.spec.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Memory(Source):
    """Rows from the pipeline file itself or from a test: no files, no servers.

    Each batch handed over is read as one batch. Rows are plain mappings and are read as JSON would be; a text
    instead of a mapping is a malformed row.
    """

    name: ClassVar[str] = "memory"
    reads_ranges: ClassVar[bool] = True
    example: ClassVar[str] = """\
memory:
  schema: {id: string, ts: timestamp}
  rows: [{id: a, ts: "2024-01-01T00:00:00Z"}]
eventTime: {column: ts}
"""

    row_schema: Schema = field(alias="schema", doc="Columns and their types.", change=Change.BOOTSTRAP)
    rows: tuple[dict[str, Any] | str, ...] = field((), holds=Holds.TEXT, doc="Rows that are there from the start.")

    def read(self, context: ReadContext) -> DataFrame:
        spool = spool_folder(context.spool, context.node)
        if self.rows and not any(spool.iterdir()):
            append_batch(spool, self.rows)
        reader = context.spark.readStream.name(context.stream).format("json")
        return (
            reader.schema(f"{self.row_schema.ddl}, `{HEARTBEAT}` boolean, `{RAW}` string")
            .options(mode="PERMISSIVE", columnNameOfCorruptRecord=RAW, maxFilesPerTrigger="1")
            .load(str(spool))
        )

    def explain_malformed(self, context: ReadContext) -> Column:
        from pyspark.sql import functions as F

        parts = F.from_json(F.col(RAW), "map<string,string>")
        return unreadable_fields(self.row_schema, parts, "not a JSON object", None)


def spool_folder(root: Path, node: str) -> Path:
    """The folder from which the source of that name reads its batches."""
    folder = root / node
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def append_batch(spool: Path, rows: Iterable[Mapping[str, Any] | str]) -> None:
    """Hands one batch to a memory source; it becomes visible at once and whole."""
    number = sum(1 for _ in spool.glob("*.json"))
    lines = [row if isinstance(row, str) else json.dumps(row, default=str) for row in rows]
    hidden = spool / f".{number:09d}.tmp"
    hidden.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    # Spark reads files in the order of their times, which may tie: give each its own second.
    os.utime(hidden, (1_000_000_000 + number, 1_000_000_000 + number))
    hidden.rename(spool / f"{number:09d}.json")
