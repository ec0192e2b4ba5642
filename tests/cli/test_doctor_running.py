"""`penstock doctor NAME`: rules on the file that the server has and on how the pipeline runs, over the real API."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.api.server import T0, Server
from tests.control.files import yaml
from typer.testing import CliRunner

from penstock.cli import client
from penstock.cli.main import app
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.store import history
from penstock.control.store.supervision import numbers
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import BatchOf, Run
from penstock.control.supervisor.watched import Live
from penstock.errors import PenstockError
from penstock.reports.values import BacklogReport, BatchLine, RunStatus


class ApiClient:
    """Asks a server in this process as the command line asks one over the network."""

    def __init__(self, server: Server) -> None:
        self._client = server.client(Role.VIEWER)

    def get(self, path: str, **query: Any) -> Any:
        answer = self._client.get(f"/api/v1{path}", params={key: v for key, v in query.items() if v is not None})
        assert answer.status_code == 200, answer.text
        return answer.json()

    pages = client.Client.pages


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (tmp_path / "data").mkdir()
    server = Server(tmp_path / "data", ServerConfig())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "connected", lambda: ApiClient(server))
    monkeypatch.setattr("penstock.cli.listing.utc_now", lambda: T0)
    yield server
    server.close()


def apply(server: Server, name: str, body: str = "") -> None:
    files = [{"path": f"{name}.yaml", "text": yaml(name, body)}]
    assert server.client(Role.AUTHOR).post("/api/v1/apply", {"files": files}).status_code == 200


def run_slowly(server: Server, name: str) -> None:
    """Batches of five seconds with a trigger of one, and more waits than before."""
    lines = [
        BatchLine(n, T0 - dt.timedelta(seconds=5 * (60 - n)), 5000, {"addBatch": 4000}, {"views": 100}, {"out": 100})
        for n in range(60)
    ]
    with server.store.writing() as connection:
        history.add_batches(connection, [numbers(BatchOf(name, "r1", line)) for line in lines])
    backlog = {"views": BacklogReport(70_000, "rows")}
    status = RunStatus("r1", 1, "", "running", T0, backlog=backlog, caught_up_in={"views": None})
    server.live[name] = Live(name, Health("RUNNING", ""), Run("r1", name, 1, 1, "local", T0), status)


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_pipeline_that_does_not_keep_up_is_an_error(server: Server) -> None:
    apply(server, "clicks")
    run_slowly(server, "clicks")
    code, printed = doctor("clicks")

    assert code == 1
    assert "clicks: error[lag-growing] ever more waits at source 'views': 70,000 rows\n" in printed
    assert "clicks: warning[batches-late] 100% of its batches take longer than the trigger of 1 s" in printed


def test_the_file_that_the_server_has_is_checked_too(server: Server) -> None:
    apply(server, "clicks", "run: {restart: {maxPerHour: 0}}\n")
    found = json.loads(doctor("clicks", "-o", "json")[1])

    (zero,) = [each for each in found if each["code"] == "restart-budget-zero"]
    assert (zero["file"], zero["line"], zero["fixable"]) == ("clicks", 9, False)


def test_all_that_are_meant_to_run_are_checked(server: Server) -> None:
    for name in ("clicks", "orders", "idle"):
        apply(server, name)
    run_slowly(server, "orders")
    server.client(Role.OPERATOR).post("/api/v1/pipelines/idle/stop")
    code, printed = doctor("--all")

    assert code == 1
    assert "orders: error[lag-growing]" in printed
    assert "\nclicks: " in f"\n{printed}"
    assert "idle" not in printed


@pytest.mark.parametrize("arguments", [(), ("--fix", "clicks"), ("--fix", "--all")])
def test_what_cannot_be_meant_is_refused(server: Server, arguments: tuple[str, ...]) -> None:
    apply(server, "clicks")
    with pytest.raises(PenstockError) as caught:
        doctor(*arguments)

    assert caught.value.code == "USAGE"
