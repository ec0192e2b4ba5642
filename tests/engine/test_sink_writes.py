"""Several sinks of a pipeline: few rows are fetched in one job, and sinks store side by side, each batch once."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_trunk import CUTS, ROWS, VIEWS, ids, pipeline

from penstock.components.base import Batch, SinkWriter
from penstock.components.sinks.memory import Memory, _MemoryWriter
from penstock.engine import sink_writes
from penstock.engine.sink_writes import SinkRows, SinkWrites, gives_no_more, is_few
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from tests.conftest import Project

WAIT_SECONDS = 20


@dataclass
class Taking(SinkWriter):
    """Takes tables and notes what it gets."""

    lane: str = ""
    columns: tuple[str, ...] = ()

    def as_table(self, rows: DataFrame) -> DataFrame:
        return rows.select(*self.columns) if self.columns else rows

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        raise AssertionError("it takes tables")


class Framing(SinkWriter):
    def write(self, batch: Batch, rows: DataFrame) -> bool:
        return True


@pytest.fixture
def writes(spark: SparkSession) -> Iterator[SinkWrites]:
    found = SinkWrites(spark)
    yield found
    found.close()


def output(name: str, rows: Any = None, writer: SinkWriter | None = None, *, empty: bool = False) -> SinkRows:
    return SinkRows(name, writer or Taking(), rows, empty)


def jobs_started(spark: SparkSession) -> int:
    return int(spark._jsc.sc().dagScheduler().numTotalJobs())


NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
PEOPLE = "id int, name string, born timestamp, owed decimal(10,2), tags array<string>, where struct<x: double, y: int>"
PERSON = (7, "ann", NOON, Decimal("1.50"), ["a", None], (0.5, None))
NOBODY = (None, None, None, None, None, None)


@pytest.mark.spark
class TestFetching:
    def test_rows_of_all_sinks_come_in_one_job_as_each_wants_them(
        self, spark: SparkSession, writes: SinkWrites
    ) -> None:
        people = spark.createDataFrame([PERSON, NOBODY], PEOPLE).coalesce(1)
        numbers = spark.range(5, numPartitions=1)
        outputs = [
            output("people", people),
            output("nothing", numbers, empty=True),
            output("names", people, Taking(columns=("name", "id"))),
            output("numbers", numbers),
            output("frames", numbers, Framing()),
        ]
        before = jobs_started(spark)
        found = writes.fetch(outputs)
        assert jobs_started(spark) - before == 1
        assert found["people"].to_pylist() == people.toArrow().to_pylist()
        assert found["people"].schema.types == people.toArrow().schema.types
        assert found["names"].to_pylist() == [{"name": "ann", "id": 7}, {"name": None, "id": None}]
        assert found["numbers"].to_pylist() == [{"id": number} for number in range(5)]
        assert found["nothing"].num_rows == 0
        assert found["nothing"].schema.names == ["id"]
        assert "frames" not in found

    def test_outputs_without_rows_start_no_job(self, spark: SparkSession, writes: SinkWrites) -> None:
        numbers = spark.range(5)
        before = jobs_started(spark)
        found = writes.fetch([output("one", numbers, empty=True), output("two", numbers, empty=True)])
        assert jobs_started(spark) == before
        assert {name: (table.num_rows, table.schema.names) for name, table in found.items()} == {
            "one": (0, ["id"]),
            "two": (0, ["id"]),
        }

    def test_later_batches_may_have_rows_for_other_sinks(self, spark: SparkSession, writes: SinkWrites) -> None:
        for wanted in (["one"], ["two", "three"], ["one", "two", "three"], []):
            outputs = [
                output(name, spark.range(number, number + 2).withColumnRenamed("id", name), empty=name not in wanted)
                for number, name in enumerate(["one", "two", "three"])
            ]
            found = writes.fetch(outputs)
            expected = {
                name: [{name: number}, {name: number + 1}] if name in wanted else []
                for number, name in enumerate(["one", "two", "three"])
            }
            rows = {
                name: sorted(table.to_pylist(), key=lambda row: list(row.values())) for name, table in found.items()
            }
            assert rows == expected

    def test_the_order_of_rows_stays(self, spark: SparkSession, writes: SinkWrites) -> None:
        numbers = spark.range(1000, numPartitions=3)
        found = writes.fetch([output("up", numbers), output("more", numbers)])
        assert found["up"].column("id").to_pylist() == list(range(1000))

    def test_few_is_told_by_rows_and_bytes(self, spark: SparkSession) -> None:
        small = spark.range(100).persist()
        wide = spark.range(100).selectExpr("repeat('x', 200000) AS text").persist()
        try:
            small.count()
            wide.count()
            assert is_few(small, 100)
            assert not is_few(small, sink_writes.FEW_ROWS + 1)
            assert not is_few(wide, 100)
            assert not is_few(spark.range(101), 101), "what is not kept cannot be judged"
        finally:
            small.unpersist()
            wide.unpersist()

    def test_plans_that_may_give_more_rows_are_told(self, spark: SparkSession) -> None:
        rows = spark.range(3).selectExpr("id", "sequence(0, id) AS all")
        assert gives_no_more([rows.where("id > 1").select("id").union(rows.select("id")).limit(0)])
        assert not gives_no_more([rows.selectExpr("explode(all)")])
        assert not gives_no_more([rows.crossJoin(spark.range(2))])


@dataclass
class Meeting:
    """Sinks that all have to be at work at once."""

    parties: int
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.parties)

    def store(self, item: SinkRows) -> int:
        self.barrier.wait(WAIT_SECONDS)
        return len(item.sink)


@pytest.mark.spark
class TestSideBySide:
    """Local properties of Spark go along, so there is a session."""

    def test_sinks_store_at_the_same_time(self, writes: SinkWrites) -> None:
        outputs = [output(name) for name in ("a", "bb", "ccc")]
        assert writes.run(outputs, Meeting(3).store) == {"a": 1, "bb": 2, "ccc": 3}

    def test_sinks_of_one_lane_store_in_their_order(self, spark: SparkSession, writes: SinkWrites) -> None:
        order: list[str] = []
        busy = threading.Lock()

        def store(item: SinkRows) -> int:
            if item.writer.lane:
                assert busy.acquire(blocking=False), "two of one lane at once"
                order.append(item.sink)
                busy.release()
            return 1

        outputs = [output(f"s{number}", writer=Taking("file" if number % 3 else "")) for number in range(30)]
        assert writes.run(outputs, store) == {item.sink: 1 for item in outputs}
        assert order == [item.sink for item in outputs if item.writer.lane]

    def test_the_first_error_is_raised_when_all_have_ended(self, spark: SparkSession, writes: SinkWrites) -> None:
        failed, ended = threading.Event(), list[str]()

        def store(item: SinkRows) -> int:
            if item.sink == "bad":
                failed.set()
                raise ValueError("bad")
            assert failed.wait(WAIT_SECONDS)
            if item.sink == "worse":
                raise KeyError("worse")
            ended.append(item.sink)
            return 1

        with pytest.raises(ValueError, match="bad"):
            writes.run([output("good"), output("bad"), output("worse"), output("slow")], store)
        assert sorted(ended) == ["good", "slow"]

    def test_threads_have_the_properties_of_the_batch(self, spark: SparkSession, writes: SinkWrites) -> None:
        context = spark.sparkContext

        def store(item: SinkRows) -> int:
            return int(context.getLocalProperty("penstock.test") or -1)

        try:
            for batch in (1, 2):
                context.setLocalProperty("penstock.test", str(batch))
                assert writes.run([output("a"), output("b")], store) == {"a": batch, "b": batch}
        finally:
            context.setLocalProperty("penstock.test", None)  # type: ignore[arg-type]


STEPS = {"big": "from: views, filter: n > 1", "few": "from: views, select: [id, n]"}
SINKS = {f"to_{name}": f"from: {name}, memory: {{}}" for name in ("big", "few", "views")}


@pytest.mark.spark
class TestInAPipeline:
    @pytest.mark.parametrize("limit", [0, sink_writes.FEW_ROWS])
    @pytest.mark.parametrize("point", ["sink.before_write", "sink.after_commit", "batch.after_sinks"])
    def test_every_sink_stores_a_batch_once_over_a_crash(
        self, limit: int, point: str, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sink_writes, "FEW_ROWS", limit)
        with Harness(project.write(pipeline([VIEWS], STEPS, SINKS))) as harness:
            for batch in CUTS:
                harness.feed("views", batch)
            harness.crash_at(point)
            harness.step()
            harness.resume()
            assert ids(harness.rows("to_views")) == ids(ROWS)
            assert ids(harness.rows("to_few")) == ids(ROWS)
            assert ids(harness.rows("to_big")) == [item for item in ids(ROWS) if item[1] > 1]
            entries = harness.ledger()
        assert sum(entry.rows_out["to_views"] for entry in entries) == len(ROWS)
        assert sum(entry.rows_out["to_big"] for entry in entries) == len(ROWS) - 1

    def test_a_small_batch_takes_two_jobs_however_many_sinks_it_has(
        self, project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken: list[tuple[str, int]] = []
        write_table = _MemoryWriter.write_table

        def write_watched(self: _MemoryWriter, batch: Batch, rows: pa.Table) -> bool:
            taken.append((threading.current_thread().name, rows.num_rows))
            return write_table(self, batch, rows)

        monkeypatch.setattr(_MemoryWriter, "write_table", write_watched)
        sinks = {f"out{number}": "from: views, memory: {}" for number in range(6)}
        with Harness(project.write(pipeline([VIEWS], {}, sinks))) as harness:
            harness.feed("views", ROWS)
            harness.step()
            before = jobs_started(spark)
            harness.feed("views", ROWS)
            harness.step()
            assert jobs_started(spark) - before == 2
            assert all(ids(harness.rows(name)) == ids([*ROWS, *ROWS]) for name in sinks)
        assert [rows for _, rows in taken] == [len(ROWS)] * 12
        assert all(name.startswith("sinks") for name, _ in taken)

    def test_rows_that_a_step_takes_apart_are_stored_as_frames(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: _MemoryWriter, batch: Batch, rows: pa.Table) -> bool:
            raise AssertionError("nobody knows how many rows there are")

        monkeypatch.setattr(_MemoryWriter, "write_table", refuse)
        monkeypatch.setattr(
            _MemoryWriter,
            "write",
            lambda self, batch, rows: self.batches.update({batch.id: rows.toArrow().to_pylist()}) or True,
        )
        steps = {"each": 'from: views, sql: "SELECT id, explode(sequence(1, n)) AS i FROM views"'}
        sinks = {"all": "from: views, memory: {}", "out": "from: each, memory: {}"}
        assert Memory.name == "memory"
        with Harness(project.write(pipeline([VIEWS], steps, sinks))) as harness:
            harness.feed("views", ROWS)
            harness.step()
            assert len(harness.rows("out")) == sum(item["n"] for item in ROWS)
            assert ids(harness.rows("all")) == ids(ROWS)
