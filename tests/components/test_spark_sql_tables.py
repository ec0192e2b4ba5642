"""Every function, plan and expression of this Spark is allowed or refused: a new Spark brings none along unseen."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.components.shared.spark_sql import expressions, functions, plans
from penstock.components.shared.spark_sql.trees import PACKAGE

pytestmark = pytest.mark.spark
_JARS = Path(pyspark.__file__).parent / "jars"
_ANONYMOUS = re.compile(r"\$(\d|anon)")


@cache
def classes(kind: str) -> frozenset[str]:
    """The classes of Spark that are this kind of thing and can be made."""
    from penstock.testing import shared_session

    jvm: Any = shared_session()._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    by_name = jvm.java.lang.Class.forName
    base, abstract = by_name(f"{PACKAGE}catalyst.{kind}"), jvm.java.lang.reflect.Modifier.isAbstract
    found = (by_name(f"{PACKAGE}{name}", False, loader) for name in _named())
    return frozenset(
        str(item.getName()).removeprefix(PACKAGE)
        for item in found
        if base.isAssignableFrom(item) and not abstract(item.getModifiers())
    )


def _named() -> Iterator[str]:
    for jar in _JARS.glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as content:
            for entry in content.namelist():
                name = entry.removesuffix(".class").replace("/", ".")
                if entry.endswith(".class") and name.startswith(PACKAGE) and not _ANONYMOUS.search(name):
                    yield name.removeprefix(PACKAGE)


def _names(registry: Any) -> set[str]:
    found = registry.listFunction()
    return {str(found.apply(index).funcName()) for index in range(found.size())}


@pytest.mark.parametrize(
    ("kind", "table"), [("plans.logical.LogicalPlan", plans), ("expressions.Expression", expressions)]
)
def test_every_class_is_allowed_or_refused(kind: str, table: Any, spark: SparkSession) -> None:
    found = classes(kind)
    assert len(found) > 300
    assert found - table.ALLOWED - set(table.REFUSED) == set()
    assert (table.ALLOWED | set(table.REFUSED)) - found == set()
    assert table.ALLOWED & set(table.REFUSED) == set()


def test_every_function_is_allowed_or_refused(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    found = _names(analysis.FunctionRegistry.builtin()) | _names(analysis.TableFunctionRegistry.builtin())
    assert len(found) > 500
    shown = {row[0].rpartition(".")[2] or row[0] for row in spark.sql("SHOW ALL FUNCTIONS").collect()}
    syntax = {"!=", "<>", "between", "case", "||"}
    assert (found | shown) - functions.ALLOWED - set(functions.REFUSED) == set()
    assert (functions.ALLOWED | set(functions.REFUSED)) - found - syntax <= shown
    assert functions.ALLOWED & set(functions.REFUSED) == set()


def test_a_function_that_is_refused_is_refused_as_an_expression_too(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    found = registry.listFunction()
    kinds: dict[str, str] = {}
    for index in range(found.size()):
        name = found.apply(index)
        kinds[str(name.funcName())] = str(registry.lookupFunction(name).get().getClassName()).removeprefix(PACKAGE)
    refused = {kinds[name] for name in functions.REFUSED if name in kinds} & classes("expressions.Expression")
    assert len(refused) > 20
    assert refused & expressions.ALLOWED == set()
    allowed = {kinds[name] for name in functions.ALLOWED if name in kinds} & classes("expressions.Expression")
    assert allowed - expressions.ALLOWED == set()
