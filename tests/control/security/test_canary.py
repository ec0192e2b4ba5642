"""A word that is put where secrets are, and looked for in everything that is written or said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from tests.control.api.server import Server
from tests.control.whole import Whole

from penstock.control.alerts.service import AlertService
from penstock.control.auth.roles import Role
from penstock.control.clock import Clock
from penstock.control.config import SecretRules, ServerConfig
from penstock.control.metrics import scrape
from penstock.control.samples import seen
from penstock.control.supervisor.act import RUNNER
from penstock.spec.secrets import hide

CANARY = "canary-7b0f9e"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: a}
spec:
  sources:
    views: {generator: {dataset: page_views, rows: 100}}
  sinks:
    out:
      from: views
      postgres: {url: "postgresql://someone:${secret:env/CANARY}@127.0.0.1:1/db", table: t, key: [id]}
"""


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Whole]:
    """A server whose runs are real processes."""
    monkeypatch.setenv("CANARY", CANARY)
    (tmp_path / "server").mkdir()
    found = Whole(tmp_path / "server", RUNNER, ServerConfig(secrets=SecretRules(env=("CANARY",))))
    yield found
    found.close()


def answers(server: Server, run: str) -> dict[str, str]:
    """What every route that reads says to an admin."""
    admin = server.client(Role.ADMIN)
    said = {}
    for route in server.app.routes:
        if not isinstance(route, APIRoute) or "GET" not in (route.methods or ()) or route.path.endswith("/stream"):
            continue
        path = route.path.replace("{name}", "a").replace("{run}", run).replace("{number}", "1")
        said[path] = admin.get(path).text
    assert len(said) > 20
    return said


def test_a_secret_is_in_nothing_that_a_run_and_its_server_write(
    whole: Whole, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server, author = whole.server, whole.author
    assert author.post("/api/v1/apply", {"files": [{"path": "a.yaml", "text": PIPELINE}]}).status_code == 200
    whole.until(lambda: author.get("/api/v1/exceptions").json()["items"], "a run fails of its sink", 60)
    (failed,) = author.get("/api/v1/exceptions").json()["items"]
    assert (failed["code"], failed["owner"]) == ("SINK_UNREACHABLE", "external")

    clock = Clock()
    service = AlertService(server.store, lambda: seen(server.store, whole.supervisor.live(), clock), {}, clock)
    service.look()
    said = answers(server, failed["run"])
    said["/metrics"] = scrape(server.store, whole.supervisor.live(), clock, tick_seconds=0.1).decode()
    said["log"] = caplog.text
    assert "127.0.0.1:1" in said["/api/v1/pipelines/a/exceptions"]
    assert "penstock_health" in said["/metrics"]
    server.store.close()
    written = [path for path in (tmp_path / "server").rglob("*") if path.is_file()]
    assert {"penstock.db", "run.json", "end.json", "status.json", "run.jsonl", "1.yaml"} <= {
        path.name for path in written
    }
    said |= {str(path): path.read_bytes().decode("latin-1") for path in written}

    assert {place for place, text in said.items() if CANARY in text} == set()
    assert "${secret:env/CANARY}" in said["/api/v1/pipelines/a/versions/1"]
    assert hide(CANARY) == CANARY, "the server itself has never looked the secret up"


def test_a_password_written_into_a_file_is_refused_without_being_repeated(tmp_path: Path) -> None:
    server = Server(tmp_path, ServerConfig())
    text = PIPELINE.replace("${secret:env/CANARY}", CANARY)
    answer = server.client(Role.ADMIN).post("/api/v1/apply", {"files": [{"path": "a.yaml", "text": text}]})
    assert answer.status_code == 422, answer.text
    assert CANARY not in answer.text
    said = answers(server, "r0123456789ab")
    server.close()
    said |= {str(path): path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()}
    assert {place for place, each in said.items() if CANARY in each} == set()
