"""A run that stood still while another took its state over stores and commits nothing when it wakes up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.victim import committed_rows, contents

from penstock.components.shared.crashpoints import STOP_AT
from penstock.engine.ledger import Ledger
from penstock.frontends.load import load
from penstock.runner.ledger import read_ledger
from penstock.testing.runners import RunnerProcess, Runners

pytestmark = pytest.mark.spark

FILES = 6
ROWS = 5
CANARY = "canary-90c1"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: contested}
spec:
  run: {trigger: 0 seconds, restart: {maxPerHour: 3}}
  state: {partitions: 1}
  sources:
    rows:
      files: {path: ./in, maxFilesPerBatch: 1}
      format: {json: {schema: {id: bigint}}}
    polled: {sql_poll: {url: "sqlite:///${secret:env/CANARY}.db", table: t, order: id}}
  sinks:
    table: {from: rows, sqlite: {path: ./out/rows.db, table: rows}}
    copies: {from: polled, files: {path: ./out/copies}}
    files: {from: rows, files: {path: ./out/files}}
"""


class Contested:
    """A pipeline of which each file is a batch, and what is in its sinks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        make_empty_table(folder / f"{CANARY}.db")
        for number in range(FILES):
            file = folder / f"{number}.json"
            file.write_text("".join(f'{{"id": {number * ROWS + row}}}\n' for row in range(ROWS)), "utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
            file.rename(folder / "in" / file.name)
        (folder / "p.yaml").write_text(PIPELINE, "utf-8")
        self.runners = Runners(folder / "p.yaml", folder / "server", {"CANARY": CANARY})

    def start(self, stop_at: str = "", *, take_over: bool = True) -> RunnerProcess:
        return self.runners.start(take_over=take_over, env={STOP_AT: stop_at})

    def stored(self) -> dict[str, list[int]]:
        with closing(sqlite3.connect(self.folder / "out" / "rows.db")) as db:
            table = sorted(row[0] for row in db.execute("SELECT id FROM rows"))
        return {"table": table, "files": sorted(row["id"] for row in committed_rows(self.folder / "out" / "files"))}

    def committed(self) -> list[int]:
        folder = self.runners.state / "checkpoint" / "commits"
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())

    def epochs(self) -> list[int]:
        """Of each batch, who has written it into the ledger."""
        return [entry.epoch for entry in Ledger(self.runners.state / "ledger.db").entries()]


def make_empty_table(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")


def overtaken(run: RunnerProcess, jvm: int, *codes: str) -> None:
    """Wakes a run, which must end without having done any more."""
    run.wake(jvm)
    assert run.wait() == 1, run.text
    end = run.folder.end
    assert end is not None
    assert (end.outcome, end.exit_code) == ("fenced", 1)
    assert end.problems[0]["code"] in codes, end.problems
    assert "Traceback" not in run.folder.printed.read_text("utf-8")


@pytest.mark.timeout(600)
def test_a_run_that_was_overtaken_cannot_store_or_commit_anything(tmp_path: Path) -> None:
    contested = Contested(tmp_path)

    # The first stands still before it stores batch 1, the second after all sinks and the ledger have batch 2.
    with contested.start("sink.before_write@1", take_over=False) as first:
        first_jvm = first.wait_until_stopped()
        with contested.start(take_over=False) as refused:
            assert refused.wait() == 1
            assert refused.folder.end is not None
            assert refused.folder.end.problems[0]["code"] == "STATE_IN_USE"
        with contested.start("batch.after_ledger@2") as second:
            second_jvm = second.wait_until_stopped()
            assert (contested.committed(), contested.epochs()) == ([0, 1], [1, 2, 2])
            before = contested.stored()
            overtaken(first, first_jvm, "FENCED")
            assert (contested.committed(), contested.epochs(), contested.stored()) == ([0, 1], [1, 2, 2], before)
            with contested.start() as third:
                third.wait_for_batch(3)
                overtaken(second, second_jvm, "FENCED")
                third.wait_for_batch(FILES - 1)
                third.signal(signal.SIGTERM)
                assert third.wait() == 0, third.text

    everything = list(range(FILES * ROWS))
    assert contested.stored() == {"table": everything, "files": everything}
    assert contested.committed() == list(range(FILES))
    # The second had written batch 2 before it stood still; the third ran it again and wrote it anew.
    assert contested.epochs() == [1, 2, 3, 3, 3, 3]
    account = read_ledger(load(tmp_path / "p.yaml"), contested.runners.state)
    assert (account.verdict, account.totals.rows_in) == ("sealed", {"rows": FILES * ROWS, "polled": 0})
    check_reports(third)
    canaries = [name for name, content in contents(contested.runners.folder).items() if CANARY.encode() in content]
    assert canaries == []


def check_reports(run: RunnerProcess) -> None:
    """What the last runner has told of itself."""
    status, end = run.folder.status, run.folder.end
    assert status is not None
    assert end is not None
    assert (status.phase, status.epoch, status.restarts_per_hour, status.trigger_ms) == ("stopped", 3, 3, 0)
    assert status.pid == run.pid
    rows = sum(status.rows_in.values())
    assert status.rows_out == {"table": rows, "files": rows, "copies": 0}
    assert status.checkpoint_bytes is not None
    assert status.disk_free is not None
    assert (end.outcome, end.exit_code, end.problems) == ("stopped", 0, ())
    lines, _ = run.folder.read_batches()
    assert [line.batch for line in lines] == [2, 3, 4, 5]
    for line in lines:
        assert (line.rows_in, line.balanced) == ({"rows": ROWS, "polled": 0}, True)
        assert line.rows_out == {"table": ROWS, "files": ROWS, "copies": 0}
        assert set(line.sink_ms) == {"table", "files", "copies"}
    logged = [json.loads(text) for text in run.folder.lines.read_text("utf-8").splitlines()]
    assert logged[0]["text"].startswith("run r000000000004 of 'contested' begins")
    assert logged[-1]["text"].startswith("run r000000000004 stopped after ")
    assert [line for line in logged if line["level"] == "ERROR"] == []
    assert all("\n" not in line["text"] for line in logged)
