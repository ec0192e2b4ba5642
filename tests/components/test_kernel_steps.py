"""What `validate` finds in steps that keep state: the code, the place, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.engine.analyse import analyse
from penstock.errors import PenstockError, Problem
from penstock.frontends.load import load
from penstock.graph.build import build
from penstock.graph.validate import check

HEAD = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: steps}
spec:
  sources:
    views:
      memory: {schema: {id: string, ts: timestamp, user: string, ms: int, gone: string}}
      eventTime: {column: ts}
    clicks:
      memory: {schema: {id: string, at: timestamp, user: string, price: double}}
      eventTime: {column: at}
    plain:
      memory: {schema: {id: string, ts: timestamp}}
  steps:
"""


def problems_of(tmp_path: Path, spark: SparkSession, step: str, sink: str = "console: {}") -> list[Problem]:
    file = tmp_path / "steps.yaml"
    file.write_text(f"{HEAD}{step}\n  sinks:\n    out: {{from: it, {sink}}}\n")
    try:
        graph = build(load(file))
    except PenstockError as error:
        return list(error.problems)
    found = [problem for problem in check(graph) if problem.code != "STEP_UNUSED"]
    return found or list(analyse(spark, graph, tmp_path / "spool").problems)


def step(text: str, source: str = "views") -> str:
    return f"    it:\n      from: {source}\n      {text}"


BAD = {
    "slide larger than size": (
        step("window: {size: 1 minute, slide: 2 minutes, values: {n: count(*)}}"), "SPEC_BAD_VALUE", "larger than"),
    "no size": (step("window: {values: {n: count(*)}}"), "SPEC_BAD_VALUE", "either `size` or `gap`"),
    "size and gap": (
        step("window: {size: 1 minute, gap: 1 minute, values: {n: count(*)}}"), "SPEC_BAD_VALUE", "either"),
    "zero size": (step("window: {size: 0 seconds, values: {n: count(*)}}"), "SPEC_BAD_VALUE", "more than zero"),
    "negative size": (step("window: {size: -1 minute, values: {n: count(*)}}"), "SPEC_BAD_VALUE", "not a duration"),
    "zero over": (step("rolling: {over: 0 seconds, values: {n: count(*)}}"), "SPEC_BAD_VALUE", "more than zero"),
    "zero within": (step("dedupe: {by: [id], within: 0 seconds}"), "SPEC_BAD_VALUE", "more than zero"),
    "missing column": (
        step("window: {size: 1 minute, values: {n: sum(msec)}}"), "AGGREGATE_UNRESOLVED", "Did you mean 'ms'?"),
    "missing key": (step("window: {size: 1 minute, by: [usr], values: {n: count(*)}}"), "COLUMN_UNKNOWN", "usr"),
    "missing filter column": (
        step('window: {size: 1 minute, values: {n: "count(*) filter (where x > 1)"}}'), "AGGREGATE_UNRESOLVED", "'x'"),
    "sum of text": (step("window: {size: 1 minute, values: {n: sum(user)}}"), "AGGREGATE_TYPE", "numbers"),
    "aggregate in aggregate": (
        step('window: {size: 1 minute, values: {n: "sum(max(ms))"}}'), "AGGREGATE_INVALID", "itself an aggregate"),
    "aggregate that rolling lacks": (
        step('rolling: {over: 1 hour, values: {n: "top_k(id, 3)"}}'), "AGGREGATE_INVALID", "no aggregate 'top_k'"),
    "no event time": (
        step("window: {size: 1 minute, values: {n: count(*)}}", "plain"), "EVENT_TIME_REQUIRED", "needs event time"),
    "event time lost": (
        "    bare: {from: views, sql: SELECT id FROM views}\n"
        + step("rolling: {over: 1 hour, values: {n: count(*)}}", "bare"), "EVENT_TIME_LOST", "'bare'"),
    "column taken": (step("rolling: {over: 1 hour, values: {ms: count(*)}}"), "COLUMN_REPEATED", "ms"),
    "latest without order": (step("latest: {by: [id]}", "plain"), "EVENT_TIME_REQUIRED", "latest"),
    "deleted is no boolean": (step("latest: {by: [id], deleted: gone}"), "COLUMN_TYPE", "boolean"),
    "top_n order unknown": (step("top_n: {size: 1 minute, order: [size desc], n: 3}"), "COLUMN_UNKNOWN", "size"),
    "top_n none": (step("top_n: {size: 1 minute, order: [ms], n: 0}"), "SPEC_BAD_VALUE", "at least 1"),
    "join without bounds": (step("join: {with: clicks, on: [id]}"), "SPEC_BAD_VALUE", "`within` is missing"),
    "join with nothing": (step("join: {on: [id]}"), "SPEC_BAD_VALUE", "either `with` or `table`"),
    "join with unknown": (
        step("join: {with: clickz, on: [id], within: [0 seconds, 1 minute]}"), "INPUT_UNKNOWN", "clickz"),
    "join bounds reversed": (
        step("join: {with: clicks, on: [id], within: [1 minute, 0 seconds]}"), "SPEC_BAD_VALUE", "ends before"),
    "join bounds nonsense": (
        step("join: {with: clicks, on: [id], within: [soon, later]}"), "SPEC_BAD_VALUE", "not a duration"),
    "join columns taken": (
        step("join: {with: clicks, on: [id], within: [0 seconds, 1 minute]}"), "JOIN_COLUMN_TAKEN", "user"),
    "join types differ": (
        step("join: {with: clicks, on: {id: price}, within: [0 seconds, 1 minute], prefix: c_}"),
        "JOIN_TYPES_DIFFER", "double"),
    "join with itself": (
        step("join: {with: views, on: [id], within: [0 seconds, 1 minute], prefix: v_}"),
        "OPERATORS_UNSUPPORTED", "themselves"),
    "table missing": (step("join: {table: {path: nowhere.csv}, on: [id]}"), "PATH_NOT_FOUND", "nowhere.csv"),
    "table full join": (
        step("join: {table: {path: steps.yaml, format: csv}, on: [id], how: full}"), "SPEC_BAD_VALUE", "how: full"),
    "changes joined by half a key": (
        step("changelog_join: {with: clicks, on: [id], key: [user], prefix: c_}"), "SPEC_BAD_VALUE", "`key`"),
    "geo without place": (
        step("geo_window: {lat: lat, lon: lon, size: 1 minute, values: {n: count(*)}}"), "COLUMN_UNKNOWN", "lat"),
    "geo resolution": (
        step("geo_window: {lat: ms, lon: ms, resolution: 16, size: 1 minute, values: {n: count(*)}}"),
        "SPEC_BAD_VALUE", "at most 15"),
    "sessions cannot be corrected": (
        step("window: {gap: 1 minute, values: {n: count(*)}}\n      late: correct"), "LATE_NOT_SUPPORTED", "correct"),
    "rolling cannot be corrected": (
        step("rolling: {over: 1 minute, values: {n: count(*)}}\n      late: correct"), "LATE_NOT_SUPPORTED", "rolling"),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_found_before_anything_runs(name: str, tmp_path: Path, spark: SparkSession) -> None:
    text, code, part = BAD[name]
    problems = problems_of(tmp_path, spark, text)

    assert [problem.code for problem in problems][:1] == [code], problems
    assert part in f"{problems[0].message} {problems[0].hint}"
    place = problems[0].location
    assert place is not None
    assert place.line > HEAD.count("\n"), "at the step, not at the top of the file"


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        step("latest: {by: [id]}"),
        step("window: {size: 1 minute, emit: update, values: {n: count(*)}}"),
        step("window: {size: 1 minute, values: {n: count(*)}}\n      late: correct"),
        step("changelog_join: {with: clicks, on: [id], prefix: c_}"),
    ],
)
def test_rows_that_are_replaced_need_a_sink_that_replaces(text: str, tmp_path: Path, spark: SparkSession) -> None:
    (problem,) = problems_of(tmp_path, spark, text, "files: {path: ./out}")
    assert problem.code == "OUTPUT_NEEDS_UPSERT"
    assert problems_of(tmp_path, spark, text, "sqlite: {path: o.db, table: t, key: [id]}") == [] or "id" not in text


@pytest.mark.spark
def test_state_on_top_of_rows_that_are_replaced_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    first = "    early:\n      from: views\n      window: {size: 1 minute, emit: update, values: {n: count(*)}}\n"
    (problem,) = problems_of(tmp_path, spark, first + step("window: {size: 1 hour, values: {n: sum(n)}}", "early"))
    assert problem.code == "OPERATORS_UNSUPPORTED"
    assert "'early' gives rows that later ones replace" in problem.message


@pytest.mark.spark
def test_the_place_of_a_mistake_is_the_value_itself(tmp_path: Path, spark: SparkSession) -> None:
    text = step(
        "window:\n        size: 1 minute\n        values:\n          n: count(*)\n          wrong: sum(nothing)"
    )
    (problem,) = problems_of(tmp_path, spark, text)
    assert problem.location is not None
    assert problem.location.line == HEAD.count("\n") + 7
