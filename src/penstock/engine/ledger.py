"""What happened to the rows of each batch, kept in one SQLite file beside the checkpoint.

A batch is written before Spark commits it; if it is run again after a crash, it replaces its own entry.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TABLE = """CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,
    rows_in TEXT NOT NULL, rows_dead TEXT NOT NULL, rows_out TEXT NOT NULL)"""


@dataclass(frozen=True)
class BatchEntry:
    """Row counts of one batch: read and set aside per source, stored per sink."""

    batch: int
    epoch: int
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_dead: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)


class Ledger:
    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self._connect()) as db:
            db.execute(_TABLE)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=30, isolation_level=None)

    def record(self, entry: BatchEntry) -> None:
        counts = [json.dumps(dict(part)) for part in (entry.rows_in, entry.rows_dead, entry.rows_out)]
        with closing(self._connect()) as db:
            db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?)", (entry.batch, entry.epoch, *counts))

    def entries(self, first: int = 0) -> list[BatchEntry]:
        with closing(self._connect()) as db:
            query = "SELECT batch, epoch, rows_in, rows_dead, rows_out FROM batches WHERE batch >= ? ORDER BY batch"
            return [_entry(row) for row in db.execute(query, (first,))]

    def totals(self) -> BatchEntry:
        """All batches added up."""
        entries = self.entries()
        return BatchEntry(
            batch=entries[-1].batch if entries else -1,
            epoch=entries[-1].epoch if entries else 0,
            rows_in=add(entry.rows_in for entry in entries),
            rows_dead=add(entry.rows_dead for entry in entries),
            rows_out=add(entry.rows_out for entry in entries),
        )


def add(counts: Any) -> dict[str, int]:
    """Sums counts by name."""
    total: dict[str, int] = {}
    for part in counts:
        for name, rows in part.items():
            total[name] = total.get(name, 0) + rows
    return total


def _entry(row: tuple[int, int, str, str, str]) -> BatchEntry:
    batch, epoch, *counts = row
    rows_in, rows_dead, rows_out = (json.loads(part) for part in counts)
    return BatchEntry(batch, epoch, rows_in, rows_dead, rows_out)
