"""API, store and supervisor together, with runners that report as real ones do."""

from __future__ import annotations

import datetime as dt
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.control.api.server import Client, Server
from tests.control.supervisor.world import FAKE

from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.store import database, history
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor.act import Processes
from penstock.control.supervisor.loop import Supervisor
from penstock.reports.folder import RunFolder
from penstock.reports.processes import is_alive
from penstock.testing.processes import kill, until


class Whole:
    """A server as `penstock serve` puts it together, but for its sockets and threads."""

    def __init__(self, folder: Path) -> None:
        config = ServerConfig()
        self.folder = folder
        self.server = Server(folder, config)
        self.store = SupervisorStore(self.server.store, self.server.services.folder, config.default_target)
        self.start()
        self.author: Client = self.server.client(Role.AUTHOR)

    def start(self) -> None:
        """A supervisor that has just started."""
        self.supervisor = Supervisor(
            self.store,
            self.server.services.folder,
            lambda: self.server.services.config.supervised,
            base=self.folder,
            processes=Processes(FAKE),
        )

    def until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> object:
            self.server.time = dt.datetime.now(dt.UTC)
            self.supervisor.tick()
            self.server.live = self.supervisor.live()
            return condition()

        until(look, what, 20, every=0.02)

    def state(self, name: str = "a") -> str:
        return str(self.author.get(f"/api/v1/pipelines/{name}").json().get("state"))

    def runs(self) -> list[RunFolder]:
        return [RunFolder(path) for path in self.folder.glob("pipelines/*/runs/*")]

    def close(self) -> None:
        for run in self.runs():
            status = run.status
            if status is not None and is_alive(status.pid, status.process_started):
                kill(status.pid)
        self.server.close()


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
