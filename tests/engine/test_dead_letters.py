"""Rows that cannot be read are set aside with their text, the reason and their place, and the pipeline goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.engine.running import Outcome, run, table

from penstock import read_files
from penstock.testing import Harness, shared_session

if TYPE_CHECKING:
    from tests.conftest import Project

pytestmark = pytest.mark.spark

JSON = "format: {json: {schema: {id: string, ts: timestamp, n: int, tags: 'array<string>'}}}"


def good(id: str, n: int = 1, second: int = 0) -> str:
    return json.dumps({"id": id, "ts": f"2024-01-01T00:00:{second:02d}Z", "n": n})


def letters(outcome: Outcome, source: str = "") -> list[dict[str, Any]]:
    """What the default place for dead letters holds, by text."""
    rows = read_files(shared_session(), str(outcome.state / "dead" / source)).collect()
    return sorted((row.asDict() for row in rows), key=lambda row: str(row["raw"]))


def reasons(outcome: Outcome, source: str = "") -> dict[str, str]:
    return {row["raw"]: row["error"] for row in letters(outcome, source)}


def counts(outcome: Outcome) -> tuple[int, int, int]:
    """Rows in, dead and out over all batches, of all sources and sinks."""
    parts = [(entry.rows_in, entry.rows_dead, entry.rows_out) for entry in outcome.ledger]
    rows_in, rows_dead, rows_out = (sum(sum(part[index].values()) for part in parts) for index in range(3))
    return rows_in, rows_dead, rows_out


def one_source(format: str = JSON, more: str = "", dead: str = "") -> str:
    """A pipeline that keeps only the id of each row, so that no step uses the other columns."""
    return f"""
        sources:
          views:
            files: {{path: ./in}}
            {format}
            {more}
        steps:
          ids: {{from: views, select: [id]}}
        sinks:
          out: {{from: ids, sqlite: {{path: out.db, table: t}}}}
        {dead}
    """


def stored(project: Project) -> list[str]:
    return [row[0] for row in table(project.folder / "out.db", "SELECT id FROM t ORDER BY id")]


def test_malformed_json_is_dead_even_in_columns_that_no_step_uses(project: Project) -> None:
    bad = {
        "not json": "not a JSON object",
        '{"id": "x", "n": ': "not a JSON object",
        "123": "not a JSON object",
        '{"id": "x", "n": "many"}': "column 'n': cannot read 'many' as int",
        '{"id": "x", "n": 3000000000}': "column 'n': cannot read '3000000000' as int",
        '{"id": "x", "ts": "yesterday"}': "column 'ts': cannot read 'yesterday' as timestamp",
        '{"id": "x", "tags": "one"}': "column 'tags': cannot read 'one' as array<string>",
    }
    lines = [good("a"), *bad, "", good("b"), "   ", '{"id": "c", "unknown": 1}', "{}"]
    project.put("in/1.json", "\n".join(lines) + "\n")
    outcome = run(project.build(one_source()), project.folder / "state")
    assert reasons(outcome) == bad
    assert stored(project) == [None, "a", "b", "c"]
    found = letters(outcome)[0]
    assert (found["pipeline"], found["source"], found["stage"], found["batch_id"]) == ("demo", "views", "parse", 0)
    assert found["place"].endswith("/in/1.json")
    assert found["seen_at"] is not None
    assert counts(outcome) == (11, 7, 4)


def test_invalid_utf8_does_not_stop_the_pipeline(project: Project) -> None:
    project.put("in/1.json", b'{"id": "a", "n": 1}\n{"id": "\xff\xfe", "n": "\xc3"}\n{"id": "b", "n": 2}\n')
    outcome = run(project.build(one_source()), project.folder / "state")
    assert stored(project) == ["a", "b"]
    assert counts(outcome) == (3, 1, 2)
    assert "�" in letters(outcome)[0]["raw"]


def test_csv_lines_of_the_wrong_shape_are_dead(project: Project) -> None:
    bad = {
        "x": "3 values expected, 1 found",
        "x,1": "3 values expected, 2 found",
        "x,1,2.5,more": "3 values expected, 4 found",
        "x,one,2.5": "column 'n': cannot read 'one' as int",
        "x,1,much": "column 'price': cannot read 'much' as double",
    }
    lines = ["id,n,price", "a,1,2.5", *bad, "", '"b,c",2,', "d,,1e3"]
    project.put("in/1.csv", "\n".join(lines) + "\n")
    format = "format: {csv: {schema: 'id string, n int, price double'}}"
    outcome = run(project.build(one_source(format)), project.folder / "state")
    assert reasons(outcome) == bad
    assert stored(project) == ["a", "b,c", "d"]
    assert counts(outcome) == (8, 5, 3)


@pytest.mark.parametrize("delimiter", ["^", "|", "]", "||"])
def test_a_delimiter_may_be_a_sign_of_its_own(delimiter: str, project: Project) -> None:
    lines = [("a", "1"), ("b", "one"), ("c",), ("d", "4", "5")]
    project.put("in/1.csv", "\n".join(delimiter.join(line) for line in lines))
    format = f"format: {{csv: {{schema: 'id string, n int', header: false, delimiter: '{delimiter}'}}}}"
    outcome = run(project.build(one_source(format)), project.folder / "state")
    assert stored(project) == ["a"]
    found = ["column 'n': cannot read 'one' as int", "2 values expected, 1 found", "2 values expected, 3 found"]
    assert list(reasons(outcome).values()) == found


def test_a_row_without_a_time_is_dead_where_event_time_is_declared(project: Project) -> None:
    lines = [good("a"), '{"id": "late", "ts": null}', '{"id": "none"}', good("b")]
    project.put("in/1.json", "\n".join(lines))
    outcome = run(project.build(one_source(more="eventTime: {column: ts}")), project.folder / "state")
    assert stored(project) == ["a", "b"]
    assert {(row["stage"], row["error"]) for row in letters(outcome)} == {("event time", "event time 'ts' is null")}
    assert [json.loads(row["raw"])["id"] for row in letters(outcome)] == ["late", "none"]


def test_each_batch_accounts_for_its_own_rows(project: Project) -> None:
    files = [[good("a"), "bad"], ["bad", "worse"], [good("b"), good("c")]]
    for number, lines in enumerate(files):
        project.put(f"in/{number}.json", "\n".join(lines))
    body = one_source().replace("{path: ./in}", "{path: ./in, maxFilesPerBatch: 1}")
    outcome = run(project.build(body), project.folder / "state")
    found = [(entry.rows_in["views"], entry.rows_dead["views"], entry.rows_out["out"]) for entry in outcome.ledger]
    assert found == [(2, 1, 1), (2, 2, 0), (2, 0, 2)]
    assert sorted(row["batch_id"] for row in letters(outcome)) == [0, 1, 1]


def test_a_replayed_batch_sets_its_rows_aside_once(project: Project) -> None:
    project.put("in/1.json", "\n".join([good("a"), "bad"]))
    graph = project.build(one_source())
    died = run(graph, project.folder / "state", die_at="batch.after_sinks@0")
    assert died.ledger == []
    outcome = run(graph, project.folder / "state")
    assert [row["raw"] for row in letters(outcome)] == ["bad"]
    assert counts(outcome) == (2, 1, 1)
    assert stored(project) == ["a"]


TWO_SOURCES = f"""
    sources:
      views: {{files: {{path: ./views}}, {JSON}, eventTime: {{column: ts, maxDelay: 0 seconds}}}}
      clicks: {{files: {{path: ./clicks}}, {JSON}, eventTime: {{column: ts, maxDelay: 0 seconds}}}}
    steps:
      both: {{from: [views, clicks], union: {{}}}}
    sinks:
      out: {{from: both, sqlite: {{path: out.db, table: t}}}}
      copy: {{from: both, sqlite: {{path: copy.db, table: t}}}}
"""


def test_two_sources_keep_their_dead_letters_apart(project: Project) -> None:
    project.put("views/1.json", "\n".join([good("a"), "bad view"]))
    project.put("clicks/1.json", "\n".join([good("b"), "bad click", "another"]))
    outcome = run(project.build(TWO_SOURCES), project.folder / "state")
    assert list(reasons(outcome, "views")) == ["bad view"]
    assert list(reasons(outcome, "clicks")) == ["another", "bad click"]
    assert stored(project) == ["a", "b"]
    (entry,) = outcome.ledger[:1]
    assert (entry.rows_in, entry.rows_dead) == ({"views": 2, "clicks": 3}, {"views": 1, "clicks": 2})
    assert entry.rows_out == {"out": 2, "copy": 2}


def test_a_declared_table_takes_the_dead_letters_of_all_sources(project: Project) -> None:
    project.put("views/1.json", "\n".join([good("a"), "bad view"]))
    project.put("clicks/1.json", "\n".join([good("b"), "bad click"]))
    body = TWO_SOURCES + "    deadLetters: {sqlite: {path: dead.db, table: dead}}\n"
    run(project.build(body), project.folder / "state")
    found = table(project.folder / "dead.db", "SELECT source, raw, error FROM dead ORDER BY source")
    assert found == [("clicks", "bad click", "not a JSON object"), ("views", "bad view", "not a JSON object")]


def test_a_declared_folder_takes_the_dead_letters(project: Project) -> None:
    project.put("in/1.json", "\n".join([good("a"), "bad"]))
    body = one_source(dead="deadLetters: {files: {path: ./elsewhere, format: parquet}}")
    run(project.build(body), project.folder / "state")
    rows = read_files(shared_session(), str(project.folder / "elsewhere")).collect()
    assert [(row["raw"], row["source"]) for row in rows] == [("bad", "views")]


def test_a_malformed_row_with_a_far_time_does_not_move_the_watermark(project: Project) -> None:
    body = """
        sources:
          views:
            memory: {schema: {id: string, ts: timestamp, n: int}}
            eventTime: {column: ts, maxDelay: 0 seconds}
        steps:
          counts:
            from: views
            sql: SELECT window.start AS at, count(*) AS c FROM views GROUP BY window(ts, '1 minute')
        sinks:
          out: {from: counts, memory: {}}
          copy: {from: counts, memory: {}}
    """
    with Harness(project.write(body)) as harness:
        harness.feed("views", [good("a"), '{"id": "x", "ts": "2124-01-01T00:00:00Z", "n": "far"}'])
        harness.feed("views", ["only bad", "rows here"])
        harness.feed("views", [good("b")])
        harness.step()
        assert harness.rows("out") == []
        harness.finish()
        assert [row["c"] for row in harness.rows("out")] == [2]
        assert harness.rows("copy") == harness.rows("out")
        assert len(harness.dead_letters("views")) == 3
        dead = [entry.rows_dead["views"] for entry in harness.ledger()]
        assert (dead[:3], sum(dead)) == ([1, 2, 0], 3)
