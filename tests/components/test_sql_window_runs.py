"""Windowed queries in whole pipelines: one after the other, with late rows, and what is said of them beforehand."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.commands import Command, command

from penstock.engine.analyse import Analysed, analyse
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

pytestmark = pytest.mark.spark

VIEWS = "views: {memory: {schema: {id: string, ts: timestamp, n: int}}, eventTime: {column: ts, maxDelay: 0 seconds}}"
W = "window(ts, '1 minute')"
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def body(steps: dict[str, str], sinks: dict[str, str] | None = None, more: str = "") -> str:
    """A pipeline with a sink in memory for each step, unless sinks are given."""
    stored = {f"to_{name}": f"from: {name}, memory: {{}}" for name in steps} if sinks is None else sinks
    lines = ["sources:", f"  {VIEWS}", "steps:", *(f"  {name}: {{{step}}}" for name, step in steps.items())]
    return "\n".join([*lines, "sinks:", *(f"  {name}: {{{sink}}}" for name, sink in stored.items()), more]) + "\n"


def view(minute: float, id: str = "a", n: int | None = 1) -> dict[str, Any]:
    return {"id": id, "ts": (START + dt.timedelta(minutes=minute)).isoformat(), "n": n}


def at(value: Any) -> float:
    """A time, or the start of a window, in minutes."""
    time = value["start"] if isinstance(value, dict) else value
    assert isinstance(time, dt.datetime)
    return (time - START).total_seconds() / 60


def analysed(spark: SparkSession, project: Project, text: str) -> Analysed:
    return analyse(spark, project.build(text), project.folder / "spool")


def test_windows_of_windows_are_carried_and_spark_takes_over_where_it_must(project: Project) -> None:
    steps = {
        "minutes": f'from: views, sql: "SELECT window, id, count(DISTINCT n) AS c FROM views GROUP BY {W}, id"',
        "tens": "from: minutes, sql: \"SELECT window(window, '10 minutes') AS w, sum(c) AS c FROM minutes GROUP BY w\"",
        "listed": "from: minutes, sql: \"SELECT window(window, '10 minutes').start AS t, collect_set(id) AS ids"
        " FROM minutes GROUP BY window(window, '10 minutes')\"",
    }
    with Harness(project.write(body(steps))) as harness:
        harness.start()
        assert harness._running is not None
        facts = harness._running.analysed.analysis.facts
        assert {name: facts[name].kernel for name in steps} == {"minutes": True, "tens": True, "listed": False}
        harness.feed("views", [view(1), view(1.2, n=2), view(1.3, n=2), view(2, "b"), view(9.9, "b")])
        harness.feed("views", [view(11), view(12), view(30)])
        harness.finish()
        minutes = {(at(row["window"]), row["id"]): row["c"] for row in harness.rows("to_minutes")}
        tens = {at(row["w"]): row["c"] for row in harness.rows("to_tens")}
        listed = {at(row["t"]): sorted(row["ids"]) for row in harness.rows("to_listed")}
    assert minutes == {(1, "a"): 2, (2, "b"): 1, (9, "b"): 1, (11, "a"): 1, (12, "a"): 1, (30, "a"): 1}
    assert tens == {0: 4, 10: 2, 30: 1}
    assert listed == {0: ["a", "b"], 10: ["a"], 30: ["a"]}


@pytest.mark.parametrize(
    ("policy", "first", "aside", "counted"),
    [("side", 1, [(0.6, 0)], [{"counts": 1}]), ("correct", 2, [], [])],
)
def test_late_rows_are_set_aside_or_correct_what_was_given(
    project: Project, policy: str, first: int, aside: list[Any], counted: list[Any]
) -> None:
    query = f"SELECT window.start AS t, count(*) AS c FROM views WHERE n > 0 GROUP BY {W}"
    steps = {"counts": f'from: views, late: {policy}, sql: "{query}"'}
    with Harness(project.write(body(steps, {"out": "from: counts, memory: {key: [t]}"}))) as harness:
        harness.feed("views", [view(0.5), view(2)])
        harness.feed("views", [view(3)])
        # The second one is late too, but the query does not want it.
        harness.feed("views", [view(0.6), view(0.7, n=0), view(3.5)])
        harness.finish()
        found = {at(row["t"]): row["c"] for row in harness.rows("out")}
        late = [(at(row["ts"]), at(row["late_window_start"])) for row in harness.late("counts")]
        ledger = [entry.late for entry in harness.ledger() if entry.late]
    assert (found, late, ledger) == ({0: first, 2: 1, 3: 2}, aside, counted)


SETS = f"SELECT window.start AS t, collect_set(id) AS ids FROM views GROUP BY {W}"
SESSIONS = "SELECT session_window.start AS t, count(*) AS c FROM views GROUP BY session_window(ts, '5 seconds'), id"
COUNTS = f"SELECT window.start AS t, id, count(*) AS c FROM views GROUP BY {W}, id"


@pytest.mark.parametrize(
    ("steps", "more", "expected"),
    [
        ({"s": f'from: views, late: side, sql: "{SETS}"'}, "", [("s", "side", 8, 28)]),
        ({"s": f'from: views, sql: "{SETS}"'}, "late: correct", [("s", "correct", 8, 5)]),
        ({"s": f'from: views, late: drop, sql: "{SETS}"'}, "late: side", []),
        ({"s": f'from: views, sql: "{SETS}"'}, "", []),
        ({"s": f'from: views, late: side, sql: "{COUNTS}"'}, "", []),
        ({"s": 'from: views, late: side, sql: "SELECT id, count(*) AS c FROM views GROUP BY id"'}, "", []),
        ({"s": f'from: views, sql: "{SETS}"', "t": "from: s, filter: t > now()"}, "late: side", [("s", "side", 8, 5)]),
        ({"s": 'from: views, late: side, sql: "SELECT DISTINCT id, ts AS t FROM views"'}, "", [("s", "side", 8, 28)]),
        ({"s": 'from: views, late: side, sql: "SELECT DISTINCT id AS t FROM views"'}, "", []),
        ({"s": f'from: views, late: side, sql: "{SESSIONS}"'}, "", [("s", "side", 8, 28)]),
    ],
)  # fmt: skip
def test_late_rows_are_not_dropped_by_spark_where_something_else_is_asked_for(
    spark: SparkSession, project: Project, steps: dict[str, str], more: str, expected: list[Any]
) -> None:
    sinks = {"out": f"from: {list(steps)[-1]}, memory: {{key: [t]}}"}
    found = analysed(spark, project, body(steps, sinks, more))
    said = []
    for problem in found.problems:
        assert problem.location is not None
        said.append((problem.params["node"], problem.params["policy"], problem.location.line, problem.location.column))
        assert (problem.code, str(problem.severity)) == ("LATE_SPARK_DROPS", "error")
    assert said == expected


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


def test_validate_and_explain_say_which_way_a_query_runs(project: Project, penstock: Command) -> None:
    steps = {"sets": f'from: views, sql: "{SETS}"', "counts": f'from: views, sql: "{COUNTS}"'}
    path: Path = project.write(body(steps, None, "late: side"))

    checked = penstock("validate", path)
    assert checked.code == 2
    assert "error[LATE_SPARK_DROPS] 'sets' runs on Spark's own operators" in checked.text

    path = project.write(body({**steps, "sets": f"late: drop, {steps['sets']}"}, None, "late: side"))
    assert penstock("validate", path).code == 0
    text = penstock("explain", path).out
    assert "keeps state: aggregate by window (Spark's own operator)" in text
    assert "keeps state: window by id, window (Penstock kernel)" in text

    shown = json.loads(penstock("explain", path, "-o", "json").out)
    assert {node["name"]: node["kernel"] for node in shown["nodes"]}.items() >= {"sets": False, "counts": True}.items()
    assert shown["problems"] == []


def test_the_ledger_counts_what_spark_drops(project: Project) -> None:
    steps = {"sets": f'from: views, sql: "{SETS}"', "counts": f'from: views, sql: "{COUNTS}"'}
    sinks = {"to_sets": "from: sets, memory: {}", "to_counts": "from: counts, memory: {}"}
    with Harness(project.write(body(steps, sinks, "late: drop"))) as harness:
        harness.feed("views", [view(0.5), view(20)])
        harness.feed("views", [view(21)])
        # Two windows were closed: a late row each, and one that is in time.
        harness.feed("views", [view(0.6), view(5), view(22)])
        harness.finish()
        late = [entry.late for entry in harness.ledger() if entry.late]
    assert late == [{"sets": 2, "counts": 2}]
