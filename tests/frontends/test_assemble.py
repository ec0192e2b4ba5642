from __future__ import annotations

from typing import ClassVar

import pytest
from tests.frontends.reading import (
    HEAD,
    mistakes,
    only_problem,
    places_of,
    problems_of,
    read,
    with_body,
    with_source,
    with_step,
)

from penstock.components.base import Component
from penstock.components.registry import components
from penstock.errors import Location
from penstock.frontends.configs import read_config
from penstock.frontends.findings import Findings
from penstock.spec.fields import Config, field
from penstock.spec.location import Places
from penstock.spec.units import Duration

MEMORY = "memory: {schema: {id: string}}"
JSON = "format: {json: {schema: {id: string}}}"


def test_a_pipeline_is_read_with_its_values() -> None:
    pipeline = read("""\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: engagement, labels: {team: news}}
spec:
  sources:
    views:
      files: {path: ./in, maxFilesPerBatch: 5}
      format: {json: {schema: {id: string, ts: timestamp}}}
      eventTime: {column: ts, maxDelay: 1 minute}
  steps:
    clean: {from: views, sql: SELECT * FROM views}
    both: {from: [views, clean], union: {allowMissing: true}}
  sinks:
    out: {from: both, sqlite: {path: out.db, table: t, key: [id]}}
  deadLetters: {files: {path: ./dead}}
  state: {partitions: 4}
  run: {trigger: 2 seconds}
  tests:
    - name: keeps rows
      given: {views: [{id: a, ts: 2024-01-01T00:00:00Z}]}
      expect: {out: [{id: a}]}
""").pipeline
    assert (pipeline.name, pipeline.labels) == ("engagement", {"team": "news"})
    (source,) = pipeline.sources
    assert source.component.model_dump(exclude_defaults=True) == {"path": "./in", "max_files_per_batch": 5}
    assert source.format is not None
    assert source.event_time is not None
    assert source.event_time.max_delay == Duration(60_000)
    assert {step.name: step.inputs for step in pipeline.steps} == {"clean": ("views",), "both": ("views", "clean")}
    assert pipeline.steps[0].component.model_dump() == {"query": "SELECT * FROM views"}
    assert (pipeline.sinks[0].input, pipeline.sinks[0].component.model_dump()["key"]) == ("both", ("id",))
    assert pipeline.dead_letters is not None
    assert (pipeline.state.partitions, pipeline.run.trigger) == (4, Duration(2000))
    assert pipeline.tests[0].given == {"views": ({"id": "a", "ts": "2024-01-01T00:00:00Z"},)}


def test_five_different_mistakes_are_all_named_with_line_and_column() -> None:
    text = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: Demo}
spec:
  sources:
    views:
      files: {pathh: ./in}
      format: {json: {schema: {id: strin}}}
  steps:
    clean:
      from: views
      sqll: SELECT * FROM views
  sinks:
    out: {from: clean, console: {rows: many}}
"""
    assert mistakes(text) == [
        ("SPEC_BAD_NAME", 3, 18),
        ("SPEC_MISSING_KEY", 7, 7),
        ("SPEC_UNKNOWN_KEY", 7, 15),
        ("SPEC_BAD_VALUE", 8, 31),
        ("COMPONENT_UNKNOWN", 12, 7),
        ("SPEC_WRONG_TYPE", 14, 40),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (with_source("{fils: {path: x}}"), ("COMPONENT_UNKNOWN", 6, 13)),
        (with_source("{}"), ("COMPONENT_MISSING", 6, 5)),
        (with_source("{" + MEMORY + ", generator: {dataset: bids}}"), ("COMPONENT_AMBIGUOUS", 6, 45)),
        (with_source("{" + MEMORY + ", evenTime: {column: ts}}"), ("SPEC_UNKNOWN_KEY", 6, 45)),
        (with_source("{files: {path: x}, " + JSON + ", pattern: y}"), ("SPEC_UNKNOWN_KEY", 6, 71)),
        (with_source("{files: {path: x}}"), ("FORMAT_MISSING", 6, 5)),
        (with_source("{" + MEMORY + ", " + JSON + "}"), ("FORMAT_NOT_USED", 6, 45)),
        (with_source("{files: {path: x}, format: {jsn: {}}}"), ("COMPONENT_UNKNOWN", 6, 40)),
        (with_source("{files: {path: x}, format: json}"), ("SPEC_WRONG_TYPE", 6, 39)),
        (with_source("{files: {path: x}, format: {}}"), ("COMPONENT_MISSING", 6, 31)),
        (with_source("{" + MEMORY + ", eventTime: {maxDelay: 1 s}}"), ("SPEC_MISSING_KEY", 6, 45)),
        (with_source("{memory: {schema: {id: string}, rows: [5]}}"), ("SPEC_WRONG_TYPE", 6, 51)),
        (with_source("5"), ("SPEC_WRONG_TYPE", 6, 12)),
        (with_step("{from: views, sql: 5}"), ("SPEC_WRONG_TYPE", 8, 27)),
        (with_step("{from: views, sql: ''}"), ("SPEC_BAD_VALUE", 8, 27)),
        (with_step("{sql: SELECT 1}"), ("SPEC_MISSING_KEY", 8, 5)),
        (with_step("{from: [], sql: SELECT 1}"), ("SPEC_BAD_VALUE", 8, 15)),
        (with_step("{from: [views, 3], sql: SELECT 1}"), ("SPEC_WRONG_TYPE", 8, 23)),
        (with_step("{from: {a: b}, sql: SELECT 1}"), ("SPEC_WRONG_TYPE", 8, 15)),
        (with_step("{from: views, sqlite: {path: x}}"), ("COMPONENT_UNKNOWN", 8, 22)),
        (with_step("{from: views, dedupe: {by: id}}"), ("SPEC_WRONG_TYPE", 8, 35)),
        (with_step("{from: views, dedupe: {by: [id], within: soon}}"), ("SPEC_BAD_VALUE", 8, 49)),
        (with_step("{from: views, python: {function: 'a:b', over: fram}}"), ("SPEC_BAD_VALUE", 8, 54)),
        (with_step("{from: views, select: {a: 5}}"), ("SPEC_WRONG_TYPE", 8, 34)),
        (with_step("{from: views, union: {allow_missing: true}}"), ("SPEC_UNKNOWN_KEY", 8, 30)),
        (with_step("{from: views, union: {allowMissing: 'yes'}}"), ("SPEC_WRONG_TYPE", 8, 44)),
    ],
)
def test_a_mistake_is_found_at_its_place(text: str, expected: tuple[str, int, int]) -> None:
    assert mistakes(text) == [expected]


SOURCES = f"sources: {{a: {{{MEMORY}}}}}\n"
SINKS = "sinks: {out: {from: a, console: {}}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (with_body(SINKS), ("PIPELINE_EMPTY", 4, 1)),
        (with_body("sources: {}\n" + SINKS), ("PIPELINE_EMPTY", 5, 3)),
        (with_body(SOURCES), ("PIPELINE_EMPTY", 4, 1)),
        (with_body(SOURCES + "sinks: [a]\n"), ("SPEC_WRONG_TYPE", 6, 10)),
        (with_body(SOURCES + "sinks: {out: {from: [a], console: {}}}\n"), ("SPEC_WRONG_TYPE", 6, 23)),
        (with_body(SOURCES + "sinks: {out: {console: {}}}\n"), ("SPEC_MISSING_KEY", 6, 11)),
        (with_body(SOURCES + "sinks: {a: {from: a, console: {}}}\n"), ("SPEC_DUPLICATE_NAME", 6, 11)),
        (with_body(SOURCES + "sinks: {Out: {from: a, console: {}}}\n"), ("SPEC_BAD_NAME", 6, 11)),
        (with_body(SOURCES + SINKS + "deadLetters: {from: a, console: {}}\n"), ("SPEC_UNKNOWN_KEY", 7, 17)),
        (with_body(SOURCES + SINKS + "deadLetters: console\n"), ("SPEC_WRONG_TYPE", 7, 16)),
        (with_body(SOURCES + SINKS + "run: {trigger: 3}\n"), ("SPEC_BAD_VALUE", 7, 18)),
        (with_body(SOURCES + SINKS + "state: {partitions: 0}\n"), ("SPEC_BAD_VALUE", 7, 23)),
        (with_body(SOURCES + SINKS + "state: {partitions: true}\n"), ("SPEC_WRONG_TYPE", 7, 23)),
        (with_body(SOURCES + SINKS + "tests: {}\n"), ("SPEC_WRONG_TYPE", 7, 10)),
        (with_body(SOURCES + SINKS + "tests: [{name: x, given: {}}]\n"), ("SPEC_MISSING_KEY", 7, 11)),
        (with_body(SOURCES + SINKS + "tests: [{name: x, given: {}, expect: {o: 3}}]\n"), ("SPEC_WRONG_TYPE", 7, 44)),
        (with_body(SOURCES + SINKS + "stat: {}\n"), ("SPEC_UNKNOWN_KEY", 7, 3)),
    ],
)  # fmt: skip
def test_a_mistake_in_the_body_is_found_at_its_place(text: str, expected: tuple[str, int, int]) -> None:
    assert mistakes(text) == [expected]


BODY = with_body(SOURCES + SINKS).removeprefix(HEAD)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("apiVersion: penstock/v2\nkind: Pipeline\nmetadata: {name: a}\n", ("SPEC_VERSION", 1, 13)),
        ("kind: Pipeline\nmetadata: {name: a}\n", ("SPEC_MISSING_KEY", 1, 1)),
        ("apiVersion: penstock/v1\nkind: Job\nmetadata: {name: a}\n", ("SPEC_BAD_VALUE", 2, 7)),
        ("apiVersion: penstock/v1\nkind: Pipeline\n", ("SPEC_MISSING_KEY", 1, 1)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {}\n", ("SPEC_MISSING_KEY", 3, 1)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: demo\n", ("SPEC_WRONG_TYPE", 3, 11)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: 5}\n", ("SPEC_WRONG_TYPE", 3, 18)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: a b}\n", ("SPEC_BAD_NAME", 3, 18)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: a, labels: {v: 2}}\n", ("SPEC_WRONG_TYPE", 3, 33)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: a, lables: {}}\n", ("SPEC_UNKNOWN_KEY", 3, 21)),
        ("apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: a}\nsinks: {}\n", ("SPEC_UNKNOWN_KEY", 4, 1)),
    ],
)
def test_a_mistake_in_the_head_is_found_at_its_place(head: str, expected: tuple[str, int, int]) -> None:
    assert mistakes(head + BODY)[0] == expected


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            with_source("{files: {path: 5}, " + JSON + "}"),
            "`files.path` of source 'views' must be text, not the number 5", "Put it in quotes.",
        ),
        (
            with_source("{" + MEMORY + ", evenTime: {column: ts}}"),
            "unknown key 'evenTime' in source 'views'", "Did you mean 'eventTime'?",
        ),
        (
            with_source("{files: {path: x}, " + JSON + ", pattern: y}"),
            "unknown key 'pattern' in source 'views'", "`pattern` belongs inside `files`.",
        ),
        (
            with_step("{from: views, console: {}}"),
            "there is no step called 'console'",
            f"'console' is a sink. Known: {', '.join(sorted(components('step')))}.",
        ),
        (
            with_step("{from: views, union: {allowMissing: 'yes'}}"),
            "`union.allowMissing` of step 's' must be true or false, not the text 'yes'", "Write it without quotes.",
        ),
        (
            with_step("{from: views, python: {function: 'a:b', over: fram}}"),
            "`python.over` of step 's': the text 'fram' is not one of 'frame' or 'arrow'", "Did you mean 'frame'?",
        ),
    ],
)  # fmt: skip
def test_messages_are_in_plain_words(text: str, message: str, hint: str) -> None:
    problem = only_problem(text)
    assert (problem.message, problem.hint) == (message, hint)


def test_problems_are_sorted_by_line_and_those_of_reading_are_among_them() -> None:
    text = with_body("sources:\n  a: {memory: {}}\n  a: {}\nsinks: {out: {from: a, consol: {}}}\nrun: {x: 1, x: 2}\n")
    assert mistakes(text) == [
        ("SPEC_MISSING_KEY", 6, 9),
        ("SPEC_DUPLICATE_NAME", 7, 5),
        ("COMPONENT_UNKNOWN", 8, 26),
        ("SPEC_UNKNOWN_KEY", 9, 9),
        ("SPEC_DUPLICATE_KEY", 9, 15),
    ]


def test_a_second_definition_says_where_the_first_is() -> None:
    text = with_body(SOURCES + "sinks: {a: {from: a, console: {}}}\n")
    assert only_problem(text).params["first"] == Location("p.yaml", 5, 13)


def test_a_text_mistaken_for_a_number_is_noted_beside_other_mistakes_of_the_component() -> None:
    text = with_source("{files: {pth: x, maxFilesPerBatch: '5'}, " + JSON + "}")
    assert mistakes(text) == [("SPEC_MISSING_KEY", 6, 13), ("SPEC_UNKNOWN_KEY", 6, 21), ("SPEC_WRONG_TYPE", 6, 47)]


@pytest.mark.parametrize(
    ("step", "short"),
    [
        ("sql: {query: SELECT 1}", "sql: SELECT 1"),
        ("filter: {where: ms > 1}", "filter: ms > 1"),
        ("select: {columns: [id]}", "select: [id]"),
        ("select: {columns: {a: id, b: ms / 2}}", "select: {a: id, b: ms / 2}"),
        ("union: {}", "union: "),
    ],
)
def test_a_short_form_says_the_same_as_the_long_one(step: str, short: str) -> None:
    long, brief = (read(with_step(f"{{from: views, {text}}}")) for text in (step, short))
    assert long.pipeline == brief.pipeline


def test_sql_in_short_form_is_placed_like_in_long_form() -> None:
    text = with_step("\n      from: views\n      sql: |\n        SELECT 1\n        FROM views")
    places = read(text).places
    assert places.inside_text(2, 5, "spec", "steps", "s", "sql", "query") == Location("p.yaml", 12, 16)
    assert places.inside_text(2, 5, "spec", "steps", "s", "sql") == Location("p.yaml", 12, 16)


@pytest.mark.parametrize(
    "reference", ["${secret:vault/X}", "${secret:env}", "${secret:env/}", "${secret:env/X", "${secret}"]
)
def test_a_malformed_secret_reference_is_found(reference: str) -> None:
    text = with_source("{files: {path: '" + reference + "'}, " + JSON + "}")
    assert mistakes(text) == [("SECRET_SYNTAX", 6, 27)]


def test_a_secret_is_not_looked_up() -> None:
    pipeline = read(with_source("{files: {path: '${secret:env/NOT_SET_ANYWHERE}'}, " + JSON + "}")).pipeline
    assert pipeline.sources[0].component.model_dump()["path"] == "${secret:env/NOT_SET_ANYWHERE}"


class Login(Config):
    password: str = field(doc="Password.", secret=True)
    user: str = field("me", doc="User.")


class Database(Component):
    """A component with secrets, here and further down."""

    name: ClassVar[str] = "database"

    url: str = field(doc="Where.", secret=True, pattern="^db:")
    headers: dict[str, str] = field(default={}, doc="Headers.", secret=True)
    login: Login | None = field(None, doc="Login.")


def database(**content: object) -> list[tuple[str, str]]:
    findings = Findings(Places("f"))
    read_config(Database, content, ("spec", "sinks", "out", "database"), findings)
    return [(problem.code, problem.message) for problem in findings.problems]


def test_a_secret_in_plain_text_is_refused_wherever_it_stands() -> None:
    found = database(url="db:x", headers={"Auth": "abc"}, login={"password": "hunter2"})
    assert found == [
        ("SECRET_IN_PLAIN_TEXT", "`database.url` of sink 'out' holds a secret in plain text"),
        ("SECRET_IN_PLAIN_TEXT", "`database.headers.Auth` of sink 'out' holds a secret in plain text"),
        ("SECRET_IN_PLAIN_TEXT", "`database.login.password` of sink 'out' holds a secret in plain text"),
    ]


def test_secret_references_are_accepted() -> None:
    assert database(url="db:${secret:env/A}", login={"password": "${secret:file/x}"}) == []


def test_no_message_shows_the_value_of_a_secret() -> None:
    found = database(url="hunter2", login={"password": ["hunter2"]}, headers="hunter2")
    assert {code for code, _ in found} == {"SPEC_BAD_VALUE", "SPEC_WRONG_TYPE"}
    assert not [message for _, message in found if "hunter2" in message]


def test_a_nested_configuration_suggests_its_own_keys() -> None:
    findings = Findings(Places("f"))
    read_config(Database, {"url": "db:${secret:env/A}", "login": {"passwrd": "x"}}, (), findings)
    assert [(problem.code, problem.hint) for problem in findings.problems] == [
        ("SPEC_MISSING_KEY", "Password."),
        ("SPEC_UNKNOWN_KEY", "Did you mean 'password'?"),
    ]


def test_an_unreadable_body_stops_with_one_problem() -> None:
    assert places_of(problems_of(read, HEAD + "spec: 5\n")) == [("SPEC_WRONG_TYPE", 4, 7)]
    assert places_of(problems_of(read, HEAD)) == [("SPEC_MISSING_KEY", 1, 1)]
