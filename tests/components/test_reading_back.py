"""What a sink has stored comes back as the rows it got, by batch where it can tell batches apart, or by time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.components.sql_stores import Store, batch

from penstock.components.base import Part, Sink, SinkContext, Times
from penstock.components.shared.manifests import FOLDER
from penstock.components.sinks.console import Console
from penstock.components.sinks.delta import Delta
from penstock.components.sinks.files import Files
from penstock.engine.cutover.comparing import text_of

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "bigint", "ts": "timestamp", "day": "date", "name": "string", "amount": "decimal(10,2)", "share": "double",
    "ok": "boolean",
}  # fmt: skip
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Wanted = list[tuple[str | None, ...]]


def rows_of(spark: SparkSession, *numbers: int) -> DataFrame:
    def row(number: int) -> tuple[Any, ...]:
        if number == 3:
            return (number, START + dt.timedelta(minutes=3), None, None, None, None, None)
        time = START + dt.timedelta(minutes=number, microseconds=500_000 * (number % 2))
        return (number, time, time.date(), f"é'{number}", Decimal(f"{number}.50"), number / 3, number % 2 == 0)

    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return spark.createDataFrame([row(number) for number in numbers], schema)


def texts(rows: Iterable[Any] | None) -> Wanted:
    assert rows is not None
    return sorted((tuple(text_of(value) for value in row) for row in rows), key=str)


def as_stored(sink: Sink, context: SinkContext, rows: DataFrame) -> Wanted:
    return texts(zip(*(column.to_pylist() for column in sink.as_stored(rows, context).toArrow().columns), strict=True))


def moment(sink: Sink, context: SinkContext, minute: int) -> Any:
    row = rows_of(context.spark, minute).select("ts")
    return sink.as_stored(row, context).toArrow().column(0)[0].as_py()


def written(sink: Sink, spark: SparkSession, folder: Path, between: Callable[[dict[str, Any]], None]) -> SinkContext:
    """Rows 1 and 2 in batch 0, then 3, 4 and 6 in batches of their own; `between` gets the position after batch 0."""
    context = SinkContext(spark, "out", folder, "demo", "l1", 1, COLUMNS)
    writer = sink.open(context)
    writer.write(batch(0), rows_of(spark, 1, 2))
    between(writer.position())
    for number, id in ((1, 3), (2, 4), (3, 6)):
        writer.write(batch(number), rows_of(spark, id))
    writer.close()
    return context


def test_rows_of_tables_come_back(store: Store, spark: SparkSession, tmp_path: Path) -> None:
    sink = store.sink(batch_column="batch_number")
    context = written(sink, spark, tmp_path, lambda position: None)
    span = Times("ts", moment(sink, context, 2), moment(sink, context, 4))
    assert texts(sink.rows_within(context, [*COLUMNS], span)) == as_stored(sink, context, rows_of(spark, 3, 4))
    assert texts(sink.rows_within(context, ["id"], None)) == [("1",), ("2",), ("3",), ("4",), ("6",)]
    assert texts(sink.rows_between(context, ["id"], Part(0, 2, {}))) == [("3",), ("4",)]
    assert store.sink().rows_between(context, ["id"], Part(0, 2, {})) is None


@pytest.mark.parametrize("compact", [None, 2])
def test_rows_of_files_come_back_though_they_were_merged(
    spark: SparkSession, tmp_path: Path, compact: int | None
) -> None:
    sink = Files(path=str(tmp_path / "out"), compact=compact)
    positions: list[dict[str, Any]] = []
    context = written(sink, spark, tmp_path, positions.append)
    assert len(list((tmp_path / "out" / FOLDER).iterdir())) == (4 if compact is None else 7)
    part = Part(0, 3, positions[0])
    assert texts(sink.rows_between(context, [*COLUMNS], part)) == as_stored(sink, context, rows_of(spark, 3, 4, 6))
    # What was merged with later batches cannot be told apart from them.
    part = Part(0, 2, positions[0])
    found = sink.rows_between(context, ["id"], part)
    assert found is None if compact else texts(found) == [("3",), ("4",)]
    span = Times("ts", moment(sink, context, 2), moment(sink, context, 4))
    assert texts(sink.rows_within(context, ["id"], span)) == [("3",), ("4",)]
    assert sink.rows_between(context, ["id"], Part(3, 9, {})) == []


def test_rows_of_delta_tables_come_back(spark: SparkSession, tmp_path: Path) -> None:
    sink = Delta(path=str(tmp_path / "out"))
    context = written(sink, spark, tmp_path, lambda position: None)
    span = Times("ts", moment(sink, context, 2), moment(sink, context, 4))
    assert texts(sink.rows_within(context, [*COLUMNS], span)) == as_stored(sink, context, rows_of(spark, 3, 4))
    assert len(texts(sink.rows_within(context, ["id"], None))) == 5


def test_what_cannot_be_read_back_says_so(spark: SparkSession, tmp_path: Path) -> None:
    context = SinkContext(spark, "out", tmp_path, "demo", "l1", 1, COLUMNS)
    assert Console().rows_within(context, ["id"], None) is None
    assert Console().rows_between(context, ["id"], Part(0, 1, {})) is None
