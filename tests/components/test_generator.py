"""The generator as a stream: what is there when, and the same rows through batches, triggers, failures and restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from penstock.components.base import RAW, Backlog, ReadContext
from penstock.components.shared.synthetic_stream import Plan, RowRange, SyntheticReader
from penstock.components.sources.generator import Generator

START = 1_704_067_200_000_000
NOW = 1_800_000_000_000_000


@dataclass
class Clock:
    """A wall clock in microseconds that moves when told."""

    micros: int = NOW

    def __call__(self) -> int:
        return self.micros


def reader(clock: Clock | None = None, **fields: Any) -> SyntheticReader:
    return SyntheticReader(Generator(dataset="page_views", **fields).plan(), clock or Clock())


def at(row: int, start: int = START) -> dict[str, int]:
    return {"row": row, "start_micros": start, "clock_micros": NOW}


def test_a_finite_stream_is_there_at_once_and_starts_in_2024() -> None:
    finite = reader(rows=500)
    assert finite.initialOffset() == at(0)
    assert finite.latestOffset(at(0), ReadAllAvailable()) == at(500)
    assert finite.latestOffset(at(500), ReadAllAvailable()) == at(500)


def test_the_limit_of_a_batch_is_honoured() -> None:
    finite = reader(rows=500, max_rows_per_batch=200)
    assert finite.getDefaultReadLimit() == ReadMaxRows(200)
    assert finite.latestOffset(at(0), ReadMaxRows(200)) == at(200)
    assert finite.latestOffset(at(400), ReadMaxRows(200)) == at(500)
    assert finite.reportLatestOffset() == at(500)
    assert reader(max_rows_per_batch=None).getDefaultReadLimit() == ReadAllAvailable()


def test_an_endless_stream_is_paced_by_the_clock_from_its_first_start() -> None:
    clock = Clock()
    endless = reader(clock, rate=10)
    first = endless.initialOffset()
    assert first == at(0, start=NOW)
    assert endless.latestOffset(first, ReadAllAvailable())["row"] == 1
    clock.micros += 1_950_000
    assert endless.latestOffset(at(1), ReadAllAvailable())["row"] == 20


def test_after_an_outage_the_backlog_is_what_the_clock_says() -> None:
    restarted = reader(Clock(NOW + 3_600_000_000), rate=10)
    assert restarted.reportLatestOffset() is None
    assert restarted.latestOffset(at(7), ReadMaxRows(100)) == at(107)
    assert restarted.reportLatestOffset() == at(36_001)


def test_a_clock_that_goes_back_takes_no_rows_back() -> None:
    assert reader(Clock(NOW - 10_000_000)).latestOffset(at(7), ReadAllAvailable()) == at(7)


def test_a_stated_start_is_event_time_only_and_does_not_make_a_backlog() -> None:
    endless = reader(rate=10, start="2024-01-01T00:00:00")
    assert endless.initialOffset() == at(0)
    assert endless.latestOffset(at(0), ReadAllAvailable()) == at(1)


def test_available_now_ends_at_the_moment_it_was_started() -> None:
    clock = Clock(NOW + 1_000_000)
    endless = reader(clock, rate=10)
    endless.prepareForTriggerAvailableNow()
    clock.micros += 60_000_000
    assert endless.latestOffset(at(0), ReadMaxRows(6)) == at(6)
    assert endless.latestOffset(at(6), ReadMaxRows(6)) == at(11)
    assert endless.latestOffset(at(11), ReadMaxRows(6)) == at(11)


def test_ranges_are_cut_among_tasks_unless_they_are_small() -> None:
    three = reader(partitions=3)
    assert three.partitions(at(5), at(5)) == []
    assert three.partitions(at(5), at(4101)) == [RowRange(5, 4101, START)]
    cuts = [(part.first, part.stop) for part in three.partitions(at(0), at(30_001))]
    assert cuts == [(0, 10_000), (10_000, 20_000), (20_000, 30_001)]


def test_a_range_is_read_in_arrow_batches_of_bounded_size() -> None:
    sizes = [batch.num_rows for batch in reader().read(RowRange(10, 140_010, START))]
    assert sizes == [65_536, 65_536, 8928]


def test_the_plan_survives_its_way_to_the_workers() -> None:
    plan = Generator(dataset="bids", skew=1.5, keys=10, late_share=0.25, start=datetime(2025, 1, 1, tzinfo=UTC)).plan()
    assert Plan.from_json(plan.to_json()) == plan


@dataclass
class Collected:
    """Rows by batch; a batch that is run again replaces what it gave before."""

    batches: dict[int, list[Row]] = field(default_factory=dict)
    fail_in: int | None = None
    enough: int = 0
    reached: Event = field(default_factory=Event)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = rows.collect()
        if batch == self.fail_in:
            raise RuntimeError("asked to fail")
        if len(self.rows) >= self.enough:
            self.reached.set()

    @property
    def rows(self) -> list[Row]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def reading(spark: SparkSession, folder: Path) -> ReadContext:
    return ReadContext(spark=spark, node="made_up", folder=folder, spool=folder)


@contextmanager
def running(
    spark: SparkSession, generator: Generator, folder: Path, into: Collected, **trigger: Any
) -> Iterator[StreamingQuery]:
    frame = generator.read(reading(spark, folder))
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger)
    query = writer.foreachBatch(into).start()
    try:
        yield query
    finally:
        query.stop()


def run_available(spark: SparkSession, generator: Generator, folder: Path, into: Collected) -> list[dict[str, Any]]:
    """Reads what there is; gives Spark's report of the source for each batch."""
    with running(spark, generator, folder, into, availableNow=True) as query:
        query.awaitTermination()
        return [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]


def expected(generator: Generator, rows: int, start_micros: int = START) -> list[tuple[Any, ...]]:
    made = SyntheticReader(generator.plan()).read(RowRange(0, rows, start_micros))
    return [tuple(row.values()) for batch in made for row in batch.to_pylist()]


def seen(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Rows with their local times from the driver turned into UTC, as Arrow has them."""
    return [tuple(x.astimezone(UTC) if isinstance(x, datetime) else x for x in row) for row in rows]


@pytest.mark.spark
@pytest.mark.parametrize("dataset", ["ad_log", "machine_telemetry", "bids"])
def test_a_finite_stream_comes_whole_in_limited_batches(spark: SparkSession, tmp_path: Path, dataset: Any) -> None:
    generator = Generator(dataset=dataset, rows=10_000, max_rows_per_batch=5000, malformed_share=0.1, late_share=0.1)
    got = Collected()
    reports = run_available(spark, generator, tmp_path, got)
    assert [len(batch) for batch in got.batches.values()] == [5000, 5000]
    assert seen(got.rows) == expected(generator, 10_000)
    assert [generator.backlog(reading(spark, tmp_path), report) for report in reports] == [
        Backlog(5000, "rows"),
        Backlog(0, "rows"),
    ]


@pytest.mark.spark
def test_a_restart_goes_on_at_the_next_row(spark: SparkSession, tmp_path: Path) -> None:
    shorter, longer = (Generator(dataset="page_views", rows=rows, disorder="1 minute") for rows in (3000, 4500))
    got = Collected()
    run_available(spark, shorter, tmp_path, got)
    run_available(spark, shorter, tmp_path, got)
    run_available(spark, longer, tmp_path, got)
    assert [len(batch) for batch in got.batches.values()] == [3000, 1500]
    assert seen(got.rows) == expected(longer, 4500)


@pytest.mark.spark
def test_an_endless_stream_keeps_its_start_through_failure_triggers_and_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    generator = Generator(dataset="page_views", rate=2000)
    failing = Collected(fail_in=0)
    with pytest.raises(StreamingQueryException):
        run_available(spark, generator, tmp_path, failing)
    got = Collected(enough=3000)
    with running(spark, generator, tmp_path, got, processingTime="100 milliseconds"):
        assert got.reached.wait(60)
    run_available(spark, generator, tmp_path, got)
    assert got.batches[0] == failing.batches[0] != []
    assert len(got.batches) >= 3
    start = int(seen(got.rows)[0][1].timestamp() * 1e6)
    assert seen(got.rows) == expected(generator, len(got.rows), start)


@pytest.mark.spark
def test_backlog_and_place_are_told_in_rows(spark: SparkSession, tmp_path: Path) -> None:
    generator = Generator(dataset="bids", rows=100, malformed_share=0.5)
    context = reading(spark, tmp_path)
    place = generator.place()
    assert place is not None
    broken = spark.createDataFrame([('{"row":17,"auction"',), ('{"row"=18,"auction"=1}',), (None,)], f"`{RAW}` string")
    assert [row[0] for row in broken.select(place).collect()] == ["row 17", "row 18", None]
    assert generator.backlog(context, {"endOffset": at(40), "latestOffset": at(100)}) == Backlog(60, "rows")
    assert generator.backlog(context, {"endOffset": None, "latestOffset": at(100)}) is None
