from __future__ import annotations

from pathlib import Path

import pytest
from tests.frontends.reading import places_of, problems_of

from penstock.errors import Location
from penstock.frontends.sql import load_sql, parse_sql
from penstock.frontends.sql_tables import tables_read, tokenize
from penstock.spec.location import PipelineFile
from penstock.spec.pipeline import LatePolicy
from penstock.spec.units import Duration

HEADER = """\
/* penstock
name: demo
sources:
  views: {memory: {schema: {id: string, ms: bigint}}}
  clicks: {memory: {schema: {id: string}}}
sinks:
  out: {console: {}}
*/
"""
"""Eight lines, so that statements start on line 9."""
SINK = "INSERT INTO out TABLE clean;\n"


def read(text: str) -> PipelineFile:
    return parse_sql(text, Path("p.sql"))


def mistakes(text: str) -> list[tuple[str, int, int]]:
    return places_of(problems_of(read, text))


def inputs(query: str) -> list[str]:
    return [table.name for table in tables_read(tokenize(query))]


def test_views_are_steps_and_inserts_feed_sinks() -> None:
    pipeline = read(
        HEADER
        + """\
CREATE VIEW clean AS
  SELECT id, ';' AS semicolon  -- not the end; really
  FROM views
  WHERE ms > 0;
CREATE VIEW joined AS SELECT * FROM clicks JOIN clean USING (id);
INSERT INTO out TABLE joined;
"""
    ).pipeline
    clean, joined = pipeline.steps
    assert (clean.name, clean.inputs) == ("clean", ("views",))
    query = "SELECT id, ';' AS semicolon  -- not the end; really\n  FROM views\n  WHERE ms > 0"
    assert clean.component.model_dump() == {"query": query}
    assert (joined.name, joined.inputs) == ("joined", ("clicks", "clean"))
    assert pipeline.sinks[0].input == "joined"


@pytest.mark.parametrize(
    "insert",
    ["INSERT INTO out TABLE clean", "insert into table out select * from clean;", "INSERT INTO `out` TABLE `clean`;"],
)
def test_a_sink_is_fed_in_any_of_these_ways(insert: str) -> None:
    assert read(f"{HEADER}CREATE VIEW clean AS SELECT * FROM views;\n{insert}").pipeline.sinks[0].input == "clean"


def test_a_sink_may_name_its_input_in_the_header() -> None:
    text = HEADER.replace("out: {console", "out: {from: clean, console") + "CREATE VIEW clean AS SELECT * FROM views"
    assert read(text).pipeline.sinks[0].input == "clean"


def test_a_view_may_read_one_that_comes_later_and_other_steps_stand_in_the_header() -> None:
    header = HEADER.replace("sinks:", "steps: {unique: {from: b, dedupe: {by: [id]}}}\nsinks:")
    text = "CREATE VIEW a AS TABLE b; CREATE OR REPLACE TEMP VIEW b AS FROM Views SELECT id; INSERT INTO out TABLE a;"
    steps = read(header + text).pipeline.steps
    assert [(step.name, step.inputs) for step in steps] == [("unique", ("b",)), ("a", ("b",)), ("b", ("views",))]


def test_a_header_may_hold_all_that_a_file_may() -> None:
    header = """\
-- made for the newsroom
/* penstock
metadata: {name: demo, labels: {team: news}}
sources: {views: {files: {path: "./in/*/part"}, format: {text: {}}}}
sinks: {out: {from: views, console: {}}}
deadLetters: {files: {path: ./dead}}
late: {policy: side, allowed: 1 day}
state: {partitions: 2}
run: {trigger: 5 seconds}
alerts: [{when: restarts > 1, severity: page}]
tests: [{name: t, given: {views: []}, expect: {out: []}}]
*/
"""
    pipeline = read(header).pipeline
    assert (pipeline.name, pipeline.labels, pipeline.state.partitions) == ("demo", {"team": "news"}, 2)
    assert pipeline.sources[0].component.model_dump()["path"] == "./in/*/part"
    assert pipeline.dead_letters is not None
    assert pipeline.late == LatePolicy(policy="side", allowed=Duration(86_400_000))
    assert [test.name for test in pipeline.tests] == ["t"]
    assert [str(alert.when) for alert in pipeline.alerts] == ["restarts > 1"]


def test_a_header_may_stand_on_one_line() -> None:
    text = "/* penstock {name: a, sources: {v: {memory: {schema: x int}}}, sinks: {out: {from: v, console: {}}}} */"
    file = read(text)
    assert file.pipeline.name == "a"
    assert file.places.of("metadata", "name") == Location("p.sql", 1, 20)


def test_places_are_those_of_the_file() -> None:
    file = read(f"{HEADER}\nCREATE VIEW clean AS  SELECT id,\n    ms FROM views;\n{SINK}")
    places = file.places
    assert places.of_key("spec", "sources", "clicks") == Location("p.sql", 5, 3)
    assert places.of_key("spec", "steps", "clean") == Location("p.sql", 10, 13)
    assert places.of("spec", "steps", "clean", "from") == Location("p.sql", 11, 13)
    assert places.of("spec", "sinks", "out", "from") == Location("p.sql", 12, 23)
    for key in (("sql",), ("sql", "query")):
        assert places.inside_text(1, 7, "spec", "steps", "clean", *key) == Location("p.sql", 10, 30)
        assert places.inside_text(2, 4, "spec", "steps", "clean", *key) == Location("p.sql", 11, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("SQL_FILE_HEADER", 1, 1)),
        ("SELECT 1;\n", ("SQL_FILE_HEADER", 1, 1)),
        ("\n/* penstock\nname: a\n", ("SQL_FILE_HEADER", 2, 1)),
        ("/* penstock */\n", ("SQL_FILE_HEADER", 1, 1)),
        ("/* penstock\n- a\n*/", ("SPEC_WRONG_TYPE", 2, 1)),
        ("/* penstock\na: b: c\n*/", ("YAML_SYNTAX", 2, 5)),
        (HEADER + "SELECT 1;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "\n  DROP TABLE x;\n", ("SQL_FILE_STATEMENT", 10, 3)),
        (HEADER + "CREATE TABLE x AS SELECT 1;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "CREATE VIEW x (a) AS SELECT 1;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "CREATE VIEW x AS;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "INSERT INTO out SELECT id FROM views;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "INSERT OVERWRITE out TABLE views;\n", ("SQL_FILE_STATEMENT", 9, 1)),
        (HEADER + "INSERT INTO ut TABLE views;\n", ("SQL_FILE_SINK_UNKNOWN", 9, 13)),
        (HEADER + "-- don't\n/* it's */ CREATE VIEW x AS SELECT 'a;\n", ("SQL_FILE_STATEMENT", 10, 36)),
    ],
)
def test_a_mistake_is_found_at_its_place(text: str, expected: tuple[str, int, int]) -> None:
    assert expected in mistakes(text)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("CREATE VIEW clean AS SELECT * FROM viewz;\n" + SINK, ("SQL_UNKNOWN_TABLE", 9, 36)),
        ("CREATE VIEW clean AS SELECT 1;\n" + SINK, ("SPEC_MISSING_KEY", 9, 13)),
        ("CREATE VIEW clean AS TABLE views;CREATE VIEW clean AS TABLE views;" + SINK, ("SPEC_DUPLICATE_NAME", 9, 46)),
        ("CREATE VIEW views AS TABLE clicks;INSERT INTO out TABLE views;", ("SPEC_DUPLICATE_NAME", 9, 13)),
        ("CREATE VIEW `A b` AS TABLE views;INSERT INTO out TABLE views;", ("SPEC_BAD_NAME", 9, 13)),
        ("INSERT INTO out TABLE views;\nINSERT INTO out TABLE clicks;", ("SPEC_DUPLICATE_KEY", 10, 13)),
        ("", ("SPEC_MISSING_KEY", 7, 3)),
    ],
)
def test_a_mistake_in_the_statements_is_the_only_one(statements: str, expected: tuple[str, int, int]) -> None:
    assert mistakes(HEADER + statements) == [expected]


@pytest.mark.parametrize(
    ("properties", "late"),
    [
        ("TBLPROPERTIES ('late' = 'side')", LatePolicy(policy="side")),
        ("tblproperties('late.policy'='correct','late.allowed'='2 h')",
         LatePolicy(policy="correct", allowed=Duration(7_200_000))),
        ("TBLPROPERTIES (late = \"side\", late.allowed = '1 day')",
         LatePolicy(policy="side", allowed=Duration(86_400_000))),
        ("TBLPROPERTIES ()", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_view_says_by_properties_what_becomes_of_late_rows(properties: str, late: LatePolicy | None) -> None:
    (clean,) = read(f"{HEADER}CREATE VIEW clean {properties} AS SELECT * FROM views;\n{SINK}").pipeline.steps
    assert (clean.late, clean.inputs) == (late, ("views",))
    assert clean.component.model_dump() == {"query": "SELECT * FROM views"}


def test_a_sink_of_the_header_may_keep_the_late_rows_of_a_view() -> None:
    header = HEADER.replace("*/", "  later: {files: {path: ./late}}\n*/")
    view = "CREATE VIEW clean TBLPROPERTIES ('late' = 'side', 'late.sink' = 'later') AS TABLE views;\n"
    file = read(header + view + SINK)
    (clean,) = file.pipeline.steps
    assert clean.late is not None
    assert clean.late.sink is not None
    assert [sink.name for sink in file.pipeline.sinks] == ["out"]
    assert file.places.of("spec", "steps", "clean", "late", "sink", "files", "path") == Location("p.sql", 8, 25)
    assert mistakes(header + view + SINK + "INSERT INTO later TABLE views") == [("SPEC_BAD_VALUE", 10, 65)]


@pytest.mark.parametrize(
    ("properties", "expected", "hint"),
    [
        ("'late' = 'sid'", ("SPEC_BAD_VALUE", 9, 43), "Did you mean 'side'?"),
        ("'late' = 'side', 'late.allowed' = 'soon'", ("SPEC_BAD_VALUE", 9, 68), ""),
        ("'late' = 'side', 'late.sink' = 'x'", ("LATE_SINK_UNKNOWN", 9, 65), ""),
        ("'late' = 'drop', 'late.sink' = 'out'", ("SPEC_BAD_VALUE", 9, 65), ""),
        ("'lat' = 'side'", ("SQL_FILE_PROPERTY", 9, 34), "Did you mean 'late'?"),
        ("'late' = side", ("SQL_FILE_PROPERTY", 9, 34), "Its value is a text in quotes."),
        ("'late'", ("SQL_FILE_PROPERTY", 9, 34), ""),
        ("'late' = 'side', 'late.policy' = 'drop'", ("SPEC_DUPLICATE_KEY", 9, 51), "First given at p.sql:9:34"),
    ],
)
def test_a_wrong_property_is_found_at_its_place(properties: str, expected: tuple[str, int, int], hint: str) -> None:
    text = f"{HEADER}CREATE VIEW clean TBLPROPERTIES ({properties}) AS TABLE views;\n{SINK}"
    problems = problems_of(read, text)
    assert places_of(problems) == [expected]
    assert hint in problems[0].hint


@pytest.mark.parametrize(
    "view", ["CREATE VIEW x TBLPROPERTIES ('late' = 'side' AS SELECT 1", "CREATE VIEW x TBLPROPERTIES AS SELECT 1"]
)
def test_properties_that_are_not_closed_make_no_view(view: str) -> None:
    assert ("SQL_FILE_STATEMENT", 9, 1) in mistakes(HEADER + view)


def test_mistakes_of_header_and_statements_are_found_together() -> None:
    text = HEADER.replace("name: demo", "nam: demo").replace("console", "consle") + "DROP TABLE x;\n" + SINK
    assert mistakes(text) == [
        ("SPEC_MISSING_KEY", 2, 1),
        ("SPEC_UNKNOWN_KEY", 2, 1),
        ("COMPONENT_UNKNOWN", 7, 9),
        ("SQL_FILE_STATEMENT", 9, 1),
    ]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM a", ["a"]),
        ("SELECT * FROM a, b AS x, c", ["a", "b", "c"]),
        ("SELECT * FROM a x JOIN b y ON x.id = y.id LEFT JOIN c USING (id, k)", ["a", "b", "c"]),
        ("SELECT (SELECT max(x) FROM b) AS m, c FROM a", ["b", "a"]),
        ("SELECT * FROM (SELECT * FROM a) t, b", ["a", "b"]),
        ("SELECT * FROM (a JOIN b USING (id)), c", ["a", "b", "c"]),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b) AND x = 1, 2", ["a", "b"]),
        ("SELECT * FROM a UNION ALL SELECT p, q FROM b UNION TABLE c", ["a", "b", "c"]),
        ("WITH w AS (SELECT * FROM a), v (p, q) AS (SELECT * FROM w) SELECT * FROM v JOIN b", ["a", "b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("SELECT extract(day FROM a), trim(BOTH 'x' FROM b), substring(c FROM 1) FROM d", ["d"]),
        ("SELECT * FROM a WHERE x IS DISTINCT FROM b AND y IS NOT DISTINCT FROM c", ["a"]),
        ("SELECT DISTINCT x FROM a", ["a"]),
        ("SELECT * FROM range(10), a", ["a"]),
        ("SELECT * FROM other.a, parquet.`x`, b", ["b"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) t AS x, y WHERE z", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b)", ["a", "b"]),
        ("SELECT * FROM a TABLESAMPLE (10 ROWS) ORDER BY p, q", ["a"]),
        ("SELECT 'FROM x', \"FROM y\" /* FROM z */ FROM `a b`", ["a b"]),
        ("FROM a SELECT x, y", ["a"]),
        ("SELECT 1", []),
    ],
)
def test_tables_are_found_after_from_and_join_only(query: str, tables: list[str]) -> None:
    assert inputs(query) == tables


def test_a_sql_file_is_read_from_disk(tmp_path: Path) -> None:
    file = tmp_path / "p.sql"
    file.write_text(f"{HEADER}CREATE VIEW clean AS TABLE views;\n{SINK}".replace("\n", "\r\n"), "utf-8", newline="")
    found = load_sql(file)
    assert (found.pipeline.name, found.folder) == ("demo", tmp_path)
    assert found.places.of_key("spec", "steps", "clean").line == 9
