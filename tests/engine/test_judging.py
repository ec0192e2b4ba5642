"""What steps may add to a plan: SQL of Penstock's own nothing but SQL, other packages' code, Python steps anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import pytest
from pyspark.sql import SparkSession

from penstock.components.base import Step, StepContext
from penstock.components.shared.spark_sql import SqlRefused, queried
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
