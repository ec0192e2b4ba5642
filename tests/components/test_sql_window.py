"""Windowed queries taken apart for the window kernel: which are, how, and that Spark agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.components.base import Carried, StepContext
from penstock.components.shared.aggregates import Written
from penstock.components.shared.event_time import event_time_of
from penstock.components.shared.sql_window import WindowQuery, micros, understand
from penstock.components.steps.sql import Sql
from penstock.spec.pipeline import LatePolicy
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
COLUMNS = ("ts", "id", "kind", "n", "x", "d", "s", "xs", "ok", "day", "other")
W = "window(ts, '1 minute')"


def understood(query: str) -> WindowQuery | None:
    return understand(query.replace("{W}", W), "views", COLUMNS, "ts")


def taken(query: str) -> WindowQuery:
    found = understood(query)
    assert found is not None
    return found


# --- lengths of time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 minute", 60 * SECOND),
        ("90 seconds", 90 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("  2  DAYS ", 172_800 * SECOND),
        ("interval 1 week", 604_800 * SECOND),
        ("1.5 seconds", 1_500_000),
        ("250 milliseconds 7 microseconds", 250_007),
        ("1 month", None),
        ("1 year", None),
        ("1.5 minutes", None),
        ("-1 minute", None),
        ("0 seconds", None),
        ("1minute", None),
        ("minute", None),
        ("", None),
        ("1 minute and more", None),
    ],
)
def test_lengths_are_those_of_spark_or_unknown(text: str, expected: int | None) -> None:
    assert micros(text) == expected


# --- without Spark -----------------------------------------------------------------------------------------


def test_a_query_is_taken_apart() -> None:
    assert understood(
        "SELECT window.start AS at, upper(v.id) AS who, sum(n * 2) FILTER (WHERE ok) + 1 AS total, count(DISTINCT kind)"
        " FROM views AS v WHERE n > 1 OR n IS NOT NULL AND kind <> 'x'"
        " GROUP BY window(ts, '1 minute', '20 seconds'), upper(id) HAVING total > 3 AND window.end > '2024-01-01'"
    ) == WindowQuery(
        restated="SELECT `window`.`start` AS `_column_0`, upper(`views`.`id`) AS `_column_1`,"
        " (sum((`views`.`n` * 2)) FILTER(WHERE `views`.`ok`) + 1) AS `_column_2`, count(DISTINCT `views`.`kind`)"
        " FROM `views` WHERE ((`views`.`n` > 1) OR ((`views`.`n` IS NOT NULL) AND (`views`.`kind` <> 'x')))"
        " GROUP BY window(`views`.`ts`, '1 minute', '20 seconds'), upper(`views`.`id`)"
        " HAVING ((`_column_2` > 3) AND (`window`.`end` > '2024-01-01'))",
        size=60 * SECOND,
        slide=20 * SECOND,
        where="((`n` > 1) OR ((`n` IS NOT NULL) AND (`kind` <> 'x')))",
        keys=("upper(`id`)",),
        calls=taken("SELECT sum(n * 2) FILTER (WHERE ok), count(DISTINCT kind) FROM views GROUP BY {W}").calls,
        having="(((`_call_0` + 1) > 3) AND (`_window`.`end` > '2024-01-01'))",
        columns=("`_window`.`start`", "`_key_0`", "(`_call_0` + 1)", "`_call_1`"),
        words=("upper(id)", "window"),
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("count(*)", Written("_call_0", "count", None)),
        ("COUNT( * )", Written("_call_0", "count", None)),
        ("count(n)", Written("_call_0", "count", "`n`")),
        ("count(DISTINCT n + 1)", Written("_call_0", "count_distinct", "(`n` + 1)")),
        ("sum(views.n)", Written("_call_0", "sum", "`n`")),
        ("avg(N)", Written("_call_0", "avg", "`n`")),
        ("mean(n)", Written("_call_0", "avg", "`n`")),
        ("min(s.a)", Written("_call_0", "min", "`s`.`a`")),
        ("max(`id`)", Written("_call_0", "max", "`id`")),
        ("stddev(n)", Written("_call_0", "stddev", "`n`")),
        ("stddev_samp(n)", Written("_call_0", "stddev", "`n`")),
        ("approx_count_distinct(id)", Written("_call_0", "approx_count_distinct", "`id`")),
        ("percentile(n, 0.25)", Written("_call_0", "percentile", "`n`", 0.25)),
        ("count(*) FILTER (WHERE ok)", Written("_call_0", "count", None, None, "`ok`")),
        ("sum(n) FILTER (WHERE id = 'a)')", Written("_call_0", "sum", "`n`", None, "(`id` = 'a)')")),
    ],
)
def test_aggregates_are_those_the_kernel_has(call: str, expected: Written) -> None:
    (found,) = taken(f"SELECT {call} AS value FROM views GROUP BY {{W}}").calls
    assert found.written == expected


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT window, id, count(*) FROM views GROUP BY {W}, id", ("`_window`", "`_key_0`", "`_call_0`")),
        ("SELECT WINDOW.START, Id FROM VIEWS GROUP BY ID, WINDOW(TS, '1 minute')", ("`_window`.`start`", "`_key_0`")),
        ("SELECT {W} AS w, w.end AS e FROM views GROUP BY w", ("`_window`", "`_window`.`end`")),
        ("SELECT {W} AS window, window.end AS e FROM views GROUP BY window", ("`_window`", "`_window`.`end`")),
        ("SELECT {W}.start AS s, id FROM views GROUP BY {W}, 2", ("`_window`.`start`", "`_key_0`")),
        ("SELECT id, {W}, max(n) FROM views GROUP BY 1, 2", ("`_key_0`", "`_window`", "`_call_0`")),
        ("SELECT id, {W}, max(n) FROM views GROUP BY ALL", ("`_key_0`", "`_window`", "`_call_0`")),
        ("SELECT (id) FROM views GROUP BY ({W}), (id)", ("`_key_0`",)),
        ("SELECT s.a AS p, s.b FROM views GROUP BY {W}, views.s.a, s.B", ("`_key_0`", "`_key_1`")),
        ("SELECT n + 1 AS m, m * 2 AS k FROM views GROUP BY {W}, n + 1", ("`_key_0`", "(`_key_0` * 2)")),
        ("SELECT n + n * 2 AS m FROM views GROUP BY {W}, n", ("(`_key_0` + (`_key_0` * 2))",)),
        ("SELECT n + count(*) AS m, 'x' AS tag FROM views GROUP BY {W}, n", ("(`_key_0` + `_call_0`)", "'x'")),
        ("SELECT sum(n) / count(n) AS mean FROM views GROUP BY {W}", ("(`_call_0` / `_call_1`)",)),
        ("SELECT sum(n) AS a, sum(views.n) AS b FROM views GROUP BY {W}", ("`_call_0`", "`_call_0`")),
        (
            "SELECT CASE WHEN id IN ('a', 'b') THEN count(*) ELSE 0 END FROM views GROUP BY {W}, id",
            ("CASE WHEN (`_key_0` IN ('a', 'b')) THEN `_call_0` ELSE 0 END",),
        ),
        (
            "SELECT date_format(window.start, 'HH:mm') AS at -- window(\n FROM views /* window */ GROUP BY {W}",
            ("date_format(`_window`.`start`, 'HH:mm')",),
        ),
    ],
)
def test_columns_are_said_over_the_result(query: str, columns: tuple[str, ...]) -> None:
    assert taken(query).columns == columns


@pytest.mark.parametrize(
    ("query", "having"),
    [
        ("SELECT sum(n) AS n FROM views GROUP BY {W} HAVING n > 3", "(`_call_0` > 3)"),
        ("SELECT sum(n) AS n FROM views GROUP BY {W} HAVING sum(n) > 3", "(`_call_0` > 3)"),
        ("SELECT max(n) + 1 AS m FROM views GROUP BY {W} HAVING m > 3", "((`_call_0` + 1) > 3)"),
        ("SELECT id FROM views GROUP BY {W}, id HAVING max(n) = 3 OR id = ''", "((`_call_0` = 3) OR (`_key_0` = ''))"),
        ("SELECT {W} AS w FROM views GROUP BY w HAVING w.start IS NULL", "(`_window`.`start` IS NULL)"),
    ],
)  # fmt: skip
def test_conditions_on_the_result_know_aliases(query: str, having: str) -> None:
    assert taken(query).having == having


@pytest.mark.parametrize(
    ("columns", "event_time"),
    [
        ("id, window, window.end AS e", (1, 0)),
        ("window.end AS e, window AS w", (1, 0)),
        ("id, window.start AS s, window.end AS e", (2, -1)),
        ("id, {W}.end AS e", (1, -1)),
        ("window.start AS s, id", None),
        ("struct_of(window) AS w", None),
    ],
)
def test_the_window_or_its_end_is_the_event_time_of_the_result(
    columns: str, event_time: tuple[int, int] | None
) -> None:
    assert taken(f"SELECT {columns} FROM views GROUP BY {{W}}, id").event_time == event_time


def test_windows_of_windows_are_taken_over_their_time() -> None:
    columns = ("window", "id", "c")
    for time in ("window", "window_time(window)"):
        query = f"SELECT window({time}, '1 hour') AS w, sum(c) AS c FROM hours GROUP BY w"
        found = understand(query, "hours", columns, "window", struct=True)
        assert found is not None
        assert (found.size, found.columns) == (3600 * SECOND, ("`_window`", "`_call_0`"))
    # There `window` is a column of the input, and not one to group by.
    query = "SELECT window.start, sum(c) AS c FROM hours GROUP BY window(window, '1 hour')"
    assert understand(query, "hours", columns, "window", struct=True) is None
    assert understand("SELECT 1 AS c FROM v GROUP BY window(window_time(t), '1 hour')", "v", ["t"], "t") is None


@pytest.mark.parametrize(
    "query",
    [
        # not this shape of query
        "SELECT id, count(*) AS c FROM views GROUP BY id",
        "SELECT id FROM views WHERE id = 'window'",
        "SELECT window, count(*) AS c FROM views GROUP BY {W} ORDER BY c",
        "SELECT window, count(*) AS c FROM views GROUP BY {W} LIMIT 3",
        "SELECT DISTINCT window FROM views GROUP BY {W}",
        "SELECT window.end FROM views GROUP BY {W} UNION ALL SELECT ts FROM views",
        "WITH a AS (SELECT * FROM views) SELECT window FROM a GROUP BY {W}",
        "SELECT e FROM (SELECT window.end AS e FROM views GROUP BY {W})",
        "SELECT window FROM (SELECT * FROM views) AS views GROUP BY {W}",
        "SELECT window FROM views WHERE id IN (SELECT id FROM views) GROUP BY {W}",
        "SELECT window FROM views JOIN clicks USING (id) GROUP BY {W}",
        "SELECT window FROM views, clicks GROUP BY {W}",
        "SELECT window FROM clicks GROUP BY {W}",
        "SELECT window FROM db.views GROUP BY {W}",
        "SELECT window FROM views AS v(ts, id) GROUP BY {W}",
        "SELECT window FROM views TABLESAMPLE (10 PERCENT) GROUP BY {W}",
        "SELECT window FROM views FOR VERSION AS OF 3 GROUP BY {W}",
        "SELECT window FROM views LATERAL VIEW explode(xs) AS x GROUP BY {W}",
        "SELECT /*+ COALESCE(3) */ window FROM views GROUP BY {W}",
        "SELECT max(n) OVER (PARTITION BY id) FROM views GROUP BY {W}, id, n",
        "SELECT max(n) OVER w FROM views GROUP BY {W}, n WINDOW w AS (PARTITION BY n)",
        "SELECT * FROM views GROUP BY {W}",
        "SELECT window FROM views GROUP BY {W}; DROP TABLE views",
        "DROP TABLE window",
        "SELECT window FROM",
        # not this kind of grouping
        "SELECT window FROM views GROUP BY session_window(ts, '1 minute')",
        "SELECT window FROM views GROUP BY {W}, window(ts, '1 hour')",
        "SELECT window FROM views GROUP BY window(other, '1 minute')",
        "SELECT window FROM views GROUP BY window(ts + INTERVAL 1 DAY, '1 minute')",
        "SELECT window FROM views GROUP BY window(ts, '1 minute', '1 minute', '5 seconds')",
        "SELECT window FROM views GROUP BY window(ts, '1 month')",
        "SELECT window FROM views GROUP BY window(ts, '1 minute', '2 minutes')",
        "SELECT window FROM views GROUP BY window(ts, 60000000)",
        "SELECT window FROM views GROUP BY window(ts, INTERVAL '1' MINUTE)",
        "SELECT window FROM views GROUP BY window(ts)",
        "SELECT {W}.start AS s FROM views GROUP BY 1",
        "SELECT window FROM views GROUP BY window",
        "SELECT window FROM views GROUP BY {W}, 7",
        "SELECT window FROM views GROUP BY {W}, 'x'",
        "SELECT window FROM views GROUP BY {W}, ROLLUP(id)",
        "SELECT window FROM views GROUP BY {W}, id WITH CUBE",
        "SELECT window FROM views GROUP BY {W}, GROUPING SETS ((id), ())",
        "SELECT window FROM views GROUP BY {W}, (id, n)",
        "SELECT window FROM views GROUP BY {W}, window.start",
        "SELECT id AS a, n AS a FROM views GROUP BY {W}, a",
        # not these aggregates
        "SELECT sum(DISTINCT n) FROM views GROUP BY {W}",
        "SELECT count(n, id) FROM views GROUP BY {W}",
        "SELECT count(DISTINCT n, id) FROM views GROUP BY {W}",
        "SELECT count(views.*) FROM views GROUP BY {W}",
        "SELECT approx_count_distinct(n, 0.01) FROM views GROUP BY {W}",
        "SELECT percentile(n, 0.5, 2) FROM views GROUP BY {W}",
        "SELECT percentile(n, array(0.5)) FROM views GROUP BY {W}",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FROM views GROUP BY {W}",
        "SELECT first(n) FROM views GROUP BY {W}",
        "SELECT collect_list(n) FILTER (WHERE ok) FROM views GROUP BY {W}",
        "SELECT max(window.end) FROM views GROUP BY {W}",
        "SELECT max({W}.end) FROM views GROUP BY {W}",
        "SELECT n + 1 AS m, sum(m) FROM views GROUP BY {W}, n",
        # not these columns
        "SELECT n FROM views GROUP BY {W}, id",
        "SELECT nope FROM views GROUP BY {W}",
        "SELECT window.length FROM views GROUP BY {W}",
        "SELECT views.window FROM views GROUP BY {W}",
        "SELECT window_time(window) FROM views GROUP BY {W}",
        "SELECT window(ts, '1 hour') FROM views GROUP BY {W}",
        "SELECT c * 2 AS d, count(*) AS c FROM views GROUP BY {W}",
        "SELECT count(*) AS c, sum(n) AS c FROM views GROUP BY {W} HAVING c > 2",
        "SELECT to_json(struct(id)) FROM views GROUP BY {W}, id",
        "SELECT transform(array(id), id -> upper(id)) FROM views GROUP BY {W}, id",
        "SELECT window FROM views WHERE window.start > '2024-01-01' GROUP BY {W}",
        "SELECT window FROM views WHERE id = :name GROUP BY {W}",
    ],
)  # fmt: skip
def test_whatever_is_not_clear_is_left_to_spark(query: str) -> None:
    assert understood(query) is None


# --- with Spark --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def views() -> DataFrame:
    from penstock.testing import shared_session

    rows = shared_session().readStream.format("rate").name("views").load()
    return rows.selectExpr(
        "timestamp AS ts", "cast(value AS string) AS id", "'k' AS kind", "cast(value AS int) AS n",
        "cast(value AS double) AS x", "cast(value AS decimal(10, 2)) AS d", "struct(1 AS a, 'b' AS b) AS s",
        "array(1, 2) AS xs", "value > 3 AS ok", "DATE'2024-01-01' AS day", "timestamp AS other",
    ).withWatermark("ts", "10 seconds")  # fmt: skip


def carried(views: DataFrame, query: str, late: LatePolicy | None = None) -> Carried | None:
    context = StepContext(views.sparkSession, "s", Path(), "ts", late or LatePolicy(), {"views": "ts"})
    return Sql(query=query.replace("{W}", W)).carried({"views": views}, context)


def native(views: DataFrame, query: str) -> DataFrame:
    context = StepContext(views.sparkSession, "s", Path(), "ts", LatePolicy(), {"views": "ts"})
    return Sql(query=query.replace("{W}", W)).apply({"views": views}, context)


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "SELECT window, v.id, count(*) AS c FROM views v GROUP BY {W}, v.id HAVING c > 2",
        "SELECT {W} AS w, w.start, count(*) AS c, c * 2 AS cc, w.end AS e FROM views GROUP BY w",
        "SELECT {W}, id, s.b, views.s.a AS sa, mean(n), std(n), percentile(n, 0.5) FROM views GROUP BY ALL",
        "SELECT id, sum(n) AS n FROM views GROUP BY {W}, id HAVING n > 3 AND sum(n) < 9 AND window.start > '2020'",
        "SELECT window.end, sum(d), min(d), max(day), min(ok), stddev(d), avg(x), count(1) FROM views GROUP BY {W}",
        "SELECT upper(id) AS who, x, n % 3 = 1 AS odd FROM views GROUP BY {W}, upper(id), x, n % 3 = 1",
        "SELECT window.end AS e, count(*) FILTER (WHERE NOT ok) AS c FROM views"
        " WHERE n BETWEEN 1 AND 3 AND id NOT IN ('a') OR id IS NOT NULL AND kind NOT LIKE 'x%' GROUP BY {W}",
        "SELECT window.end AS e, count(*) AS c FROM views"
        " WHERE ts > TIMESTAMP'2024-01-01 00:00:00' AND ts + INTERVAL 1 DAY > '2024-01-01' AND n <> 2L GROUP BY {W}",
        "SELECT date_trunc('hour', window.start) AS h, round(avg(n), 2) AS r, if(id = 'a', 1, 0) AS a, id || '-' AS i"
        " FROM views WHERE ts > now() - INTERVAL 1 DAY GROUP BY {W}, id",
        "SELECT window.end AS e, sum(CASE WHEN ok THEN n::bigint ELSE -n END) AS t, max(length(trim(id))) AS l,"
        " count(DISTINCT split(id, '-')[0]) AS p FROM views GROUP BY window(ts, '1 minute', '25 seconds')",
    ],
)  # fmt: skip
def test_spark_agrees_with_what_was_understood(views: DataFrame, query: str) -> None:
    """The result has the columns, types and notes that Spark gives; what is noted of event time is the engine's."""
    found = carried(views, query)
    assert found is not None
    empty = views.sparkSession.range(0).selectExpr(*_nothing(found))
    wanted = native(views, query)
    given = found.finish(empty)
    shown = [(item.name, item.dataType.simpleString()) for item in given.schema]
    assert shown == [(item.name, item.dataType.simpleString()) for item in wanted.schema]
    assert event_time_of(given) is None
    windows = ["spark.timeWindow" in (item.metadata or {}) for item in given.schema]
    assert windows == ["spark.timeWindow" in (item.metadata or {}) for item in wanted.schema]


def _nothing(found: Carried) -> list[str]:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(found.kernel.output, prefer_timestamp_ntz=True)
    return [f"CAST(NULL AS {item.dataType.simpleString()}) AS `{item.name}`" for item in schema]


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "SELECT window.end AS e, avg(d) AS a FROM views GROUP BY {W}",
        "SELECT window.end AS e, count(s) AS c FROM views GROUP BY {W}",
        "SELECT window.end AS e, s FROM views GROUP BY {W}, s",
        "SELECT window.end AS e, first(id) AS f FROM views GROUP BY {W}, id",
        "SELECT window.end AS e, collect_list(n) AS f FROM views GROUP BY {W}",
        "SELECT window.end AS e, explode(array(id)) AS f FROM views GROUP BY {W}, id",
        "SELECT window.end AS e, rand() AS r FROM views GROUP BY {W}",
        "SELECT window.end AS e FROM views WHERE rand() > 0.5 GROUP BY {W}",
        "SELECT window.end AS e, n | 2 & n AS b FROM views GROUP BY {W}, n, n | 2",
        "SELECT upper(id) AS id FROM views GROUP BY {W}, id HAVING id > 'a'",
        "SELECT window.end AS e, min(id COLLATE UTF8_LCASE) AS m FROM views GROUP BY {W}",
        "SELECT count(*) AS c, count(*) AS C FROM views GROUP BY {W}",
    ],
)
def test_what_a_kernel_would_compute_otherwise_runs_on_spark(views: DataFrame, query: str) -> None:
    assert carried(views, query) is None
    assert native(views, query).isStreaming


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "SELECT window.end AS e, nope FROM views GROUP BY {W}",
        "SELECT window.end AS e, n FROM views GROUP BY {W}",
        "SELECT window.end AS e, sum(sum(n)) AS s FROM views GROUP BY {W}",
        "SELECT window.end AS e, sum(s) AS s FROM views GROUP BY {W}",
        "SELECT window.end AS e FROM views GROUP BY {W} HAVING nope > 3",
        "SELECT window.end AS e FROM views GROUP BY window(ts, '1 month')",
    ],
)
def test_a_wrong_query_is_left_to_spark_to_refuse(views: DataFrame, query: str) -> None:
    from pyspark.errors import PySparkException

    assert carried(views, query) is None
    with pytest.raises(PySparkException):
        native(views, query)


@pytest.mark.spark
def test_late_rows_are_treated_as_by_a_window_step(views: DataFrame) -> None:
    from penstock.kernels.window import Window

    query = "SELECT window, id, count(*) AS c FROM views GROUP BY {W}, id"
    hour = Duration(3_600_000)
    found = {
        policy: carried(views, query, LatePolicy(policy=policy, allowed=hour)) for policy in ("drop", "side", "correct")
    }
    kernels = {}
    for policy, step in found.items():
        assert step is not None
        assert isinstance(step.kernel, Window)
        assert (step.event_time, step.shift, step.keys) == ("window", 0, ("id", "window"))
        kernels[policy] = (step.kernel.allowed, step.changes)
    assert kernels == {"drop": (0, False), "side": (0, False), "correct": (3600 * SECOND, True)}


@pytest.mark.spark
def test_only_windows_of_event_time_itself_are_taken(views: DataFrame, spark: SparkSession) -> None:
    query = Sql(query=f"SELECT window, count(*) AS c FROM views GROUP BY {W}")
    untimed = StepContext(spark, "s", Path())
    assert query.carried({"views": views}, untimed) is None
    ends = views.withMetadata("ts", {**views.schema["ts"].metadata, "penstock.shiftMicros": -1})
    timed = StepContext(spark, "s", Path(), "ts", times={"views": "ts"})
    assert query.carried({"views": ends}, timed) is None
    assert query.carried({"views": views, "more": views}, timed) is None
    assert query.carried({"views": views}, timed) is not None
