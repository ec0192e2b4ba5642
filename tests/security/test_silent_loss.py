"""Nothing is lost in silence: a sink that has lost batches stops its pipeline, here and on a server."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.security.attacker import AttackedSite, Caller

from penstock.testing.processes import LIGHT, penstock, until

pytestmark = pytest.mark.spark

PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {{team: a}}}}
spec:
  sources:
    rows:
      files: {{path: {folder}/in, maxFilesPerBatch: 1}}
      format: {{json: {{schema: {{id: bigint}}}}}}
  run: {{trigger: 1s}}
  sinks:
    out: {{from: rows, sqlite: {{path: {folder}/lost.db, table: t}}}}
"""


def put(folder: Path, *numbers: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        hidden = folder / "in" / f".{number}"
        hidden.write_text("".join(f"{json.dumps({'id': 10 * number + row})}\n" for row in range(10)), "utf-8")
        hidden.rename(folder / "in" / f"{number}.json")


def rows(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "lost.db")) as db:
        made = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 't'").fetchone()[0]
        return int(db.execute("SELECT count(*) FROM t").fetchone()[0]) if made else 0


def keep(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "lost.db")) as db, closing(sqlite3.connect(folder / "kept.db")) as copy:
        db.backup(copy)


def put_back(folder: Path) -> None:
    for name in ("lost.db", "lost.db-wal", "lost.db-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy2(folder / "kept.db", folder / "lost.db")


@pytest.mark.timeout(400)
def test_a_restored_database_stops_a_run_until_the_loss_is_accepted(tmp_path: Path) -> None:
    file, log = tmp_path / "p.yaml", tmp_path / "log"
    file.write_text(PIPELINE.format(name="p", folder=tmp_path), "utf-8")
    run = ("run", file, "--once", *LIGHT)
    put(tmp_path, 0, 1)
    assert penstock(*run, log=log)[0] == 0
    keep(tmp_path)
    put(tmp_path, 2, 3, 4)
    assert penstock(*run, log=log)[0] == 0
    put_back(tmp_path)
    put(tmp_path, 5)
    code, text = penstock(*run, log=log)
    assert (code, "SINK_BEHIND" in text, rows(tmp_path)) == (4, True, 20), text
    assert penstock("accept-gap", file, "out", log=log)[0] == 0
    assert penstock(*run, log=log)[0] == 0
    assert rows(tmp_path) == 30


SERVED = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: lost, labels: {team: a}}
spec:
  sources:
    views: {generator: {dataset: page_views, rows: 1000000, maxRowsPerBatch: 100}}
  sinks:
    out: {from: views, sqlite: {path: ./lost.db, table: t}}
  run: {trigger: 300 ms}
"""


@pytest.mark.timeout(400)
def test_a_server_says_that_a_sink_has_lost_batches(attacked: AttackedSite, author_a: Caller) -> None:
    answer = author_a.apply(SERVED)
    assert answer.status_code == 200, answer.text
    folder = attacked.files(team="a")
    try:
        until(lambda: (folder / "lost.db").exists() and rows(folder) >= 200, "rows are stored", 120, every=0.2)
        keep(folder)
        kept = rows(folder)
        until(lambda: rows(folder) >= kept + 300, "more rows are stored", 60, every=0.2)
        assert author_a.post("/pipelines/lost/stop").status_code < 300
        until(lambda: author_a.get("/pipelines/lost").json()["state"] == "STOPPED", "it stops", 60, every=0.2)
        put_back(folder)
        before = rows(folder)
        assert author_a.post("/pipelines/lost/start").status_code < 300
        description = "/pipelines/lost/description"
        until(lambda: "SINK_BEHIND" in author_a.get(description).text, "it is refused", 120, every=0.5)
        assert rows(folder) == before
        assert author_a.post("/pipelines/lost/accept-gap", json={"sink": "out"}).status_code == 202
        assert author_a.post("/pipelines/lost/start").status_code < 300
        until(lambda: rows(folder) > before, "it runs again", 120, every=0.5)
    finally:
        author_a.delete("/pipelines/lost")
