"""What state a query needs is told by its text; what cannot be told is not guessed."""

from __future__ import annotations

import pytest

from penstock.doctor.sql_shape import SqlShape, shape_of

NONE = SqlShape()
WINDOWS = SqlShape(groups=True, by_time=True)
GROUPS = SqlShape(groups=True, by_time=False)


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        ("SELECT a, upper(b) FROM x WHERE c > 1", NONE),
        ("SELECT item.sku FROM x LATERAL VIEW explode(items) AS item", NONE),
        ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) AS n FROM x", NONE),
        ("SELECT sum(a) OVER (PARTITION BY b) AS n FROM x", NONE),
        ("SELECT 'window(ts)' AS text FROM x", NONE),
        ("SELEC a FROM", NONE),
        ("SELECT count(*) FROM x", GROUPS),
        ("SELECT a, max(b) FROM x GROUP BY a", GROUPS),
        ("SELECT DISTINCT a FROM x", GROUPS),
        ("SELECT a, count(DISTINCT b) FROM x GROUP BY a", GROUPS),
        ("SELECT date(ts), count(*) FROM x GROUP BY date(ts)", GROUPS),
        ("SELECT window.start, a, count(*) FROM x GROUP BY window(ts, '10 seconds'), a", WINDOWS),
        ("SELECT a, count(*) FROM x GROUP BY session_window(ts, '5 minutes'), a", WINDOWS),
        ("SELECT a, count(*) FROM x GROUP BY ts, a", WINDOWS),
        ("SELECT a, count(*) FROM x GROUP BY x.window_start, a", WINDOWS),
        ("SELECT window.end, count(*) FROM x GROUP BY window.end", WINDOWS),
        ("SELECT window, count(*) FROM x GROUP BY window", WINDOWS),
        ("SELECT sum(a) OVER w AS n FROM x WINDOW w AS (PARTITION BY b)", NONE),
        ("SELECT DISTINCT a, ts FROM x", WINDOWS),
        ("SELECT n FROM (SELECT a, count(*) AS n FROM x GROUP BY a) t", GROUPS),
        ("WITH t AS (SELECT DISTINCT a FROM x) SELECT a FROM t", GROUPS),
    ],
)
def test_groups_end_with_time_or_never(query: str, shape: SqlShape) -> None:
    assert shape_of(query, ("x",), frozenset({"ts"})) == shape


@pytest.mark.parametrize(
    ("query", "joined", "bounded"),
    [
        ("SELECT x.a FROM x JOIN y ON x.a = y.a", ("x", "y"), False),
        ("SELECT x.a FROM x JOIN y USING (a)", ("x", "y"), False),
        ("SELECT x.a FROM x, y WHERE x.a = y.a", ("x", "y"), False),
        ("SELECT x.a FROM x LEFT SEMI JOIN y ON x.a = y.a", ("x", "y"), False),
        ("SELECT x.a FROM x JOIN x AS other ON x.a = other.b", ("x",), False),
        ("SELECT x.a FROM x JOIN y ON x.a = y.a AND y.ts < x.ts + INTERVAL 1 HOUR", ("x", "y"), True),
        ("SELECT x.a FROM x, y WHERE y.ts BETWEEN x.ts - INTERVAL '5 minutes' AND x.ts", ("x", "y"), True),
        ("SELECT x.a FROM x JOIN y USING (a, window_start)", ("x", "y"), True),
        ("SELECT x.a FROM x JOIN y ON x.a = y.a AND x.window_end = y.window_end", ("x", "y"), True),
        ("SELECT x.a FROM x JOIN values_of_a AS v ON x.a = v.a", (), True),
    ],
)
def test_joins_of_inputs_have_a_limit_in_time_or_not(query: str, joined: tuple[str, ...], bounded: bool) -> None:
    shape = shape_of(query, ("x", "y"), frozenset({"ts"}))

    assert (shape.joined, shape.join_bounded, shape.stateful) == (joined, bounded, bool(joined))
