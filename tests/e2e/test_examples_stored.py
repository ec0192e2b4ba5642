"""The examples of reports, routes, history and warehouses, run over their data: what they store is what a plain
computation gives, and every row is accounted for."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_examples_event_time import WEEK, at, project, read, stored
from tests.engine.running import course
from tests.faults.victim import committed_rows

from penstock.components.base import RAW
from penstock.components.sources.generator import Generator
from penstock.engine.ledger import BatchEntry
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.runner.audit import audit
from penstock.runner.ledger import read_ledger, read_windows
from penstock.testing import shared_session

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def run(path: Path, state: Path) -> BatchEntry:
    """Runs to the end of what is there; the ledger's sums, which must be sealed."""
    file = load(path)
    course(build(file), state)
    account = read_ledger(file, state)
    assert account.verdict == "sealed"
    return account.totals


def made_up(path: Path, source: str) -> list[Row]:
    """The rows of a generator, those that cannot be read among them."""
    component = load(path).pipeline.source(source).component
    assert isinstance(component, Generator)
    assert component.rows is not None
    rows: list[Row] = component.plan().stream.batch(0, component.rows).to_pylist()
    return rows


def test_reporting_corrects_the_hours_of_late_rows(tmp_path: Path) -> None:
    path = project(tmp_path, "reporting.yaml")
    rows = [row for row in made_up(path, "log") if row.get(RAW) is None]
    dead = len(made_up(path, "log")) - len(rows)
    totals = run(path, tmp_path / "state")

    watermark = max(row["ts"] for row in rows) - dt.timedelta(minutes=1)
    expected: dict[tuple[str, dt.datetime], list[Any]] = defaultdict(lambda: [0, 0, 0, Decimal()])
    for row in rows:
        hour = row["ts"].replace(minute=0, second=0, microsecond=0)
        if hour + dt.timedelta(hours=1) <= watermark:
            counts = expected[row["campaign"], hour]
            counts[["impression", "click", "conversion"].index(row["kind"])] += 1
            counts[3] += row["cost"]
    found = {
        (row["campaign"], at(row["window_start"])): [
            row["impressions"], row["clicks"], row["conversions"], Decimal(row["cost"]),
        ]
        for row in stored(tmp_path / "out" / "reporting.db", "SELECT * FROM report")
    }  # fmt: skip
    assert found == expected
    assert totals.corrections["hours"] > 0
    assert totals.late == {}
    assert (totals.rows_in, totals.rows_dead) == ({"log": len(rows) + dead}, {"log": dead})
    assert dead > 0
    archived = committed_rows(tmp_path / "out" / "reporting-log")
    assert sorted(row["id"] for row in archived) == sorted(row["id"] for row in rows)
    file = load(path)
    *hours, last = read_windows(file, tmp_path / "state")
    assert ({hour.verdict for hour in hours}, last.verdict) == ({"sealed"}, "open")
    assert sum(hour.entry.rows_in["log"] for hour in (*hours, last)) == len(rows)
    audited = {item.sink: item.verdict for item in audit(file, tmp_path / "state", shared_session)}
    assert audited == {"report": "equal", "archive": "equal"}


def test_route_gives_each_row_to_those_who_take_it(tmp_path: Path) -> None:
    path = project(tmp_path, "route.yaml")
    events = read(tmp_path / "data" / "playback")
    totals = run(path, tmp_path / "state")

    def ids(*kinds: str) -> list[str]:
        return [row["id"] for row in events if row["kind"] in kinds]

    out = tmp_path / "out"
    found = {
        name: sorted(row["id"] for row in committed_rows(out / "route" / name))
        for name in ("plays", "ads", "televisions")
    }
    found |= {
        name: sorted(row["id"] for row in stored(out / "route.db", f"SELECT id FROM {name}"))
        for name in ("errors", "slow_starts")
    }
    assert found == {
        "plays": ids("play", "resume"),
        "ads": ids("ad_start", "ad_end"),
        "errors": ids("error"),
        "slow_starts": [row["id"] for row in events if row.get("startup_ms", 0) > 4000],
        "televisions": [row["id"] for row in events if row["device"].startswith("tv-")],
    }
    assert all(found.values())
    watched = {*found["slow_starts"], *found["televisions"]}
    assert totals.filtered == {"by_kind": len(ids("heartbeat")), "watched": len(events) - len(watched)}


def test_history_then_live_gives_each_view_once_with_the_week_before_it(tmp_path: Path) -> None:
    path = project(tmp_path, "history_then_live.yaml")
    archive, live = read(tmp_path / "data" / "engagement"), made_up(path, "views")
    totals = run(path, tmp_path / "state")
    rows = stored(tmp_path / "out" / "history.db", "SELECT * FROM features")

    views = {view["id"]: view for view in [*archive, *live]}
    due = [view for view in views.values() if view["ts"] <= max(row["ts"] for row in live) - dt.timedelta(seconds=5)]
    assert sorted(row["id"] for row in rows) == sorted(view["id"] for view in due)
    for row in rows:
        view = views[row["id"]]
        week = [
            other
            for other in views.values()
            if other["user"] == view["user"] and view["ts"] - WEEK < other["ts"] <= view["ts"]
        ]
        features = (len(week), len({other["article"] for other in week}), max(other["ms"] for other in week))
        assert (row["views_7d"], row["articles_7d"], row["slowest_7d"]) == features, view["id"]
    assert totals.rows_in == {"views": len(views)}
    assert len(archive) + len(live) > len(views) > len(due) > 600


def test_warehouse_becomes_what_the_changes_say(tmp_path: Path) -> None:
    """Day by day: what one run has stored is changed and deleted by the next."""
    path = project(tmp_path, "warehouse.yaml")
    days = sorted((tmp_path / "data" / "businesses").glob("*.json"))
    changes = [json.loads(line) for file in days for line in file.read_text("utf-8").splitlines()]
    for file in days:
        file.rename(tmp_path / file.name)
    for file in days:
        shutil.move(tmp_path / file.name, file)
        totals = run(path, tmp_path / "state")

    table: dict[str, tuple[Any, ...]] = {}
    for change in changes:
        if change["op"] == "delete":
            del table[change["id"]]
        elif change["op"] in ("insert", "update") and change["stars"] <= 5:
            table[change["id"]] = (change["version"], change["name"], change["city"], change["stars"])
    rows = stored(tmp_path / "out" / "warehouse.db", "SELECT * FROM businesses")
    assert {row["id"]: (row["version"], row["name"], row["city"], row["stars"]) for row in rows} == table
    assert len(rows) == len(table) > 30
    assert totals.rows_dead == {"changes": 0, "sound": 2}
    assert {"delete", "update", "insert", "merge"} == {change["op"] for change in changes}
