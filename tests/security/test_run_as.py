"""Pipelines of a server that root starts run as another system user, where that user reaches what they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.security import confined_steps
from tests.security.attacker import LIGHT_TARGET, Caller, folder_of

from penstock.control.launch.user import user_named
from penstock.testing.processes import kill, until, with_variable

ROOT = Path(__file__).parents[2]
MARK = "PENSTOCK_TEST_RUN_AS"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: other-user, labels: {team: a}}
spec:
  sources: {views: {generator: {dataset: page_views, rows: 60}}}
  steps:
    run: {from: views, python: {function: "confined_steps:in_the_run"}}
  sinks:
    honest: {from: run, sqlite: {path: ./honest.db, table: views}}
"""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def unavailable(reason: str) -> None:
    """A failure where all tests are to run."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def open_to_all() -> Iterator[Path]:
    """A folder that every user reaches, with a Python in it: links to the files of this one."""
    if os.geteuid() != 0 or user_named("nobody") is None:
        unavailable("only root can start processes as another user")
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-as-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        for source, name in ((sys.base_prefix, "python"), (sysconfig.get_path("purelib"), "site")):
            done = subprocess.run(["cp", "-al", source, str(folder / name)], check=False)
            if done.returncode != 0:
                unavailable("files of Python cannot be linked to from /tmp, which is another disk")
        for code in (ROOT / "src", ROOT / "tests"):
            shutil.copytree(code, folder / "code" / code.name, ignore=shutil.ignore_patterns("__pycache__"))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(open_to_all: Path) -> Iterator[tuple[Path, str]]:
    """The data folder and the address of a server with `runAs: nobody`."""
    place, mark = open_to_all, uuid.uuid4().hex
    (place / "serve.yaml").write_text(f"runAs: nobody\n{LIGHT_TARGET}", "utf-8")
    python = place / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = os.pathsep.join(str(place / name) for name in ("code/src", "code", "site"))
    env = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": str(place / "python" / "lib"), "TMPDIR": "/tmp", MARK: mark, "DATABASE_URL": "canary",
    }  # fmt: skip
    options = "--data data --port 0 --config serve.yaml"
    command = [str(python), "-m", "penstock.cli.main", "serve", *options.split()]
    log = place / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=place, env=env, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: "go on" in log.read_text() or process.poll() is not None, "that it serves", 60)
        found = re.search(r"serves (http\S+)", log.read_text())
        assert found is not None, log.read_text()
        assert "Warning" not in log.read_text()
        yield place / "data", found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        for pid in with_variable(MARK, mark):
            kill(pid)
        until(lambda: not with_variable(MARK, mark), "that all has ended", 60)


def test_a_run_has_another_user_and_reaches_no_more_for_it(server: tuple[Path, str]) -> None:
    data, url = server
    user = user_named("nobody")
    assert user is not None
    state = data / "pipelines" / "other-user" / "state"
    admin = Caller(url, (data / "admin.token").read_text("utf-8").strip())
    made = admin.post("/tokens", {"name": "coder", "role": "coder", "scope": {"team": "a"}})
    coder = Caller(url, made.json()["token"])
    files = folder_of(coder, data, PIPELINE)
    wanted = {
        "read token": ("read", str(data / "admin.token")),
        "read store": ("read", str(data / "penstock.db")),
        "read configuration": ("read", "/etc/shadow"),
        "list pipelines": ("list", str(data / "pipelines")),
        "write version": ("write", str(data / "pipelines" / "other-user" / "versions" / "1.yaml")),
        "write order of the run": ("write", str(data / "pipelines" / "other-user" / "runs" / "planted")),
        "variables": ("environment", "DATABASE_URL"),
    }
    (files / "attempts.json").write_text(json.dumps(wanted), "utf-8")
    shutil.copy(confined_steps.__file__, files / "confined_steps.py")
    for name in ("attempts.json", "confined_steps.py"):
        (files / name).chmod(0o644)
    applied = coder.apply(PIPELINE)
    assert applied.status_code == 200, applied.text
    until(lambda: rows(files / "honest.db") == 60, "that the honest rows are stored", 240, every=0.5)
    (run,) = [item for item in admin.get("/runs").json()["items"] if item["pipeline"] == "other-user"]
    status = Path(f"/proc/{run['pid']}/status").read_text("utf-8")
    assert re.search(rf"^Uid:\t{user.number}\t{user.number}\t{user.number}\t", status, re.MULTILINE)
    assert re.search(rf"^Gid:\t{user.group}\t{user.group}\t{user.group}\t", status, re.MULTILINE)
    assert re.search(r"^Groups:\s*$", status, re.MULTILINE)
    outcomes = json.loads((files / "in_the_run.json").read_text("utf-8"))
    assert outcomes.keys() == wanted.keys()
    assert {name: text for name, text in outcomes.items() if not text.startswith("PermissionError")} == {}
    assert {path.stat().st_uid for path in (files / "honest.db", state, state / "pipeline.json")} == {user.number}
    for name in ("admin.token", "penstock.db"):
        assert (data / name).stat().st_mode & 0o777 == 0o600
    assert data.stat().st_mode & 0o777 == 0o710


def rows(database: Path) -> int:
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM views").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
