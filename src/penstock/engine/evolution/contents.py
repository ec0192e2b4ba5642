"""What state holds, told apart from how it is laid out: rows and a checksum of each of its variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION = "partition_id"
_TIMERS = "$timers"
_JOIN = "symmetricHashJoin"
_CUSTOM = "transformWithState"


@dataclass(frozen=True, order=True)
class Variable:
    """One variable of an operator: a state of a kernel, its timers, one side of a join, or all there is."""

    operator: int
    name: str = ""


@dataclass(frozen=True)
class Content:
    rows: int
    checksum: int
    """Of all rows, in whatever order and wherever they lie."""


def contents(spark: SparkSession, checkpoint: Path, batch: int) -> dict[Variable, Content]:
    """What all operators hold after a batch."""
    return {
        variable: _content(_rows(spark, checkpoint, batch, variable, options))
        for variable, options in _variables(spark, checkpoint)
    }


def _variables(spark: SparkSession, checkpoint: Path) -> Iterator[tuple[Variable, Mapping[str, str]]]:
    found = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    operators = {row.operatorId: row for row in found}
    for number, row in sorted(operators.items()):
        if row.operatorName == _JOIN:
            yield from ((Variable(number, side), {"joinSide": side}) for side in ("left", "right"))
        elif row.operatorName.startswith(_CUSTOM):
            yield from _of_processor(number, json.loads(row.operatorProperties))
        else:
            yield Variable(number), {}


def _of_processor(number: int, properties: Mapping[str, Any]) -> Iterator[tuple[Variable, Mapping[str, str]]]:
    for variable in properties.get("stateVariables", ()):
        name = str(variable["stateName"])
        if not name.startswith("$"):
            yield Variable(number, name), {"stateVarName": name}
    if properties.get("timeMode") not in (None, "None", "NoTime", "NoTime()"):
        yield Variable(number, _TIMERS), {"readRegisteredTimers": "true"}


def _rows(
    spark: SparkSession, checkpoint: Path, batch: int, variable: Variable, options: Mapping[str, str]
) -> DataFrame:
    reader = spark.read.format("statestore").option("operatorId", variable.operator).option("batchId", batch)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(checkpoint))


def _content(rows: DataFrame) -> Content:
    from pyspark.sql import functions as F

    columns = [F.col(name) for name in rows.columns if name != _PARTITION]
    hashed = F.xxhash64(*columns).cast("decimal(38,0)")
    found = rows.agg(F.count(F.lit(1)).alias("rows"), F.sum(hashed).alias("checksum")).first()
    assert found is not None
    return Content(int(found["rows"]), int(found["checksum"] or 0))
