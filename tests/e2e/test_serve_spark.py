"""A server over real runners: killed, it leaves them running, and not one row is lost or doubled."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.commands import Command
from tests.e2e.serving import Site

from penstock.frontends.load import load
from penstock.runner.ledger import read_ledger
from penstock.testing.processes import PATIENCE, is_running, until

CONFIG = """\
targets:
  local: {master: "local[1]", driverMemory: 512m, conf: {spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1}}
"""
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}}}
spec:
  sources:
    views: {{generator: {{dataset: page_views, rows: {rows}, maxRowsPerBatch: 200}}}}
  sinks:
    store: {{from: views, sqlite: {{path: ./{name}.db, table: views}}}}
  run: {{trigger: 500 ms, restart: {{maxPerHour: 1000}}}}
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_killed_server_loses_no_run_and_no_row(
    count: int, tmp_path: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, patience = 4000 + 500 * count, PATIENCE * count
    with site_with(tmp_path) as site:
        names = applied(site, count, rows, penstock, monkeypatch)
        until(lambda: all(each["rowsIn"] >= 400 for each in look(site)), "all run", patience, every=0.5)
        before = {each["name"]: each["run"] for each in look(site)}
        assert None not in before.values()
        # The drivers; Spark's Python workers come and go.
        runners = [run["pid"] for run in site.ask("/runs")["items"]]
        assert len(runners) == count

        site.server.signal(signal.SIGKILL)
        site.server.wait()
        stored = {name: stored_rows(site, name)[0] for name in names}
        until(lambda: all(stored_rows(site, name)[0] > stored[name] for name in names), "they go on", patience)
        site.serve()
        monkeypatch.setenv("PENSTOCK_URL", site.server.url)
        began = time.monotonic()
        until(lambda: {each["name"]: each["run"] for each in look(site)} == before, "they are adopted", 90)
        assert time.monotonic() - began < 5
        assert [pid for pid in runners if is_running(pid)] == runners

        until(lambda: all(each["rowsIn"] == rows for each in look(site)), "all rows", patience, every=0.5)
        assert penstock("stop", *names, "--wait").code == 0
        for each in look(site):
            (run,) = site.ask(f"/pipelines/{each['name']}/runs")["items"]
            assert (run["id"], run["outcome"]) == (before[each["name"]], "stopped")
        assert [pid for pid in runners if is_running(pid)] == []
        all_rows_once(site, names, rows)


def site_with(folder: Path) -> Site:
    (folder / "serve.yaml").write_text(CONFIG, "utf-8")
    return Site(folder, "--config", folder / "serve.yaml", fake=False)


def applied(site: Site, count: int, rows: int, penstock: Command, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Applies so many pipelines; their names."""
    folder = site.folder / "pipelines"
    folder.mkdir()
    names = [f"p{number}" for number in range(count)]
    for name in names:
        (folder / f"{name}.yaml").write_text(PIPELINE.format(name=name, rows=rows), "utf-8")
    monkeypatch.setenv("PENSTOCK_TOKEN", site.token)
    monkeypatch.setenv("PENSTOCK_URL", site.server.url)
    answer = penstock("apply", "-f", folder, "--yes")
    assert answer.code == 0, answer.text
    return names


def all_rows_once(site: Site, names: list[str], rows: int) -> None:
    """In the sink, in the history of the server and in the ledger."""
    for each in look(site):
        assert (each["run"], each["rowsIn"], each["rowsOut"]) == (None, rows, rows)
    for name in names:
        assert stored_rows(site, name) == (rows, rows)
        (version,) = (site.data / "pipelines" / name / "versions").iterdir()
        account = read_ledger(load(version), site.data / "pipelines" / name / "state")
        assert account.verdict == "sealed"
        assert account.totals.rows_in == {"views": rows}
        assert account.totals.rows_out == {"store": rows}


def look(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.ask("/pipelines")["items"]
    return found


def stored_rows(site: Site, name: str) -> tuple[int, int]:
    """How many rows the table has, and how many different ones."""
    with closing(sqlite3.connect(f"file:{site.data / 'files' / name}.db?mode=ro", uri=True)) as db:
        found = db.execute("SELECT count(*), count(DISTINCT id) FROM views").fetchone()
    return int(found[0]), int(found[1])
