"""From what is applied to what runs, and back."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.files import yaml
from tests.control.whole import Whole

from penstock.control.store import database, history
from penstock.reports.processes import is_alive


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    monkeypatch.setattr(database, "_PATIENCE", 0.1)
    found = Whole(tmp_path)
    yield found
    found.close()


def kept(whole: Whole) -> list[tuple[str, int]]:
    with whole.server.store.reading() as connection:
        found = history.batches_of(connection, "a", limit=1000).items
    return sorted((item.run, item.batch) for item in found)


def written(whole: Whole) -> list[tuple[str, int]]:
    return sorted((run.path.name, line.batch) for run in whole.runs() for line in run.read_batches()[0])


def test_what_is_applied_runs_is_upgraded_stopped_and_deleted(whole: Whole) -> None:
    assert whole.author.apply("a").status_code == 200
    whole.until(lambda: whole.state() in ("RUNNING", "IDLE"), "it runs")
    found = whole.author.get("/api/v1/pipelines/a").json()
    assert (found["observedGeneration"], found["generation"]) == (1, 1)
    whole.until(lambda: whole.author.get("/api/v1/pipelines/a").json()["rowsIn"] >= 3, "rows are counted")
    whole.author.apply("a", table="u")
    whole.until(lambda: len(whole.author.get("/api/v1/pipelines/a/runs").json()["items"]) == 2, "the next version")
    newer, older = whole.author.get("/api/v1/pipelines/a/runs").json()["items"]
    assert (newer["version"], older["version"], older["outcome"]) == (2, 1, "stopped")
    whole.author.post("/api/v1/pipelines/a/stop")
    whole.until(lambda: whole.state() == "STOPPED", "it stopped")
    counted = whole.author.get("/api/v1/pipelines/a").json()
    assert counted["rowsIn"] == counted["rowsOut"] == len(written(whole))
    kinds = {event["kind"] for event in whole.author.get("/api/v1/events?pipeline=a").json()["items"]}
    assert {"pipeline.create", "pipeline.upgrade", "pipeline.stop", "start", "stop", "run_ended"} <= kinds
    whole.author.delete("/api/v1/pipelines/a")
    whole.until(lambda: whole.author.get("/api/v1/pipelines/a").status_code == 404, "it is gone")
    assert not (whole.folder / "pipelines" / "a").exists()


def test_what_takes_effect_at_once_restarts_nothing(whole: Whole) -> None:
    def applied(body: str, labels: str = "{}") -> int:
        files = [{"path": "a.yaml", "text": yaml("a", body, labels=labels)}]
        answer = whole.author.post("/api/v1/apply", {"files": files})
        assert answer.status_code == 200, answer.text
        return int(whole.author.get("/api/v1/pipelines/a").json()["generation"])

    def seen_to() -> int:
        return int(whole.author.get("/api/v1/pipelines/a").json()["observedGeneration"])

    whole.author.apply("a")
    whole.until(lambda: len(kept(whole)) >= 3, "it runs")
    (before,) = whole.runs()
    late = "alerts: [{name: slow, when: watermark_lag > 5 minutes}]"
    generation = applied(late)
    whole.until(lambda: seen_to() == generation, "the alert is taken")
    generation = applied(late, "{team: news}")
    whole.until(lambda: seen_to() == generation, "the label is taken")
    count = len(kept(whole))
    whole.until(lambda: len(kept(whole)) >= count + 5, "it goes on")
    assert [run.path for run in whole.runs()] == [before.path]
    whole.start()
    whole.until(lambda: len(kept(whole)) >= count + 8, "it goes on under a new server")
    assert [run.path for run in whole.runs()] == [before.path]

    assert [wanted.restarts_per_hour for wanted in whole.supervisor.known.pipelines] == [None]
    applied(f"run: {{trigger: 3 seconds, restart: {{maxPerHour: 50}}}}\n{late}", "{team: news}")
    whole.until(lambda: [run.status is not None for run in whole.runs()] == [True, True], "the next version")
    newest, oldest = whole.author.get("/api/v1/pipelines/a/runs").json()["items"]
    assert (newest["version"], oldest["version"], oldest["outcome"]) == (4, 1, "stopped")
    assert [wanted.restarts_per_hour for wanted in whole.supervisor.known.pipelines] == [50]


def test_a_running_pipeline_that_is_deleted_stops_first(whole: Whole) -> None:
    whole.author.apply("a")
    whole.until(lambda: whole.state() in ("RUNNING", "IDLE"), "it runs")
    (run,) = whole.runs()
    status = run.status
    assert status is not None
    whole.author.delete("/api/v1/pipelines/a")
    whole.until(lambda: whole.author.get("/api/v1/pipelines/a").status_code == 404, "it is gone")
    assert not is_alive(status.pid, status.process_started)


def test_while_the_store_is_locked_runs_go_on_and_nothing_is_lost(whole: Whole) -> None:
    whole.author.apply("a")
    whole.until(lambda: len(kept(whole)) >= 3, "batches are kept")
    lock = sqlite3.connect(whole.folder / "penstock.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    before = len(written(whole))
    whole.until(lambda: len(written(whole)) >= before + 10, "it goes on")
    assert whole.supervisor.store_down is not None
    assert whole.author.get("/api/v1/pipelines/a").status_code == 200
    refused = whole.author.post("/api/v1/pipelines/a/stop")
    assert (refused.status_code, refused.json()["code"]) == (503, "STORE_DOWN")
    lock.execute("ROLLBACK")
    lock.close()
    whole.author.post("/api/v1/pipelines/a/stop")
    whole.until(lambda: whole.state() == "STOPPED", "it stopped")
    assert kept(whole) == written(whole)


def test_a_server_that_comes_back_adopts_what_runs_and_counts_every_batch_once(whole: Whole) -> None:
    whole.author.apply("a")
    whole.until(lambda: len(kept(whole)) >= 3, "batches are kept")
    (before,) = whole.runs()
    whole.start()
    whole.until(lambda: len(kept(whole)) >= 10, "it goes on")
    assert [run.path for run in whole.runs()] == [before.path]
    status = before.status
    assert status is not None
    os.kill(status.pid, signal.SIGTERM)
    whole.until(lambda: len(whole.runs()) == 2, "it is started again")
    whole.author.post("/api/v1/pipelines/a/stop")
    whole.until(lambda: whole.state() == "STOPPED", "it stopped")
    assert kept(whole) == written(whole)
    assert whole.author.get("/api/v1/pipelines/a").json()["rowsIn"] == len(written(whole))
