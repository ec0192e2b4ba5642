"""One query for many sinks: where it ends, that every sink gets exactly its rows, and what cannot be run at all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.running import at, problems

from penstock.components.base import Batch
from penstock.components.sinks.memory import Memory, _MemoryWriter
from penstock.graph.flow import choose_trunk
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from tests.conftest import Project

    from penstock.components.base import SinkContext, SinkWriter

VIEWS = "views: {memory: {schema: {id: string, ts: timestamp, n: int}}, eventTime: {column: ts, maxDelay: 5 minutes}}"
CLICKS = "clicks: {memory: {schema: {id: string, ts: timestamp, n: int}}, eventTime: {column: ts, maxDelay: 5 minutes}}"


def pipeline(sources: list[str], steps: dict[str, str], sinks: dict[str, str]) -> str:
    """The body of a pipeline; sources start on line 6, each on a line of its own."""
    lines = ["sources:", *(f"  {source}" for source in sources)]
    if steps:
        lines += ["steps:", *(f"  {name}: {{{step}}}" for name, step in steps.items())]
    return "\n".join([*lines, "sinks:", *(f"  {name}: {{{sink}}}" for name, sink in sinks.items())]) + "\n"


def counting(source: str, *columns: str) -> str:
    """A step that counts by minute and columns."""
    by = ", ".join(["window(ts, '1 minute')", *columns])
    chosen = ", ".join(["window.start AS minute", *columns, "count(*) AS n"])
    return f'from: {source}, sql: "SELECT {chosen} FROM {source} GROUP BY {by}"'


class TestChoosing:
    def trunk(self, project: Project, steps: dict[str, str], sinks: dict[str, str], stateful: set[str]) -> Any:
        sinks = {name: f"from: {source}, console: {{}}" for name, source in sinks.items()}
        return choose_trunk(project.build(pipeline([VIEWS, CLICKS], steps, sinks)), stateful)

    def test_one_sink_makes_its_input_the_trunk(self, project: Project) -> None:
        steps = {"a": "from: views, filter: n > 1", "b": "from: a, filter: n > 2"}
        assert self.trunk(project, steps, {"out": "b"}, set()) == ("b",)

    def test_two_sinks_on_one_step_share_it(self, project: Project) -> None:
        assert self.trunk(project, {"a": "from: views, filter: n > 1"}, {"o1": "a", "o2": "a"}, {"a"}) == ("a",)

    def test_stateless_branches_grow_from_the_last_node_they_share(self, project: Project) -> None:
        steps = {"a": "from: views, filter: n > 1", "b": "from: a, filter: n > 2", "c": "from: a, filter: n > 3"}
        assert self.trunk(project, steps, {"o1": "b", "o2": "c"}, {"a"}) == ("a",)

    def test_a_sink_on_the_trunk_itself_does_not_move_it(self, project: Project) -> None:
        steps = {"a": "from: views, filter: n > 1", "b": "from: a, filter: n > 2"}
        assert self.trunk(project, steps, {"o1": "a", "o2": "b"}, set()) == ("a",)

    def test_state_after_the_shared_node_must_stay_in_the_query(self, project: Project) -> None:
        steps = {"a": "from: views, filter: n > 1", "b": "from: a, filter: n > 2", "c": "from: a, filter: n > 3"}
        assert self.trunk(project, steps, {"o1": "b", "o2": "c"}, {"b"}) == ("b", "c")

    def test_a_diamond_is_carried_by_the_node_before_it(self, project: Project) -> None:
        steps = {
            "a": "from: views, filter: n > 1",
            "b": "from: a, filter: n > 2",
            "c": "from: a, filter: n > 3",
            "d": "from: [b, c], union: {}",
        }
        assert self.trunk(project, steps, {"o1": "d", "o2": "b"}, set()) == ("a",)

    def test_two_separate_sources_have_two_ends(self, project: Project) -> None:
        assert self.trunk(project, {}, {"o1": "views", "o2": "clicks"}, set()) == ("views", "clicks")

    def test_a_join_of_two_sources_carries_what_follows(self, project: Project) -> None:
        steps = {"u": "from: [views, clicks], union: {}", "a": "from: u, filter: n > 1", "b": "from: u, filter: n > 2"}
        assert self.trunk(project, steps, {"o1": "a", "o2": "b"}, {"u"}) == ("u",)


def row(id: str, minute: int, n: int) -> dict[str, Any]:
    return {"id": id, "ts": f"2024-01-01T00:{minute:02d}:30+00:00", "n": n}


ROWS = [row("a", 0, 1), row("b", 0, 2), row("a", 1, 3), row("a", 0, 4), row("c", 2, 5), row("b", 1, 6)]
CUTS = [ROWS[:2], ROWS[2:3], [], ROWS[3:]]


def ids(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((item["id"], item["n"]) for item in rows)


def by_minute(rows: list[dict[str, Any]], *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter((int(item["ts"][14:16]), *(item[column] for column in columns)) for item in rows)


def counted(rows: list[dict[str, Any]], *columns: str) -> dict[tuple[Any, ...], int]:
    found = {(item["minute"].minute, *(item[column] for column in columns)): item["n"] for item in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.spark
class TestSeveralSinks:
    def test_branches_after_a_shared_step_get_their_rows(self, project: Project) -> None:
        steps = {
            "big": "from: views, filter: n > 1",
            "a": "from: big, filter: id = 'a'",
            "rest": "from: big, sql: \"SELECT id, n * 10 AS n FROM big WHERE id <> 'a'\"",
            "both": "from: [a, rest], union: {allowMissing: true}",
        }
        sinks = {name: f"from: {name}, memory: {{}}" for name in ("big", "a", "rest", "both")}
        body = pipeline([VIEWS], steps, {f"to_{name}": sink for name, sink in sinks.items()})
        with Harness(project.write(body)) as harness:
            for batch in CUTS:
                harness.feed("views", batch)
            harness.step()
            found = {name: ids(harness.rows(f"to_{name}")) for name in sinks}
            totals = [(entry.rows_in["views"], entry.rows_out["to_big"]) for entry in harness.ledger()]
        big = [item for item in ROWS if item["n"] > 1]
        rest = [{**item, "n": item["n"] * 10} for item in big if item["id"] != "a"]
        mine = [item for item in big if item["id"] == "a"]
        assert found == {"big": ids(big), "a": ids(mine), "rest": ids(rest), "both": ids([*mine, *rest])}
        assert [count for count in totals if count != (0, 0)] == [(2, 1), (1, 1), (3, 3)]

    def test_two_aggregates_and_the_rows_themselves_from_one_source(self, project: Project) -> None:
        steps = {"all": counting("views"), "each": counting("views", "id")}
        sinks = {f"to_{name}": f"from: {name}, memory: {{}}" for name in ("all", "each", "views")}
        with Harness(project.write(pipeline([VIEWS], steps, sinks))) as harness:
            for batch in CUTS:
                harness.feed("views", [*batch, "broken"])
            harness.step()
            harness.finish()
            assert counted(harness.rows("to_all")) == by_minute(ROWS)
            assert counted(harness.rows("to_each"), "id") == by_minute(ROWS, "id")
            assert ids(harness.rows("to_views")) == ids(ROWS)
            entries = harness.ledger()
            assert sum(entry.rows_in["views"] for entry in entries) == len(ROWS) + len(CUTS)
            assert sum(entry.rows_dead["views"] for entry in entries) == len(CUTS)
            assert len(harness.dead_letters()) == len(CUTS)

    def test_a_diamond_before_an_aggregate_counts_rows_of_both_sides(self, project: Project) -> None:
        steps = {
            "low": "from: views, filter: n < 5",
            "high": "from: views, filter: n > 2",
            "both": "from: [low, high], union: {}",
            "counts": counting("both", "id"),
        }
        with Harness(project.write(pipeline([VIEWS], steps, {"out": "from: counts, memory: {}"}))) as harness:
            for batch in CUTS:
                harness.feed("views", batch)
            harness.step()
            harness.resume()
            harness.finish()
            doubled = [item for item in ROWS if item["n"] < 5] + [item for item in ROWS if item["n"] > 2]
            assert counted(harness.rows("out"), "id") == by_minute(doubled, "id")
            assert sum(entry.rows_in["views"] for entry in harness.ledger()) == len(ROWS)

    def test_two_sources_to_two_sinks(self, project: Project) -> None:
        sinks = {"o1": "from: views, memory: {}", "o2": "from: few, memory: {}"}
        body = pipeline([VIEWS, CLICKS], {"few": "from: clicks, select: [id, n]"}, sinks)
        with Harness(project.write(body)) as harness:
            harness.feed("views", ROWS[:4])
            harness.feed("clicks", ROWS[4:])
            harness.step()
            assert ids(harness.rows("o1")) == ids(ROWS[:4])
            assert ids(harness.rows("o2")) == ids(ROWS[4:])
            assert set(harness.rows("o2")[0]) == {"id", "n"}
            (entry,) = harness.ledger()
            assert (entry.rows_in, entry.rows_out) == ({"views": 4, "clicks": 2}, {"o1": 4, "o2": 2})

    def test_no_task_is_started_for_an_output_without_rows(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tasks: list[tuple[str, int, bool]] = []

        class Watched(_MemoryWriter):
            def as_table(self, rows: DataFrame) -> DataFrame | None:  # type: ignore[override]
                return None

            def write(self, batch: Batch, rows: DataFrame) -> bool:
                partitions = rows._jdf.queryExecution().toRdd().getNumPartitions()
                stored = super().write(batch, rows)
                tasks.append((self.node, partitions, bool(self.batches[batch.id])))
                return stored

        open_memory = Memory.open

        def open_watched(self: Memory, context: SinkContext) -> SinkWriter:
            opened = open_memory(self, context)
            assert isinstance(opened, _MemoryWriter)
            watched = Watched(opened.batches)
            watched.node = context.node
            return watched

        monkeypatch.setattr(Memory, "open", open_watched)
        sinks = {"o1": "from: views, memory: {}", "o2": "from: clicks, memory: {}"}
        with Harness(project.write(pipeline([VIEWS, CLICKS], {}, sinks))) as harness:
            harness.feed("views", ROWS[:4])
            harness.step()
            harness.feed("clicks", ROWS[4:])
            harness.step()
            assert ids(harness.rows("o1")) == ids(ROWS[:4])
            assert ids(harness.rows("o2")) == ids(ROWS[4:])
            counts = [entry.rows_out for entry in harness.ledger() if any(entry.rows_out.values())]
        assert counts == [{"o1": 4, "o2": 0}, {"o1": 0, "o2": 2}]
        assert [(node, partitions > 0) for node, partitions, rows in tasks if rows] == [("o1", True), ("o2", True)]
        assert {(node, partitions) for node, partitions, rows in tasks if not rows} == {("o1", 0), ("o2", 0)}

    def test_a_running_total_ends_in_the_right_table_wherever_batches_are_cut(self, project: Project) -> None:
        steps = {
            "sums": 'from: views, sql: "SELECT id, sum(n) AS total, count(*) AS n FROM views GROUP BY id"',
            "big": "from: sums, filter: total > 5",
        }
        sinks = {"out": "from: sums, memory: {key: [id]}", "large": "from: big, memory: {key: [id]}"}
        with Harness(project.write(pipeline([VIEWS], steps, sinks))) as harness:
            for batch in CUTS:
                harness.feed("views", batch)
            harness.crash_at("sink.after_commit")
            harness.step()
            harness.resume()
            expected = {"a": (8, 3), "b": (8, 2), "c": (5, 1)}
            assert {item["id"]: (item["total"], item["n"]) for item in harness.rows("out")} == expected
            assert {item["id"]: item["total"] for item in harness.rows("large")} == {"a": 8, "b": 8}


SQL = {
    "SELECT window.start AS t, count(DISTINCT id, n) AS c FROM views GROUP BY window(ts, '1 minute')":
        ("OPERATORS_UNSUPPORTED", 9, 27),
    "SELECT * FROM views ORDER BY ts": ("OPERATORS_UNSUPPORTED", 9, 27),
    "SELECT * FROM views LIMIT 5": ("OPERATORS_UNSUPPORTED", 9, 27),
    "SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts) AS r FROM views": ("OPERATORS_UNSUPPORTED", 9, 27),
    "SELECT a.id FROM views a JOIN views b ON a.id = b.id": ("OPERATORS_UNSUPPORTED", 9, 27),
    "SELECT id FORM views WHERE": ("SQL_SYNTAX", 9, 43),
    "SELECT id, ID FROM views": ("COLUMN_REPEATED", 9, 27),
    "DROP TABLE views": ("SQL_SYNTAX", 9, 28),
    "SELECT id, nope FROM views": ("SQL_UNKNOWN_COLUMN", 9, 39),
    "SELECT * FROM clicks": ("SQL_UNKNOWN_TABLE", 9, 42),
    "SELECT nofun(id) FROM views": ("SQL_UNKNOWN_FUNCTION", 9, 35),
    "SELECT n, id + ts AS x FROM views": ("TYPE_MISMATCH", 9, 38),
    "SELECT id, count(*) AS c FROM views": ("SQL_INVALID", 9, 28),
    "SELECT id COLLATE nowhere.none AS c FROM views": ("SQL_INVALID", 9, 27),
}  # fmt: skip


@pytest.mark.spark
class TestRefusals:
    def refusals(self, project: Project, spark: SparkSession, body: str) -> list[tuple[str, int, int]]:
        return [at(problem) for problem in problems(spark, project.build(body), project.folder / "spool")]

    @pytest.mark.parametrize("query", SQL)
    def test_a_query_is_refused_at_its_place(self, query: str, project: Project, spark: SparkSession) -> None:
        steps = {"s": f'from: views, sql: "{query}"'}
        body = pipeline([VIEWS, CLICKS], steps, {"out": "from: s, console: {}"})
        assert self.refusals(project, spark, body) == [SQL[query]]

    def test_places_inside_a_block_of_sql_are_exact(self, project: Project, spark: SparkSession) -> None:
        body = f"""
sources:
  {VIEWS}
steps:
  s:
    from: views
    sql: |
      SELECT id,
             nope
      FROM views
sinks:
  out: {{from: s, console: {{}}}}
"""
        assert self.refusals(project, spark, body) == [("SQL_UNKNOWN_COLUMN", 12, 16)]

    @pytest.mark.parametrize(
        ("step", "expected"),
        [
            ("filter: idd > 1", ("SQL_UNKNOWN_COLUMN", 8, 30)),
            ("filter: id", ("TYPE_MISMATCH", 8, 30)),
            ("filter: id >", ("SQL_SYNTAX", 8, 34)),
            ("filter: id COLLATE nowhere.none = 'a'", ("SQL_INVALID", 8, 30)),
            ("select: [id, nope]", ("SQL_UNKNOWN_COLUMN", 8, 30)),
            ("dedupe: {by: [iid]}", ("COLUMN_UNKNOWN", 8, 35)),
        ],
    )
    def test_other_steps_are_refused_at_their_place(
        self, step: str, expected: tuple[str, int, int], project: Project, spark: SparkSession
    ) -> None:
        body = pipeline([VIEWS], {"s": f"from: views, {step}"}, {"out": "from: s, console: {}"})
        assert self.refusals(project, spark, body) == [expected]

    @pytest.mark.parametrize("other", ["{id: string, m: int}", "{id: string, n: 'array<int>'}", "{id: string}"])
    def test_a_union_of_different_columns_is_refused(self, other: str, project: Project, spark: SparkSession) -> None:
        sources = ["a: {memory: {schema: {id: string, n: int}}}", f"b: {{memory: {{schema: {other}}}}}"]
        body = pipeline(sources, {"u": "from: [a, b], union: {}"}, {"out": "from: u, console: {}"})
        assert self.refusals(project, spark, body) == [("UNION_SCHEMAS_DIFFER", 9, 30)]

    def test_event_time_must_be_a_timestamp_that_exists(self, project: Project, spark: SparkSession) -> None:
        sources = [
            "a: {memory: {schema: {id: string, ts: timestamp}}, eventTime: {column: tz}}",
            "b: {memory: {schema: {id: string, ts: string}}, eventTime: {column: ts, maxDelay: 5 minutes}}",
        ]
        body = pipeline(sources, {}, {"o1": "from: a, console: {}", "o2": "from: b, console: {}"})
        found = self.refusals(project, spark, body)
        assert [code for code, *_ in found] == ["EVENT_TIME_COLUMN_UNKNOWN", "EVENT_TIME_NOT_A_TIMESTAMP"]
        assert [line for _, line, _ in found] == [6, 7]

    def test_a_changing_result_needs_a_sink_with_a_key(self, project: Project, spark: SparkSession) -> None:
        steps = {"s": 'from: views, sql: "SELECT id, count(*) AS n FROM views GROUP BY id"'}
        for sink, column in (("files: {path: ./o}", 27), ("sqlite: {path: o.db, table: t}", 28)):
            body = pipeline([VIEWS], steps, {"out": f"from: s, {sink}"})
            assert self.refusals(project, spark, body) == [("OUTPUT_NEEDS_UPSERT", 10, column)]
        body = pipeline([VIEWS], steps, {"out": "from: s, sqlite: {path: o.db, table: t, key: [id]}"})
        assert self.refusals(project, spark, body) == []

    def test_a_distinct_is_state_and_changes_its_result(self, project: Project, spark: SparkSession) -> None:
        steps = {"s": 'from: views, sql: "SELECT DISTINCT id FROM views"'}
        sinks = {"out": "from: s, files: {path: ./o}", "raw": "from: views, console: {}"}
        assert self.refusals(project, spark, pipeline([VIEWS], steps, sinks)) == [("OUTPUT_NEEDS_UPSERT", 10, 27)]

    def test_final_and_changing_results_do_not_go_together(self, project: Project, spark: SparkSession) -> None:
        on = "views.id = clicks.id AND views.ts = clicks.ts"
        steps = {
            "sums": 'from: views, sql: "SELECT id, count(*) AS n FROM views GROUP BY id"',
            "joined": f'from: [views, clicks], sql: "SELECT views.id FROM views LEFT JOIN clicks ON {on}"',
        }
        sinks = {"o1": "from: sums, memory: {key: [id]}", "o2": "from: joined, memory: {}"}
        body = pipeline([VIEWS, CLICKS], steps, sinks)
        assert self.refusals(project, spark, body) == [("OUTPUT_MODES_CLASH", 10, 5)]

    def test_columns_a_sink_needs_must_be_there(self, project: Project, spark: SparkSession) -> None:
        sinks = {
            "a": "from: views, sqlite: {path: o.db, table: t, key: [zz]}",
            "b": "from: views, files: {path: ./o, partitionBy: [zz]}",
        }
        found = self.refusals(project, spark, pipeline([VIEWS], {}, sinks))
        assert found == [("SINK_COLUMN_UNKNOWN", 8, 30), ("SINK_COLUMN_UNKNOWN", 9, 29)]


def test_the_helper_writes_what_the_tests_count_lines_in(project: Project) -> None:
    path: Path = project.write(pipeline([VIEWS], {}, {"out": "from: views, console: {}"}))
    assert path.read_text().splitlines()[4:7] == ["  sources:", f"    {VIEWS}", "  sinks:"]
