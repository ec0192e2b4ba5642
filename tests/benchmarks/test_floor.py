"""The pure parts of the benchmark `floor`: its pipelines, what it takes from reports, ratios, limits and tables."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from benchmarks.contender import Failed
from benchmarks.environments import Unavailable
from benchmarks.floor import floor as floor_module
from benchmarks.floor.cases import CASES, CURVES, Case, case_from
from benchmarks.floor.contenders import CONTENDERS, BatchTime, Contender, Penstock, Spark
from benchmarks.floor.floor import Floor, Plan
from benchmarks.floor.measurement import Cost, Interval, measure
from benchmarks.floor.pipeline_files import pipeline_file, start_up_file
from benchmarks.floor.results import Check, Failure, Results, ratios
from benchmarks.floor.rows import times_of_last_hour, write_rows
from benchmarks.floor.start_up import COMMANDS, Medians, Start, arguments
from benchmarks.floor.tables import cost_cells, cost_table, curve_table, limit_table, start_table
from rich.console import Console
from rich.table import Table

from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.nodes import Graph
from penstock.reports.folder import RunFolder
from penstock.reports.values import BatchLine, RunStatus

RUN, VALIDATE = "penstock run --once", "penstock validate, standby"
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
EVERY_CASE = (*CASES, *(case for points in CURVES.values() for _, case in points))
COST = Cost(10.0, 5.0, 800_000_000, 900_000_000, 4, 2.0, 3.0, (100.0, 200.0, 300.0), 1000, 3.0)


def _named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def _counts(graph: Graph) -> list[int]:
    """Of sources, steps and sinks."""
    return [len(list(graph.of_kind(kind))) for kind in ("source", "step", "sink")]


def _cells(table: Table) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=200).print(table)
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_the_pipeline_of_each_case_is_valid(case: Case, tmp_path: Path) -> None:
    graph = build(parse_yaml(pipeline_file(case), tmp_path / "pipeline.yaml"))

    results = case.windows if case.kind in ("windows", "idle") else 1
    assert _counts(graph) == [1, results, results]


def test_every_window_and_its_sink_are_different() -> None:
    lines = pipeline_file(_named("8-windows")).splitlines()

    windows = {line.split("window: ")[1] for line in lines if "window: " in line}
    paths = {line.split("path: ")[1] for line in lines if "sqlite" in line}
    assert (len(windows), len(paths)) == (8, 8)


def test_the_pipeline_of_the_start_up_is_valid(tmp_path: Path) -> None:
    graph = build(parse_yaml(start_up_file(), tmp_path / "pipeline.yaml"))

    assert _counts(graph) == [1, 1, 1]


def test_a_case_reaches_a_peer_as_json() -> None:
    for case in EVERY_CASE:
        assert case_from(json.loads(json.dumps(case.as_dict()))) == case


def test_contenders_of_cases_exist() -> None:
    assert {name for case in EVERY_CASE for name in case.contenders} == set(CONTENDERS)
    assert all("penstock" in case.contenders for case in EVERY_CASE)


def test_rows_appear_whole_and_within_the_hour(tmp_path: Path) -> None:
    times = times_of_last_hour(4, NOON)
    write_rows(tmp_path / "in", "first.json", times, keys=3, seed=1)

    assert times == [NOON - dt.timedelta(minutes=minutes) for minutes in (60, 45, 30, 15)]
    assert [file.name for file in (tmp_path / "in").iterdir()] == ["first.json"]
    rows = [json.loads(line) for line in (tmp_path / "in" / "first.json").read_text("utf-8").splitlines()]
    assert [row["ts"] for row in rows] == [f"2026-01-01T11:{minute}:00.000Z" for minute in ("00", "15", "30", "45")]
    assert all(row["user"] in ("user0", "user1", "user2") for row in rows)


def test_batches_are_those_of_the_interval() -> None:
    interval = Interval(
        NOON, NOON + dt.timedelta(seconds=10), 10.0, 2.5, (300, 100, 200), (4, 6, 5), programs=20, forks=50
    )
    batches = [BatchTime(NOON + dt.timedelta(seconds=second), 100.0 + second, 7) for second in (-1, 0, 4, 9, 10)]

    cost = interval.cost(batches)

    assert cost.batch_ms == (100.0, 104.0, 109.0)
    assert cost.rows == 21
    assert (cost.cores, cost.memory_bytes, cost.peak_memory_bytes, cost.processes) == (0.25, 200, 300, 5)
    assert (cost.programs_a_second, cost.forks_a_second) == (2.0, 5.0)


def test_without_batches_there_are_no_batch_times() -> None:
    interval = Interval(NOON, NOON, 10.0, 2.5, (1,), (1,), programs=None, forks=0)

    assert interval.cost(None).batch_ms is None
    assert interval.cost(None).figures()["rows_a_second"] is None
    assert interval.cost([]).batch_ms == ()
    assert interval.cost([]).batch_quantile(50) is None
    assert interval.cost([]).programs_a_second is None


def test_quantiles_of_batch_times() -> None:
    hundred = replace(COST, batch_ms=tuple(float(ms) for ms in range(101)))

    assert (hundred.batch_quantile(50), hundred.batch_quantile(99)) == (50.0, 99.0)
    assert replace(COST, batch_ms=(7.0,)).batch_quantile(99) == 7.0


def test_batches_of_penstock_come_from_the_reports_of_its_run(tmp_path: Path) -> None:
    contender = Penstock(_named("1-window"), tmp_path)
    command = contender.command()

    assert command[-2:] == ["penstock.runner.main", str(tmp_path / "run")]
    order = contender.run.order
    assert order is not None
    assert Path(order.file).read_text("utf-8") == pipeline_file(_named("1-window"))
    assert not contender.is_ready()
    contender.run.write_status(RunStatus("r000000000000", 1, "", "running", NOON, batches=1, rows_in={"views": 5}))
    assert contender.is_ready()
    contender.run.add_batch(BatchLine(3, NOON, 250, rows_in={"views": 100}))
    assert contender.batches() == [BatchTime(NOON, 250, 100, 3)]


def test_penstock_is_ready_once_it_has_read_its_history(tmp_path: Path) -> None:
    contender = Penstock(replace(_named("1-window"), kind="history", history=1000), tmp_path)
    contender.command()

    ready = []
    for rows in (999, 1000):
        contender.run.write_status(RunStatus("r", 1, "", "running", NOON, batches=1, rows_in={"views": rows}))
        ready.append(contender.is_ready())
    assert ready == [False, True]


def test_reports_of_spark_without_rows_are_no_batches(tmp_path: Path) -> None:
    reports = [
        {"at": "2026-01-01T12:00:00.000Z", "ms": 300, "rows": 100, "batch": 1},
        {"at": "2026-01-01T12:00:10.000Z", "ms": 2, "rows": 0, "batch": 2},
    ]
    (tmp_path / "batches.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports), "utf-8")

    assert Spark(_named("1-window"), tmp_path).batches() == [BatchTime(NOON, 300, 100, 1)]


def test_a_peer_that_was_killed_has_no_reports(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="ended without its reports"):
        Spark(_named("1-window"), tmp_path).batches()


def test_results_are_looked_for(tmp_path: Path) -> None:
    case = _named("1-window")
    penstock, spark, flink = (CONTENDERS[name](case, tmp_path) for name in ("penstock", "spark", "flink rocksdb"))
    penstock.command()
    (tmp_path / "out.txt").write_text("no results yet\n", "utf-8")
    with closing(sqlite3.connect(tmp_path / "out-0.db")) as db, db:
        db.execute("CREATE TABLE results (batch, c0)")

    assert [found.has_results() for found in (penstock, spark, flink)] == [False, False, False]

    RunFolder(tmp_path / "run").add_batch(BatchLine(0, NOON, 1, rows_out={"window_1_out": 3}))
    (tmp_path / "out.txt").write_text("+I[2026-01-01T12:00, 7, 3]\n", "utf-8")
    with closing(sqlite3.connect(tmp_path / "out-0.db")) as db, db:
        db.execute("INSERT INTO results VALUES (0, 1)")
    assert [found.has_results() for found in (penstock, spark, flink)] == [True, True, True]


def test_a_contender_without_results_has_failed(tmp_path: Path) -> None:
    class Idling(Contender):
        def command(self) -> list[str]:
            return ["sh", "-c", f"touch {self.folder}/ready; exec sleep 60"]

        def has_results(self) -> bool:
            return False

    with pytest.raises(Failed, match="gave no results"):
        measure(Idling(_named("1-window"), tmp_path / "case"), warm_up=0, seconds=0.1)


def test_a_contender_that_ends_is_said_to_have_failed(tmp_path: Path) -> None:
    class Ending(Contender):
        def command(self) -> list[str]:
            return ["sh", "-c", "echo no such table; exit 3"]

    with pytest.raises(Failed, match=r"code 3\n  no such table"):
        measure(Ending(_named("1-window"), tmp_path / "case"), warm_up=0, seconds=1)


def test_a_contender_is_measured_and_stopped(tmp_path: Path) -> None:
    class Sleeping(Contender):
        def command(self) -> list[str]:
            return ["sh", "-c", f"touch {self.folder}/ready; exec sleep 60"]

    cost = measure(Sleeping(_named("idle"), tmp_path / "case"), warm_up=0, seconds=0.5)

    assert cost.cores < 0.1
    assert (cost.processes, cost.batch_ms, cost.rows) == (1, None, None)
    assert 0 < cost.memory_bytes < 10_000_000
    assert len((tmp_path / "case" / "in" / "first.json").read_text("utf-8").splitlines()) == 100


def test_ratios_are_those_of_penstock_over_the_others() -> None:
    spark = replace(COST, cpu_seconds=2.5, memory_bytes=400_000_000)
    nothing = replace(COST, cpu_seconds=0.0)

    assert ratios({"penstock": COST, "spark": spark, "flink hashmap": nothing}) == {"spark": (2.0, 2.0)}
    assert ratios({"spark": spark}) == {}


def test_limits_are_checked_where_there_are_any() -> None:
    results = Results({"1-window": {"penstock": COST}, "4-windows": {"penstock": COST}})
    results.starts = {RUN: [Start(9.0, 5.0), Start(7.0, 3.0), Start(8.0, 4.0)], VALIDATE: [Start(1.5, None)]}

    assert [(check, check.passed) for check in results.checks()] == [
        (Check("1-window", "cores", 0.25, 0.5), False),
        (Check("1-window", "MB", 900, 800), True),
        (Check("1-window", "ms a batch", 200, 200), True),
        (Check(RUN, "s to the first result", 4.0, 4.0), True),
        (Check(VALIDATE, "s", 2.0, 1.5), True),
    ]


def test_commands_of_the_start_up(tmp_path: Path) -> None:
    found = {command.name: arguments(command, tmp_path) for command in COMMANDS if command.name != "flink"}

    file = str(tmp_path / "pipeline.yaml")
    assert found[RUN][1:] == ["-P", "-m", "penstock.cli.entry", "run", "--once", file]
    assert found["penstock run --once, standby"] == found[RUN]
    assert found[VALIDATE][-2:] == ["validate", file]
    assert found["spark"][1:] == ["-m", "benchmarks.peers.floor_spark", "start-up", str(tmp_path)]


def test_medians_of_starts() -> None:
    assert Medians.of([Start(9.0, 5.0), Start(7.0, 3.0), Start(8.0, 4.0)]) == Medians(8.0, 4.0)
    assert Medians.of([Start(9.0, None)]) == Medians(9.0, None)


def test_what_was_not_measured_does_not_pass() -> None:
    assert not Check("1-window", "ms a batch", 200, None).passed


def test_right_if_penstock_has_carried_every_load() -> None:
    starved = replace(COST, rows=0)

    assert Results({"1-window": {"penstock": COST}}).right
    assert Results({"idle": {"penstock": starved}}).right
    assert not Results({"1-window": {"penstock": starved}}).right
    assert not Results(failures=[Failure("1-window", "penstock", "no")]).right
    assert Results(failures=[Failure("1-window", "spark", "no")]).right


def test_figures_are_json_with_ratios_and_limits() -> None:
    results = Results({"1-window": {"penstock": COST, "spark": replace(COST, cpu_seconds=1.25)}})

    figures = json.loads(json.dumps(results.figures()))

    assert figures["costs"]["1-window"]["penstock"] == {
        "seconds": 10.0, "cores": 0.5, "others_cores": 0.3, "memory_bytes": 800_000_000,
        "peak_memory_bytes": 900_000_000, "processes": 4, "programs_a_second": 2.0,
        "forks_a_second": 3.0, "batches": 3, "batch_ms": {"median": 200.0, "p99": 298.0},
        "rows_a_second": 100.0,
    }  # fmt: skip
    assert figures["penstock_over"] == {"1-window": {"spark": {"cores": 4.0, "memory": 1.0}}}
    assert figures["limits"][0] == {
        "case": "1-window", "what": "cores", "limit": 0.25, "reached": 0.5, "passed": False
    }  # fmt: skip


def test_cells_of_a_cost() -> None:
    assert cost_cells(COST) == ["0.50", "800", "4", "2.0", "3.0", "200", "298", "100"]
    idle = replace(COST, cpu_seconds=0.123, programs_a_second=None, batch_ms=(), rows=None)
    assert cost_cells(idle) == ["0.012", "800", "4", "–", "3.0", "–", "–", "–"]


def test_tables_show_costs_ratios_and_limits() -> None:
    results = Results({"1-window": {"penstock": COST, "spark": replace(COST, cpu_seconds=2.5)}})
    results.starts = {RUN: [Start(9.0, 4.0)]}

    rows = _cells(cost_table(results))
    assert ["1-window", "penstock", "0.50", "800", "4", "2.0", "3.0", "200", "298", "100", "", ""] in rows
    assert ["1-window", "spark", "0.25", "800", "4", "2.0", "3.0", "200", "298", "100", "2.0", "1.0"] in rows
    limits = _cells(limit_table(results.checks()))
    assert ["1-window", "cores", "0.25", "0.50", "fail"] in limits
    assert [RUN, "s to the first result", "4", "4.0", "pass"] in limits
    assert [RUN, "4.0", "9.0", "1"] in _cells(start_table(results))
    curve = _cells(curve_table("keys", {1000: COST}))
    assert ["1,000", "0.50", "800", "4", "2.0", "3.0", "200", "298", "100"] in curve


def test_an_environment_that_cannot_be_had_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def unavailable(contender: Contender, **_: float) -> Cost:
        tried.append(contender.case.name)
        raise Unavailable("flink is left out: no network")

    monkeypatch.setattr(floor_module, "measure", unavailable)
    game = Floor(tmp_path, Plan(contenders=("flink hashmap", "flink rocksdb")))
    steps = list(game.play(1))

    assert tried == ["1-window"]
    assert steps == ["floor: 1-window, flink hashmap"]
    assert game.results.failures == [Failure("1-window", "flink hashmap", "flink is left out: no network")]
    assert game.right


@pytest.mark.parametrize(("others", "said"), [(1.0, False), (3.0, True)])
def test_a_busy_machine_is_said(others: float, said: bool, tmp_path: Path) -> None:
    game = Floor(tmp_path, Plan())
    game.results.costs = {"1-window": {"penstock": replace(COST, others_cpu_seconds=others)}}
    out = StringIO()
    game.show(Console(file=out, width=200))

    assert ("busy with other work, up to 0.3 cores" in out.getvalue()) is said


def test_what_failed_is_said(tmp_path: Path) -> None:
    game = Floor(tmp_path, Plan())
    game.results.failures = [Failure("4-windows", "flink hashmap", "[no] such thing")]
    out = StringIO()
    game.show(Console(file=out, width=200))

    assert out.getvalue() == "4-windows, flink hashmap: not measured: [no] such thing\n"


def test_cases_contenders_and_curves_can_be_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, str, float, float]] = []

    def found(contender: Contender, *, warm_up: float, seconds: float) -> Cost:
        measured.append((type(contender).__name__, contender.case.name, warm_up, seconds))
        return COST

    monkeypatch.setattr(floor_module, "measure", found)
    list(Floor(tmp_path, Plan(3, 4, cases=("idle", "rolling"), contenders=("penstock", "spark"))).play(1))
    assert measured == [("Penstock", "idle", 3, 4), ("Penstock", "rolling", 3, 4), ("Spark", "idle", 3, 4)]

    game = Floor(tmp_path, Plan(3, 4, cases=("idle",), contenders=("spark",), curves=True))
    list(game.play(1))
    assert {name: list(points) for name, points in game.curves.items()} == {
        "window steps": [1, 2, 4, 8],
        "keys": [100, 1_000, 10_000, 100_000],
        "rows of state": [1_000, 100_000, 1_000_000],
        "rows a batch": [100, 1_000, 10_000, 30_000],
    }
    assert game.figures()["curves"]["keys"]["100"]["cores"] == 0.5
