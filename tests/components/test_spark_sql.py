"""SQL that does more than compute is refused however it is written, before Spark has looked anything up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.components.shared.spark_sql import By, SqlRefused, expression, judge_frame, queried
from penstock.components.shared.spark_sql.functions import ALLOWED, REFUSED

PROPERTY = "'java.lang.System', 'getProperty', 'user.dir'"
SPELLINGS = [
    "reflect({0})",
    "Reflect ({0})",
    "REFLECT\n({0})",
    "`reflect`({0})",
    "`ReFlect` /* ( */ ({0})",
    "reflect -- (\n({0})",
    "/* a */ reflect/* b *//**/({0})",
    "builtin.reflect({0})",
    "system.builtin.reflect({0})",
    "`system` . BUILTIN . `reflect`({0})",
    "spark_catalog.default.reflect({0})",
    "java_method({0})",
    "try_reflect({0})",
    "IDENTIFIER('reflect')({0})",
    "IDENTIFIER('ref' || 'lect')({0})",
    "IDENTIFIER('ref' 'lect')({0})",
    "identifier/**/(concat('java', '_', 'method'))({0})",
    "IDENTIFIER('\\u0072eflect')({0})",
    "IDENTIFIER('\\162eflect')({0})",
    "IDENTIFIER(r'reflect')({0})",
    "IDENTIFIER(lower('REFLECT'))({0})",
    "IDENTIFIER(reverse('tcelfer'))({0})",
    "IDENTIFIER('system.builtin.reflect')({0})",
    "upper(reflect({0}))",
    "(((reflect({0}))))",
    "CAST(reflect({0}) AS string)",
    "reflect({0})::string",
    "CASE WHEN true THEN reflect({0}) END",
    "if(true, reflect({0}), '')",
    "coalesce(null, array(reflect({0}))[0])",
    "element_at(transform(array(1), x -> reflect({0})), 1)",
    "aggregate(array(1), '', (done, x) -> reflect({0}))",
    "named_struct('a', reflect({0})).a",
    "(SELECT reflect({0}))",
    "(SELECT max(reflect({0})) FROM v WHERE n IN (SELECT 1))",
    "(WITH x AS (SELECT reflect({0}) AS y) SELECT y FROM x)",
    "reflect({0}) COLLATE UTF8_LCASE",
]
EVIL = [form.format(PROPERTY) for form in SPELLINGS]
AROUND = [
    "SELECT {0} AS x FROM v",
    "SELECT n FROM v WHERE {0} = 'a'",
    "SELECT n, count(*) AS c FROM v GROUP BY n, {0}",
    "SELECT n, count(*) AS c FROM v GROUP BY n HAVING max({0}) = 'a'",
    "SELECT n FROM v ORDER BY {0}",
    "SELECT n FROM v LIMIT length({0})",
    "SELECT a.n FROM v a JOIN v b ON a.n = b.n AND {0} = 'a'",
    "SELECT count(*) FILTER (WHERE {0} = 'a') AS c FROM v",
    "SELECT sum(n) OVER (PARTITION BY {0}) AS c FROM v",
    "SELECT sum(n) OVER w AS c FROM v WINDOW w AS (ORDER BY {0})",
    "SELECT n FROM v QUALIFY row_number() OVER (ORDER BY {0}) = 1",
    "WITH a AS (SELECT {0} AS x FROM v) SELECT x FROM a",
    "WITH a AS (WITH b AS (SELECT {0} AS x) SELECT x FROM b) SELECT x FROM a",
    "SELECT n FROM v WHERE n IN (SELECT {0})",
    "SELECT n FROM v WHERE EXISTS (SELECT 1 FROM v z WHERE {0} = z.s)",
    "SELECT n FROM v UNION ALL SELECT {0}",
    "SELECT n FROM v EXCEPT SELECT {0}",
    "SELECT x FROM (SELECT {0} AS x FROM v)",
    "SELECT x FROM VALUES ({0}) AS t(x)",
    "SELECT col FROM explode(array({0}))",
    "SELECT c FROM v LATERAL VIEW explode(array({0})) t AS c",
    "SELECT x FROM v, LATERAL (SELECT {0} AS x)",
    "SELECT explode(array({0})) FROM v",
    "SELECT * FROM v PIVOT (max({0}) FOR n IN (1))",
    "SELECT * REPLACE ({0} AS n) FROM v",
    "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY {0}) FROM v",
    "SELECT /*+ REPARTITION(3, {0}) */ n FROM v",
    "FROM v |> WHERE {0} = 'a' |> SELECT n",
    "FROM v |> EXTEND {0} AS x",
    "FROM v |> SET s = {0}",
    "FROM v |> AGGREGATE max({0}) AS x GROUP BY n",
    "FROM v |> ORDER BY {0} |> LIMIT 1",
    "FROM v |> PIVOT (max({0}) FOR n IN (1))",
    "FROM v |> JOIN LATERAL (SELECT {0} AS x)",
    "FROM v |> WHERE n IN (FROM v |> SELECT {0})",
    "SELECT array_sort(array('a', 'b'), (x, y) -> CAST({0} AS int)) FROM v",
    "SELECT map_filter(map('a', 'b'), (x, y) -> {0} = y) FROM v",
    "SELECT * FROM stack(1, {0})",
    "SELECT * FROM v, LATERAL explode(array({0}))",
    "SELECT n FROM v SORT BY {0}",
    "SELECT n FROM v CLUSTER BY {0}",
    "SELECT n FROM v GROUP BY CUBE (n, {0})",
    "SELECT try_to_number({0}, '9') FROM v",
    "SELECT try_element_at(array({0}), 1) FROM v",
    "SELECT mask(s, upperChar => {0}) FROM v",
    "SELECT window FROM v GROUP BY window(ts, {0})",
    "SELECT n FROM v GROUP BY GROUPING SETS ((n), ({0}))",
    "SELECT * FROM v DISTRIBUTE BY {0}",
]
WHOLE = [
    "SELECT TRANSFORM(n) USING 'id' AS (a string) FROM v",
    "select transform ( n ) using 'id' FROM v",
    "SELECT/**/TRANSFORM/**/(n)\nUSING 'id' FROM v",
    "SELECT TRANSFORM(*) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'id' AS (a) FROM v",
    "FROM v MAP n USING 'id' AS a",
    "FROM v REDUCE n USING 'id' AS a",
    "SELECT * FROM (SELECT TRANSFORM(n) USING 'id' AS (a string) FROM v)",
    "WITH a AS (SELECT TRANSFORM(n) USING 'id' AS (a string) FROM v) SELECT * FROM a",
    "SELECT n FROM v WHERE s IN (SELECT TRANSFORM(n) USING 'id' AS (a string) FROM v)",
    "SELECT n FROM v UNION ALL SELECT TRANSFORM(n) USING 'id' AS (a int) FROM v",
    "SELECT * FROM text.`/etc/hostname`",
    "SELECT * FROM `text`.`file:///etc/hostname`",
    "SELECT * FROM parquet.`s3a://bucket/key`",
    "SELECT * FROM csv.`http://127.0.0.1:1/`",
    "SELECT n FROM v WHERE s IN (SELECT value FROM text.`/etc/hostname`)",
    "SELECT * FROM v JOIN json.`/etc/hostname`",
    "TABLE text.`/etc/hostname`",
    "FROM v |> UNION ALL TABLE text.`/etc/hostname`",
    "FROM v |> JOIN text.`/etc/hostname` ON true",
    "FROM v |> WHERE s IN (TABLE text.`/etc/hostname`)",
    "SELECT (TABLE text.`/etc/hostname`)",
    "VALUES ((SELECT max(value) FROM text.`/etc/hostname`))",
    "SELECT exists(array('a'), x -> x IN (SELECT value FROM text.`/etc/hostname`))",
    "WITH v AS (TABLE text.`/etc/hostname`) SELECT * FROM v",
    "WITH a(x) AS (TABLE text.`/etc/hostname`) SELECT x FROM a",
    "SELECT * FROM v JOIN LATERAL (SELECT * FROM text.`/etc/hostname`)",
    "SELECT * FROM text.`/etc/hostname` TABLESAMPLE (1 ROWS)",
    "SELECT * FROM range(TABLE(SELECT 1))",
    "SELECT * FROM json_table('[1]', '$[*]' COLUMNS (x INT PATH '$'))",
    "SELECT * FROM spark_catalog.default.v",
    "SELECT * FROM default.v",
    "SELECT * FROM global_temp.v",
    "SELECT * FROM IDENTIFIER('v' || '')",
    "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')",
    "SELECT IDENTIFIER('n' || '') FROM v",
    "SELECT * FROM v VERSION AS OF 1",
    "SELECT * FROM v TIMESTAMP AS OF '2026-01-01'",
    "SELECT * FROM STREAM v",
    "SELECT * FROM STREAM(v)",
    "SELECT * FROM v WATERMARK ts DELAY OF INTERVAL 1 MINUTE",
    "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT x FROM r",
    "SELECT :name FROM v",
    "SELECT ? FROM v",
    "SELECT IDENTIFIER(:name) FROM v",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM collations()",
    "SELECT * FROM sql_keywords()",
    "SELECT measure(n) FROM v",
    "SELECT * FROM statestore.`/tmp/state`",
    "SELECT * FROM binaryFile.`/etc/hostname`",
    "SELECT * FROM BinaryFile.`/etc/./hostname`",
    "SELECT * FROM xml.`/etc/hostname`",
    "SELECT * FROM socket.`127.0.0.1:1`",
    "FROM text.`/etc/hostname` |> SELECT value",
    "FROM v |> JOIN LATERAL (TABLE text.`/etc/hostname`)",
    "FROM v |> EXCEPT ALL (FROM text.`/etc/hostname` |> SELECT *)",
    "WITH RECURSIVE r(x) MAX RECURSION LEVEL 5 AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r",
    "SELECT from_json(s, 'a STRING DEFAULT \"x\"') FROM v",
    "SELECT session_user() FROM v",
    "SELECT current_user",
    "SELECT current_user() FROM v",
    "SELECT session_user, n FROM v",
    "SELECT current_catalog() FROM v",
    "SELECT version() FROM v",
    "SELECT input_file_name() FROM v",
    "SELECT xpath_string(s, '/a') FROM v",
    "SELECT xpath('<!DOCTYPE a SYSTEM \"http://127.0.0.1:1/dtd\"><a/>', '/a') FROM v",
    "SELECT from_avro(s, '{}', map('avroSchemaUrl', 'file:///etc/hostname')) FROM v",
    "SELECT from_protobuf(s, 'M', '/etc/hostname') FROM v",
    "SELECT from_xml(s, 'a INT', map('rowValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map('ROWVALIDATIONXSDPATH', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map('mode', 'FAILFAST', 'rowValidationXsdPath', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map('row' 'ValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map('row' || 'ValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map(concat('rowValidation', 'XSDPath'), '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', map_from_arrays(array('rowValidationXSDPath'), array('/etc/hostname'))) FROM v",
    "SELECT from_xml(s, 'a INT', map_concat(map('rowValidationXSDPath', '/etc/hostname'))) FROM v",
    "SELECT from_xml(s, options => map('rowValidationXSDPath', '/etc/hostname'), schema => 'a INT') FROM v",
    "SELECT to_xml(struct(s), map('rowValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT from_xml(s, 'a INT', str_to_map('rowValidationXSDPath:/etc/hostname')) FROM v",
    "SELECT from_xml(s, schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/hostname'))) FROM v",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT builtin.from_xml(s, 'a INT', map('rowValidationXSDPath', '/etc/hostname')) FROM v",
    "SELECT `from_xml`(s, 'a INT', map('\\162owValidationXSDPath', '/etc/hostname')) FROM v",
    'SELECT from_json(s, \'{"type":"struct","fields":[]}\') FROM v',
    "SELECT from_json(s, (SELECT 'a INT')) FROM v",
    "SELECT from_json(s, map('k', s)['k']) FROM v",
    'SELECT from_json(s, \' \\u007b"type":"udt","class":"a.B"}\') FROM v',
    'SELECT from_json(s, concat(\'{"type":\', \'"struct","fields":[]}\')) FROM v',
    "SELECT from_csv(s, '{\"type\":\"struct\",\"fields\":[]}', map('sep', ';')) FROM v",
    'SELECT variant_get(parse_json(s), \'$\', \'{"type":"udt","class":"a.B"}\') FROM v',
    'SELECT c FROM v LATERAL VIEW from_json(s, \'{"type":"udt","class":"a.B"}\') t AS c',
    "SELECT * FROM from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/hostname'))",
]
COMMANDS = [
    "DROP TABLE v", "SET a = b", "SET", "RESET", "ADD JAR '/tmp/a.jar'", "CREATE TABLE t AS SELECT 1",
    "CREATE TEMPORARY FUNCTION f AS 'a.B'", "CREATE TEMPORARY VIEW w AS SELECT 1", "INSERT INTO v SELECT 1",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1", "FROM v INSERT INTO a SELECT n INSERT INTO b SELECT n",
    "WITH a AS (INSERT INTO v SELECT 1) SELECT 1", "EXECUTE IMMEDIATE 'SELECT 1'", "CALL a.b()",
    "DECLARE VARIABLE x INT", "SET VARIABLE x = 1", "BEGIN SELECT 1; END", "CACHE TABLE v", "EXPLAIN SELECT 1",
    "DESCRIBE v", "SHOW TABLES", "SHOW FUNCTIONS", "USE default", "REFRESH TABLE v", "SELECT 1; DROP TABLE v",
    "LOAD DATA INPATH '/a' INTO TABLE v", "LIST JARS", "TRUNCATE TABLE v", "ANALYZE TABLE v COMPUTE STATISTICS",
    "COMMENT ON TABLE v IS 'a'", "FROM v |> INSERT INTO w", "FROM v |> CALL a.b()",
    "CREATE FUNCTION f() RETURNS INT RETURN 1",
    "CREATE TEMPORARY FUNCTION f(x INT) RETURNS TABLE (y INT) RETURN SELECT x", "DECLARE OR REPLACE x INT DEFAULT 1",
    "EXECUTE IMMEDIATE 'SELECT 1' INTO x USING 1", "BEGIN ATOMIC SELECT 1; END", "OPEN c", "FETCH c INTO x",
    "CREATE STREAMING TABLE t AS SELECT 1", "CREATE FLOW f AS INSERT INTO t SELECT 1", "MERGE INTO v USING v ON true",
    "SELECT 1 INTO x", "COPY INTO v FROM '/etc/hostname'", "KILL QUERY 'a'", "ADD FILE '/etc/hostname'",
]  # fmt: skip


@pytest.fixture
def inputs(spark: SparkSession) -> dict[str, Any]:
    return {"v": spark.range(1).selectExpr("id AS n", "'a' AS s", "timestamp_micros(0) AS ts")}


def refusal(text: str, inputs: Any) -> str:
    with pytest.raises(SqlRefused) as refused:
        queried(text, inputs)
    return refused.value.code


@pytest.mark.spark
class TestAttacks:
    def test_calls_into_java_are_refused_wherever_they_stand(self, inputs: dict[str, Any]) -> None:
        taken = [around.format(evil) for around in AROUND for evil in EVIL if _is_taken(around.format(evil), inputs)]
        assert len(AROUND) * len(EVIL) > 1000
        assert taken == []

    @pytest.mark.parametrize("query", WHOLE)
    def test_what_reads_or_runs_something_else_is_refused(self, query: str, inputs: dict[str, Any]) -> None:
        assert refusal(query, inputs) in ("SQL_NOT_ALLOWED", "SQL_UNKNOWN_TABLE")

    @pytest.mark.parametrize("command", COMMANDS)
    def test_commands_are_no_queries(self, command: str, inputs: dict[str, Any]) -> None:
        from pyspark.errors import ParseException

        with pytest.raises(ParseException):
            queried(command, inputs)

    @pytest.mark.parametrize("name", sorted(REFUSED))
    def test_every_refused_function_is_refused(self, name: str, inputs: dict[str, Any]) -> None:
        for call in (f"`{name}`(s)", f"{name.upper()}()", f"`{name.upper()}`(s, n)", f"system.builtin.{name}()"):
            assert refusal(f"SELECT {call} FROM v", inputs) == "SQL_NOT_ALLOWED"
            with pytest.raises(SqlRefused):
                expression(call)

    def test_expressions_are_refused_like_queries(self, spark: SparkSession) -> None:
        for evil in EVIL:
            with pytest.raises(SqlRefused):
                expression(evil)
        for text in ("n IN (SELECT value FROM text.`/etc/hostname`)", "EXISTS (SELECT * FROM others)"):
            with pytest.raises(SqlRefused):
                expression(text)

    def test_variables_of_the_process_are_not_put_into_texts(self, inputs: dict[str, Any]) -> None:
        text = "SELECT '${env:PATH} ${system:user.dir} ${spark.master} ${spark.sql.warehouse.dir}' AS x FROM v"
        assert queried(text, inputs).first() == (
            "${env:PATH} ${system:user.dir} ${spark.master} ${spark.sql.warehouse.dir}",
        )

    def test_a_very_long_or_deep_text_is_refused(self, inputs: dict[str, Any]) -> None:
        from pyspark.errors import PySparkException

        assert refusal("SELECT 1 -- " + "x" * 300_000, inputs) == "SQL_NOT_ALLOWED"
        with pytest.raises((PySparkException, SqlRefused)):
            queried("SELECT " + "(" * 3_000 + "1" + ")" * 3_000, inputs)


def _is_taken(text: str, inputs: Any) -> bool:
    """Whether a text is not refused: neither by its parts, nor as something that is no SQL at all."""
    from pyspark.errors import ParseException

    try:
        queried(text, inputs)
    except (SqlRefused, ParseException):
        return False
    return True


@pytest.mark.spark
class TestASharedSession:
    """What others have left in the session is neither read nor called."""

    def test_views_of_others_are_not_read(self, spark: SparkSession, inputs: dict[str, Any]) -> None:
        spark.sql("SELECT 'secret' AS x").createOrReplaceTempView("others")
        try:
            assert refusal("SELECT x FROM others", inputs) == "SQL_UNKNOWN_TABLE"
            scoped = "SELECT x FROM (WITH others AS (SELECT 1 AS x) SELECT x FROM others), others"
            assert refusal(scoped, inputs) == "SQL_UNKNOWN_TABLE"
            assert refusal("WITH a AS (SELECT x FROM others), others AS (SELECT 1 AS x) TABLE a", inputs) == (
                "SQL_UNKNOWN_TABLE"
            )
        finally:
            spark.catalog.dropTempView("others")

    def test_functions_of_others_are_not_called(self, spark: SparkSession, inputs: dict[str, Any]) -> None:
        spark.udf.register("upper", lambda text: f"taken {text}")
        spark.udf.register("of_others", lambda text: f"taken {text}")
        try:
            # Spark's own function comes first; one that hid it would be refused as analysed.
            assert queried("SELECT upper(s) AS x FROM v", inputs).first() == ("A",)
            assert refusal("SELECT of_others(s) FROM v", inputs) == "SQL_UNKNOWN_FUNCTION"
            with pytest.raises(SqlRefused):
                judge_frame(inputs["v"].selectExpr("of_others(s)"), [inputs["v"]], By.STEP)
        finally:
            spark.sql("DROP TEMPORARY FUNCTION upper")
            spark.sql("DROP TEMPORARY FUNCTION of_others")

    def test_variables_of_others_are_not_read(self, spark: SparkSession, inputs: dict[str, Any]) -> None:
        spark.sql("DECLARE OR REPLACE VARIABLE secret STRING DEFAULT 'secret'")
        try:
            assert refusal("SELECT secret FROM v", inputs) == "SQL_NOT_ALLOWED"
        finally:
            spark.sql("DROP TEMPORARY VARIABLE secret")


@pytest.mark.spark
class TestHonestSql:
    QUERIES = (
        "SELECT a.n FROM v a JOIN v b USING (n)",
        "SELECT * FROM v a LEFT ANTI JOIN v b ON a.n = b.n",
        "SELECT * FROM v, LATERAL (SELECT v.n + 1 AS z)",
        "SELECT c FROM v LATERAL VIEW OUTER explode(split(s, ',')) t AS c",
        "SELECT n, s, count(*) AS c FROM v GROUP BY GROUPING SETS ((n), (n, s))",
        "SELECT n, count(*) AS c FROM v GROUP BY n WITH ROLLUP",
        "SELECT n, count(*) AS c FROM v GROUP BY ALL HAVING count(*) > 0 ORDER BY 1 LIMIT 3 OFFSET 0",
        "SELECT DISTINCT n FROM v UNION ALL SELECT n FROM v EXCEPT SELECT 3",
        "SELECT CASE n WHEN 1 THEN 'x' ELSE 'y' END AS a, n BETWEEN 1 AND 2 AS b, n IN (1, 2) AS c, s LIKE 'x%' AS d, "
        "s LIKE 'a!%' ESCAPE '!' AS e, s ILIKE ANY ('x', 'y') AS f, s RLIKE 'x' AS g, n::int AS h FROM v",
        "SELECT extract(DAY FROM ts) AS a, trim(BOTH 'x' FROM s) AS b, substring(s FROM 1 FOR 2) AS c, ts + INTERVAL 1 "
        "HOUR AS d, dateadd(DAY, 1, ts) AS e, ceil(1.25, 1) AS f, timestampdiff(HOUR, ts, ts) AS g FROM v",
        "SELECT array(1, 2)[0] AS a, map('k', 1)['k'] AS b, struct(n AS x, s).x AS c, * EXCEPT (n) FROM v",
        "SELECT transform(array(1), (x, i) -> x + i) AS a, aggregate(array(1), 0, (done, x) -> done + x) AS b FROM v",
        "SELECT from_json(s, 'x INT, y ARRAY<STRING>', map('mode', 'PERMISSIVE')) AS a, to_json(struct(n)) AS b FROM v",
        "SELECT from_json(s, schema_of_json('[{\"a\": 1}]')) AS a, from_csv(s, 'x INT', map('sep', ';')) AS b FROM v",
        "SELECT from_xml(s, 'a INT', map('rowTag', 'r', 'attributePrefix', '_')) AS a, to_xml(struct(n)) AS b FROM v",
        "SELECT variant_get(parse_json('{\"a\": 1}'), '$.a', 'int') AS a FROM v",
        "SELECT sum(n) OVER (PARTITION BY s ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM v",
        "SELECT count(DISTINCT n) AS a, sum(n) FILTER (WHERE n > 1) AS b, percentile(n, 0.5) AS c, max_by(n, s) AS d, "
        "listagg(s, ',') WITHIN GROUP (ORDER BY s) AS e, first(s) IGNORE NULLS AS f FROM v",
        "SELECT window.start AS a, count(*) AS c FROM v GROUP BY window(ts, '1 minute', '30 seconds')",
        "SELECT n FROM v WHERE n IN (SELECT n FROM v) AND EXISTS (SELECT 1 FROM v x WHERE x.n = v.n)",
        "WITH a AS (SELECT 1 AS x), b(y) AS (SELECT x FROM a) SELECT * FROM b JOIN a ON a.x = b.y",
        "SELECT * FROM VALUES (1, 'a'), (2, upper('b')) AS t(x, y)",
        "FROM v |> WHERE n >= 0 |> AGGREGATE count(*) AS c GROUP BY s |> SELECT c",
        "SELECT * FROM v PIVOT (count(*) FOR s IN ('a' AS x, 'b'))",
        "SELECT * FROM (SELECT n, n + 1 AS m FROM v) UNPIVOT (x FOR y IN (n, m))",
        "SELECT /*+ BROADCAST(b) */ a.n FROM v a JOIN v b ON a.n = b.n",
        "SELECT id FROM range(3)",
        "SELECT `upper`(s) AS a, BUILTIN.Lower(s) AS b, system.builtin.length(s) AS c FROM v",
        "SELECT 'reflect(1)' AS reflect, s AS java_method, 'IDENTIFIER(1)' AS x FROM v -- TRANSFORM(a) USING 'b'",
        "SELECT max(n) AS m, m + 1 AS o, raise_error('x') AS p FROM v WHERE false",
        "SELECT mask(s, upperChar => 'X') AS a, s COLLATE UTF8_LCASE AS b, uuid() AS c, rand() AS d FROM v",
        "TABLE v",
    )  # fmt: skip

    @pytest.mark.parametrize("query", QUERIES)
    def test_it_is_taken(self, query: str, inputs: dict[str, Any]) -> None:
        assert queried(query, inputs).columns

    def test_functions_that_are_allowed_are_known_by_their_names(self, spark: SparkSession) -> None:
        operators = {name for name in ALLOWED if not name.replace("_", "a").isalnum()}
        syntax = {"case", "between", "when", "in", "like", "ilike", "rlike", "regexp", "and", "or", "not", "div"}
        for name in sorted(ALLOWED - operators - syntax - {"from_json", "from_csv", "from_xml", "if"}):
            assert expression(f"`{name}`(a)") is not None


def test_text_becomes_sql_in_one_place_only() -> None:
    root = Path(penstock.__file__).parent
    found = {
        f"{path.relative_to(root)}:{call.lineno}"
        for path in sorted(root.rglob("*.py"))
        for call in _calls(path)
        if path != root / "components/shared/spark_sql/reading.py"
        and _gives_text_to_spark(call, path.relative_to(root))
    }
    assert found == set()


_BUILDERS = ("apply", "careful", "carried")
"""Methods of steps that add to a plan."""
_BUILDS = "engine/frames.py"
_JUDGES = {"apply": "judged", "careful": "judged", "carried": "judged_kernel"}


def test_steps_are_asked_for_rows_in_one_place_only_where_these_are_judged() -> None:
    """Validating, previews, runs, replays, reprocessing and cut-overs build frames there, and so share the verdict."""
    root = Path(penstock.__file__).parent
    found = {
        (str(path.relative_to(root)), call.func.attr)
        for path in sorted(root.rglob("*.py"))
        for call in _calls(path)
        if _asks_a_step(call) and isinstance(call.func, ast.Attribute)
    }
    assert found == {(_BUILDS, name) for name in _BUILDERS}
    tree = ast.parse((root / _BUILDS).read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        judges = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
        asked = [
            _JUDGES[call.func.attr] for call in calls if _asks_a_step(call) and isinstance(call.func, ast.Attribute)
        ]
        for judge in set(asked):
            assert judges.count(judge) >= asked.count(judge), function.name


def _asks_a_step(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _BUILDERS
        and [ast.unparse(item) for item in call.args[1:]] == ["context"]
    )


def _calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))


_OWN_SQL = ("control", "kernels", "cli", "docs", "frontends", "spec", "graph", "reports")
"""Folders that hand nothing to Spark: `where` and `filter` are other things there."""


def _gives_text_to_spark(call: ast.Call, path: Path) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute | ast.Name) or path.parts[0] in _OWN_SQL:
        return False
    name = function.attr if isinstance(function, ast.Attribute) else function.id
    if name in ("expr", "selectExpr", "parseExpression", "parseQuery", "parsePlan", "createExpr", "call_function"):
        return True
    owner = function.value if isinstance(function, ast.Attribute) else None
    if name == "sql":
        return (
            ast.unparse(owner).rpartition(".")[2] in ("spark", "session", "plain", "sparkSession") if owner else False
        )
    argument = call.args[0] if call.args else None
    return (
        bool(owner)
        and name in ("where", "filter", "having")
        and isinstance(argument, ast.Constant | ast.JoinedStr | ast.Attribute)
    )
