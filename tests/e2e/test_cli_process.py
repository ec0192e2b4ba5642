"""What only shows in a process of its own: signals, the terminal, a wrong master, and that no secret leaves it."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pexpect
import pytest
from tests.faults.victim import committed_rows, contents

from penstock.testing.processes import LIGHT, Process, children, is_running, penstock, until

pytestmark = pytest.mark.spark

WAITING_STEP = """\
import os, pathlib, time

folder = pathlib.Path({folder!r})

def wait(batches):
    for batch in batches:
        for number in batch.column("id").to_pylist():
            (folder / f"started-{{number}}").touch()
            deadline = time.monotonic() + 120
            while not (folder / f"go-{{number}}").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        yield batch
"""
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: waiting}
spec:
  run: {trigger: 0 seconds}
  sources:
    views: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: bigint}}}}
  steps:
    waited: {from: views, python: {function: "waiting:wait", over: arrow, schema: {id: bigint}}}
  sinks:
    store: {from: waited, files: {path: ./out}}
"""


class Waiting:
    """A pipeline whose batches each wait until the test lets them go. Row, file and batch have the same number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipeline = folder / "p.yaml"
        self.pipeline.write_text(PIPELINE, "utf-8")
        (folder / "waiting.py").write_text(WAITING_STEP.format(folder=str(folder)), "utf-8")
        (folder / "in").mkdir()
        for number in range(4):
            file = folder / f"{number}.json"
            file.write_text(f'{{"id": {number}}}\n', "utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
            file.rename(folder / "in" / file.name)

    def start(self) -> Process:
        return Process(["run", self.pipeline, *LIGHT], self.folder / "run.log")

    def wait_for_batch(self, process: Process, number: int) -> None:
        process.wait_until((self.folder / f"started-{number}").exists, f"batch {number}")

    def let_go(self, number: int) -> None:
        (self.folder / f"go-{number}").touch()

    def log(self, name: str) -> list[int]:
        folder = self.folder / ".penstock" / "waiting" / "checkpoint" / name
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())

    def stored(self) -> list[int]:
        return [row["id"] for row in committed_rows(self.folder / "out")]


@pytest.mark.timeout(600)
def test_signals_finish_the_batch_or_end_at_once(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path)

    with waiting.start() as process:
        waiting.wait_for_batch(process, 0)
        process.signal(signal.SIGINT)
        process.wait_until(lambda: " waiting stopping" in process.text, "that it says it is stopping")
        waiting.let_go(0)
        assert process.wait() == 0, process.text
    assert "Traceback" not in process.text
    assert waiting.log("offsets") == waiting.log("commits") == [0]
    assert waiting.stored() == [0]

    with waiting.start() as process:
        waiting.wait_for_batch(process, 1)
        jvm = process.jvm()
        refused = penstock("run", waiting.pipeline, "--once", *LIGHT, log=tmp_path / "refused.log")
        assert refused[0] == 1
        assert (
            f"error[STATE_IN_USE] {tmp_path / '.penstock' / 'waiting'} is in use by process {process.pid}\n"
            in refused[1]
        )
        process.signal(signal.SIGINT)
        process.wait_until(lambda: " waiting stopping" in process.text, "that it says it is stopping")
        process.signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT
        until(lambda: not is_running(jvm), "the JVM's end", 90)
    assert (waiting.log("offsets"), waiting.log("commits")) == ([0, 1], [0])
    assert waiting.stored() == [0]

    waiting.let_go(1)
    with waiting.start() as process:
        waiting.wait_for_batch(process, 2)
        process.signal(signal.SIGTERM)
        process.wait_until(lambda: " waiting stopping" in process.text, "that it says it is stopping")
        waiting.let_go(2)
        assert process.wait() == 0, process.text
    assert waiting.log("offsets") == waiting.log("commits") == [0, 1, 2]
    assert waiting.stored() == [0, 1, 2]


SIMPLE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: simple}
spec:
  sources:
    views: {files: {path: ./in}, format: {json: {schema: {id: bigint}}}}
    polled: {sql_poll: {url: "sqlite:///${secret:env/CANARY}.db", table: t, order: id}}
  sinks:
    store: {from: views, sqlite: {path: ./out/views.db, table: views}}
    copies: {from: polled, files: {path: ./out/copies}}
"""
CANARY = "canary-5f1d7c"


@pytest.fixture
def simple(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\nbroken\n', "utf-8")
    (tmp_path / "p.yaml").write_text(SIMPLE, "utf-8")
    with closing(sqlite3.connect(tmp_path / f"{CANARY}.db")) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    return tmp_path / "p.yaml"


def canaries(folder: Path) -> list[str]:
    """Files below a folder that hold the secret, or have it in their name."""
    secret = CANARY.encode()
    return [name for name, content in contents(folder).items() if secret in content or CANARY in name]


@pytest.mark.timeout(600)
def test_a_terminal_shows_a_live_view_and_nobody_shows_a_secret(
    simple: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    state = tmp_path / ".penstock"
    arguments = ["-m", "penstock.cli.main", "run", str(simple), "--once", *LIGHT]
    with pexpect.spawn(sys.executable, arguments, dimensions=(40, 120), encoding="utf-8", timeout=150) as terminal:
        terminal.expect("starting Spark")
        terminal.expect(pexpect.EOF)
        shown = str(terminal.before)
    assert terminal.exitstatus == 0, shown
    assert "\x1b[" in shown
    assert "╭" in shown
    assert "● running" in plain(shown)
    assert "● done" in plain(shown)
    with closing(sqlite3.connect(tmp_path / "out" / "views.db")) as db:
        assert db.execute("SELECT id FROM views").fetchall() == [(1,)]

    # Other state may not append to the same table; the error must name the table without its secret.
    code, text = penstock("run", simple, "--once", "--state-dir", tmp_path / "other", *LIGHT, log=tmp_path / "2.log")
    assert code == 1
    assert "error[SINK_OF_ANOTHER_RUN] " in text
    code, debug = penstock(
        "--debug", "run", simple, "--once", "--state-dir", tmp_path / "other", *LIGHT, log=tmp_path / "3.log"
    )
    assert code == 1
    assert "Traceback" in debug

    assert CANARY not in shown + text + debug
    assert canaries(state) == []
    assert canaries(tmp_path / "other") == []


def plain(shown: str) -> str:
    """What a terminal shows, without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


@pytest.mark.parametrize(
    "master",
    # Spark asks a master three times, 20 seconds each, before it gives up.
    ["locl[2]", pytest.param("spark://127.0.0.1:1", marks=pytest.mark.long)],
)
def test_a_wrong_master_is_a_clear_error_in_reasonable_time(
    simple: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    started = time.monotonic()

    with Process(["run", simple, "--once", "--master", master], tmp_path / "run.log") as process:
        code = process.wait()

    assert code in (1, 2)
    assert time.monotonic() - started < 120
    assert "error[JVM_FAILED] " in process.text or "error[USAGE] " in process.text
    assert "Traceback" not in process.text
    assert children(process.pid) == []
    assert not (tmp_path / ".penstock" / "simple" / "checkpoint").exists()
