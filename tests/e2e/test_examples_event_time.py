"""The examples of event time, run over their data: what they store is what a plain computation gives."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import h3  # type: ignore[import-untyped]
import pytest
from tests.docs.pages import ROOT
from tests.docs.test_examples import shell
from tests.engine.running import run

from penstock.components.sources.generator import Generator
from penstock.frontends.load import load
from penstock.graph.build import build

EXAMPLES = ROOT / "examples"
WEEK = dt.timedelta(days=7)
Row = dict[str, Any]


def project(folder: Path, name: str) -> Path:
    """A copy of an example with its data; what it stores goes beside it."""
    shutil.copytree(EXAMPLES / "data", folder / "data")
    return Path(shutil.copy(EXAMPLES / name, folder))


def stored(database: Path, query: str) -> list[Row]:
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def read(folder: Path) -> list[Row]:
    lines = [line for file in sorted(folder.glob("*.json")) for line in file.read_text("utf-8").splitlines()]
    return [row | {"ts": dt.datetime.fromisoformat(row["ts"])} for row in map(json.loads, lines)]


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


# --- engagement ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_engagement_gives_each_view_once_with_the_week_before_it(tmp_path: Path) -> None:
    path = project(tmp_path, "engagement.yaml")
    archive, live = read(tmp_path / "data" / "engagement"), live_views(path)
    outcome = run(build(load(path)), tmp_path / "state")
    rows = stored(tmp_path / "out" / "engagement.db", "SELECT * FROM engagement")

    views = {view["id"]: view for view in [*archive, *live]}
    watermark = min(max(view["ts"] for view in side) for side in (archive, live)) - dt.timedelta(seconds=5)
    due = [view for view in views.values() if view["ts"] <= watermark]
    assert sorted(row["id"] for row in rows) == sorted(view["id"] for view in due)
    for row in rows:
        assert {name: row[name] for name in ("articles_7d", "views_7d", "long_views_7d")} == week_of(
            views[row["id"]], views
        )
    assert sum(entry.rows_in["archive"] + entry.rows_in["live"] for entry in outcome.ledger) == len(archive) + len(live)
    assert len(archive) + len(live) > len(views) > len(due) > 600
    assert max(row["articles_7d"] for row in rows) > 20


def live_views(path: Path) -> list[Row]:
    source = load(path).pipeline.source("live").component
    assert isinstance(source, Generator)
    assert source.rows is not None
    rows: list[Row] = source.plan().stream.batch(0, source.rows).to_pylist()
    return rows


def week_of(view: Row, views: dict[str, Row]) -> dict[str, int]:
    inside = [
        other
        for other in views.values()
        if other["user"] == view["user"] and view["ts"] - WEEK < other["ts"] <= view["ts"]
    ]
    return {
        "articles_7d": len({other["article"] for other in inside}),
        "views_7d": len(inside),
        "long_views_7d": sum(other["ms"] >= 10_000 for other in inside),
    }


def test_the_archive_and_the_stream_of_engagement_overlap() -> None:
    archive = {view["id"]: view for view in read(EXAMPLES / "data" / "engagement")}
    live = {view["id"]: view for view in live_views(EXAMPLES / "engagement.yaml")}

    both = archive.keys() & live.keys()
    assert {id: archive[id] for id in both} == {id: live[id] for id in both}
    assert 0 < len(both) < len(live)


# --- geo -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_geo_counts_around_every_place(tmp_path: Path) -> None:
    path = project(tmp_path, "geo.yaml")
    rides = read(tmp_path / "data" / "rides")
    nowhere = [ride["id"] for ride in rides if abs(ride["lat"]) > 90]
    outcome = run(build(load(path)), tmp_path / "state")
    minutes = stored(tmp_path / "out" / "geo.db", "SELECT * FROM cell_minutes")
    surge = stored(tmp_path / "out" / "geo.db", "SELECT * FROM surge")

    closed = max(ride["ts"] for ride in rides) - dt.timedelta(seconds=5)
    expected = by_minute(rides, closed)
    found = {(row["cell"], at(row["window_start"])): (row["requests"], row["cars"]) for row in minutes}
    assert found == expected
    for row in surge:
        start, end = at(row["window_start"]), at(row["window_end"])
        inside = [value for (cell, minute), value in expected.items() if cell == row["cell"] and start <= minute < end]
        assert (row["requests"], row["cars"]) == (sum(part[0] for part in inside), max(part[1] for part in inside))
    assert {at(row["window_end"]).minute for row in surge} == set(range(1, 8))
    assert sum(entry.rows_in["rides"] for entry in outcome.ledger) == len(rides)
    assert sum(entry.rows_dead.get("cell_minutes", 0) for entry in outcome.ledger) == len(nowhere) == 1


def by_minute(rides: list[Row], closed: dt.datetime) -> dict[tuple[str, dt.datetime], tuple[int, int]]:
    requests: dict[tuple[str, dt.datetime], int] = defaultdict(int)
    cars: dict[tuple[str, dt.datetime], set[str]] = defaultdict(set)
    for ride in rides:
        minute = ride["ts"].replace(second=0, microsecond=0)
        if minute + dt.timedelta(minutes=1) > closed or abs(ride["lat"]) > 90:
            continue
        for cell in h3.grid_disk(h3.latlng_to_cell(ride["lat"], ride["lon"], 8), 1):
            requests[cell, minute] += ride["kind"] == "request"
            cars[cell, minute] |= {ride["car"]} if "car" in ride else set()
    return {place: (requests[place], len(cars[place])) for place in requests}


# --- as a person would run them ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("name", "table"), [("engagement", "engagement"), ("geo", "surge")])
def test_an_example_is_checked_tested_and_run_twice(name: str, table: str, tmp_path: Path) -> None:
    project(tmp_path, f"{name}.yaml")
    shell(f"penstock validate {name}.yaml && penstock test {name}.yaml", tmp_path)
    outputs = []
    for _ in range(2):
        shell(f"penstock run {name}.yaml --once", tmp_path)
        outputs.append(stored(tmp_path / "out" / f"{name}.db", f"SELECT * FROM {table} ORDER BY 1, 2, 3"))

    assert outputs[0] == outputs[1]
    assert outputs[0]
