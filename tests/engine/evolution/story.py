"""A pipeline that is changed while rows come in, and what must be in its sinks in the end, by plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.engine.running import course, json_lines, table

from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_FAR = 86_400
_LAST = "zzz"
"""The user of the row that moves the watermark past all others; it counts for nothing."""

VIEWS = """\
views:
  files: {path: ./views, maxFilesPerBatch: 1}
  format: {json: {schema: {id: bigint, ts: timestamp, user: string, amount: bigint}}}
  eventTime: {column: ts, maxDelay: 30 seconds}
"""
CLICKS = """\
clicks:
  files: {path: ./clicks, maxFilesPerBatch: 1}
  format: {json: {schema: {view: bigint, at: timestamp}}}
  eventTime: {column: at, maxDelay: 30 seconds}
"""
WINDOW = "window: {size: 1 minute, by: [user], values: {n: count(*), total: sum(amount)}}"
ROLLING = "rolling: {by: [user], over: 5 minutes, values: {seen: count(*), spent: sum(amount)}}"
LATEST = "latest: {by: [user], order: [id]}"
NATIVE = 'sql: "SELECT user, count(*) AS n, max(amount) AS most FROM views GROUP BY user"'
JOIN = "join: {with: clicks, on: {id: view}, how: inner, within: [0 seconds, 2 minutes]}"
PAIRED = (
    "from: [views, clicks], sql: 'SELECT v.id FROM views v JOIN clicks c ON v.id = c.view AND c.at >= v.ts "
    "AND c.at <= v.ts + INTERVAL 2 MINUTES'"
)
KEYS = {"per_minute": "user, window_start", "recent": "id", "newest": "user", "per_user": "user", "clicked": "id"}


@dataclass(frozen=True)
class Row:
    id: int
    second: float
    user: str
    amount: int


@dataclass
class Story:
    """Rows that come in file by file, and a pipeline that may be another one each time."""

    project: Project
    seed: int = 1
    views: list[Row] = field(default_factory=list)
    clicks: list[tuple[int, float]] = field(default_factory=list)
    files: int = 0

    @property
    def state(self) -> Path:
        return self.project.folder / "state"

    def more(self, files: int = 1, rows: int = 24) -> None:
        """Further files of both sources."""
        for _ in range(files):
            chance = random.Random(self.seed * 1000 + self.files)
            first = self.files * rows
            views = [Row(id, id * 10 + chance.random() * 20, chance.choice("abcde"), id * 7 % 53) for id in
                     range(first, first + rows)]  # fmt: skip
            clicks = [(row.id, row.second + chance.choice([5.0, 60.0, 100.0, 200.0])) for row in views]
            self._put(views, [click for click in clicks if chance.random() < 0.7])

    def end(self) -> None:
        """A row of each source so late that all windows before it are closed."""
        self._put([Row(-1, _FAR, _LAST, 0)], [(-1, _FAR)])

    def _put(self, views: Sequence[Row], clicks: Sequence[tuple[int, float]]) -> None:
        order = random.Random(self.files)
        rows = [{"id": row.id, "ts": _time(row.second), "user": row.user, "amount": row.amount} for row in views]
        order.shuffle(rows)
        self.project.put(f"views/{self.files:03d}.json", json_lines(rows))
        self.project.put(
            f"clicks/{self.files:03d}.json", json_lines({"view": id, "at": _time(at)} for id, at in clicks)
        )
        self.views += [row for row in views if row.user != _LAST]
        self.clicks += [click for click in clicks if click[0] >= 0]
        self.files += 1

    def write(
        self,
        steps: Mapping[str, str],
        sources: Iterable[str] = (VIEWS,),
        sinks: Mapping[str, str] | None = None,
        extra: str = "",
        called: Mapping[str, str] | None = None,
    ) -> Path:
        """The pipeline. Steps read `views` unless they say otherwise; `sinks` are tables with what each stores."""
        lines = ["sources:", *(f"  {line}" for source in sources for line in source.splitlines()), "steps:"]
        lines += [
            f"  {name}: {{{step if 'from:' in step else f'from: views, {step}'}}}" for name, step in steps.items()
        ]
        kept = {name: name for name in steps if name in KEYS} if sinks is None else sinks
        lines += ["sinks:", *(_sink(name, step, called or {}) for name, step in kept.items())]
        return self.project.write("\n".join([*lines, extra]))

    def run(self, pipeline: Path, partitions: int = 2) -> None:
        spark = shared_session()
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        try:
            course(build(load(pipeline)), self.state)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")

    # --- what must be there ------------------------------------------------------------------------------

    def wanted(self, name: str, views: Sequence[Row] | None = None) -> list[tuple[Any, ...]]:
        rows = self.views if views is None else views
        match name:
            case "per_minute":
                found: dict[tuple[str, int], list[int]] = defaultdict(list)
                for row in rows:
                    found[row.user, int(row.second // 60) * 60].append(row.amount)
                return sorted((user, start, len(all), sum(all)) for (user, start), all in found.items())
            case "recent":
                return sorted((row.id, *_recent(row, rows)) for row in rows)
            case "newest":
                last = {row.user: row for row in sorted(rows, key=lambda row: row.id)}
                return sorted((user, row.id, row.amount) for user, row in last.items())
            case "per_user":
                counts = Counter(row.user for row in rows)
                return sorted(
                    (user, n, max(row.amount for row in rows if row.user == user)) for user, n in counts.items()
                )
            case _:
                shown = {row.id: row.second for row in rows}
                return sorted((id,) for id, at in self.clicks if id in shown and 0 <= _cut(at) - _cut(shown[id]) <= 120)

    def found(self, name: str) -> list[tuple[Any, ...]]:
        columns = {
            "per_minute": "user, window_start, n, total", "recent": "id, seen, spent", "newest": "user, id, amount",
            "per_user": "user, n, most", "clicked": "id",
        }[name]  # fmt: skip
        rows = table(self.project.folder / "out.db", f"SELECT {columns} FROM {name}")
        if name == "per_minute":
            rows = [(user, _seconds(start), n, total) for user, start, n, total in rows]
        return sorted(row for row in rows if _LAST not in row and row[0] != -1)

    def check(self, *names: str) -> None:
        for name in names:
            assert self.found(name) == self.wanted(name), name


def _recent(row: Row, rows: Sequence[Row]) -> tuple[int, int]:
    time = _cut(row.second)
    near = [one for one in rows if one.user == row.user and time - 300 < _cut(one.second) <= time]
    return len(near), sum(one.amount for one in near)


def _sink(table: str, step: str, called: Mapping[str, str]) -> str:
    name, _, renamed = called.get(table, f"{table}_table").partition(", ")
    return f"  {name}: {{from: {step}, {_table(table)}{f', {renamed}' if renamed else ''}}}"


def _table(step: str) -> str:
    key = f", key: [{KEYS[step]}]" if step in KEYS else ""
    return f"sqlite: {{path: ./out.db, table: {step}{key}}}"


def _time(second: float) -> str:
    return (START + dt.timedelta(milliseconds=round(second * 1000))).isoformat()


def _cut(second: float) -> float:
    return round(second * 1000) / 1000


def _seconds(stored: Any) -> int:
    """Of a time as SQLite has it, since the start."""
    if isinstance(stored, int):
        return stored // 1_000_000 - int(START.timestamp())
    moment = dt.datetime.fromisoformat(str(stored).replace("Z", "+00:00"))
    return round((moment.replace(tzinfo=dt.UTC) - START).total_seconds())
