"""A pipeline to be killed: rows with ids, some of them unreadable, and what must be found in its sinks afterwards."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
from deltalake import DeltaTable

from penstock.frontends.load import load
from penstock.runner.ledger import read_ledger
from penstock.runner.replay import replay_dead
from penstock.testing import CrashTest

if TYPE_CHECKING:
    from tests.faults.outside import Outside

FILES = 9
ROWS_PER_FILE = 40
_START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_SECONDS_PER_ROW = 3
_WINDOW = 60
_MAX_DELAY = 30
_OVER = 300
_WITH_BAD_ROWS = (0, 2, 4, 7)

_HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: victim}
spec:
  state: {partitions: 2}
  sources:
    events:
      files: {path: ./in, maxFilesPerBatch: 1}
      format: {json: {schema: {id: bigint, ts: timestamp, user: string, amount: bigint}}}
      eventTime: {column: ts, maxDelay: 30 seconds}
"""
_HISTORY = """\
      bootstrap: {{files: {{path: ./old}}, until: "{until}"}}
"""
_RULE = "id % 20 <> 13"
_RULED = """\
    known: {{from: events, expect: {{rule: {rule}}}}}
"""
_WINDOWED = """\
    per_minute:
      from: events
      sql: |
        SELECT unix_timestamp(window.start) AS minute, user, count(*) AS events, sum(amount) AS total, sum(id) AS ids
        FROM events GROUP BY window(ts, '1 minute'), user
"""
_ROLLED = """\
    recent: {from: events, rolling: {by: [user], over: 5 minutes, values: {seen: count(*), spent: sum(amount)}}}
"""
_ROUTED = """\
    by_user: {from: events, route: {by: user, to: {first: u0, rest: otherwise}}}
"""
_SINKS = {
    "row_files": "{from: events, files: {path: ./out/rows, compact: 3}}",
    "row_table": "{from: events, sqlite: {path: ./out/out.db, table: row_table}}",
    "row_latest": "{from: events, sqlite: {path: ./out/out.db, table: row_latest, key: [id]}}",
    "row_delta": "{from: events, delta: {path: ./out/row_delta}}",
    "latest_delta": "{from: events, delta: {path: ./out/latest_delta, key: [id]}}",
    "window_files": "{from: per_minute, files: {path: ./out/windows, compact: 3}}",
    "window_table": "{from: per_minute, sqlite: {path: ./out/out.db, table: window_table}}",
    "window_latest": "{from: per_minute, sqlite: {path: ./out/out.db, table: window_latest, key: [minute, user]}}",
    "rolled_table": "{from: recent, sqlite: {path: ./out/out.db, table: rolled_table}}",
    "routed_first": "{from: by_user.first, sqlite: {path: ./out/out.db, table: routed_first}}",
    "routed_rest": "{from: by_user.rest, files: {path: ./out/rest, format: json}}",
}
_FOLDERS = {"row_files": "rows", "window_files": "windows", "routed_rest": "rest"}
ROW_SINKS = ("row_files", "row_table", "row_latest")
DELTA_SINKS = ("row_delta", "latest_delta")
WINDOW_SINKS = ("window_files", "window_table", "window_latest")
ROLLED_SINKS = ("rolled_table",)
ROUTED_SINKS = ("routed_first", "routed_rest")

Window = tuple[int, str, int, int, int]
Rolled = tuple[int, int, int]


@dataclass(frozen=True)
class Victim:
    """A folder with a pipeline, its input, and the sinks that were chosen for it."""

    folder: Path
    sinks: tuple[str, ...]
    files: int = FILES
    outside: tuple[Outside, ...] = ()
    """Sinks on servers, which get all rows."""
    history: int = 0
    """How many of the files are history, which is read first."""
    ruled: bool = False
    """Whether there is a rule that some rows break; only for sinks of rows."""
    good: dict[int, dict[str, Any]] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)
    mended: list[str] = field(default_factory=list)
    """The rule that was put in place of the first one."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("in", "old"):
            (self.folder / name).mkdir()
        for number in range(self.files):
            self._add_file(number)
        self._write_pipeline()

    def _write_pipeline(self) -> None:
        until = _START + dt.timedelta(seconds=self.history * ROWS_PER_FILE * _SECONDS_PER_ROW)
        head = _HEAD + (_HISTORY.format(until=until.isoformat()) if self.history else "")
        wanted = ((WINDOW_SINKS, _WINDOWED), (ROLLED_SINKS, _ROLLED), (ROUTED_SINKS, _ROUTED))
        steps = "".join(text for names, text in wanted if any(sink in names for sink in self.sinks))
        steps += _RULED.format(rule=[_RULE, *self.mended][-1]) if self.ruled else ""
        sinks = "".join(f"    {name}: {_SINKS[name]}\n" for name in self.sinks)
        sinks += "".join(f"    {item.kind}: {{from: events, {item.config}}}\n" for item in self.outside)
        if self.ruled:
            sinks = sinks.replace("{from: events,", "{from: known,")
        text = f"{head}{'  steps:' if steps else ''}\n{steps}  sinks:\n{sinks}"
        self.pipeline.write_text(text, "utf-8")

    @property
    def pipeline(self) -> Path:
        return self.folder / "victim.yaml"

    @property
    def state(self) -> Path:
        return self.folder / ".penstock" / "victim"

    def _add_file(self, number: int) -> None:
        """One file is one batch: files are read by the time they were changed."""
        lines = []
        for row_id in range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE):
            time = _START + dt.timedelta(seconds=row_id * _SECONDS_PER_ROW)
            row = {"id": row_id, "ts": time.isoformat(), "user": f"u{row_id % 3}", "amount": row_id * 7 % 101}
            place = row_id % ROWS_PER_FILE
            if number in _WITH_BAD_ROWS and place in (5, 11, 17):
                self.bad.add(row_id)
                lines.append(_spoilt(row, place))
            else:
                self.good[row_id] = row
                lines.append(json.dumps(row))
        random.Random(number).shuffle(lines)
        hidden = self.folder / f".{number:04d}.json"
        hidden.write_text("\n".join(lines) + "\n", "utf-8")
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(self.folder / ("old" if number < self.history else "in") / f"{number:04d}.json")

    # --- running -----------------------------------------------------------------------------------------

    @cached_property
    def crashes(self) -> CrashTest:
        env = {name: value for item in self.outside for name, value in item.env.items()}
        return CrashTest(self.pipeline, check=self.check_nothing_twice, env=env)

    def finish(self) -> None:
        """Lets it come to its end, and looks at everything."""
        self.crashes.finish()
        self.check_complete()

    def mend(self) -> int:
        """Changes the rule so that all rows keep to it, and feeds those back that broke it; how many."""
        self.mended.append("id >= 0")
        self._write_pipeline()
        return sum(item.rows for item in replay_dead(load(self.pipeline), self.state, "known").steps)

    # --- what must be there ------------------------------------------------------------------------------

    @property
    def against_the_rule(self) -> set[int]:
        return {row_id for row_id in self.good if row_id % 20 == 13} if self.ruled else set()

    def ids(self, sink: str) -> set[int]:
        """The rows that a sink of rows must hold in the end."""
        if sink in ROUTED_SINKS:
            return {row_id for row_id, row in self.good.items() if (row["user"] == "u0") == (sink == "routed_first")}
        return set(self.good) - (set() if self.mended else self.against_the_rule)

    @cached_property
    def windows(self) -> list[Window]:
        """The windows that are closed once all rows have been read, computed without Spark."""
        newest = max(self.good) * _SECONDS_PER_ROW
        found: dict[tuple[int, str], list[int]] = {}
        for row_id, row in self.good.items():
            start = row_id * _SECONDS_PER_ROW // _WINDOW * _WINDOW
            found.setdefault((start, row["user"]), []).append(row_id)
        return sorted(
            (int(_START.timestamp()) + start, user, len(ids), sum(self.good[i]["amount"] for i in ids), sum(ids))
            for (start, user), ids in found.items()
            if start + _WINDOW <= newest - _MAX_DELAY
        )

    @cached_property
    def rolled(self) -> list[Rolled]:
        """Each row that the watermark has passed, with what its user did in the minutes before it."""
        newest = max(self.good) * _SECONDS_PER_ROW
        found = []
        for row_id in self.good:
            time = row_id * _SECONDS_PER_ROW
            first = (time - _OVER) // _SECONDS_PER_ROW + 1
            recent = [other for other in range(first, row_id + 1) if other in self.good and other % 3 == row_id % 3]
            if time <= newest - _MAX_DELAY:
                found.append((row_id, len(recent), sum(self.good[other]["amount"] for other in recent)))
        return sorted(found)

    # --- what is there -----------------------------------------------------------------------------------

    def stored(self, sink: str) -> list[dict[str, Any]]:
        """The committed rows of a sink."""
        if sink in _FOLDERS:
            return committed_rows(self.folder / "out" / _FOLDERS[sink])
        if sink in DELTA_SINKS:
            place = str(self.folder / "out" / sink)
            return DeltaTable(place).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(place) else []
        database = self.folder / "out" / "out.db"
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(f"SELECT * FROM {sink}")]

    def dead_letters(self) -> list[dict[str, Any]]:
        return committed_rows(self.state / "dead")

    def ledger(self) -> dict[str, dict[str, int]]:
        """Rows in, dead and out, added up over all batches."""
        totals: dict[str, Counter[str]] = {"in": Counter(), "dead": Counter(), "out": Counter()}
        with closing(sqlite3.connect(self.state / "ledger.db")) as db:
            for row in db.execute("SELECT rows_in, rows_dead, rows_out FROM batches"):
                for total, text in zip(totals.values(), row, strict=True):
                    total.update(json.loads(text))
        return {name: dict(total) for name, total in totals.items()}

    # --- comparison --------------------------------------------------------------------------------------

    def check_nothing_twice(self) -> None:
        """Holds at any moment, also right after a kill."""
        for item in self.outside:
            _refuse_wrong(item.ids(), self.ids(item.kind))
        for sink in self.sinks:
            if sink in ROLLED_SINKS:
                _refuse_wrong([_rolled(row) for row in self.stored(sink)], set(self.rolled))
            elif sink in WINDOW_SINKS:
                _refuse_wrong([_window(row) for row in self.stored(sink)], set(self.windows))
            else:
                _refuse_wrong([row["id"] for row in self.stored(sink)], self.ids(sink))

    def check_complete(self) -> None:
        """Nothing lost, nothing twice, and the ledger adds up."""
        for item in self.outside:
            assert sorted(item.ids()) == sorted(self.ids(item.kind)), item.kind
        for sink in self.sinks:
            if sink in ROLLED_SINKS:
                assert sorted(_rolled(row) for row in self.stored(sink)) == self.rolled, sink
            elif sink in WINDOW_SINKS:
                assert sorted(_window(row) for row in self.stored(sink)) == self.windows, sink
            else:
                rows, wanted = self.stored(sink), self.ids(sink)
                assert sorted(row["id"] for row in rows) == sorted(wanted), sink
                assert sum(row["amount"] for row in rows) == sum(self.good[row_id]["amount"] for row_id in wanted), sink
        dead = [_dead_id(letter["raw"]) for letter in self.dead_letters()]
        assert sorted(dead) == sorted(self.bad)
        broken = {"known": len(self.against_the_rule)} if self.ruled else {}
        assert self.ledger() == {
            "in": {"events": len(self.good) + len(self.bad)},
            "dead": {"events": len(self.bad), **broken},
            "out": {sink: self._expected_count(sink) for sink in self.all_sinks},
        }
        assert read_ledger(self.crashes.file, self.state).verdict == "sealed"

    @property
    def all_sinks(self) -> tuple[str, ...]:
        return (*self.sinks, *(item.kind for item in self.outside))

    def _expected_count(self, sink: str) -> int:
        if sink in ROLLED_SINKS:
            return len(self.rolled)
        return len(self.windows if sink in WINDOW_SINKS else self.ids(sink))


def _refuse_wrong(found: list[Any], wanted: set[Any]) -> None:
    assert repeated(found) == []
    assert set(found) <= wanted


def _spoilt(row: dict[str, Any], place: int) -> str:
    if place == 5:
        return json.dumps(row)[:-4]
    if place == 11:
        return json.dumps({**row, "amount": "much"})
    return json.dumps({**row, "ts": None})


def _dead_id(raw: str) -> int:
    return int(raw.split('"id":')[1].split(",")[0])


def _window(row: dict[str, Any]) -> Window:
    return (row["minute"], row["user"], row["events"], row["total"], row["ids"])


def _rolled(row: dict[str, Any]) -> Rolled:
    return (row["id"], row["seen"], row["spent"])


def repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def shown(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The manifests that count: one for many batches stands in for theirs."""
    return [
        one
        for one in manifests
        if not any(
            other["level"] > one["level"] and other["first"] <= one["first"] and one["batch"] <= other["batch"]
            for other in manifests
        )
    ]


def committed_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a files sink that its manifests name; what lies beside them does not count."""
    rows: list[dict[str, Any]] = []
    found = [json.loads(file.read_text("utf-8")) for file in sorted((folder / "_penstock" / "batches").glob("*.json"))]
    for manifest in shown(found):
        for file in manifest["files"]:
            path = folder / file["path"]
            assert path.stat().st_size == file["bytes"]
            if path.suffix == ".parquet":
                rows += pyarrow.parquet.ParquetFile(path).read().to_pylist()
            else:
                rows += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return rows


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see whether anything has changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
