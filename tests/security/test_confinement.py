"""A coder's pipeline tries to reach the server and other teams from inside: its run, its workers and its preview."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.security import confined_steps
from tests.security.attacker import AttackedSite, Caller, codes, folder_of

from penstock.control.launch import landlock
from penstock.testing.processes import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(landlock.version() < landlock.LEAST, reason="this kernel has no Landlock"),
]
CANARIES = {"DATABASE_URL": "canary-database", "MAILPASS": "canary-mail", "GH_CREDENTIALS": "canary-hub"}
OPTION = "canary-option-of-spark"
CONFIG = f"""\
targets:
  local:
    master: "local[1]"
    driverMemory: 512m
    conf:
      spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -Dcanary={OPTION}
      spark.penstock.canary: {OPTION}
"""
VICTIM = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: victim, labels: {team: b}}
spec:
  sources: {views: {generator: {dataset: page_views, rows: 10000000, maxRowsPerBatch: 5}}}
  sinks: {out: {from: views, sqlite: {path: ./victim.db, table: views}}}
  run: {trigger: 20 s}
"""
HOSTILE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: hostile, labels: {team: a}}
spec:
  sources: {views: {generator: {dataset: page_views, rows: 60}}}
  steps:
    run: {from: views, python: {function: "confined_steps:in_the_run"}}
    worker:
      from: run
      python: {function: "confined_steps:in_a_worker", over: arrow, schema: {attempt: string, outcome: string}}
  sinks:
    honest: {from: run, sqlite: {path: ./honest.db, table: views}}
    out: {from: worker, sqlite: {path: ./attempts.db, table: worker}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedSite]:
    with AttackedSite(tmp_path_factory.mktemp("confined"), CONFIG, env=CANARIES) as site:
        yield site


@pytest.fixture(scope="module")
def victim(site: AttackedSite) -> int:
    """The process of another team's run."""
    applied = site.caller("author", team="b").apply(VICTIM)
    assert applied.status_code == 200, applied.text
    # It has more to read than it will ever have read.
    site.site.wait_for("victim", "RUNNING", "CATCHING_UP", "IDLE", seconds=240)
    (pid,) = [run["pid"] for run in site.site.ask("/runs")["items"]]
    return int(pid)


@pytest.fixture(scope="module")
def coder(site: AttackedSite, victim: int) -> Caller:
    coder = site.caller("coder", team="a")
    folder = folder_of(coder, site.data, HOSTILE)
    shutil.copy(confined_steps.__file__, folder / "confined_steps.py")
    (site.folder / "team_b").mkdir()
    (site.folder / "team_b" / "rows.csv").write_text("private", "utf-8")
    (folder / "attempts.json").write_text(json.dumps(attempts(site, victim)), "utf-8")
    return coder


def files(site: AttackedSite) -> Path:
    """The folder of the hostile team."""
    (found,) = site.data.glob("projects/*/files/attempts.json")
    return found.parent


def attempts(site: AttackedSite, victim: int) -> dict[str, tuple[str, str]]:
    """What is tried, by a name for it."""
    data, server = site.data, site.site.server.pid
    state = data / "pipelines" / "victim" / "state"
    private = {
        "admin token": data / "admin.token",
        "store": next(data.glob("*.db")),
        "configuration of the server": site.folder / "serve.yaml",
        "state of another": next(state.rglob("offsets/0"), state / "pipeline.json"),
        "version of another": next((data / "pipelines" / "victim" / "versions").iterdir()),
        "order of another": next((data / "pipelines" / "victim" / "runs").glob("*/run.json")),
        "file of another team": site.folder / "team_b" / "rows.csv",
        "passwords of the machine": Path("/etc/shadow"),
    }
    found = {f"read {name}": ("read", str(path)) for name, path in private.items()}
    found |= {f"write {name}": ("write", str(path)) for name, path in private.items()}
    for name in ("environ", "mem", "maps", "root/etc/passwd", "fd/0"):
        found[f"{name} of the server"] = ("read", f"/proc/{server}/{name}")
        found[f"{name} of another run"] = ("read", f"/proc/{victim}/{name}")
    found["list the server's folder"] = ("list", str(data))
    found["list pipelines"] = ("list", str(data / "pipelines"))
    found["own stored version"] = ("write", str(data / "pipelines" / "hostile" / "versions" / "1.yaml"))
    found["add to another's state"] = ("write", str(state / "planted"))
    found["signal the server"] = ("kill", str(server))
    found["signal another run"] = ("kill", str(victim))
    found["variables"] = ("environment", ",".join([*CANARIES, "PENSTOCK_TOKEN", "PENSTOCK_STORE"]))
    return found


def refused(found: dict[str, str], wanted: set[str]) -> None:
    assert found.keys() == wanted
    got = {name: outcome for name, outcome in found.items() if not outcome.startswith("PermissionError")}
    assert got == {}, got


def test_a_preview_reaches_neither_the_server_nor_other_teams(site: AttackedSite, coder: Caller, victim: int) -> None:
    wanted = attempts(site, victim).keys() - {"own stored version"}
    shown = coder.preview(HOSTILE, "worker")
    for _ in range(3):
        if codes(shown) == ["BENCH_FAILED"]:
            # A machine with much to do.
            shown = coder.preview(HOSTILE, "worker")
    assert shown.status_code == 200, shown.text
    rows = {row["attempt"]: row["outcome"] for row in shown.json()["rows"]}
    del rows["own stored version"]
    refused(rows, set(wanted))
    # What is tried out writes nothing.
    assert not (files(site) / "in_the_run.json").exists()


def honest_rows(site: AttackedSite) -> int:
    with closing(sqlite3.connect(files(site) / "honest.db")) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM views").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def test_a_run_reaches_neither_the_server_nor_other_teams_and_its_honest_rows_are_stored(
    site: AttackedSite, coder: Caller, victim: int
) -> None:
    secret = site.data / "secret.jsonl"
    line = {"at": "2024-01-01T00:00:00Z", "level": "ERROR", "logger": "penstock", "text": "canary-behind-a-link"}
    secret.write_text(json.dumps(line) + "\n", "utf-8")
    wanted = attempts(site, victim)
    planted = {"plant": ("plant", f"{secret},log/run.jsonl.7,batches-000009.jsonl")}
    (files(site) / "attempts.json").write_text(json.dumps({**wanted, **planted}), "utf-8")
    applied = coder.apply(HOSTILE)
    assert applied.status_code == 200, applied.text
    database, told = files(site) / "attempts.db", files(site) / "in_the_run.json"
    until(lambda: stored(database) and told.exists(), "both have tried", 240, every=0.5)
    for found in (stored(database), json.loads(told.read_text("utf-8"))):
        # Both try it in the folder of the run; the second one finds the first one's links.
        found.pop("plant")
        refused(found, set(wanted))
    # Sinks store side by side, so this one may be the last.
    until(lambda: honest_rows(site) == 60, "the honest rows are stored", 60, every=0.2)
    (run,) = (site.data / "pipelines" / "hostile" / "runs").iterdir()
    assert (run / "log" / "run.jsonl.7").is_symlink()
    assert (run / "batches-000009.jsonl").is_symlink()
    logged = coder.get("/pipelines/hostile/logs?limit=1000")
    assert logged.status_code == 200, logged.text
    assert logged.json()
    assert "canary-behind-a-link" not in logged.text
    assert (site.data / "admin.token").read_text("utf-8").strip() == site.site.token


def test_no_command_line_holds_a_value_of_sparks_options(site: AttackedSite, victim: int) -> None:
    seen = {pid: cmdline(pid) for pid in site.site.processes()}
    assert any("org.apache.spark.deploy.SparkSubmit" in text for text in seen.values())
    assert [text for text in seen.values() if OPTION in text] == []
    orders = list(site.data.glob("pipelines/*/runs/*/run.json"))
    assert orders
    assert {order.stat().st_mode & 0o777 for order in orders} == {0o600}
    # The run has them all the same.
    assert all(OPTION in order.read_text("utf-8") for order in orders)


def test_a_run_has_only_variables_of_the_list(site: AttackedSite, victim: int) -> None:
    content = Path(f"/proc/{victim}/environ").read_bytes()
    assert not [value for value in CANARIES.values() if value.encode() in content]
    names = {item.partition(b"=")[0].decode() for item in content.split(b"\0") if item}
    assert {"HOME", "TMPDIR", "PATH"} <= names
    home = dict(item.split(b"=", 1) for item in content.split(b"\0") if b"=" in item)[b"HOME"].decode()
    assert home == str(site.data / "pipelines" / "victim" / "home")
    assert os.stat(home).st_mode & 0o077 == 0


def stored(database: Path) -> dict[str, str]:
    if not database.exists():
        return {}
    with closing(sqlite3.connect(database)) as connection:
        try:
            return dict(connection.execute("SELECT attempt, outcome FROM worker"))
        except sqlite3.OperationalError:
            return {}


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
