"""A word that is a real password, looked for in all that a server says and writes while Spark uses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tests.e2e.commands import Command
from tests.e2e.serving import Site
from tests.e2e.test_serve_spark import CONFIG, look
from tests.servers.base import HOST
from tests.servers.postgres import Postgres
from tests.servers.sql import Database

from penstock.testing.processes import PATIENCE, until

CANARY = "canary-41d7c0"
PIPELINE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {{name: a}}
spec:
  sources:
    views: {{generator: {{dataset: page_views, maxRowsPerBatch: 100}}}}
  sinks:
    out:
      from: views
      postgres:
        url: "postgresql://someone:${{secret:env/CANARY}}@{host}:{port}/{database}"
        table: views
        key: [id]
  run: {{trigger: 300 ms}}
"""
STREAMS = ("/events/stream", "/stream", "/logs/stream?level=debug")
ROUTES = (
    "/pipelines", "/pipelines/a", "/pipelines/a/description", "/pipelines/a/versions/1", "/pipelines/a/runs",
    "/pipelines/a/batches", "/pipelines/a/exceptions", "/pipelines/a/logs?level=debug&limit=1000", "/events", "/alerts",
    "/audit", "/runs",
)  # fmt: skip


@pytest.mark.timeout(600)
def test_a_password_in_use_is_nowhere_to_be_found(
    tmp_path: Path,
    penstock: Command,
    monkeypatch: pytest.MonkeyPatch,
    postgres: Postgres,
    postgres_database: Database,
) -> None:
    with postgres.connect(postgres_database.name) as db:
        db.execute(f"CREATE ROLE someone LOGIN PASSWORD '{CANARY}'")
        db.execute("GRANT ALL ON SCHEMA public TO someone")
    (tmp_path / "serve.yaml").write_text(f"{CONFIG}secrets: {{env: [CANARY]}}\n", "utf-8")
    (tmp_path / "a.yaml").write_text(
        PIPELINE.format(host=HOST, port=postgres.port, database=postgres_database.name), "utf-8"
    )
    try:
        options = ("--config", tmp_path / "serve.yaml")
        with Site(tmp_path, *options, fake=False, env={"CANARY": CANARY}) as site, listening(site) as said:
            monkeypatch.setenv("PENSTOCK_TOKEN", site.token)
            monkeypatch.setenv("PENSTOCK_URL", site.server.url)
            said["apply"] = penstock("apply", "-f", tmp_path / "a.yaml", "--yes").text
            until(lambda: look(site)[0]["rowsOut"] >= 200, "rows are stored", every=0.2)
            said["commands"] = " ".join(command_lines(site))
            assert "java" in said["commands"]

            with postgres.connect(postgres_database.name) as db:
                db.execute("ALTER ROLE someone NOLOGIN")
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'someone'")
            until(lambda: site.ask("/exceptions")["items"], "the run fails of it", PATIENCE, every=0.2)
            for verb in (["get"], ["get", "-o", "json"], ["describe", "a"], ["alerts"]):
                said[" ".join(verb)] = penstock(*verb).text
            said |= {route: str(site.ask(route)) for route in ROUTES}
            until(lambda: "run_ended" in said["/events/stream"], "the stream tells of it")
        assert "someone" in said["/pipelines/a/exceptions"]
        assert "penstock" in said["/logs/stream?level=debug"].lower()
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any("offsets" in path.parts for path in written)
        said |= {str(path): path.read_bytes().decode("latin-1") for path in written}
        assert {place for place, text in said.items() if CANARY in text} == set()
    finally:
        with postgres.connect(postgres_database.name) as db:
            db.execute("DROP OWNED BY someone")
            db.execute("DROP ROLE someone")


@contextmanager
def listening(site: Site) -> Iterator[dict[str, str]]:
    """What the streams of the server have said so far."""
    said = dict.fromkeys(STREAMS, "")

    def listen(path: str) -> None:
        headers = {"Authorization": f"Bearer {site.token}"}
        with (
            suppress(httpx.HTTPError),
            httpx.stream(
                "GET", f"{site.server.url}/api/v1{path}", headers=headers, trust_env=False, timeout=300
            ) as found,
        ):
            assert found.status_code == 200
            for line in found.iter_lines():
                said[path] += line + "\n"

    threads = [threading.Thread(target=listen, args=(path,), daemon=True) for path in STREAMS]
    for thread in threads:
        thread.start()
    yield said
    assert all(thread.is_alive() for thread in threads), "a stream has ended"


def command_lines(site: Site) -> Iterator[str]:
    """Of all processes, the drivers' JVMs among them: anybody on the machine can read these."""
    for pid in site.processes():
        with suppress(OSError):
            yield Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
