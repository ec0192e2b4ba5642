"""A standby process at work: it answers like a command that starts Spark itself, and serves one command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.faults.victim import committed_rows

from penstock.testing.processes import PATIENCE, at_work_below, until

PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: counted}
spec:
  sources:
    views:
      memory: {schema: {id: string, ts: timestamp}, rows: [{id: a, ts: "2024-01-01T00:00:00Z"}]}
      eventTime: {column: ts}
  steps:
    told: {from: views, python: {function: "told:told", over: arrow, schema: {id: string, ts: timestamp, java: int}}}
    counts: {from: views, window: {size: 1 minute, by: [id], values: {n: count(*)}}}
  sinks:
    out: {from: told, files: {path: ./out}}
    counted: {from: counts, files: {path: ./counted}}
"""
STEP = """\
import psutil
import pyarrow as pa

def told(batches):
    java = next(process.pid for process in psutil.Process().parents() if process.name() == "java")
    for batch in batches:
        yield batch.append_column("java", pa.array([java] * batch.num_rows, pa.int32()))
"""
WRONG = PIPELINE.replace("by: [id]", "by: [ids]")
_TELLS_ITS_END = """\
import signal, socket, sys, time
from penstock.cli.standby.server import _end_with
connection = socket.socket(fileno=int(sys.argv[1]))
_end_with(connection)
time.sleep(60)
"""


class Terminal:
    """Commands of one user in one folder."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self.socket = runtime / "penstock" / "standby"
        (folder / "tmp").mkdir()
        self.environment = {
            **os.environ,
            "PENSTOCK_STANDBY": "on",
            "XDG_RUNTIME_DIR": str(runtime),
            "TMPDIR": str(folder / "tmp"),
        }

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code and texts of a command."""
        command = [sys.executable, "-P", "-m", "penstock.cli.entry", *arguments]
        found = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        return found.returncode, found.stdout, found.stderr

    def standby(self) -> psutil.Process:
        """The process that waits for the next command."""
        until(lambda: list(self.socket.glob("*.sock")), f"a standby process; {self.log()}", every=0.1)
        (found,) = self.processes()
        return found

    def processes(self) -> list[psutil.Process]:
        return [one for one in at_work_below(self.folder) if "penstock.cli.standby.server" in one.cmdline()]

    def log(self) -> str:
        file = self.socket / "standby.log"
        return file.read_text("utf-8") if file.exists() else ""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="penstock-") as runtime:
        found = Terminal(tmp_path, Path(runtime))
        yield found
        for process in found.processes():
            process.terminate()
            process.wait(PATIENCE)
        assert not found.processes()


@pytest.mark.spark
def test_a_standby_process_answers_like_the_command_itself_and_serves_one_command(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "wrong.yaml").write_text(WRONG, "utf-8")
    (tmp_path / "right.yaml").write_text(PIPELINE, "utf-8")
    (tmp_path / "told.py").write_text(STEP, "utf-8")

    alone = terminal("validate", "wrong.yaml")
    assert alone[0] == 2
    assert "COLUMN_UNKNOWN" in alone[2]

    first = terminal.standby()
    assert terminal("validate", "wrong.yaml") == alone
    first.wait(PATIENCE)

    second = terminal.standby()
    (java,) = (child.pid for child in second.children() if child.name() == "java")
    code, _, errors = terminal("run", "right.yaml", "--once")
    assert (code, errors) == (0, ""), terminal.log()
    assert committed_rows(tmp_path / "out")[0]["java"] == java, "it ran in the JVM that was there"
    assert (tmp_path / ".penstock" / "counted" / "logs" / "spark.log").exists()
    second.wait(PATIENCE)
    assert not psutil.pid_exists(java)


def test_a_command_ends_when_who_waited_for_it_is_gone() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", _TELLS_ITS_END, str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        ours.close()
        assert process.wait(PATIENCE) == -signal.SIGTERM
