"""The benchmark `floor` as a command, with Spark: whether its processes start, report and end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.spark
def test_penstock_and_plain_pyspark_are_measured(tmp_path: Path) -> None:
    report = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "floor", "--quick", "--report", str(report)]
    picked = ["--only", "penstock", "spark", "--cases", "1-window", "idle", "start-up"]
    done = subprocess.run([*command, *picked], cwd=_ROOT, capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(report.read_text("utf-8"))["workloads"]
    assert found["failures"] == []
    assert {case: sorted(costs) for case, costs in found["costs"].items()} == {
        "1-window": ["penstock", "spark"], "idle": ["penstock", "spark"]
    }  # fmt: skip
    for cost in found["costs"]["1-window"].values():
        assert 50 < cost["rows_a_second"] < 200
        assert 0 < cost["cores"] < 4
        assert cost["memory_bytes"] > 100e6
    assert found["costs"]["idle"]["penstock"]["rows_a_second"] == 0
    once, standby = (found["start_up"][f"penstock run --once{kind}"] for kind in ("", ", standby"))
    assert 0 < once["first_result_seconds"] <= once["seconds"]
    assert standby["first_result_seconds"] < once["first_result_seconds"]
    assert found["start_up"]["penstock validate"]["first_result_seconds"] is None
    assert set(found["penstock_over"]["1-window"]) == {"spark"}
