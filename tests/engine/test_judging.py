"""What steps may add to a plan: SQL of Penstock's own nothing but SQL, other packages' code, Python steps anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from pyspark.sql import SparkSession

from penstock.components.base import Step, StepContext
from penstock.components.shared.spark_sql import SqlRefused, expression, queried
from penstock.components.steps.filter import Filter
from penstock.components.steps.python import Python
from penstock.engine.judging import judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark
JAVA = "reflect('java.lang.System', 'getProperty', 'user.dir')"


class Foreign(Step):
    """A step of another package."""

    name: ClassVar[str] = "foreign"
    example: ClassVar[str] = ""

    def apply(self, inputs: Mapping[str, DataFrame], context: StepContext) -> DataFrame:
        raise NotImplementedError


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(1).selectExpr("id AS n", "'a' AS s")


def test_java_is_called_by_python_steps_alone(rows: DataFrame) -> None:
    calling = rows.selectExpr(JAVA)
    for step in (Filter(where="true"), Foreign()):
        with pytest.raises(SqlRefused) as refused:
            judged(step, calling, {"rows": rows})
        assert refused.value.code == "SQL_NOT_ALLOWED"
    assert judged(Python(function="a:b"), calling, {"rows": rows}) is calling


def test_steps_of_other_packages_may_run_python(rows: DataFrame) -> None:
    computed = rows.mapInArrow(lambda batches: batches, rows.schema)
    assert judged(Foreign(), computed, {"rows": rows}) is computed
    with pytest.raises(SqlRefused):
        judged(Filter(where="true"), computed, {"rows": rows})


def test_what_lies_below_a_step_is_not_its_own(rows: DataFrame) -> None:
    code = rows.mapInArrow(lambda batches: batches, rows.schema).selectExpr("*", f"{JAVA} AS place")
    kept = code.where("n = 0")
    assert judged(Filter(where="n = 0"), kept, {"code": code}) is kept
    query = "SELECT n FROM code WHERE n IN (SELECT n FROM code) AND s = (SELECT max(s) FROM code)"
    assert judged(Filter(where="n = 0"), queried(query, {"code": code}), {"code": code}).columns == ["n"]


@pytest.mark.parametrize(
    "text",
    [
        "_metadata", "_metadata.file_path", "_METADATA.file_name = 'a'", "`_metadata`.file_size",
        "upper(_metadata.file_path)",
        "struct(_metadata.*)", "EXISTS (SELECT 1 WHERE _metadata.file_size > 0)", "max(_metadata.file_path) OVER ()",
        "transform(array(1), x -> _metadata.file_path)", "CASE WHEN n = 1 THEN _metadata.file_name END",
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", ["nothing", "columns", "rows"])
def test_where_a_source_keeps_its_files_is_not_told(text: str, after: str, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n', "utf-8")
    rows = spark.read.schema("n int").json(str(tmp_path))
    rows = {"nothing": rows, "columns": rows.withColumn("more", rows.n + 1), "rows": rows.where(rows.n > 0)}[after]
    with pytest.raises(SqlRefused) as refused:
        judged(Filter(where="true"), rows.select(expression(text)), {"rows": rows})
    assert refused.value.code == "SQL_NOT_ALLOWED"
    assert "_metadata" in refused.value.problems[0].message
    assert str(tmp_path) not in refused.value.problems[0].message


def test_a_column_of_the_rows_may_be_called_like_a_hidden_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"_metadata": 1}\n', "utf-8")
    rows = spark.read.schema("_metadata int").json(str(tmp_path))
    read = judged(Filter(where="true"), rows.select(expression("_metadata + 1 AS x")), {"rows": rows})
    assert [row.x for row in read.collect()] == [2]
