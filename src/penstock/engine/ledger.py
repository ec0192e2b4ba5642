"""What happened to the rows of each batch, kept in one SQLite file beside the checkpoint.

A batch is written before Spark commits it; if it is run again after a crash, it replaces its own entry. A run claims
the ledger with its epoch when it starts; after that no older run can write to it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.components.base import Noted
from penstock.components.shared.checksum import Change
from penstock.errors import PenstockError
from penstock.reports.codec import plain

_TABLE = """CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,
    rows_in TEXT NOT NULL, rows_dead TEXT NOT NULL, rows_out TEXT NOT NULL, late TEXT NOT NULL DEFAULT '{}',
    corrections TEXT NOT NULL DEFAULT '{}', filtered TEXT NOT NULL DEFAULT '{}',
    replayed TEXT NOT NULL DEFAULT '{}', checksums TEXT NOT NULL DEFAULT '{}', changed TEXT NOT NULL DEFAULT '{}',
    noted TEXT NOT NULL DEFAULT '{}')"""
_TIMES = """CREATE TABLE IF NOT EXISTS times (batch INTEGER NOT NULL, start INTEGER NOT NULL, what TEXT NOT NULL,
    node TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (start, batch, what, node)) WITHOUT ROWID"""
_LEASE = """CREATE TABLE IF NOT EXISTS lease (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL)"""
_GAPS = """CREATE TABLE IF NOT EXISTS gaps (sink TEXT NOT NULL, position INTEGER NOT NULL, noted INTEGER NOT NULL,
    rows INTEGER NOT NULL, accepted TEXT, PRIMARY KEY (sink, position, noted))"""
_COLUMNS = "batch, epoch, rows_in, rows_dead, rows_out, late, corrections, filtered, replayed, checksums"
_ADDED = ("late", "corrections", "filtered", "replayed", "checksums", "changed", "noted")
"""Columns that ledgers of earlier versions lack."""


@dataclass(frozen=True)
class BatchEntry:
    """Row counts of one batch: read and set aside per source, late and corrected per step, stored per sink."""

    batch: int
    epoch: int
    rows_in: Mapping[str, int] = field(default_factory=dict)
    rows_dead: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    """Results that rows came too late for; a row counts once for each window it missed."""
    corrections: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    """Rows that a filter or a route lets go nowhere."""
    replayed: Mapping[str, int] = field(default_factory=dict)
    """Dead letters that were fed back, by the source, step or sink they were given to."""

    checksums: Mapping[str, int] = field(default_factory=dict)
    """Sums of the checksums of the rows that went to each sink."""

    def counts(self) -> tuple[Mapping[str, int], ...]:
        return (self.rows_in, self.rows_dead, self.rows_out, self.late, self.corrections, self.filtered, self.replayed,
                self.checksums)  # fmt: skip


@dataclass(frozen=True)
class SinkNotes:
    """What is kept of each sink with a batch, by the name the sink knows itself by."""

    noted: Mapping[str, Noted] = field(default_factory=dict)
    """How far it is after the batch; sinks of earlier batches too."""
    changed: Mapping[str, Change] = field(default_factory=dict)
    """By how much the content of a sink with a key has changed with the batch."""


@dataclass(frozen=True)
class Gap:
    """Batches that a sink has lost: those after the position it was found at, up to the one noted last."""

    sink: str
    position: int
    noted: int
    rows: int
    accepted: str | None = None
    """When it was accepted."""

    def covers(self, batch: int) -> bool:
        return self.position < batch <= self.noted


class Ledger:
    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self._connect()) as db:
            db.execute(_TABLE)
            db.execute(_TIMES)
            db.execute(_LEASE)
            db.execute(_GAPS)
            present = {row[1] for row in db.execute("PRAGMA table_info(batches)")}
            for column in (column for column in _ADDED if column not in present):
                db.execute(f"ALTER TABLE batches ADD COLUMN {column} TEXT NOT NULL DEFAULT '{{}}'")

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        # Otherwise a power failure right after a commit can bring back the journal that takes it back.
        db.execute("PRAGMA synchronous = EXTRA")
        return db

    def claim(self, epoch: int) -> None:
        """Keeps older runs from writing from now on; raises FENCED if this one is such a run itself."""
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            self._refuse_older(db, epoch)
            db.execute("INSERT OR REPLACE INTO lease (one, epoch) VALUES (1, ?)", (epoch,))
            db.execute("COMMIT")

    def _refuse_older(self, db: sqlite3.Connection, epoch: int) -> None:
        found = db.execute("SELECT epoch FROM lease").fetchone()
        if found is not None and found[0] > epoch:
            raise PenstockError.of("FENCED", path=self.file.parent, newer=found[0], epoch=epoch)

    def record(
        self,
        entry: BatchEntry,
        times: Mapping[tuple[str, str], Mapping[int, int]] | None = None,
        notes: SinkNotes | None = None,
    ) -> None:
        """Keeps a batch, and its rows by the start of their window: by what became of them, and where."""
        notes = notes or SinkNotes()
        kept = (*map(dict, entry.counts()), plain(notes.changed), plain(notes.noted))
        values = (entry.batch, entry.epoch, *map(json.dumps, kept))
        by_window = [
            (entry.batch, start, what, node, rows)
            for (what, node), found in (times or {}).items()
            for start, rows in found.items()
        ]
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            self._refuse_older(db, entry.epoch)
            db.execute(
                f"INSERT OR REPLACE INTO batches ({_COLUMNS}, changed, noted) VALUES ({', '.join('?' * len(values))})",
                values,
            )
            db.execute("DELETE FROM times WHERE batch = ?", (entry.batch,))
            db.executemany("INSERT INTO times (batch, start, what, node, rows) VALUES (?, ?, ?, ?, ?)", by_window)
            db.execute("COMMIT")

    def entries(self, first: int = 0) -> list[BatchEntry]:
        with closing(self._connect()) as db:
            query = f"SELECT {_COLUMNS} FROM batches WHERE batch >= ? ORDER BY batch"
            return [_entry(row) for row in db.execute(query, (first,))]

    def noted(self, until: int) -> dict[str, Noted]:
        """How far each sink was after a batch, as far as it is known."""
        with closing(self._connect()) as db:
            query = "SELECT noted FROM batches WHERE batch <= ? AND noted <> '{}' ORDER BY batch DESC LIMIT 1"
            found = db.execute(query, (until,)).fetchone()
        return {} if found is None else {name: Noted(**item) for name, item in json.loads(found[0]).items()}

    def changed(self) -> dict[str, dict[int, Change]]:
        """By how much each batch has changed the content of sinks with a key, by sink and batch."""
        found: dict[str, dict[int, Change]] = {}
        with closing(self._connect()) as db:
            for batch, text in db.execute("SELECT batch, changed FROM batches WHERE changed <> '{}' ORDER BY batch"):
                for sink, item in json.loads(text).items():
                    found.setdefault(sink, {})[batch] = Change(**item)
        return found

    # --- batches that sinks have lost ------------------------------------------------------------------------

    def gaps(self) -> list[Gap]:
        with closing(self._connect()) as db:
            query = "SELECT sink, position, noted, rows, accepted FROM gaps ORDER BY sink, noted, position"
            return [Gap(*row) for row in db.execute(query)]

    def note_gap(self, gap: Gap) -> None:
        with closing(self._connect()) as db:
            values = (gap.sink, gap.position, gap.noted, gap.rows)
            db.execute("INSERT OR IGNORE INTO gaps (sink, position, noted, rows) VALUES (?, ?, ?, ?)", values)

    def accept_gap(self, gap: Gap, at: str) -> None:
        with closing(self._connect()) as db:
            values = (at, gap.sink, gap.position, gap.noted)
            db.execute("UPDATE gaps SET accepted = ? WHERE sink = ? AND position = ? AND noted = ?", values)

    def windows(self) -> dict[int, BatchEntry]:
        """What became of the rows of each window of event time, by its start in milliseconds."""
        query = "SELECT start, what, node, SUM(rows), MAX(batch) FROM times GROUP BY start, what, node ORDER BY start"
        found: dict[int, dict[str, dict[str, int]]] = {}
        last: dict[int, int] = {}
        with closing(self._connect()) as db:
            for start, what, node, rows, batch in db.execute(query):
                found.setdefault(start, {}).setdefault(what, {})[node] = rows
                last[start] = max(batch, last.get(start, 0))
        return {start: BatchEntry(last[start], 0, **counts) for start, counts in found.items()}

    def copy_until(self, target: Path, batch: int) -> BatchEntry:
        """Copies the ledger, up to a batch and while others write to it; what that adds up to."""
        with closing(self._connect()) as db, closing(sqlite3.connect(target, isolation_level=None)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            for table in ("batches", "times"):
                copy.execute(f"DELETE FROM {table} WHERE batch > ?", (batch,))
            copy.execute("DELETE FROM gaps WHERE noted > ?", (batch,))
        return Ledger(target).totals()

    def totals(self) -> BatchEntry:
        """All batches added up."""
        entries = self.entries()
        last = entries[-1] if entries else BatchEntry(-1, 0)
        sums = [add(parts) for parts in zip(*(entry.counts() for entry in [BatchEntry(-1, 0), *entries]), strict=True)]
        return BatchEntry(last.batch, last.epoch, *sums)


def add(counts: Any) -> dict[str, int]:
    """Sums counts by name."""
    total: dict[str, int] = {}
    for part in counts:
        for name, rows in part.items():
            total[name] = total.get(name, 0) + rows
    return total


def _entry(row: tuple[Any, ...]) -> BatchEntry:
    batch, epoch, *counts = row
    return BatchEntry(batch, epoch, *(json.loads(part) for part in counts))
