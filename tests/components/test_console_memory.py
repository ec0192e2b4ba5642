"""The console prints the head of each batch; the memory sink keeps batches once and replaces by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.components.base import Batch, SinkContext, SinkWriter
from penstock.components.sinks.console import Console
from penstock.components.sinks.memory import Memory, forget, stored_batches, stored_rows

pytestmark = pytest.mark.spark


def context(spark: SparkSession, lineage: str = "l1") -> SinkContext:
    return SinkContext(spark, "out", Path(), "demo", lineage, 1, {"id": "string", "n": "int"})


def batch(number: int, lineage: str = "l1") -> Batch:
    return Batch("demo", lineage, 1, number)


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), "id string, n int").coalesce(1)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("wide")
def test_the_console_shows_the_first_rows_and_how_many_there_are(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Console(rows=2).open(context(spark))
    assert writer.write(batch(7), frame(spark, ("anna", 1), (None, 2), ("carl", 3))) is True
    shown = capsys.readouterr().out
    assert "out · batch 7 · 3 rows, first 2 shown" in shown
    assert "anna" in shown
    assert "carl" not in shown
    assert "None" not in shown


@pytest.mark.usefixtures("wide")
def test_the_console_prints_text_as_it_is(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    Console().open(context(spark)).write(batch(0), frame(spark, ("[red]x[/red]", 1), ("[/]", 2)))
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert "[/]" in shown


def test_the_console_says_nothing_of_an_empty_batch(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert Console().open(context(spark)).write(batch(0), frame(spark)) is True
    assert capsys.readouterr().out == ""


def memory(spark: SparkSession, lineage: str, key: tuple[str, ...] = ()) -> SinkWriter:
    return Memory(key=key).open(context(spark, lineage))


def test_memory_keeps_each_batch_once(spark: SparkSession) -> None:
    writer = memory(spark, "once")
    assert writer.write(batch(1), frame(spark, ("b", 2))) is True
    assert writer.write(batch(0), frame(spark, ("a", 1))) is True
    assert memory(spark, "once").write(batch(0), frame(spark, ("other", 1))) is False
    assert stored_rows("once", "out") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    assert list(stored_batches("once", "out")) == [1, 0]
    assert stored_rows("another", "out") == []


def test_memory_with_a_key_shows_the_last_row_of_each(spark: SparkSession) -> None:
    writer = memory(spark, "keyed", ("id",))
    writer.write(batch(0), frame(spark, ("a", 1), (None, 1), ("b", 2)))
    writer.write(batch(1), frame(spark, ("a", 3), (None, 4)))
    rows = stored_rows("keyed", "out", ("id",))
    assert sorted((row["id"] or "", row["n"]) for row in rows) == [("", 4), ("a", 3), ("b", 2)]


def test_memory_is_given_back(spark: SparkSession) -> None:
    memory(spark, "gone").write(batch(0), frame(spark, ("a", 1)))
    forget("gone")
    assert stored_rows("gone", "out") == []


def test_both_take_results_that_change() -> None:
    assert Console().accepts_updates
    assert Memory().accepts_updates
