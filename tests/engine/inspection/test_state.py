"""State that is shown, of every step that keeps any: it is what plain Python says must be kept, wherever it is read."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h3  # type: ignore[import-untyped]
import pytest
from tests.engine.running import course, json_lines

from penstock.engine.checkpoint import last_committed
from penstock.engine.savepoints.take import Wish
from penstock.engine.savepoints.trees import link_all
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.savepoints import create
from penstock.runner.state import Target, overview, shown, target_of
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark
Row = dict[str, Any]
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
DELAY = 60
PLACES = [(52.52, 13.405), (48.14, 11.58)]

PIPELINE = """\
sources:
  views:
    files: {path: ./views}
    format: {json: {schema: {id: bigint, ts: timestamp, user: string, amount: bigint, lat: double, lon: double}}}
    eventTime: {column: ts, maxDelay: 60 seconds}
  clicks:
    files: {path: ./clicks}
    format: {json: {schema: {view: bigint, at: timestamp, note: string}}}
    eventTime: {column: at, maxDelay: 60 seconds}
state: {partitions: 3}
steps:
  tumbling: {from: views, window: {size: 1 minute, by: [user], values: {n: count(*), total: sum(amount)}}}
  sliding: {from: views, window: {size: 2 minutes, slide: 1 minute, by: [user], values: {mean: avg(amount)}}}
  sessions: {from: views, window: {gap: 20 seconds, by: [user], values: {n: count(*)}}}
  trailing: {from: views, rolling: {by: [user], over: 90 seconds, values: {spent: sum(amount * 2), seen: count(*)}}}
  newest: {from: views, latest: {by: [user], order: [id]}}
  single: {from: views, dedupe: {by: [user], within: 30 seconds}}
  best: {from: views, top_n: {size: 1 minute, by: [user], order: [amount desc], n: 2}}
  around: {from: views, geo_window: {lat: lat, lon: lon, ring: 1, size: 1 minute, values: {n: count(*)}}}
  paired: {from: views, join: {with: clicks, on: {id: view}, how: left, within: [0 seconds, 2 minutes]}}
  kept: {from: views, changelog_join: {with: clicks, on: {id: view}, how: left}}
  native: {from: views, sql: "SELECT user, count(*) AS n FROM views GROUP BY user"}
  in_sql: {from: views, sql: "SELECT user, window, max(amount) m FROM views GROUP BY user, window(ts, '1 minute')"}
sinks:
"""
STEPS = [
    "tumbling", "sliding", "sessions", "trailing", "newest", "single", "best", "around", "paired", "kept", "native",
    "in_sql",
]  # fmt: skip
SOME = ["around", "paired", "native"]
KEYED = {"newest": "user", "kept": "id", "native": "user"}


def pipeline(project: Project, steps: Sequence[str] = STEPS) -> Path:
    sinks = [
        f"  {step}_table: {{from: {step}, sqlite: {{path: out.db, table: {step}{_key(step)}}}}}\n" for step in steps
    ]
    wanted = [line for line in PIPELINE.splitlines() if not _is_step(line) or line.split(":")[0].strip() in steps]
    return project.write("\n".join(wanted) + "\n" + "".join(sinks))


def _is_step(line: str) -> bool:
    return line.startswith("  ") and line.split(":")[0].strip() in STEPS


def _key(step: str) -> str:
    return f", key: [{KEYED[step]}]" if step in KEYED else ""


class Feed:
    """Files of views and clicks, in no order but never late."""

    def __init__(self, project: Project, seed: int = 1) -> None:
        self.project = project
        self.draw = random.Random(seed)
        self.views: list[Row] = []
        self.clicks: list[Row] = []
        self.files = 0

    def more(self, rows: int = 25) -> None:
        first = len(self.views)
        views: list[Row] = [
            {
                "id": id, "ts": (id * 7 + self.draw.randint(0, 40)) * 1000 + self.draw.randint(0, 999),
                "user": self.draw.choice(["ann", "bob", None]), "amount": self.draw.randint(0, 9) * 10 + id % 10,
                **dict(zip(("lat", "lon"), self.draw.choice(PLACES), strict=True)),
            }
            for id in range(first, first + rows)
        ]  # fmt: skip
        clicks: list[Row] = [
            {"view": row["id"], "at": row["ts"] + self.draw.choice([10, 50]) * 1000, "note": f"c{row['id']}"}
            for row in views
            if self.draw.random() < 0.5
        ]
        order = sorted(views, key=lambda row: self.draw.random())
        self._put("views", [{**row, "ts": _iso(row["ts"])} for row in order])
        self._put("clicks", [{**row, "at": _iso(row["at"])} for row in clicks])
        self.views += views
        self.clicks += clicks
        self.files += 1

    def _put(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.project.put(f"{name}/{self.files:03d}.json", json_lines(rows))

    @property
    def watermark(self) -> int:
        newest: int = min(max(row["ts"] for row in self.views), max(row["at"] for row in self.clicks))
        return newest - DELAY * 1000

    # --- what must be kept -------------------------------------------------------------------------------

    def wanted(self, step: str) -> list[Row]:
        return getattr(self, f"_{step}")()  # type: ignore[no-any-return]

    def _windows(self, size: int, slide: int) -> dict[tuple[str | None, int], list[Row]]:
        found: dict[tuple[str | None, int], list[Row]] = defaultdict(list)
        for row in self.views:
            start = row["ts"] // slide * slide
            while start > row["ts"] - size:
                if start + size > self.watermark:
                    found[row["user"], start].append(row)
                start -= slide
        return found

    def _tumbling(self) -> list[Row]:
        return [
            {"user": user, **_bounds(start, 60_000), "n": len(rows), "total": sum(row["amount"] for row in rows)}
            for (user, start), rows in self._windows(60_000, 60_000).items()
        ]

    def _in_sql(self) -> list[Row]:
        return [
            {"user": user, **_bounds(start, 60_000), "max(amount)": max(row["amount"] for row in rows)}
            for (user, start), rows in self._windows(60_000, 60_000).items()
        ]

    def _sliding(self) -> list[Row]:
        return [
            {"user": user, **_bounds(start, 120_000), "mean": sum(row["amount"] for row in rows) / len(rows)}
            for (user, start), rows in self._windows(120_000, 60_000).items()
        ]

    def _sessions(self) -> list[Row]:
        found = []
        for user in {row["user"] for row in self.views}:
            sessions: list[list[int]] = []
            for time in sorted(row["ts"] for row in self.views if row["user"] == user):
                if sessions and time <= sessions[-1][-1] + 20_000:
                    sessions[-1].append(time)
                else:
                    sessions.append([time])
            found += [
                {"user": user, "window_start": _time(all[0]), "window_end": _time(all[-1] + 20_000), "n": len(all)}
                for all in sessions
                if all[-1] + 20_000 > self.watermark
            ]
        return found

    def _trailing(self) -> list[Row]:
        found = []
        for row in self.views:
            if row["ts"] > self.watermark - 90_000:
                waits = row["ts"] > self.watermark
                others = {name: row[name] if waits else None for name in ("id", "amount", "lat", "lon")}
                found.append({
                    "waits": waits, "event_time": _time(row["ts"]), "user": row["user"],
                    "amount * 2": row["amount"] * 2, "ts": _time(row["ts"]) if waits else None, **others,
                })  # fmt: skip
        return found

    def _newest(self) -> list[Row]:
        last = {row["user"]: row for row in self.views}
        return [{**row, "ts": _time(row["ts"]), "event_time": _time(row["ts"])} for row in last.values()]

    def _single(self) -> list[Row]:
        last: dict[Any, int] = {}
        found = []
        for row in sorted(self.views, key=lambda row: (row["ts"], row["id"])):
            if row["ts"] > self.watermark:
                found.append({**row, "ts": _time(row["ts"]), "event_time": _time(row["ts"]), "waits": True})
            elif row["user"] not in last or row["ts"] > last[row["user"]] + 30_000:
                last[row["user"]] = row["ts"]
                if row["ts"] > self.watermark - 30_000:
                    others = dict.fromkeys(("id", "ts", "amount", "lat", "lon"))
                    found.append({"user": row["user"], "event_time": _time(row["ts"]), "waits": False, **others})
        return found

    def _best(self) -> list[Row]:
        found = []
        for (_, start), rows in self._windows(60_000, 60_000).items():
            ranked = sorted(rows, key=lambda row: (-row["amount"], row["id"]))[:2]
            found += [
                {**row, "ts": _time(row["ts"]), **_bounds(start, 60_000), "rank": rank}
                for rank, row in enumerate(ranked, 1)
            ]
        return found

    def _around(self) -> list[Row]:
        counts: Counter[tuple[str, int]] = Counter()
        for row in self.views:
            start = row["ts"] // 60_000 * 60_000
            if start + 60_000 > self.watermark:
                for cell in h3.grid_disk(h3.latlng_to_cell(row["lat"], row["lon"], 8), 1):
                    counts[cell, start] += 1
        return [{"cell": cell, **_bounds(start, 60_000), "n": n} for (cell, start), n in counts.items()]

    def _paired(self) -> list[Row]:
        met = {click["view"] for click in self.clicks}
        left = [
            {"side": "left", "matched": row["id"] in met, "event_time": _time(row["ts"]), "id": row["id"],
             "ts": _time(row["ts"]), "user": row["user"], "amount": row["amount"], "lat": row["lat"], "lon": row["lon"],
             "at": None, "note": None, "view": None}
            for row in self.views if row["ts"] + 120_000 > self.watermark
        ]  # fmt: skip
        blank = dict.fromkeys(("ts", "user", "amount", "lat", "lon"))
        return left + [
            {"side": "right", "matched": None, "event_time": _time(row["at"]), "id": row["view"], **blank,
             "at": _time(row["at"]), "note": row["note"], "view": row["view"]}
            for row in self.clicks if row["at"] > self.watermark
        ]  # fmt: skip

    def _kept(self) -> list[Row]:
        left = [
            {"side": "left", "deleted": False, "event_time": _time(row["ts"]), **row, "ts": _time(row["ts"]),
             "at": None, "note": None, "view": None}
            for row in self.views
        ]  # fmt: skip
        blank = dict.fromkeys(("ts", "user", "amount", "lat", "lon"))
        return left + [
            {"side": "right", "deleted": False, "event_time": _time(row["at"]), "id": row["view"], **blank,
             "at": _time(row["at"]), "note": row["note"], "view": row["view"]}
            for row in self.clicks
        ]  # fmt: skip

    def _native(self) -> list[Row]:
        counts = Counter(row["user"] for row in self.views)
        return [{"user": user, "count": n} for user, n in counts.items()]


def _iso(millis: int) -> str:
    return _time(millis).isoformat()


def _time(millis: int) -> dt.datetime:
    return START + dt.timedelta(milliseconds=millis)


def _bounds(start: int, size: int) -> Row:
    return {"window_start": _time(start), "window_end": _time(start + size)}


def as_counts(rows: Iterable[Row]) -> Counter[str]:
    plain = [
        {name: str(value) if isinstance(value, dt.datetime) else value for name, value in row.items()} for row in rows
    ]
    return Counter(repr(sorted(row.items())) for row in plain)


def rows(target: Target, step: str, key: Sequence[str] | None = None, limit: int | None = None) -> list[Row]:
    with shown(target, step, key, limit, spark=shared_session()) as found:
        return [row for table in found.tables for row in table.to_pylist()]


def run(project: Project, file: Path) -> Target:
    spark = shared_session()
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        course(build(load(file)), project.folder / "state")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    return Target(project.folder / "state")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "seed"),
    [(SOME, 1), *(pytest.param(STEPS, seed, marks=pytest.mark.long) for seed in (2, 3))],
    ids=["some", "all", "all again"],
)
def test_every_step_shows_what_it_must_keep(project: Project, steps: Sequence[str], seed: int) -> None:
    """And the same in a savepoint, when the pipeline has gone on; a key is a part of the whole."""
    feed, file = Feed(project, seed), pipeline(project, steps)
    feed.more()
    target = run(project, file)
    _, folder = create(load(file), target.folder, Wish("first"))
    before = {step: as_counts(feed.wanted(step)) for step in steps}

    feed.more()
    run(project, file)
    told = overview(target, spark=shared_session())
    assert told.batch == last_committed(target.folder / "checkpoint")
    assert told.watermark_ms == feed.watermark + round(START.timestamp() * 1000)
    assert told.partitions == 3
    assert {one.step: one.rows for one in told.steps} == {step: len(feed.wanted(step)) for step in steps}
    assert all(one.bytes > 0 for one in told.steps)
    saved = target_of(str(folder))
    assert target_of(str(file), target.folder, "first") == Target(target.folder, "first")
    for step in steps:
        found = rows(target, step)
        assert as_counts(found) == as_counts(feed.wanted(step)), step
        assert as_counts(rows(saved, step)) == before[step], step
        for key in _some_keys(step, found)[: 1 if steps is SOME else 9]:
            one = rows(target, step, ["null" if value is None else str(value) for value in key.values()])
            assert as_counts(one) == as_counts(row for row in found if key.items() <= row.items()), (step, key)
    assert rows(target, "paired", ["-1"]) == []
    assert len(rows(target, "paired", limit=3)) == 3
    assert not list(target.folder.glob(".look*"))


def _some_keys(step: str, found: list[Row]) -> list[Row]:
    name = {"around": "cell", "paired": "id", "kept": "id"}.get(step, "user")
    values = sorted({row[name] for row in found}, key=str)
    return [{name: value} for value in (values if name == "user" else values[:2])]


@pytest.mark.timeout(300)
def test_a_running_pipeline_is_looked_at_and_does_not_wait(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its folder meanwhile. When the batch goes away that is being linked, the next one is."""
    feed, file = Feed(project, 3), pipeline(project, ["tumbling"])
    feed.more()
    target = run(project, file)
    batches: list[int] = []

    def overtaken(root: Path, listed: Any, folder: Path) -> list[str]:
        batches.append(last_committed(root))
        if len(batches) == 1:
            feed.more()
            run(project, file)
            raise PenstockError.of("SAVEPOINT_FAILED", reason="the files keep changing")
        with StateDir(target.folder, "demo"):
            return link_all(root, listed, folder)

    monkeypatch.setattr("penstock.engine.inspection.copies.link_all", overtaken)
    assert as_counts(rows(target, "tumbling")) == as_counts(feed.wanted("tumbling"))
    assert batches[1] > batches[0]


@pytest.mark.timeout(300)
def test_what_cannot_be_shown_is_told(project: Project, tmp_path: Path) -> None:
    feed, file = Feed(project), pipeline(project, ["tumbling", "paired"])
    state = Target(project.folder / "state")

    def refused(step: str | None = "tumbling", key: Sequence[str] | None = None, target: Target = state) -> str:
        with pytest.raises(PenstockError) as error:
            overview(target, spark=shared_session()) if step is None else rows(target, step, key)
        return f"{error.value.code}: {error.value.problems[0].message} {error.value.problems[0].hint}"

    assert refused().startswith("STATE_MISSING")
    with StateDir(state.folder, "demo"):
        pass
    assert refused().startswith("STATE_NOTHING_YET")
    feed.more()
    run(project, file)
    assert refused("nowhere") == (
        "STATE_STEP_UNKNOWN: pipeline 'demo' has no step 'nowhere' that keeps state Those that do: paired, tumbling."
    )
    assert "its key has 1 column, and 2 were given Give --key once for each of: user (string)." in refused(
        key=["a", "b"]
    )
    assert "'ann' is no int64, which 'id' is" in refused("paired", ["ann"])

    _, folder = create(load(file), state.folder, Wish("whole"))
    damaged = next(item for item in sorted((folder / "checkpoint" / "state").rglob("*.changelog")))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert refused(None, target=Target(state.folder, "whole")).startswith("SAVEPOINT_DAMAGED")

    old = json.loads((state.folder / "pipeline.json").read_text())
    old["version"]["kernels"] = {}
    (state.folder / "pipeline.json").write_text(json.dumps(old))
    assert "run the pipeline once with this Penstock" in refused()


@pytest.mark.timeout(300)
def test_a_pipeline_without_state_is_told(project: Project) -> None:
    Feed(project).more(3)
    body = PIPELINE.split("steps:")[0].split("  clicks:")[0]
    file = project.write(f"{body}sinks: {{all: {{from: views, sqlite: {{path: out.db, table: views}}}}}}")
    with pytest.raises(PenstockError) as error:
        overview(run(project, file), spark=shared_session())
    assert error.value.code == "STATE_STATELESS"


def test_what_a_word_means(project: Project, tmp_path: Path) -> None:
    source = "{files: {path: .}, format: {json: {schema: {id: bigint}}}}"
    file = project.write(f"sources: {{a: {source}}}\nsinks: {{b: {{from: a, console: {{}}}}}}")
    folder = project.folder / ".penstock" / "demo"
    with StateDir(folder, "demo"):
        pass
    assert target_of(str(file)) == Target(folder) == target_of("demo", here=project.folder) == target_of(str(folder))
    with pytest.raises(PenstockError) as unknown:
        target_of("other", here=project.folder)
    assert unknown.value.code == "STATE_NOT_FOUND"
