"""`penstock capacity` for a pipeline that runs: from a state folder and from a server's history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.capacity.histories import TrueCosts, history, line_of, state_folder
from typer.testing import CliRunner

from penstock.capacity.fit import MeasuredBatch
from penstock.cli import client
from penstock.cli.main import app
from penstock.control.store.supervision import numbers
from penstock.control.supervisor.ports import BatchOf
from penstock.errors import PenstockError

COSTS = TrueCosts(0.4, 50e-6)


def exact_history(batches: int = 600) -> list[MeasuredBatch]:
    return history(COSTS, noise=0.0, outliers=0.0, batches=batches)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["capacity", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_the_history_of_a_state_folder_is_fitted(tmp_path: Path) -> None:
    code, printed = run(state_folder(tmp_path, exact_history()), "--rate", "6000/s")

    assert code == 0
    assert "clicks: 6,000 rows/s on 2 cores, a batch every 2 s" in printed
    cells = {" ".join(line.split()) for line in printed.splitlines()}
    assert any(cell.startswith("each batch 400 ms") for cell in cells)
    assert any(cell.startswith("each row 50 µs") for cell in cells)
    assert "Margin: 3.29 times the load; the first limit is freshness" in printed
    assert "target: 2 cores → 3 cores" in printed


def test_json_holds_the_costs_and_all_answers(tmp_path: Path) -> None:
    found = json.loads(run(state_folder(tmp_path, exact_history()), "--rate", "6000/s", "-o", "json")[1])

    costs = {cost["term"]: cost["seconds"] for cost in found["model"]["costs"]}
    assert costs["batch"] == pytest.approx(0.4, rel=0.01)
    assert costs["row"] == pytest.approx(50e-6, rel=0.01)
    assert [load["keepsUp"] for load in found["loads"]] == [True, True]
    assert found["limits"][0]["resource"] == "freshness"
    assert found["cores"][1]["cores"] == 3
    assert found["outage"]["caughtUp"] == pytest.approx(3086, rel=0.02)
    assert found["commitShare"] == pytest.approx(0.02, rel=0.3)


class FakeServer:
    """Answers as the API does."""

    def __init__(self, batches: Sequence[MeasuredBatch]) -> None:
        self.batches = batches

    def get(self, path: str) -> Any:
        assert path == "/pipelines/clicks/description"
        spec = {"sources": {"in": {"kafka": {"maxRowsPerBatch": 50_000}}}, "run": {"trigger": "2 seconds"}}
        return {"document": {"spec": spec}, "status": {"disk_free": 10**9}}

    def pages(self, path: str, **query: Any) -> Any:
        assert path == "/pipelines/clicks/batches"
        for number, batch in reversed(list(enumerate(self.batches))):
            row = numbers(BatchOf("clicks", "r1", line_of(number, batch))).as_row()
            yield {
                "run": row["run"], "at": row["at"].isoformat(), "span": row["span"], "durationMs": row["duration_ms"],
                "rowsIn": row["rows_in"], "rowsOut": row["rows_out"], "stateRows": row["state_rows"],
                "stateBytes": row["state_bytes"], "details": row["details"],
            }  # fmt: skip


def test_the_history_of_a_server_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "connected", lambda: FakeServer(exact_history()))

    found = json.loads(run("clicks", "--rate", "6000/s", "-o", "json")[1])

    costs = {cost["term"]: cost["seconds"] for cost in found["model"]["costs"]}
    assert costs["row"] == pytest.approx(50e-6, rel=0.01)
    assert found["running"] | {"rate": 6000, "trigger": 2.0, "batchLimit": 50_000, "cores": 2} == found["running"]
    assert found["limits"][0]["resource"] == "batch limit"


def test_check_fails_if_the_load_is_more_than_it_can_take(tmp_path: Path) -> None:
    state = state_folder(tmp_path, exact_history())

    assert run(state, "--rate", "6000/s", "--check")[0] == 0
    assert run(state, "--rate", "6000/s", "--factor", "4", "--check")[0] == 1
    assert run(state, "--rate", "6000/s", "--catch-up", "30 minutes", "--check")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--keys", "5"), "USAGE"), (("--svg", "a.svg"), "USAGE"), (("--factor", "0"), "USAGE"),
        (("--max-lag", "soon"), "USAGE"), (("--margin", "100%"), "USAGE"), (("--cores", "0"), "USAGE"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_meant_are_refused(arguments: tuple[str, ...], code: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        run(state_folder(tmp_path, exact_history(5)), *arguments)

    assert caught.value.code == code


def test_a_short_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        run(state_folder(tmp_path, exact_history(40)))

    assert caught.value.code == "HISTORY_TOO_SHORT"


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        run(tmp_path)

    assert caught.value.code == "HISTORY_MISSING"


def test_a_factor_is_for_a_pipeline_that_runs() -> None:
    with pytest.raises(PenstockError) as caught:
        run("--factor", "2")

    assert caught.value.code == "USAGE"
