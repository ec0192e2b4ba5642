"""What each verb answers about a sound pipeline: the demo, and the project that `penstock init` writes."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML
from tests.e2e.commands import Command
from tests.faults.victim import committed_rows

from penstock.testing.processes import LIGHT
from penstock.testing.processes import penstock as penstock_process

DEMO = Path(__file__).parents[2] / "examples" / "demo.yaml"


@pytest.mark.spark
def test_validate_says_as_json_that_the_demo_is_valid(penstock: Command) -> None:
    answer = penstock("validate", DEMO, "-o", "json")

    assert answer.code == 0
    assert json.loads(answer.out) == {"valid": True, "files": [{"file": str(DEMO), "problems": []}]}


@pytest.mark.spark
def test_explain_shows_the_demo_as_text_with_columns_watermark_state_and_plan(penstock: Command) -> None:
    answer = penstock("explain", DEMO)
    with_plan = penstock("explain", DEMO, "--plan")

    assert (answer.code, answer.err) == (0, "")
    for name in ("views", "read", "articles", "top_articles", "minute", "avg_ms", "5 seconds"):
        assert name in answer.out
    assert "Spark's plan" not in answer.out
    assert with_plan.out.startswith(answer.out.rstrip("\n"))
    assert "keeps state: window by article, window (Penstock kernel)" in answer.out
    assert "TransformWithState" in with_plan.out.split("Spark's plan")[1]


@pytest.mark.spark
def test_explain_gives_the_graph_of_the_demo_as_json(penstock: Command) -> None:
    answer = penstock("explain", DEMO, "-o", "json")

    nodes = {node["name"]: node for node in json.loads(answer.out)["nodes"]}
    assert list(nodes) == ["views", "read", "articles", "top_articles"]
    assert [column["name"] for column in nodes["articles"]["columns"]] == [
        "minute",
        "article",
        "views",
        "readers",
        "avg_ms",
    ]
    assert answer.code == 0


@pytest.mark.spark
def test_explain_gives_the_graph_of_the_demo_as_mermaid(penstock: Command) -> None:
    answer = penstock("explain", DEMO, "-o", "mermaid")

    assert answer.out.startswith("flowchart ")
    edges = re.findall(r"n_(\w+) [-=]+>\|[^|]*\| n_(\w+)", answer.out)
    assert edges == [("views", "read"), ("read", "articles"), ("articles", "top_articles")]


def test_the_schema_is_a_json_schema_and_accepts_the_demo(penstock: Command, tmp_path: Path) -> None:
    answer = penstock("schema")
    written = penstock("schema", "-o", tmp_path / "s.json")

    schema = json.loads(answer.out)
    cls: Any = jsonschema.validators.validator_for(schema)
    cls.check_schema(schema)
    demo = YAML(typ="safe").load(DEMO.read_text("utf-8"))
    assert list(cls(schema).iter_errors(demo)) == []
    del demo["spec"]["sinks"]
    assert list(cls(schema).iter_errors(demo)) != []
    assert (written.code, json.loads((tmp_path / "s.json").read_text("utf-8"))) == (0, schema)


@pytest.mark.spark
def test_a_failing_test_prints_the_difference_and_ends_with_1(penstock: Command, tmp_path: Path) -> None:
    pipeline = tmp_path / "demo.yaml"
    pipeline.write_text(DEMO.read_text("utf-8").replace("views: 2, readers: 2", "views: 3, readers: 2"), "utf-8")

    failing, passing = penstock("test", pipeline), penstock("test", DEMO, "-o", "json")

    assert failing.code == 1
    assert "FAIL counts views of at least half a second per article" in failing.out
    assert re.search(r"articles: missing: +\{.*views: 3.*\(nearest has \{views: 2\}\)", failing.out)
    assert re.search(r"articles: unexpected: +\{.*views: 2", failing.out)
    assert "0 passed, 1 failed" in failing.out
    assert passing.code == 0
    assert json.loads(passing.out)["passed"] == 1


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_new_project_validates_passes_its_tests_and_gives_the_same_when_run_twice(
    penstock: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "views"
    pipeline = folder / "pipeline.yaml"

    assert penstock("init", folder).code == 0
    assert penstock("validate", pipeline, "--strict").code == 0
    assert penstock("test", pipeline).code == 0
    first = penstock_process("run", pipeline, "--once", *LIGHT, log=tmp_path / "first.log")
    once = project_output(folder)
    second = penstock_process("run", pipeline, "--once", *LIGHT, log=tmp_path / "second.log")

    assert (first[0], second[0]) == (0, 0), first[1] + second[1]
    assert project_output(folder) == once
    counts, dead = once
    assert sum(views for _, _, views in counts) > 0
    assert len(dead) == 1
    check_plain_lines(first[1], name="views")


def project_output(folder: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    with closing(sqlite3.connect(folder / "out" / "views.db")) as db:
        counts = db.execute("SELECT window_start, page, views FROM views_per_minute ORDER BY 1, 2").fetchall()
    return counts, committed_rows(folder / "out" / "dead")


def check_plain_lines(text: str, *, name: str) -> None:
    """In a pipe there are no colours, no boxes and no redrawing: lines with a time, then the summary."""
    assert not re.search(r"[\x1b\r╭│]", text)
    lines = text.splitlines()
    assert re.fullmatch(rf"\d\d:\d\d:\d\dZ {name} starting Spark", lines[0])
    done = next(number for number, line in enumerate(lines) if re.match(rf"\d\d:\d\d:\d\dZ {name} done\b", line))
    summary = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines[done + 1 :])
    assert re.fullmatch(rf"40\s+{name} 40", summary["rows in"])
    assert summary["dead"] == "1"
