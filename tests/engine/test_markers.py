"""Markers count what passes them, whatever the query does above, and give back a batch's own rows."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.running import Outcome, json_lines, run

from penstock.engine.analyse import analyse
from penstock.engine.markers import as_batch, plain_session, rows_below, rows_through
from penstock.engine.query import RunningPipeline
from penstock.engine.statedir import StateDir
from penstock.graph.nodes import Graph
from penstock.testing import Harness

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

FORMATS = {
    "json": "json: {schema: {id: string, n: int}}",
    "csv": "csv: {schema: 'id string, n int'}",
    "parquet": "parquet: {schema: {id: string, n: int}}",
}
STEPS = {
    "nothing above": ("views", ""),
    "a filter above": ("few", "few: {from: views, filter: n > 7}"),
    "filters and a projection above": (
        "c",
        "few: {from: views, filter: n > 2}, c: {from: few, sql: 'SELECT id FROM few WHERE n < 6'}",
    ),
    "nothing passes": ("none", "none: {from: views, filter: n > 1000}"),
    "an aggregate above": (
        "sums",
        "sums: {from: views, sql: 'SELECT id, sum(n) AS n FROM views WHERE n > 3 GROUP BY id'}",
    ),
    "used twice": (
        "u",
        "a: {from: views, filter: n > 7}, b: {from: views, filter: n < 5}, u: {from: [a, b], union: {}}",
    ),
}
KEPT = {"nothing above": 10, "a filter above": 2, "filters and a projection above": 3, "nothing passes": 0,
        "an aggregate above": 2, "used twice": 7}  # fmt: skip


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"k{number % 2}", "n": number} for number in range(count)]


def put(project: Project, spark: SparkSession, format: str, name: str, count: int = 10) -> None:
    if format == "json":
        project.put(f"{name}/1.json", json_lines(rows(count)))
    elif format == "csv":
        project.put(f"{name}/1.csv", "id,n\n" + "".join(f"{row['id']},{row['n']}\n" for row in rows(count)))
    else:
        frame = spark.createDataFrame([(row["id"], row["n"]) for row in rows(count)], "id string, n int")
        frame.coalesce(1).write.parquet(str(project.folder / name))


def total(outcome: Outcome, part: str, name: str) -> int:
    return sum(getattr(entry, part)[name] for entry in outcome.ledger)


@pytest.mark.parametrize(
    ("format", "above"),
    [("json", above) for above in STEPS] + [("csv", "a filter above"), ("parquet", "a filter above")],
)
def test_all_rows_of_a_source_are_counted(format: str, above: str, project: Project, spark: SparkSession) -> None:
    put(project, spark, format, "in")
    last, steps = STEPS[above]
    body = f"""
        sources:
          views: {{files: {{path: ./in}}, format: {{{FORMATS[format]}}}}}
        steps: {{{steps}}}
        sinks:
          out: {{from: {last}, memory: {{key: [id]}}}}
    """
    outcome = run(project.build(body), project.folder / "state")
    assert total(outcome, "rows_in", "views") == 10
    assert total(outcome, "rows_dead", "views") == 0
    assert total(outcome, "rows_out", "out") == KEPT[above]


def test_each_source_of_a_union_is_counted_for_itself(project: Project, spark: SparkSession) -> None:
    put(project, spark, "json", "a", 6)
    put(project, spark, "csv", "b", 9)
    body = f"""
        sources:
          left: {{files: {{path: ./a}}, format: {{{FORMATS["json"]}}}}}
          right: {{files: {{path: ./b}}, format: {{{FORMATS["csv"]}}}}}
          own: {{memory: {{schema: {{id: string, n: int}}, rows: [{{id: m, n: 8}}, {{id: m, n: 1}}]}}}}
        steps:
          all: {{from: [right, own, left], union: {{}}}}
          few: {{from: all, filter: n > 4}}
        sinks:
          out: {{from: few, memory: {{}}}}
    """
    outcome = run(project.build(body), project.folder / "state")
    assert [total(outcome, "rows_in", name) for name in ("left", "right", "own")] == [6, 9, 2]
    assert total(outcome, "rows_out", "out") == 1 + 4 + 1


def test_rows_below_a_marker_are_exactly_those_of_the_batch(project: Project, spark: SparkSession) -> None:
    for number in range(3):
        project.put(f"in/{number}.json", json_lines([{"id": f"f{number}", "n": n} for n in range(number + 1)]))
    body = f"""
        sources:
          views: {{files: {{path: ./in, maxFilesPerBatch: 1}}, format: {{{FORMATS["json"]}}}}}
        steps:
          few: {{from: views, filter: n > 0}}
        sinks:
          out: {{from: few, memory: {{}}}}
    """
    graph: Graph = project.build(body)
    plain = plain_session(spark)
    seen: list[tuple[int, int, list[tuple[str, int]]]] = []
    with StateDir(project.folder / "state", "demo") as state:
        running = RunningPipeline(spark, graph, analyse(spark, graph, state.spool), state)
        handle = running.handler._handle

        def looking(batch: Any, batch_id: int) -> None:
            handle(batch, batch_id)
            assert running.query is not None
            again = as_batch(rows_below(running.query, 0, plain).select("id", "n"))
            read = sorted((row["id"], row["n"]) for row in again.collect())
            seen.append((batch_id, rows_through(running.query)[0], read))

        running.handler._handle = looking  # type: ignore[method-assign, assignment]
        running.start(once=True)
        running.wait(120)
        running.stop()
        running.close()
    assert seen == [(number, number + 1, [(f"f{number}", n) for n in range(number + 1)]) for number in range(3)]


def test_a_marker_that_is_not_in_the_plan_is_said(project: Project) -> None:
    with Harness(
        project.write("""
        sources:
          views: {memory: {schema: {id: string}, rows: [{id: a}]}}
        sinks:
          out: {from: views, memory: {}}
    """)
    ) as harness:
        harness.feed("views", [{"id": "a"}])
        harness.step()
        assert harness._running is not None
        assert harness._running.query is not None
        with pytest.raises(LookupError):
            rows_below(harness._running.query, 77, harness.spark)


def test_rows_that_a_filter_takes_away_still_move_the_watermark(project: Project) -> None:
    body = """
        sources:
          views:
            memory: {schema: {id: string, ts: timestamp, n: int}}
            eventTime: {column: ts, maxDelay: 0 seconds}
        steps:
          few: {from: views, filter: n > 0}
          counts: {from: few, sql: "SELECT window.start AS at, count(*) AS c FROM few GROUP BY window(ts, '1 minute')"}
        sinks:
          out: {from: counts, memory: {}}
    """
    with Harness(project.write(body)) as harness:
        harness.feed("views", [{"id": "a", "ts": "2024-01-01T00:00:10Z", "n": 1}])
        harness.feed("views", [{"id": "b", "ts": "2024-01-01T00:05:00Z", "n": 0}])
        harness.step()
        found = [(row["at"].astimezone(dt.UTC).minute, row["c"]) for row in harness.rows("out")]
    assert found == [(0, 1)]
