"""Teams are kept apart: by projects of the configuration, and before there are any by the limits of tokens."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.attacker import LIGHT_TARGET, AttackedSite, Caller, codes

from penstock.control.projects import scope_id
from penstock.testing.processes import until

CANARY = "row-of-team-b"
PROJECTS = (
    LIGHT_TARGET
    + """\
  other: {master: "local[1]", driverMemory: 512m, conf: {spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1}}
projects:
  a: {labels: {team: a}, targets: [local], quotas: {pipelines: 5, cores: 1}}
  b: {labels: {team: b}, targets: [other], secrets: {env: [TEAM_B_*]}, addresses: {hosts: [b.example.org]}}
"""
)


def reading(path: str, name: str = "reads", team: str = "a") -> str:
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {{team: {team}}}}}
spec:
  sources:
    rows: {{files: {{path: {path}}}, format: {{text: {{}}}}}}
  sinks:
    out: {{from: rows, sqlite: {{path: ./out-{name}.db, table: t}}}}
"""


def generated(name: str, team: str) -> str:
    return f"""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: {name}, labels: {{team: {team}}}}}
spec:
  sources:
    views: {{generator: {{dataset: page_views, rows: 100}}}}
  sinks:
    out: {{from: views, sqlite: {{path: ./out.db, table: t}}}}
"""


def put_row(folder: Path) -> Path:
    """What the other team has in its folder."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "in" / "rows.txt").write_text(f"{CANARY}\n")
    return folder / "in"


def holds_the_row(file: Path) -> bool:
    return file.is_file() and CANARY.encode() in file.read_bytes()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedSite]:
    with AttackedSite(tmp_path_factory.mktemp("projects"), PROJECTS, {"TEAM_B_DB": "secret"}) as site:
        yield site


@pytest.mark.spark
def test_two_limited_authors_of_a_default_server_do_not_read_each_others_files(
    attacked: AttackedSite, author_a: Caller, author_b: Caller
) -> None:
    theirs = put_row(attacked.data / "projects" / scope_id({"team": "b"}) / "files")
    seen = author_b.preview(reading("./in", team="b"), "rows")
    assert CANARY in seen.text, seen.text
    # The same relative path, which the same process of previews has just read for the other team.
    assert CANARY not in author_a.preview(reading("./in"), "rows").text
    # Nor with labels that the token does not have.
    assert CANARY not in author_a.preview(reading("./in", team="b"), "rows").text
    for path in (str(theirs), f"../../{theirs.parent.parent.name}/files/in", str(attacked.data / "files")):
        assert "PATH_NOT_ALLOWED" in codes(author_a.preview(reading(path), "rows")), path
        assert "PATH_NOT_ALLOWED" in codes(author_a.apply(reading(path))), path


@pytest.mark.spark
def test_a_run_writes_into_the_folder_of_its_project_and_reads_no_other(site: AttackedSite) -> None:
    a, b = site.caller("author", team="a"), site.caller("author", team="b")
    put_row(site.data / "projects" / "b" / "files")
    assert b.apply(reading("./in", "honest-b", "b")).status_code == 200
    theirs, own = (site.data / "projects" / name / "files" for name in "ba")
    until(lambda: any(map(holds_the_row, theirs.glob("out-honest-b.db*"))), "b's run writes b's row", 120, every=0.2)
    out = a.preview(reading(str(theirs / "in"), "reads-b"), "rows")
    assert codes(out) == ["PATH_NOT_ALLOWED"]
    (own / "in").mkdir(parents=True, exist_ok=True)
    (own / "in" / "rows.txt").write_text("row-of-team-a\n")
    assert a.apply(reading("./in", "reads-own")).status_code == 200
    site.site.wait_for("reads-own", "RUNNING", "IDLE", seconds=120)
    assert not any(holds_the_row(each) for each in own.rglob("*"))
    # The other pipeline of the project waits: one core is all that it may take.
    assert a.apply(generated("second", "a")).status_code == 200
    site.site.wait_for("second", "BACKING_OFF", seconds=60)
    second = a.get("/pipelines/second").json()
    assert "1 cores" in second["reason"]
    assert "1 of them are in use and this takes 1" in second["reason"]
    for path in ("logs", "dead", "late", "savepoints", "state", "ledger", "graph", "trend", "runs", "explain"):
        assert a.get(f"/pipelines/honest-b/{path}").status_code == 404, path
    for caller, name in ((a, "reads-own"), (a, "second"), (b, "honest-b")):
        assert caller.delete(f"/pipelines/{name}").status_code == 202


def test_a_version_that_its_project_no_longer_allows_does_not_start(site: AttackedSite) -> None:
    b = site.caller("author", team="b")
    url = "postgresql://u:${secret:env/TEAM_B_DB}@b.example.org/db"
    text = generated("was-allowed", "b").replace(
        "sqlite: {path: ./out.db, table: t}", f"postgres: {{url: '{url}', table: t, key: [user]}}"
    )
    applied = b.apply(text, start=False)
    assert applied.status_code == 200, applied.text
    config = site.folder / "serve.yaml"
    before = config.read_text()
    config.write_text(before.replace("hosts: [b.example.org]", "hosts: [c.example.org]"))
    try:
        site.site.server.signal(signal.SIGTERM)
        site.site.server.wait()
        site.site.serve()
        b = Caller(site.site.server.url, b.token)
        assert b.post("/pipelines/was-allowed/start").status_code == 200
        site.site.wait_for("was-allowed", "FAILED", seconds=60)
        found = b.get("/pipelines/was-allowed").json()
        assert "project 'b' does not allow this version" in found["reason"]
        (failure,) = b.get("/pipelines/was-allowed/exceptions").json()["items"]
        assert failure["code"] == "URL_NOT_ALLOWED"
        assert b.get("/pipelines/was-allowed/runs").json()["items"] == []
    finally:
        config.write_text(before)
