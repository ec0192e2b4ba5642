"""A pipeline on a real Spark cluster: a worker goes away in the middle, and the results are exact all the same."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.frontends.load import load
from penstock.reports.log import read_log
from penstock.runner.ledger import read_ledger
from penstock.testing.cluster import Cluster
from penstock.testing.runners import QUICK, Runners

# Four JVMs that compile at once: a minute on two cores.
pytestmark = [pytest.mark.spark, pytest.mark.long]

FILES = 6
ROWS = 30
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: spread}
spec:
  run: {trigger: 0 seconds}
  state: {partitions: 2}
  sources:
    views:
      files: {path: ./in, maxFilesPerBatch: 1}
      format: {json: {schema: {id: bigint, ts: timestamp, user: string}}}
      eventTime: {column: ts, maxDelay: 0 seconds}
  steps:
    per_minute: {from: views, window: {size: 1 minute, by: [user], values: {views: count(*), ids: sum(id)}}}
  sinks:
    rows: {from: views, files: {path: ./out/rows}}
    minutes: {from: per_minute, sqlite: {path: ./out/minutes.db, table: minutes}}
"""


SPEAKING = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: speaking}
spec:
  run: {trigger: 0 seconds}
  sources:
    views:
      files: {path: ./in, maxFilesPerBatch: 1}
      format: {json: {schema: {id: bigint, ts: timestamp, user: string}}}
    polled: {sql_poll: {url: "sqlite:///${secret:env/SPEAKING_OUT}", table: t, order: id}}
  steps:
    spoken:
      from: views
      python: {function: "speech:speak", over: arrow, schema: {id: bigint, ts: timestamp, user: string}}
  sinks:
    rows: {from: spoken, files: {path: ./out}}
    copies: {from: polled, files: {path: ./copies}}
"""
SPEECH = """\
import sys

def speak(batches):
    for batch in batches:
        print(f"first id {batch.column(0)[0]}, to SECRET", flush=True)
        sys.stderr.write("Traceback (most recent call last):\\n  File x\\nValueError: seen and passed over\\n")
        yield batch
"""


def write_input(folder: Path, numbers: range) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        rows = [
            {"id": row, "ts": f"2024-01-01T00:{row // 10:02d}:{row % 10 * 6:02d}Z", "user": f"u{row % 3}"}
            for row in range(number * ROWS, (number + 1) * ROWS)
        ]
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        file.rename(folder / "in" / file.name)


def expected_minutes() -> list[tuple[str, str, int, int]]:
    """The windows that the newest row has closed, computed without Spark."""
    newest = FILES * ROWS - 1
    found: dict[tuple[int, str], list[int]] = {}
    for row in range(FILES * ROWS):
        found.setdefault((row // 10, f"u{row % 3}"), []).append(row)
    return sorted(
        (f"2024-01-01 00:{minute:02d}", user, len(rows), sum(rows))
        for (minute, user), rows in found.items()
        if (minute + 1) * 60 <= newest // 10 * 60 + newest % 10 * 6
    )


@pytest.mark.timeout(600)
def test_a_worker_that_is_killed_costs_time_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE, "utf-8")
    write_input(tmp_path, range(FILES // 2))
    with Cluster(tmp_path / "cluster", workers=2) as cluster:
        conf = {**QUICK, **cluster.conf}
        runners = Runners(tmp_path / "p.yaml", tmp_path / "server", master=cluster.master, conf=conf)
        with runners.start() as runner:
            runner.wait_for_batch(1)
            assert any("executor" in item.text for item in cluster.workers)
            cluster.kill_worker(0)
            write_input(tmp_path, range(FILES // 2, FILES))
            runner.wait_for_batch(FILES - 1)
            runner.signal(signal.SIGTERM)
            assert runner.wait() == 0, runner.text

    with closing(sqlite3.connect(tmp_path / "out" / "minutes.db")) as db:
        query = "SELECT substr(window_start, 1, 16), user, views, ids FROM minutes"
        assert sorted(db.execute(query)) == expected_minutes()
    account = read_ledger(load(tmp_path / "p.yaml"), runners.state)
    assert (account.verdict, account.totals.rows_in) == ("sealed", {"views": FILES * ROWS})
    assert account.totals.rows_out["rows"] == FILES * ROWS


@pytest.mark.timeout(600)
def test_what_executors_write_is_in_the_log_of_the_run_as_it_comes(tmp_path: Path) -> None:
    secret = str(tmp_path / "canary")
    with closing(sqlite3.connect(secret)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    (tmp_path / "p.yaml").write_text(SPEAKING, "utf-8")
    (tmp_path / "speech.py").write_text(SPEECH.replace("SECRET", secret), "utf-8")
    write_input(tmp_path, range(1))
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        conf = {**QUICK, **cluster.conf}
        env = {"SPEAKING_OUT": secret}
        runners = Runners(tmp_path / "p.yaml", tmp_path / "server", env, master=cluster.master, conf=conf)
        with runners.start() as runner:
            # While it runs, not when it has ended; and what comes later too.
            runner.wait_until(lambda: "first id 0" in runner.text, "the first words")
            write_input(tmp_path, range(1, 2))
            runner.wait_until(lambda: f"first id {ROWS}" in runner.text, "the next words")
            runner.wait_until(lambda: "seen and passed over" in runner.text, "the trace")
            runner.signal(signal.SIGTERM)
            assert runner.wait() == 0, runner.text
            assert "canary" not in runner.text
            lines = read_log(runner.folder)[0]
    spoken = [line for line in lines if line.executor is not None]
    assert {(line.executor.id, line.executor.host) for line in spoken if line.executor} == {("0", "127.0.0.1")}
    words = [line.text for line in spoken if line.logger == "output" and line.level == "INFO"]
    assert words == [f"first id {number * ROWS}, to ${{secret:env/SPEAKING_OUT}}" for number in range(2)]
    failed = {(line.level, line.text) for line in spoken if line.level != "INFO"}
    assert failed == {("ERROR", "ValueError: seen and passed over")}
