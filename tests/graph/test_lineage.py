"""Column lineage of SQL and of the plain steps, and following it to the sources."""

from __future__ import annotations

import logging

import pytest
from tests.graph.documents import graph_of

from penstock.graph.lineage import lineage, origins
from penstock.graph.nodes import Graph

COLUMNS = {
    "views": {"id": "string", "ts": "timestamp", "User": "string", "ms": "bigint", "tags": "array<string>"},
    "users": {"user": "string", "name": "string", "info": "struct<a:int,b:string>", "a.b": "interval day to second"},
}
SOURCES = """
sources:
  views: {memory: {schema: {id: string, ts: timestamp}}}
  users: {memory: {schema: {user: string}}}
"""


def _graph(steps: str) -> Graph:
    return graph_of(f"{SOURCES}steps:\n{steps}sinks:\n  out: {{from: views, memory: {{}}}}\n")


def _of_sql(query: str, *columns: str) -> dict[str, tuple[str, ...]]:
    graph = _graph(f"  made:\n    from: [views, users]\n    sql: |\n      {query}\n")
    known = {**COLUMNS, "made": dict.fromkeys(columns, "string")} if columns else COLUMNS
    return lineage(graph, known)["made"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT ID, ms / 1000 AS s, 1 AS one FROM views", {"id": ["views.id"], "s": ["views.ms"], "one": []}),
        ("SELECT v.user AS who FROM views v", {"who": ["views.User"]}),
        (
            "SELECT * FROM users",
            {"user": ["users.user"], "name": ["users.name"], "info": ["users.info"], "a.b": ["users.a.b"]},
        ),
        ("SELECT * EXCEPT (info, `a.b`) FROM users", {"user": ["users.user"], "name": ["users.name"]}),
        (
            "SELECT v.id, u.name, concat(v.id, u.name) AS k FROM views v LEFT JOIN users u ON v.user = u.user",
            {"id": ["views.id"], "name": ["users.name"], "k": ["users.name", "views.id"]},
        ),
        ("SELECT user FROM views JOIN users USING (user)", {"user": ["users.user", "views.User"]}),
        (
            "WITH a AS (SELECT user AS who, ms * 2 AS d FROM views), "
            "b(w, t) AS (SELECT who, sum(d) FROM a GROUP BY who) SELECT w, t + 1 AS t FROM b",
            {"w": ["views.User"], "t": ["views.ms"]},
        ),
        ("WITH views AS (SELECT name AS id FROM users) SELECT id FROM views", {"id": ["users.name"]}),
        ("SELECT x.t FROM (SELECT max(ts) AS t FROM views) x", {"t": ["views.ts"]}),
        (
            "SELECT id, ms FROM views UNION ALL SELECT name, 1 FROM users UNION ALL SELECT user, 2 FROM users",
            {"id": ["users.name", "users.user", "views.id"], "ms": ["views.ms"]},
        ),
        ("SELECT id FROM views EXCEPT SELECT user FROM users", {"id": ["views.id"]}),
        ("SELECT id, (SELECT max(name) FROM users) AS m FROM views", {"id": ["views.id"], "m": ["users.name"]}),
        ("SELECT info.a, u.info.b AS x FROM users u", {"a": ["users.info"], "x": ["users.info"]}),
        ("SELECT id, tag FROM views LATERAL VIEW explode(tags) t AS tag", {"id": ["views.id"], "tag": ["views.tags"]}),
        ("SELECT transform(tags, x -> concat(x, id)) AS t FROM views", {"t": ["views.id", "views.tags"]}),
        ("SELECT ms AS a, a + 1 AS b FROM views", {"a": ["views.ms"], "b": ["views.ms"]}),
        ("SELECT stack(2, ms, 1) AS (a, b) FROM views", {"a": ["views.ms"], "b": ["views.ms"]}),
        ("SELECT x + 1 AS y FROM (VALUES (1), (2)) AS t(x)", {"y": []}),
        ("FROM views |> WHERE ms > 1 |> SELECT id", {"id": ["views.id"]}),
        ("TABLE users", {"user": ["users.user"], "name": ["users.name"], "info": ["users.info"], "a.b": ["users.a.b"]}),
    ],
)
def test_columns_are_followed_through_sql(query: str, expected: dict[str, list[str]]) -> None:
    assert _of_sql(query) == {column: tuple(inputs) for column, inputs in expected.items()}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT window, id, count(*) AS n FROM views GROUP BY window(ts, '1 minute'), id",
            {"window": ("views.ts",), "id": ("views.id",), "n": ()},
        ),
        (
            "SELECT window.start, window.end AS till FROM views GROUP BY WINDOW(ts, '1 minute', '10 seconds')",
            {"start": ("views.ts",), "till": ("views.ts",)},
        ),
        ("SELECT window(ts, '1 hour').start AS s FROM views GROUP BY 1", {"s": ("views.ts",)}),
        ("SELECT session_window.end AS e FROM views GROUP BY session_window(ts, '5 minutes')", {"e": ("views.ts",)}),
        (
            "SELECT w.start FROM (SELECT window AS w FROM views GROUP BY window(ts, '1 hour'))",
            {"start": ("views.ts",)},
        ),
        ("SELECT sum(ms) OVER w AS s FROM views WINDOW w AS (PARTITION BY id)", {"s": ("views.ms",)}),
    ],
)
def test_a_time_window_comes_from_the_column_it_is_over(query: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert _of_sql(query) == expected


def test_a_window_column_of_an_input_is_a_column_like_any_other() -> None:
    graph = _graph("  made: {from: views, sql: 'SELECT window.start AS s, count(*) AS n FROM views GROUP BY window'}\n")

    found = lineage(graph, {"views": {"window": "struct<start:timestamp,end:timestamp>"}})

    assert found == {"made": {"s": ("views.window",), "n": ()}}


def test_columns_get_the_names_spark_gave_them() -> None:
    query = "SELECT `user`, count(DISTINCT id), max(ms) FROM views GROUP BY user"

    assert _of_sql(query, "User", "count(DISTINCT id)", "max(ms)") == {
        "User": ("views.User",),
        "count(DISTINCT id)": ("views.id",),
        "max(ms)": ("views.ms",),
    }


def test_what_cannot_be_told_is_left_out() -> None:
    query = "SELECT id, inline(array(named_struct('p', ms, 'q', ms))) FROM views"

    assert _of_sql(query, "id", "p", "q") == {"id": ("views.id",)}
    assert _of_sql("SELECT id, nothing, struct(*) AS s FROM views") == {"id": ("views.id",)}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT info:a::int AS z FROM users",
        "SELECT FROM WHERE",
        "DROP TABLE views",
        "SELECT 1; SELECT 2",
        "CACHE TABLE x",
    ],
)
def test_sql_that_cannot_be_read_gives_nothing_and_says_nothing(query: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert _of_sql(query) == {}

    # Py4J tells of what other threads release meanwhile.
    assert [record for record in caplog.records if not record.name.startswith("py4j")] == []


def test_a_step_whose_input_is_unknown_gives_nothing() -> None:
    graph = _graph("  made: {from: views, sql: SELECT * FROM views}\n")

    assert lineage(graph, {}) == {"made": {}}


STEPS = """\
  kept: {from: views, filter: ms > 1}
  once: {from: kept, dedupe: {by: [id]}}
  named: {from: once, select: {who: user, key: "concat(id, ms)", one: "1"}}
  short: {from: users, select: [user, a.b]}
  renamed: {from: users, sql: SELECT name AS who FROM users}
  both: {from: [named, renamed], union: {allowMissing: true}}
  opaque: {from: both, python: {function: "steps:f"}}
  final: {from: opaque, sql: SELECT who AS w FROM opaque}
"""


def test_plain_steps_pass_their_columns_on_and_origins_follow_them() -> None:
    made = {
        "kept": COLUMNS["views"],
        "once": COLUMNS["views"],
        "named": {"who": "string", "key": "string", "one": "int"},
        "short": {"user": "string", "a.b": "string"},
        "renamed": {"who": "string"},
        "both": {"who": "string", "key": "string", "one": "int"},
        "opaque": {"who": "string"},
        "final": {"w": "string"},
    }
    found = lineage(_graph(STEPS), {**COLUMNS, **made})

    assert found["once"]["User"] == ("kept.User",)
    assert found["named"] == {"who": ("once.User",), "key": ("once.id", "once.ms"), "one": ()}
    assert found["short"] == {"user": ("users.user",), "a.b": ("users.a.b",)}
    assert found["both"] == {"who": ("named.who", "renamed.who"), "key": ("named.key",), "one": ("named.one",)}
    assert "opaque" not in found
    assert origins(found, "both", "who") == ("users.name", "views.User")
    assert origins(found, "both", "key") == ("views.id", "views.ms")
    assert origins(found, "both", "one") == ()
    assert origins(found, "short", "a.b") == ("users.a.b",)
    assert origins(found, "views", "id") == ("views.id",)
    assert origins(found, "final", "w") == ("opaque.who",)
