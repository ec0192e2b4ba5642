"""Checks of a graph that need no Spark: codes and places."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.graph.documents import at, graph_of

from penstock.components.steps.dedupe import Dedupe
from penstock.errors import Severity
from penstock.graph.nodes import Graph
from penstock.graph.validate import World, check

TIMED = "{memory: {schema: {id: string, ts: timestamp}}, eventTime: {column: ts}}"


def test_a_sound_pipeline_has_no_problems() -> None:
    graph = graph_of(f"""
        sources:
          views: {TIMED}
        steps:
          once: {{from: views, dedupe: {{by: [id]}}}}
        sinks:
          out: {{from: once, memory: {{}}}}
        tests:
          - name: passes
            given: {{views: [{{id: a}}]}}
            expect: {{views: [], once: [{{id: a}}], out: [{{id: a}}]}}
        """)

    assert check(graph) == []


def test_what_no_sink_descends_from_is_a_warning_at_its_name() -> None:
    graph = graph_of(f"""
        sources:
          views: {TIMED}
          spare: {TIMED}
        steps:
          used: {{from: views, filter: id > 1}}
          dead: {{from: views, filter: id > 1}}
          end: {{from: dead, filter: id > 1}}
        sinks:
          out: {{from: used, memory: {{}}}}
        """)

    problems = check(graph)

    assert [at(problem) for problem in problems] == [
        ("STEP_UNUSED", 7, 5),
        ("STEP_UNUSED", 10, 5),
        ("STEP_UNUSED", 11, 5),
    ]
    assert [problem.params["name"] for problem in problems] == ["spare", "dead", "end"]
    assert {problem.severity for problem in problems} == {Severity.WARNING}


def test_a_step_that_needs_event_time_is_refused_when_no_source_before_it_has_any() -> None:
    graph = graph_of(f"""
        sources:
          timed: {TIMED}
          plain: {{memory: {{schema: {{id: string}}}}}}
        steps:
          good: {{from: timed, dedupe: {{by: [id]}}}}
          bad: {{from: plain, dedupe: {{by: [id]}}}}
          mixed: {{from: [good, bad], union: {{}}}}
          last: {{from: mixed, dedupe: {{by: [id]}}}}
        sinks:
          out: {{from: last, memory: {{}}}}
        """)

    (problem,) = check(graph)

    assert at(problem) == ("EVENT_TIME_REQUIRED", 10, 32)
    assert problem.params == {"node": "bad", "component": "dedupe"}


OUTSIDE = """
sources:
  views:
    files: {path: ./missing}
    format: {json: {schema: {id: string}}}
steps:
  map: {from: views, python: {function: "steps:map", over: arrow}}
sinks:
  out:
    from: map
    sqlite: {path: ./out.db, table: out, version: id}
deadLetters:
  sqlite: {path: ./dead.db, table: dead, version: id}
"""


def test_components_are_checked_and_their_problems_placed_at_their_configuration(tmp_path: Path) -> None:
    problems = check(graph_of(OUTSIDE, tmp_path))

    assert [at(problem) for problem in problems] == [
        ("PATH_NOT_FOUND", 7, 14),
        ("SPEC_MISSING_KEY", 10, 32),
        ("SPEC_MISSING_KEY", 14, 15),
        ("SPEC_MISSING_KEY", 16, 13),
    ]
    assert problems[0].params["path"] == str(tmp_path / "missing")
    assert problems[3].params["where"] == "sqlite of 'dead_letters'"


@pytest.mark.parametrize("world", [World.STEPS, World.CLOSED])
def test_what_is_written_is_checked_though_nothing_may_be_looked_at(tmp_path: Path, world: World) -> None:
    problems = check(graph_of(OUTSIDE, tmp_path), world)

    assert [at(problem) for problem in problems] == [
        ("SPEC_MISSING_KEY", 10, 32),
        ("SPEC_MISSING_KEY", 14, 15),
        ("SPEC_MISSING_KEY", 16, 13),
    ]


def test_in_a_test_run_only_what_steps_name_is_looked_at(tmp_path: Path) -> None:
    graph = graph_of(
        """
        sources: {views: {files: {path: ./missing}, format: {text: {}}}}
        steps: {some: {from: views, join: {table: {path: ./missing.csv}, on: [id]}}}
        sinks: {out: {from: some, memory: {}}}
        """,
        tmp_path,
    )

    assert [at(problem) for problem in check(graph)] == [("PATH_NOT_FOUND", 5, 28), ("PATH_NOT_FOUND", 6, 52)]
    assert [at(problem) for problem in check(graph, World.STEPS)] == [("PATH_NOT_FOUND", 6, 52)]
    assert check(graph, World.CLOSED) == []


SECRETS = """
sources:
  views:
    kafka: {bootstrap: "${secret:env/PENSTOCK_TEST_BROKER}", topic: "no topic", options: {group.id: x}}
    format: {text: {}}
sinks:
  out:
    from: views
    postgres: {url: "postgresql://u:${secret:env/PENSTOCK_TEST_BROKER}@", table: t, version: at}
"""


@pytest.mark.parametrize("world", World)
def test_what_holds_a_secret_is_left_out_and_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_BROKER", raising=False)

    found = [at(problem) for problem in check(graph_of(SECRETS), world)]

    written = [("SPEC_BAD_VALUE", 7, 71), ("SPEC_BAD_VALUE", 7, 103), ("SPEC_MISSING_KEY", 12, 17)]
    missing = [("SECRET_NOT_SET", 7, 26), ("SECRET_NOT_SET", 12, 23)] if world is World.OPEN else []
    assert sorted(found, key=lambda item: item[1:]) == sorted(written + missing, key=lambda item: item[1:])


SECRET = """
sources:
  views:
    sql_poll:
      table: t
      url: "sqlite:///${secret:env/PENSTOCK_TEST_FOLDER}/in.db"
      order: id
sinks:
  out: {from: views, memory: {}}
"""


def test_a_secret_that_is_not_set_is_shown_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_FOLDER", raising=False)

    (problem,) = check(graph_of(SECRET))

    assert at(problem) == ("SECRET_NOT_SET", 9, 14)
    assert str(problem.params["reference"]) == "${secret:env/PENSTOCK_TEST_FOLDER}"
    assert check(graph_of(SECRET), World.STEPS) == []


def test_a_component_is_checked_with_its_secrets_and_they_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_FOLDER", str(tmp_path))
    graph = graph_of(SECRET)

    (problem,) = check(graph)

    assert at(problem)[0] == "PATH_NOT_FOUND"
    assert str(problem.params["path"]) == "${secret:env/PENSTOCK_TEST_FOLDER}/in.db"
    assert str(tmp_path) not in str(problem)
    with closing(sqlite3.connect(tmp_path / "in.db")) as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert check(graph) == []


def test_secrets_of_sinks_and_dead_letters_are_looked_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_URL", raising=False)
    graph = graph_of("""
        sources:
          views:
            memory: {schema: {id: string}}
        sinks:
          out: {from: views, postgres: {url: "${secret:env/PENSTOCK_TEST_URL}", table: t}}
        deadLetters: {postgres: {url: "${secret:env/PENSTOCK_TEST_URL}", table: t}}
        """)

    assert [at(problem) for problem in check(graph)] == [("SECRET_NOT_SET", 9, 40), ("SECRET_NOT_SET", 10, 33)]
    assert check(graph, World.STEPS) == []
    assert check(graph, World.CLOSED) == []


@pytest.mark.parametrize("world", World)
def test_a_secret_where_it_could_come_out_as_a_row_is_refused_at_its_place(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_VALUE", "canary")
    graph = graph_of("""
        sources:
          views:
            memory: {schema: {id: string}}
        steps:
          some: {from: views, filter: "id = '${secret:env/PENSTOCK_TEST_VALUE}'"}
          more: {from: some, select: {a: "reverse('${secret:env/PENSTOCK_TEST_VALUE}')"}}
        sinks:
          out: {from: more, sqlite: {path: "${secret:env/PENSTOCK_TEST_VALUE}.db", table: t}}
        deadLetters: {files: {path: "${secret:env/PENSTOCK_TEST_VALUE}"}}
        """)

    found = check(graph, world)

    assert [at(problem) for problem in found] == [
        ("SECRET_NOT_HERE", 9, 33),
        ("SECRET_NOT_HERE", 10, 36),
        ("SECRET_NOT_HERE", 12, 38),
        ("SECRET_NOT_HERE", 13, 31),
    ]
    assert "canary" not in str(found)


def test_tests_may_only_name_what_is_there() -> None:
    graph = graph_of(f"""
        sources:
          views: {TIMED}
        steps:
          clean: {{from: views, filter: id > 1}}
        sinks:
          out: {{from: clean, memory: {{}}}}
        tests:
          - name: wrong names
            given:
              veiws: [{{id: a}}]
              clean: []
            expect:
              claen: []
        """)

    problems = check(graph, World.CLOSED)

    assert [at(problem) for problem in problems] == [
        ("TEST_NODE_UNKNOWN", 14, 9),
        ("TEST_NODE_UNKNOWN", 15, 9),
        ("TEST_NODE_UNKNOWN", 17, 9),
    ]
    assert [problem.hint for problem in problems] == [
        "Did you mean 'views'?",
        "'clean' is a step; rows are given to sources: views.",
        "Did you mean 'clean'?",
    ]
    assert problems[0].message == "test 'wrong names' names 'veiws' under `given`, which is not a source"


LATE = """
sources:
  views: {memory: {schema: {id: string}}}
steps:
  own:
    from: views
    sql: SELECT * FROM views
    late: {policy: side, sink: {sqlite: {path: ./own.db, table: late, version: id}}}
  same: {from: own, sql: SELECT * FROM own, late: {policy: side, sink: later}}
sinks:
  out: {from: same, memory: {}}
  later:
    sqlite: {path: ./late.db, table: late, version: id}
late:
  policy: side
  sink: later
"""


def test_sinks_of_late_rows_are_checked_where_they_are_declared_and_each_once(tmp_path: Path) -> None:
    problems = check(graph_of(LATE, tmp_path))

    assert [at(problem) for problem in problems] == [("SPEC_MISSING_KEY", 11, 43), ("SPEC_MISSING_KEY", 16, 15)]
    assert {problem.params["where"] for problem in problems} == {"sqlite of 'late'"}
    assert check(graph_of(LATE, tmp_path), World.STEPS) == problems


def test_secrets_of_sinks_of_late_rows_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_FOLDER", raising=False)
    graph = graph_of("""
        sources: {views: {memory: {schema: {id: string}}}}
        sinks: {out: {from: views, memory: {}}}
        late: {policy: side, sink: {postgres: {url: "${secret:env/PENSTOCK_TEST_FOLDER}", table: t}}}
        """)

    assert [at(problem) for problem in check(graph)] == [("SECRET_NOT_SET", 7, 47)]


def with_late(dedupe: str = "", spec: str = "", other: str = "") -> Graph:
    return graph_of(f"""
        sources:
          views: {TIMED}
        steps:
          once: {{from: views, dedupe: {{by: [id]}}{dedupe}}}
          some: {{from: once, filter: id > 1{other}}}
          query: {{from: some, sql: SELECT * FROM some, late: side}}
        sinks:
          out: {{from: query, memory: {{}}}}
        {spec}
        """)


@pytest.mark.parametrize("offered", [("drop", "side"), ("side",)])
@pytest.mark.parametrize("spec", ["", "late: drop", "late: side"])
@pytest.mark.parametrize("dedupe", ["", ", late: drop", ", late: side"])
def test_a_policy_that_a_step_offers_is_taken(
    monkeypatch: pytest.MonkeyPatch, offered: tuple[str, ...], spec: str, dedupe: str
) -> None:
    monkeypatch.setattr(Dedupe, "late_policies", offered, raising=False)

    assert check(with_late(dedupe, spec)) == []


def test_a_policy_that_a_step_does_not_offer_is_refused_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dedupe, "late_policies", ("drop", "side"), raising=False)

    (problem,) = check(with_late(", late: {policy: correct}"))

    assert at(problem) == ("LATE_NOT_SUPPORTED", 8, 51)
    assert problem.message == "'once' (dedupe) cannot do `correct` with rows that come too late"
    assert problem.hint == "Write `late: drop` or `late: side`."
    assert problem.params["offered"] == "drop, side"


def test_a_policy_of_the_pipeline_that_a_step_does_not_offer_is_refused_at_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Dedupe, "late_policies", ("drop", "side"), raising=False)

    (problem,) = check(with_late(spec="late: correct"))

    assert at(problem) == ("LATE_NOT_SUPPORTED", 8, 5)
    advice = "The pipeline asks for it; give the step a policy of its own: `late: drop` or `late: side`."
    assert (problem.params["policy"], problem.hint) == ("correct", advice)
    assert check(with_late(", late: drop", "late: correct")) == []


@pytest.mark.parametrize("policy", ["drop", "side", "correct"])
def test_a_step_that_keeps_nothing_by_event_time_takes_no_policy(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setattr(Dedupe, "late_policies", ("drop", "side"), raising=False)

    (problem,) = check(with_late(other=f", late: {policy}"))

    assert at(problem) == ("LATE_NOT_SUPPORTED", 9, 46)
    assert problem.hint.startswith("Remove `late`")


LIMITED = "{generator: {dataset: page_views, maxRowsPerBatch: %s}}"
TOPIC = 'kafka: {bootstrap: "k:9092", topic: t%s}'


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("4500000", "null, rows: 5", {"sources": "b", "rows": "any number of rows"}),
        ("4000000", "600000", {"sources": "a, b", "rows": "4,600,000"}),
        ("4000000", "500000", None),
    ],
)
def test_batches_that_a_sink_may_not_store_are_told_before_the_first(
    first: str, second: str, told: dict[str, str] | None
) -> None:
    graph = graph_of(f"""
        sources:
          a: {LIMITED % first}
          b: {LIMITED % second}
        steps:
          both: {{from: [a, b], union: {{}}}}
        sinks:
          out: {{from: both, {TOPIC % ""}}}
          patient: {{from: both, {TOPIC % ', options: {transaction.timeout.ms: "3600000"}'}}}
          any: {{from: both, memory: {{}}}}
        """)

    problems = [problem for problem in check(graph, World.CLOSED) if problem.code == "SINK_BATCH_TOO_LARGE"]

    assert [problem.params for problem in problems] == (
        [] if told is None else [{"node": "out", "limit": "4,500,000", **told}]
    )
    assert [at(problem) for problem in problems] == ([] if told is None else [("SINK_BATCH_TOO_LARGE", 11, 5)])


def test_a_throttle_keeps_batches_small() -> None:
    throttled = (LIMITED % "null").removesuffix("}") + ", throttle: {adaptive: true}}"
    graph = graph_of(f"""
        sources: {{a: {throttled}}}
        sinks: {{out: {{from: a, {TOPIC % ""}}}}}
        """)

    assert check(graph, World.CLOSED) == []
