"""Rows are dealt to one, many or no output, and every one of them is accounted for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import json_lines, run, table

from penstock.components.base import CheckContext
from penstock.components.steps.route import Route
from penstock.engine.balance import imbalances
from penstock.errors import PenstockError
from penstock.testing import Harness

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Project


def body(route: str, outputs: str, more: str = "") -> str:
    sinks = "\n".join(f"          to_{name}: {{from: split.{name}, memory: {{}}}}" for name in outputs.split())
    return f"""
        sources:
          rows: {{memory: {{schema: {{id: int, kind: string, n: int}}}}}}
        steps:
          split: {{from: rows, route: {route}}}
        {more}
        sinks:
{sinks}
    """


def rows(seed: int, count: int = 60) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    kinds = ["click", "view", "it's", "a\\b", None, "x"]
    return [{"id": id, "kind": chance.choice(kinds), "n": chance.choice([None, 0, 5, 20])} for id in range(count)]


def of(harness: Harness, name: str) -> list[int]:
    return sorted(row["id"] for row in harness.rows(f"to_{name}"))


@pytest.mark.spark
@pytest.mark.parametrize("each", ["first", "all"])
def test_conditions_deal_rows_and_null_is_not_true(project: Project, each: str) -> None:
    route = f"{{each: {each}, to: {{big: n >= 5, clicks: \"kind = 'click'\", huge: n > 10}}}}"
    data = rows(1)
    with Harness(project.write(body(route, "big clicks huge"))) as harness:
        for start in range(0, 60, 20):
            harness.feed("rows", data[start : start + 20])
        harness.step()
        big = [row["id"] for row in data if (row["n"] or 0) >= 5]
        clicks = [row["id"] for row in data if row["kind"] == "click"]
        huge = [row["id"] for row in data if (row["n"] or 0) > 10]
        if each == "first":
            clicks = [id for id in clicks if id not in big]
            huge = []
        assert (of(harness, "big"), of(harness, "clicks"), of(harness, "huge")) == (big, clicks, huge)
        nowhere = len(data) - len({*big, *clicks, *huge})
        entries = harness.ledger()
        assert sum(entry.filtered.get("split", 0) for entry in entries) == nowhere
        assert [imbalances(harness.graph, entry) for entry in entries] == [[]] * len(entries)


@pytest.mark.spark
def test_a_column_deals_rows_and_otherwise_takes_the_rest(project: Project) -> None:
    route = '{by: kind, to: {clicks: click, odd: ["it\'s", "a\\\\b"], rest: otherwise}}'
    data = rows(2)
    with Harness(project.write(body(route, "clicks odd rest"))) as harness:
        harness.feed("rows", data)
        harness.step()
        assert of(harness, "clicks") == [row["id"] for row in data if row["kind"] == "click"]
        assert of(harness, "odd") == [row["id"] for row in data if row["kind"] in ("it's", "a\\b")]
        assert of(harness, "rest") == [row["id"] for row in data if row["kind"] in ("view", "x", None)]
        assert [dict(entry.filtered) for entry in harness.ledger()] == [{}]


@pytest.mark.spark
def test_outputs_feed_steps_that_keep_state_and_queries(project: Project) -> None:
    text = """
        sources:
          rows:
            memory: {schema: {id: int, kind: string, ts: timestamp}}
            eventTime: {column: ts, maxDelay: 0 seconds}
        steps:
          split: {from: rows, route: {by: kind, to: {clicks: click, views: view}}}
          minutes: {from: split.clicks, window: {size: 1 minute, values: {n: count(*)}}}
          twice: {from: split.views, sql: "SELECT id * 2 AS id FROM `split.views`"}
        sinks:
          to_minutes: {from: minutes, memory: {}}
          to_twice: {from: twice, memory: {}}
    """
    with Harness(project.write(text)) as harness:
        kinds = ["click", "view", "click", "other"]
        harness.feed("rows", [{"id": n, "kind": kind, "ts": f"2024-01-01T00:00:0{n}Z"} for n, kind in enumerate(kinds)])
        harness.finish()
        assert [row["n"] for row in harness.rows("to_minutes")] == [2]
        assert of(harness, "twice") == [2]
        assert sum(entry.filtered.get("split", 0) for entry in harness.ledger()) == 1


@pytest.mark.spark
def test_all_outputs_are_stored_once_when_a_run_dies_between_them(project: Project) -> None:
    text = """
        sources:
          rows: {files: {path: ./in, maxFilesPerBatch: 1}, format: {json: {schema: {id: int, kind: string}}}}
        steps:
          split: {from: rows, route: {by: kind, to: {clicks: click, views: view}}}
        sinks:
          clicks: {from: split.clicks, sqlite: {path: out.db, table: clicks}}
          views: {from: split.views, sqlite: {path: views.db, table: views}}
    """
    graph = project.build(text)
    kinds = ["click", "view", "other"]
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": 3 * number + k, "kind": kinds[k]} for k in range(3)]))
    for place in ("sink.after_commit@0", "sink.before_write@1", "batch.after_sinks@2"):
        run(graph, project.folder / "state", die_at=place)
    outcome = run(graph, project.folder / "state")
    assert table(project.folder / "out.db", "SELECT id FROM clicks ORDER BY 1") == [(0,), (3,), (6,)]
    assert table(project.folder / "views.db", "SELECT id FROM views ORDER BY 1") == [(1,), (4,), (7,)]
    assert [entry.filtered for entry in outcome.ledger] == [{"split": 1}] * 3


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"to": {"A": "x"}}, "'A' is no name of an output"),
        ({"to": {"a": ["x", "y"]}}, "takes `by`"),
        ({"to": {"a": "otherwise", "b": "otherwise"}}, "a and b are both `otherwise`"),
    ],
)
def test_bad_routes_are_found_beforehand(tmp_path: Path, config: dict[str, Any], part: str) -> None:
    (problem,) = Route.model_validate(config).check(CheckContext("split"))
    assert part in str(problem.params["reason"])


def test_an_output_that_is_not_there_is_told(project: Project) -> None:
    with pytest.raises(PenstockError, match="INPUT_UNKNOWN") as wrong:
        project.build(body("{by: kind, to: {clicks: click}}", "clicks clikcs"))
    assert "split.clicks" in wrong.value.problems[0].hint
