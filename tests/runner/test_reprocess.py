"""A range that is computed again by a mended version: right inside the range, and untouched outside of it."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import Died, course, json_lines, table

from penstock.components.shared import crashpoints
from penstock.engine.progress import Status
from penstock.engine.reprocessing.plan import Wanted, bounded
from penstock.engine.savepoints.take import Wish
from penstock.engine.statedir import StateDir
from penstock.errors import PenstockError
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.reprocess import Reprocessed, Reprocessing, begin, checked, settle, settled_by
from penstock.runner.savepoints import create
from penstock.testing import shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
DELAY, END, FILES = 20, 3_000, 4
FROM, TO = 1_530, 2_240
Row = dict[str, Any]
Found = dict[str, set[tuple[Any, ...]]]


def time(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the range is read in several batches, though it is small."""
    monkeypatch.setattr("penstock.engine.history._PARTS", 4)
    monkeypatch.setattr("penstock.engine.frames.FILES_PER_BATCH", 2)


STEPS = {
    "minutes": "window: {size: 2 minutes, slide: 1 minute, by: [user], values: {total: sum(VALUE)}}",
    "recent": "rolling: {by: [user], over: 5 minutes, values: {total: sum(VALUE)}}",
    "pairs": "join: {with: clicks, on: {id: event}, how: left, within: [-1 minutes, 2 minutes]}",
}
KEYS = {"minutes": "user, window_start", "recent": "id", "pairs": "id"}


def pipeline(project: Project, value: str = "n", steps: Sequence[str] = tuple(STEPS), keyed: bool = True) -> Path:
    """Windows, rolling values and pairs; `value` is what is added up."""
    clicks = f"""\
  clicks:
    files: {{path: ./clicks, maxFilesPerBatch: 2}}
    format: {{json: {{schema: {{event: bigint, at: timestamp}}}}}}
    eventTime: {{column: at, maxDelay: {DELAY} seconds}}
"""
    made = "".join(f"  {step}: {{from: events, {STEPS[step].replace('VALUE', value)}}}\n" for step in steps)
    sinks = "".join(
        f"  {step}_table: {{from: {step}, sqlite: {{path: out.db, table: {step}"
        f"{f', key: [{KEYS[step]}]' if keyed else ''}}}}}\n"
        for step in steps
    )
    return project.write(f"""\
sources:
  events:
    files: {{path: ./in, maxFilesPerBatch: 2}}
    format: {{json: {{schema: {{id: bigint, ts: timestamp, user: string, n: bigint}}}}}}
    eventTime: {{column: ts, maxDelay: {DELAY} seconds}}
{clicks if "pairs" in steps else ""}steps:
{made}sinks:
{sinks}""")


class Feed:
    def __init__(self, project: Project, seed: int) -> None:
        chance = random.Random(seed)
        times = sorted(chance.randrange(0, END * 10) / 10 for _ in range(300))
        self.rows: list[Row] = [{"id": i, "ts": t, "user": f"u{i % 4}", "n": i % 7} for i, t in enumerate(times)]
        self.clicks: list[Row] = [
            {"event": row["id"], "at": max(row["ts"] + chance.choice([-50, 30, 110]), 0.0)}
            for row in self.rows
            if chance.random() < 0.6
        ]
        self.project = project
        self.put = 0

    def more(self, files: int) -> None:
        """Files in the order of time, in themselves in none."""
        for _ in range(files):
            first, last = (END * place / FILES for place in (self.put, self.put + 1))
            self._write("in", self.rows, "ts", first, last)
            self._write("clicks", self.clicks, "at", first, last)
            self.put += 1

    def _write(self, folder: str, rows: Sequence[Row], column: str, first: float, last: float) -> None:
        part = [{**row, column: time(row[column]).isoformat()} for row in rows if first <= row[column] < last]
        random.Random(self.put).shuffle(part)
        self.project.put(f"{folder}/{self.put:03d}.json", json_lines(part))

    def wanted(self, factor: int, steps: Sequence[str], since: float = FROM, until: float = TO) -> Found:
        """What a computation over all rows gives, of what belongs to a range."""
        minutes: dict[tuple[str, int], int] = defaultdict(int)
        for row in self.rows:
            last = int(row["ts"] // 60) * 60
            for start in (last, last - 60):
                minutes[row["user"], start] += row["n"] * factor
        recent = {
            (row["id"], sum(o["n"] for o in self.rows if o["user"] == row["user"] and -300 < o["ts"] - row["ts"] <= 0)
             * factor)
            for row in self.rows if since <= row["ts"] < until
        }  # fmt: skip
        at = {click["event"]: click["at"] for click in self.clicks}
        near = {id: t for id, t in at.items() if -60 <= round(t - self.rows[id]["ts"], 3) <= 120}
        found: Found = {
            "minutes": {(u, s, total) for (u, s), total in minutes.items() if since < s + 120 <= until},
            "recent": recent,
            "pairs": {(row["id"], near.get(row["id"])) for row in self.rows if since <= row["ts"] < until},
        }
        return {step: found[step] for step in steps}


def found(project: Project, steps: Sequence[str], suffix: str = "") -> Found:
    def rows(name: str, columns: str) -> list[tuple[Any, ...]]:
        stored = table(project.folder / "out.db", f"SELECT {columns} FROM {name}{suffix}")
        assert len(stored) == len(set(stored))
        return stored

    stored: dict[str, Callable[[], set[tuple[Any, ...]]]] = {
        "minutes": lambda: {
            (user, round(seconds(start)), total) for user, start, total in rows("minutes", "user, window_start, total")
        },
        "recent": lambda: set(rows("recent", "id, total")),
        "pairs": lambda: {(id, None if at is None else round(seconds(at), 1)) for id, at in rows("pairs", "id, at")},
    }
    return {step: stored[step]() for step in steps}


def seconds(stored: str) -> float:
    return (dt.datetime.fromisoformat(stored.replace("Z", "+00:00")).replace(tzinfo=dt.UTC) - START).total_seconds()


def inside(all_: Found, times: Mapping[int, float]) -> tuple[Found, Found]:
    """What belongs to the range, and the rest."""
    when: dict[str, Callable[[tuple[Any, ...]], bool]] = {
        "minutes": lambda row: FROM < row[1] + 120 <= TO,
        "recent": lambda row: FROM <= times[row[0]] < TO,
        "pairs": lambda row: FROM <= times[row[0]] < TO,
    }
    here = {name: {row for row in rows if when[name](row)} for name, rows in all_.items()}
    return here, {name: rows - here[name] for name, rows in all_.items()}


def again(
    project: Project, file: Path, wanted: Wanted, savepoint: Path | None = None, die_at: str | None = None
) -> Reprocessed | None:
    """As the command does it, in this process; None if it died."""
    ranged = replace(load(file), pipeline=bounded(load(file).pipeline, wanted))
    graph, path = checked(ranged), project.folder / ranged.pipeline.name
    settled = None if savepoint is None else settled_by(savepoint, wanted)
    died: list[str] = []

    def hook(point: str, batch: int) -> None:
        if die_at in (point, f"{point}@{batch}"):
            died.append(point)
            raise Died(point)

    begin(path, ranged.pipeline.name)
    with StateDir(path, ranged.pipeline.name) as state:
        crashpoints.install(hook)
        try:
            settle(state, wanted, savepoint)
            status = Status(ranged.pipeline.name, "starting", dt.datetime.now(dt.UTC))
            parts = (shared_session(), graph, state, lambda _: None, status, threading.Event(), state.logs / "log")
            way = Reprocessing(*parts, wanted=wanted, settled=settled)
            done = way.outcome(way.through(once=True))
            assert die_at is None
            return done
        except (Died, PenstockError):
            if not died:
                raise
            return None
        finally:
            crashpoints.install(None)


RANGE = Wanted(time(FROM), time(TO))
MANY = ("history.copied", "sink.before_write@0", "sink.after_commit@1", "batch.after_ledger@1", "batch.start@2")
ALL = tuple(STEPS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "points"),
    [
        (["minutes"], ("history.copied", "sink.after_commit@1")),
        pytest.param(ALL, MANY, marks=pytest.mark.long),
        pytest.param(["pairs"], (), marks=pytest.mark.long),
    ],
    ids=["windows", "all", "pairs"],
)
def test_a_mended_version_replaces_the_range_and_nothing_else(
    project: Project, steps: Sequence[str], points: Sequence[str]
) -> None:
    """It dies while rows are copied and in the middle of its batches, and goes on each time."""
    feed = Feed(project, 1)
    times = {row["id"]: row["ts"] for row in feed.rows}
    feed.more(FILES)
    course(build(load(pipeline(project, "n", steps))), project.folder / "state")
    _, outside = inside(found(project, steps), times)

    mended = pipeline(project, "n * 10", steps)
    for point in points:
        assert again(project, mended, RANGE, die_at=point) is None
    done = again(project, mended, RANGE)
    assert done is not None
    assert done.finished
    back, ahead = {"minutes": (120, 0), "pairs": (60, 120)}.get("".join(steps), (300, 120))
    assert (done.read_since, done.read_until) == (time(FROM - back), time(TO + ahead))
    here, rest = inside(found(project, steps), times)
    assert here == feed.wanted(10, steps)
    assert rest == outside


@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [["recent"], pytest.param(ALL, marks=pytest.mark.long)], ids=["rolling", "all"])
def test_sinks_that_append_must_be_empty(project: Project, steps: Sequence[str]) -> None:
    feed = Feed(project, 2)
    feed.more(FILES)
    file = pipeline(project, "n", steps, keyed=False)
    course(build(load(file)), project.folder / "state")
    before = found(project, steps)
    with pytest.raises(PenstockError) as filled:
        again(project, file, RANGE)
    assert filled.value.code == "REPROCESS_APPENDS"
    assert found(project, steps) == before

    wanted = replace(RANGE, into={f"{name}_table": {"table": f"{name}_again"} for name in steps})
    assert again(project, file, wanted, die_at="sink.after_commit@1") is None
    done = again(project, file, wanted)
    assert done is not None
    assert found(project, steps, "_again") == feed.wanted(1, steps)
    assert dict(done.rows_out) == {f"{name}_table": len(rows) for name, rows in feed.wanted(1, steps).items()}
    assert found(project, steps) == before
    with pytest.raises(PenstockError) as twice:
        again(project, file, wanted)
    assert twice.value.code == "REPROCESS_APPENDS"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("steps", "points"),
    [
        (["recent"], ["reprocess.restored"]),
        pytest.param(["minutes", "recent"], ["graft.grafted", "batch.after_ledger"], marks=pytest.mark.long),
    ],
    ids=["rolling", "windows too"],
)
def test_from_a_savepoint_what_was_before_is_not_read_again(
    project: Project, steps: Sequence[str], points: Sequence[str]
) -> None:
    """Its files are gone, and values that reach back before it are right all the same; a step has another name now."""
    feed = Feed(project, 3)
    times = {row["id"]: row["ts"] for row in feed.rows}
    feed.more(1)
    file, state = pipeline(project, "n", steps), project.folder / "state"
    course(build(load(file)), state)
    _, folder = create(load(file), state, Wish("early"))
    feed.more(FILES - 1)
    course(build(load(file)), state)
    late, _ = create(load(file), state, Wish("late"))
    _, outside = inside(found(project, steps), times)
    (project.folder / "in" / "000.json").unlink()
    wanted = replace(RANGE, savepoint="early")
    text = file.read_text().replace("  recent: {from", "  trailing: {renamedFrom: recent, from")
    file.write_text(text.replace("from: recent, sqlite", "from: trailing, sqlite"))
    for point in points:
        assert again(project, file, wanted, folder, die_at=point) is None
    assert again(project, file, wanted, folder) is not None
    here, rest = inside(found(project, steps), times)
    assert here == feed.wanted(1, steps)
    assert rest == outside
    with pytest.raises(PenstockError) as too_late:
        settled_by(state / "savepoints" / late.name, RANGE)
    assert too_late.value.code == "REPROCESS_SAVEPOINT_LATE"


@pytest.mark.timeout(300)
def test_a_savepoint_that_may_have_given_results_of_the_range_is_refused(project: Project) -> None:
    """Pairs leave as soon as both rows are there, whatever the watermark says."""
    feed = Feed(project, 5)
    feed.more(1)
    file, state = pipeline(project, "n", ["pairs"]), project.folder / "state"
    course(build(load(file)), state)
    _, folder = create(load(file), state, Wish("early"))
    with pytest.raises(PenstockError) as early:
        again(project, file, replace(RANGE, savepoint="early"), folder)
    assert early.value.code == "REPROCESS_SAVEPOINT_LATE"
    assert "it is not known how far" in str(early.value)


@pytest.mark.timeout(300)
def test_what_cannot_be_cut_by_time_is_refused(project: Project) -> None:
    feed = Feed(project, 4)
    feed.more(1)
    kept = pipeline(project, "n", ["pairs"])
    kept.write_text(kept.read_text().replace(STEPS["pairs"], "changelog_join: {with: clicks, on: {id: event}}"))
    with pytest.raises(PenstockError) as untimed:
        again(project, kept, RANGE)
    assert untimed.value.code == "REPROCESS_NO_TIME"
    assert "'pairs' has no event time" in str(untimed.value)


def test_only_what_is_its_own_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "photos" / "1.jpg"
    precious.parent.mkdir()
    precious.touch()
    with StateDir(tmp_path / "state", "demo"):
        pass
    with StateDir(tmp_path / "again", "demo-again"):
        pass
    for folder, code in (("photos", "TARGET_NOT_EMPTY"), ("state", "STATE_OF_ANOTHER_PIPELINE")):
        with pytest.raises(PenstockError) as error:
            begin(tmp_path / folder, "demo-again")
        assert error.value.code == code
    with StateDir(tmp_path / "again", "demo-again"), pytest.raises(PenstockError) as held:
        begin(tmp_path / "again", "demo-again")
    assert held.value.code == "STATE_IN_USE"
    assert {item.name for item in tmp_path.iterdir()} == {"photos", "state", "again"}
    assert precious.exists()
    begin(tmp_path / "again", "demo-again")
    begin(tmp_path / "new", "demo-again")
    assert {item.name for item in tmp_path.iterdir()} == {"photos", "state"}
