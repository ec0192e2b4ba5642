"""Two versions of a pipeline over one stream of rows, and what must be in the sinks when one takes over from the other.

The first keeps all rows, the second only those with an even amount. A sink of rows and a sink of windows are appended
to, so a row that is lost or stored twice shows.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.engine.running import course, json_lines, table

from penstock.components.sinks.files import read_files
from penstock.engine.checkpoint import last_committed
from penstock.engine.checkpoint_cut import offsets_of
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.ledger import read_ledger
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

_START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ROWS_PER_FILE = 20
_SECONDS_PER_ROW = 6
_WINDOW = 60
_FAR = 10_000_000

_PIPELINE = """\
sources:
  events:
    files: {{path: ./in, maxFilesPerBatch: 1}}
    format: {{json: {{schema: {{id: bigint, ts: timestamp, user: string, amount: bigint}}}}}}
    eventTime: {{column: ts, maxDelay: 30 seconds}}
steps:
  kept: {{from: events, sql: "SELECT * FROM events WHERE {condition}"}}
{more}  per_minute: {{from: kept, window: {{size: 1 minute, by: [user], values: {{n: count(*), ids: sum(id)}}}}}}
sinks:
  rows: {{from: kept, sqlite: {{path: ./out.db, table: rows}}}}
  windows: {{from: per_minute, sqlite: {{path: ./out.db, table: windows}}}}
  files: {{from: kept, files: {{path: ./out, compact: 3}}}}
state: {{partitions: {partitions}}}
"""
_NEWEST = "  newest: {from: events, latest: {by: [user], order: [id]}}\n"
_NEWEST_SINK = "  newest_rows: {from: newest, sqlite: {path: ./out.db, table: newest, key: [user]}}\n"


Windows = dict[tuple[str, int], tuple[int, int]]
"""How many rows, and the sum of their ids, by user and start."""


@dataclass(frozen=True)
class Row:
    id: int
    second: int
    user: str
    amount: int
    file: int

    @property
    def window(self) -> tuple[str, int]:
        return self.user, self.second // _WINDOW * _WINDOW


@dataclass
class Twins:
    """A folder with both versions and their input, which comes file by file, one for each batch."""

    project: Project
    seed: int = 1
    rows: list[Row] = field(default_factory=list)
    files: int = 0
    stored_by: list[tuple[int, str]] = field(default_factory=lambda: [(0, "old")])
    """From which file on which version has stored rows."""
    counted_by: list[tuple[int, str]] = field(default_factory=lambda: [(0, "old")])
    """From which file on which version's state has counted them."""
    given: Windows = field(default_factory=dict)
    """Windows that were there when a version last took over."""

    @property
    def folder(self) -> Path:
        return self.project.folder

    @property
    def state(self) -> Path:
        return self.folder / ".penstock" / "demo"

    def write(self, *, partitions: int = 2, more: bool = True) -> tuple[Path, Path]:
        """Both versions. The second has one step more with state, so that it has to be carried over."""
        old = _PIPELINE.format(condition="amount >= 0", more="", partitions=2)
        new = _PIPELINE.format(condition="amount % 2 = 0", more=_NEWEST if more else "", partitions=partitions)
        if more:
            new = new.replace("state:", f"{_NEWEST_SINK}state:")
        return self.project.write(old, "old.yaml"), self.project.write(new, "new.yaml")

    def more(self, files: int = 1) -> None:
        for _ in range(files):
            chance = random.Random(self.seed * 1000 + self.files)
            first = self.files * ROWS_PER_FILE
            found = [
                Row(id, _second(id, chance), chance.choice("abc"), chance.randrange(9), self.files)
                for id in range(first, first + ROWS_PER_FILE)
            ]
            chance.shuffle(found)
            self._put(found)

    def end(self) -> None:
        """A row so late that all windows before it are closed; it counts for nothing."""
        self._put([Row(-1, _FAR, "z", 0, self.files)])

    def _put(self, rows: list[Row]) -> None:
        listed = [{"id": row.id, "ts": _time(row.second), "user": row.user, "amount": row.amount} for row in rows]
        self.project.put(f"in/{self.files:04d}.json", json_lines(listed))
        self.rows += [row for row in rows if row.id >= 0]
        self.files += 1

    def run(self, pipeline: Path) -> None:
        course(build(load(pipeline)), self.state)

    # --- what must be there ------------------------------------------------------------------------------

    def read(self, batch: int | None = None) -> int:
        """How many files have been read after a batch, by default the last."""
        checkpoint = self.state / "checkpoint"
        found = offsets_of(checkpoint, last_committed(checkpoint) if batch is None else batch)
        return int(found["events"]["logOffset"]) + 1

    def stored_windows(self) -> Windows:
        """What is stored of windows; each is there once."""
        rows = self._table("user, window_start, n, ids", "windows")
        found = [((user, _seconds(start)), (n, ids)) for user, start, n, ids in rows]
        assert max(Counter(window for window, _ in found).values(), default=1) == 1
        return {window: values for window, values in found if window[0] != "z"}

    def stored_rows(self) -> list[int]:
        return sorted(id for (id,) in self._table("id", "rows") if id >= 0)

    def stored_files(self) -> list[int]:
        rows = read_files(shared_session(), str(self.folder / "out"))
        return sorted(row.id for row in rows.collect() if row.id >= 0)

    def _table(self, columns: str, name: str) -> list[tuple[Any, ...]]:
        return table(self.folder / "out.db", f"SELECT {columns} FROM {name}")

    def taken(self, version: str, saved: int) -> None:
        """A version has taken over that had begun after so many files; call it before anything is run."""
        self.given = self.stored_windows()
        self.stored_by.append((self.read(), version))
        self.counted_by = [(first, by) for first, by in self.counted_by if first < saved] + [(saved, version)]

    def check(self) -> None:
        """After the end: what a version had given stays, and the next has counted on with what it kept itself."""
        rows = sorted(row.id for row in self.rows if _keeps(self.stored_by, row))
        assert self.stored_rows() == rows
        assert self.stored_files() == rows
        assert read_ledger(load(self.folder / "old.yaml"), self.state).verdict == "sealed"
        found: dict[tuple[str, int], list[int]] = {}
        for row in self.rows:
            if _keeps(self.counted_by, row):
                found.setdefault(row.window, []).append(row.id)
        assert self.stored_windows() == {window: (len(ids), sum(ids)) for window, ids in found.items()} | self.given


def _keeps(versions: list[tuple[int, str]], row: Row) -> bool:
    """Whether the version that had to do with a row keeps it."""
    version = [by for first, by in versions if first <= row.file][-1]
    return version == "old" or row.amount % 2 == 0


def _second(id: int, chance: random.Random) -> int:
    return id * _SECONDS_PER_ROW + chance.randrange(20)


def _time(second: int) -> str:
    return (_START + dt.timedelta(seconds=second)).isoformat()


def _seconds(stored: Any) -> int:
    """Of a time as SQLite has it, since the start."""
    if isinstance(stored, int):
        return stored // 1_000_000 - int(_START.timestamp())
    moment = dt.datetime.fromisoformat(str(stored).replace("Z", "+00:00"))
    return round((moment.replace(tzinfo=dt.UTC) - _START).total_seconds())
