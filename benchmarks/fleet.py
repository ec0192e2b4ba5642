"""A server as `penstock serve` puts it together, over pipelines whose runs only report.

`python -m benchmarks.fleet serve FOLDER PIPELINES BATCHES` writes a line of JSON with its port and a token; BATCHES is
how many of the last hour its history has. `report FOLDER` is the process of all its runs.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from penstock.control.alerts.service import AlertService
from penstock.control.api.app import create_app
from penstock.control.api.listen import listen
from penstock.control.api.services import Services, wall
from penstock.control.auth.tokens import ensure_admin
from penstock.control.clock import Clock
from penstock.control.config import ServerConfig
from penstock.control.files import DataFolder
from penstock.control.metrics import scrape
from penstock.control.samples import seen
from penstock.control.store import history, pipelines
from penstock.control.store.database import Store
from penstock.control.store.supervision import SupervisorStore
from penstock.control.supervisor.act import Processes
from penstock.control.supervisor.loop import Supervisor
from penstock.reports.folder import RunFolder
from penstock.reports.processes import birth
from penstock.reports.values import BacklogReport, BatchLine, LastBatch, RunOrder, RunStatus

_EVERY = 2.0
"""Seconds from one batch of a run to the next; it reports twice as often."""
_DETAILS = {
    "phases_ms": {"addBatch": 700, "walCommit": 40, "commitOffsets": 30, "queryPlanning": 60},
    "rows_in": {"views": 1000},
    "rows_out": {"store": 900, "archive": 900},
    "sink_ms": {"store": 300, "archive": 200},
}


class _Reporting(Processes):
    """Runs are all in one process, which finds their folders by itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        command = [sys.executable, "-m", "benchmarks.fleet", "report", str(folder)]
        self.process = subprocess.Popen(command)
        self._birth = birth(self.process.pid) or ""

    def start(self, folder: RunFolder, order: RunOrder) -> tuple[int, str]:
        folder.make()
        folder.write_order(order)
        return self.process.pid, self._birth

    def stop(self, pid: int, started: str) -> None:
        """Nobody stops one here."""

    kill = stop


def serve(folder: Path, count: int, batches: int) -> None:
    import uvicorn

    folder.mkdir(parents=True, exist_ok=True)
    data, store, config, clock = DataFolder(folder), Store.in_folder(folder), ServerConfig(), Clock()
    store.migrate()
    token = ensure_admin(store, folder, wall())
    _register(store, count, batches)
    processes = _Reporting(folder)
    supervisor = Supervisor(
        SupervisorStore(store, data, config.default_target),
        data,
        lambda: config.supervised,
        base=folder,
        processes=processes,
    )
    alerts = AlertService(store, lambda: seen(store, supervisor.live(), clock), config.notify, clock)
    services = Services(
        store,
        config,
        data,
        live=supervisor.live,
        wake=supervisor.wake,
        metrics=lambda: scrape(store, supervisor.live(), clock, tick_seconds=supervisor.last_tick_seconds),
    )
    socket = listen("127.0.0.1", 0, tls=False, insecure=False)
    for part in (supervisor, alerts):
        threading.Thread(target=part.run, daemon=True).start()
    print(json.dumps({"port": socket.getsockname()[1], "token": token}), flush=True)
    try:
        settings = uvicorn.Config(create_app(services), log_level="error", access_log=False)
        uvicorn.Server(settings).run([socket])
    finally:
        processes.process.kill()


def _register(store: Store, count: int, batches: int) -> None:
    now = wall()
    names = [f"pipeline-{number:03d}" for number in range(count)]
    with store.writing() as connection:
        for number, name in enumerate(names):
            draft = pipelines.Draft("yaml", f"# {name}\n", {"team": f"team-{number % 10}"}, {"spec": {}})
            pipelines.create(connection, name, draft, now=now, by="benchmark")
    each = max(batches // count, 1)
    step = dt.timedelta(hours=1) / each
    for first in range(0, each, 50):
        with store.writing() as connection:
            history.add_batches(
                connection,
                (
                    history.BatchNumbers(
                        name, "r000000000000", number, now - dt.timedelta(hours=1) + number * step, 900,
                        rows_in=1000, rows_out=1800, details=_DETAILS,
                    )
                    for number in range(first, min(first + 50, each))
                    for name in names
                ),
            )  # fmt: skip


def report(folder: Path) -> None:
    """Writes what runs write, for all of them, for as long as the server lives."""
    server, turn = os.getppid(), 0
    me, started = os.getpid(), birth(os.getpid()) or ""
    while os.getppid() == server:
        began = time.monotonic()
        now = dt.datetime.now(dt.UTC)
        for path in folder.glob("pipelines/*/runs/r*"):
            if not (path / "run.json").exists():
                continue
            batch = turn // 2
            if turn % 2 == 0:
                RunFolder(path).add_batch(BatchLine(batch, now, 900, balanced=True, **_DETAILS))
            RunFolder(path).write_status(_status(path.name, me, started, now, batch))
        turn += 1
        time.sleep(max(_EVERY / 2 - (time.monotonic() - began), 0))


def _status(run: str, pid: int, started: str, now: dt.datetime, batch: int) -> RunStatus:
    return RunStatus(
        run, pid, started, "running", now, turned_at=now, epoch=1, batches=batch + 1,
        rows_in={"views": 1000 * batch}, rows_out={"store": 900 * batch, "archive": 900 * batch},
        rows_per_second=500.0, watermarks={"views": int(now.timestamp() * 1000)},
        watermark=int(now.timestamp() * 1000), backlog={"views": BacklogReport(100, "messages")},
        caught_up_in={"views": 1.0}, last_batch=LastBatch(batch, now, 900), state_rows=10_000, state_bytes=2_000_000,
        checkpoint_bytes=3_000_000, checkpoint_at=now, disk_free=10**11,
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        report(Path(sys.argv[2]))
