"""Runners of a server that are killed at random for minutes: all come back, nothing is lost, nothing is twice."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.whole import Whole
from tests.faults.victim import committed_rows

from penstock.control.config import ServerConfig, Target
from penstock.control.supervisor import decide
from penstock.control.supervisor.act import RUNNER
from penstock.frontends.load import load
from penstock.reports.processes import is_alive
from penstock.runner.ledger import read_ledger
from penstock.testing.processes import kill
from penstock.testing.runners import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.long]

SEED = 20261116
SECONDS = 300
NAMES = ("one", "two", "three")
ROWS = 20
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}}}
spec:
  run: {{trigger: 0 seconds, restart: {{maxPerHour: 1000}}}}
  state: {{partitions: 1}}
  sources:
    rows:
      files: {{path: ./in-{name}, maxFilesPerBatch: 1}}
      format: {{json: {{schema: {{id: bigint}}}}}}
  sinks:
    table: {{from: rows, sqlite: {{path: ./{name}.db, table: rows}}}}
    files: {{from: rows, files: {{path: ./out-{name}}}}}
"""


class Hunted:
    """A server with pipelines whose input grows, and whose runners are killed."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        target = Target(master="local[1]", driver_memory="512m", conf=QUICK)
        self.whole = Whole(folder, RUNNER, ServerConfig(targets={"local": target}))
        services = self.whole.server.services
        self.files = services.policies.of(services.projects.default).folder
        self.fed = 0
        self.killed: dict[str, int] = dict.fromkeys(NAMES, 0)
        for name in NAMES:
            (self.files / f"in-{name}").mkdir(parents=True)
        self.feed()
        texts = [{"path": f"{name}.yaml", "text": PIPELINE.format(name=name)} for name in NAMES]
        answer = self.whole.author.post("/api/v1/apply", {"files": texts})
        assert answer.status_code == 200, answer.text

    def feed(self) -> None:
        """One more file for each."""
        rows = "".join(json.dumps({"id": self.fed * ROWS + row}) + "\n" for row in range(ROWS))
        for name in NAMES:
            hidden = self.files / f"{name}.json"
            hidden.write_text(rows, "utf-8")
            hidden.rename(self.files / f"in-{name}" / f"{self.fed:06d}.json")
        self.fed += 1

    def kill_one(self) -> None:
        """Any runner that lives, at whatever it is doing: starting, reading, storing."""
        name = self.chance.choice(NAMES)
        live = self.whole.supervisor.live().get(name)
        run = None if live is None else live.run
        if run is not None and run.pid is not None and is_alive(run.pid, run.process_started or ""):
            kill(run.pid)
            self.killed[name] += 1

    def stored(self, name: str) -> dict[str, list[int]]:
        with closing(sqlite3.connect(self.files / f"{name}.db")) as db:
            table = sorted(row[0] for row in db.execute("SELECT id FROM rows"))
        return {"table": table, "files": sorted(row["id"] for row in committed_rows(self.files / f"out-{name}"))}

    def complete(self) -> bool:
        return all(self._count(name) >= self.fed * ROWS for name in NAMES)

    def _count(self, name: str) -> int:
        with closing(sqlite3.connect(self.files / f"{name}.db")) as db, suppress(sqlite3.OperationalError):
            return int(db.execute("SELECT count(*) FROM rows").fetchone()[0])
        return 0


@pytest.mark.timeout(1200)
def test_runners_killed_for_five_minutes_all_come_back_and_every_ledger_balances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(decide, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(decide, "LONGEST_PAUSE", 2.0)
    chance = random.Random(SEED)
    hunted = Hunted(tmp_path, chance)
    whole = hunted.whole
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pause = time.monotonic() + chance.uniform(1, 15)
            whole.until(lambda at=pause: time.monotonic() >= at, "the next kill", every=0.2)  # type: ignore[misc]
            hunted.feed()
            hunted.kill_one()
        whole.until(hunted.complete, f"all rows of {hunted.fed} files, killed {hunted.killed}", 300, every=0.2)
        for name in NAMES:
            whole.author.post(f"/api/v1/pipelines/{name}/stop")
        whole.until(lambda: {whole.state(name) for name in NAMES} == {"STOPPED"}, "all have stopped", 120, every=0.2)
    finally:
        whole.close()

    print(f"killed {hunted.killed}, {hunted.fed} files each")
    assert min(hunted.killed.values()) > 0
    expected = list(range(hunted.fed * ROWS))
    for name in NAMES:
        assert hunted.stored(name) == {"table": expected, "files": expected}, name
        folder = whole.server.services.folder
        file = replace(load(folder.version(name, 1, "yaml")), base=hunted.files)
        account = read_ledger(file, folder.state(name))
        assert (account.verdict, account.totals.rows_in) == ("sealed", {"rows": len(expected)})
