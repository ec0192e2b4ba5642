"""`penstock describe` shows how many cores a pipeline is advised to have, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_doctor_running import ApiClient, apply
from tests.control.api.server import Server
from typer.testing import CliRunner

from penstock.capacity.autoscale.decide import Decision, Memory, decide
from penstock.capacity.autoscale.evaluate import Rules
from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.forecast import BatchCost
from penstock.cli import client
from penstock.cli.main import app
from penstock.control.config import ServerConfig

FORMULA = "load 3,200/s ÷ 0.7 + lag 1.2 M ÷ 30 min + restart 40 s → 5,300/s; 2 cores give 2,900/s → 4 cores"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(tmp_path, ServerConfig())
    monkeypatch.setattr(client, "connected", lambda: ApiClient(server))
    yield server
    server.close()


def decision(**rules: object) -> Decision:
    observed = Observed(0.0, 2, 3200.0, 1.2e6, BatchCost(0.0, 1 / 2900))
    return decide(observed, Memory(), Rules(1, 8, restart=40, up_delay=0, **rules), 0.0)[0]  # type: ignore[arg-type]


def described(server: Server, found: Decision | None) -> str:
    object.__setattr__(server.services, "scaling", lambda name: found)
    result = CliRunner().invoke(app, ["describe", "clicks"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_advice_is_shown_with_its_formula(server: Server) -> None:
    apply(server, "clicks", "scale: {min: 1, max: 8}\n")
    printed = described(server, decision())

    assert "scaling     2 → 4 cores advised\n" in printed
    assert f"{FORMULA}: more is needed, 2 → 4 cores\n" in printed


def test_what_speaks_against_a_change_is_shown(server: Server) -> None:
    apply(server, "clicks", "scale: {min: 1, max: 8}\n")
    printed = described(server, decision(excluded=((0.0, 3600.0),)))

    assert "scaling     a change is due, and not advised now\n" in printed
    assert f"{FORMULA}: nothing is changed from 00:00 to 01:00\n" in printed


def test_before_it_runs_nothing_is_advised(server: Server) -> None:
    apply(server, "clicks", "scale: {min: 1, max: 8}\n")

    assert "scaling     nothing is advised before it runs\n" in described(server, None)


def test_without_scale_there_is_no_line(server: Server) -> None:
    apply(server, "clicks")

    assert "scaling" not in described(server, decision())
