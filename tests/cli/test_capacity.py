"""`penstock capacity` as it is called: the table, JSON, the picture, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML
from tests.capacity.scenarios import GUIDE
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError

MB = 1_000_000


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["capacity", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def told(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "-o", "json")[1])


def line(printed: str, start: str) -> list[str]:
    """The cells of the line that starts so."""
    (found,) = [line for line in printed.splitlines() if line.startswith(start)]
    return [cell for cell in found.removeprefix(start).split("  ") if cell]


def test_the_guides_scenario_prints_the_guides_figures() -> None:
    code, printed = run(GUIDE)
    cells = {
        start: [cell.strip() for cell in line(printed, start)]
        for start in ("source ", "shuffle ", "window emit", "  rows", "state access", "  with state access",
                      "checkpoints", "  with checkpoints", "  overall", "state, on each", "network in", "  heap")
    }  # fmt: skip

    assert code == 0
    assert cells == {
        "source ": ["400 MB/s"],
        "shuffle ": ["320 MB/s", "320 MB/s"],
        "window emit": ["67 MB/s"],
        "  rows": ["720 MB/s", "387 MB/s"],
        "state access": ["40 MB/s", "40 MB/s"],
        "  with state access": ["760 MB/s", "427 MB/s"],
        "checkpoints": ["333 MB/s"],
        "  with checkpoints": ["760 MB/s", "760 MB/s"],
        "  overall": ["10,335 MB/s", "= 82.68 Gbit/s"],
        "state, on each": ["20 GB"],
        "network in": ["760 MB/s", "1,250 MB/s", "61%", "39%"],
        "  heap": ["1.5 GB", "1.4 GiB"],
    }
    assert "Machines needed: 3; with fewer, the limit is network in" in printed
    assert "Machines given:  5, enough" in printed
    assert max(len(each) for each in printed.partition("Warnings")[0].splitlines()) <= 84


def test_json_holds_exact_numbers() -> None:
    found = told(GUIDE)

    assert found["perMachine"]["totals"] == {
        "rows": {"in": 720 * MB, "out": 387 * MB},
        "with state": {"in": 760 * MB, "out": 427 * MB},
        "with checkpoints": {"in": 760 * MB, "out": 760 * MB},
    }
    assert (found["overall"]["total"], found["overall"]["gigabitsPerSecond"]) == (10_335 * MB, 82.68)
    assert found["perMachine"]["stateBytes"] == 20_000 * MB
    assert found["machines"] == {
        "count": 5,
        "given": True,
        "needed": 3,
        "neededFor": "network in",
        "enough": True,
    }
    assert found["executor"]["heap"] == 1500 * MB
    assert found["outage"] is None


def test_options_take_the_place_of_the_file(tmp_path: Path) -> None:
    found = told(GUIDE, "--machines", "10", "--rate", "2,000,000/s", "--margin", "30%", "--outage", "2h")

    assert found["machines"]["count"] == 10
    assert found["perMachine"]["flows"][0]["in"] == 400 * MB
    assert (found["outage"]["length"], found["outage"]["peakBacklog"]) == (7200, 2e6 * 7200)
    assert found["outage"]["caughtUpAfter"] == pytest.approx(2e6 * 7200 / (found["sustained"]["rate"] - 2e6), rel=1e-6)
    _, printed = run(GUIDE, "--outage", "2h")
    assert [cell.strip() for cell in line(printed, "  caught up after")] == ["3 h 6 min"]


def test_the_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "machine.svg"
    code, _ = run(GUIDE, "--svg", picture)
    found = [element.text for element in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]

    assert code == 0
    assert {"one of 5 machines", "400 MB/s", "Total In: 760 MB/s", "Total Out: 760 MB/s"} <= set(found)


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        run(GUIDE, "--svg", tmp_path / "none" / "a.svg")
    assert caught.value.code == "USAGE"


def test_check_fails_where_machines_are_too_few() -> None:
    assert run(GUIDE, "--check")[0] == 0
    code, printed = run(GUIDE, "--check", "--machines", "2")
    assert code == 1
    assert "network in is over its limit: 128% is needed of what a machine has" in printed
    assert run(GUIDE, "--machines", "2")[0] == 0
    assert run(GUIDE, "--check", "--container-memory", "600 MB")[0] == 1


def test_a_day_of_load_is_shown(tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text("time,rate\n00:00,500000\n09:00,2000000\n10:00,500000\n", "utf-8")
    _, printed = run(GUIDE, "--profile", day, "--max-lag", "1 minute", "--outage", "1h", "--machines", "5")

    assert printed.startswith("guide: up to 2,000,000 rows/s (562,500 on average) of 2 KB on 5 machines")
    found = told(GUIDE, "--profile", day, "--max-lag", "1 minute", "--machines", "5")
    assert found["day"]["peakLag"] == pytest.approx((2e6 / found["sustained"]["rate"] - 1) * 3600)
    assert found["day"]["peakAt"] == 10 * 3600
    # 355,263 rows a second too many for an hour. 6 machines take 1.94 million a second and are still late.
    day_shown = printed.partition("After an outage")[0]
    assert [cell.strip() for cell in line(day_shown, "  highest lag")] == ["12 min 58 s", "at 10:00"]
    assert found["machines"]["needed"] == 7
    assert found["warnings"][-2:-1] == ["rows wait longer than the limit"]
    assert "After an outage of 1 h, begun at " in printed


def test_a_pipeline_and_rates(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: demo}
spec:
  sources: {views: {memory: {schema: {id: string, ts: timestamp}}, eventTime: {column: ts}}}
  steps: {hourly: {from: views, window: {size: 1 hour, by: [id], values: {n: count(*)}}}}
  sinks: {store: {from: hourly, memory: {}}}
""",
        "utf-8",
    )
    given = ["--rate", "20000/s", "--record-size", "1KB", "--keys", "hourly=1M", "--state-size", "60B",
             "--emit-size", "50B", "--network", "10GbE", "--disks", "local", "--machines", "2"]  # fmt: skip
    found = told("--pipeline", path, *given)

    assert found["perMachine"]["stateBytes"] == 30 * MB
    assert found["perMachine"]["network"]["in"] == 10 * MB + 5 * MB
    assert found["taken"][0] == "windows of 'hourly': 1 hour"
    assert told("--pipeline", path, *given, "--rows", "50%")["perMachine"]["network"]["in"] == 12.5 * MB
    with pytest.raises(PenstockError) as caught:
        run("--pipeline", path, *given[2:])
    assert [(each.code, each.params["key"]) for each in caught.value.problems] == [("SPEC_MISSING_KEY", "rate")]


def test_what_does_not_go_together() -> None:
    for option, value in (("--pipeline", "p.yaml"), ("--stateless", "a")):
        with pytest.raises(PenstockError) as caught:
            run(GUIDE, option, value)
        assert caught.value.code == "USAGE"


def test_nothing_at_all_says_what_is_needed() -> None:
    with pytest.raises(PenstockError) as caught:
        run()
    assert {problem.params["key"] for problem in caught.value.problems} == {
        "rate", "recordSize", "network", "steps",
    }  # fmt: skip


TWO = """\
source: {rate: 10000/s, recordSize: 1 KB}
steps:
  "[a]": {keys: 1000, state: 100 bytes, emit: 50 bytes, sinks: 0}
  b: {keys: 10, state: 10 bytes, emit: 50 bytes, reads: "[a]"}
checkpoints: {every: 1 second, mode: changes}
machines: {count: 2, network: 1 Gbit/s, cores: 4, rowsPerCore: 2000/s}
disks: {attached: local, read: 100 MB/s}
"""


def test_several_steps_have_a_line_each_and_local_disks_a_place_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO, "utf-8")
    _, printed = run(path)

    assert [cell.strip() for cell in line(printed, "shuffle, [a]")] == ["2.5 MB/s", "2.5 MB/s"]
    assert [cell.strip() for cell in line(printed, "shuffle, b")] == ["125 KB/s", "125 KB/s"]
    assert [cell.strip() for cell in line(printed, "state access, [a]")] == ["500 KB/s", "500 KB/s", "disk only"]
    assert [cell.strip() for cell in line(printed, "results")] == ["250 KB/s"]
    assert [cell.strip() for cell in line(printed, "disk read")] == ["550 KB/s", "100 MB/s", "1%", "99%"]
    assert [cell.strip() for cell in line(printed, "cores")] == ["2.5", "4", "62%", "38%"]
    assert "Cores needed:    5\n" in printed
    assert "When windows end" not in printed


def test_a_scenario_with_a_mistake_ends_with_2_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO.replace("1 Gbit/s", "1 GB"), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "capacity", str(path)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}:6:31: error[SPEC_BAD_VALUE] `machines.network`: '1 GB' is in bytes" in done.stderr


def test_yaml_says_what_json_says() -> None:
    assert YAML(typ="safe").load(run(GUIDE, "-o", "yaml")[1]) == told(GUIDE)
