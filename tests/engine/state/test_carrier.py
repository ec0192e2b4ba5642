"""A kernel on Spark's state store: it is woken by the watermark, remembers over restarts, and gives any type of row."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.components.base import Carried, KernelInput
from penstock.components.shared.event_time import hold_of, micros_of, with_event_time
from penstock.engine.state.advance import as_pandas
from penstock.engine.state.carry import carry
from penstock.kernels.base import TIME, Kernel, Late, Result, State, late_by_time
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import Project

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
SECOND = 1_000_000
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


@dataclass(frozen=True)
class Waiting(Kernel):
    """Gives each row `wait` after its time, and says with it how often its bucket has been called."""

    wait: int

    @property
    def output(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("watermark", pa.int64()), ("calls", pa.int64())])

    def late(self, side: int, rows: pa.Table, watermark: int) -> Late:
        return late_by_time(rows, watermark)

    def advance(
        self, state: State, rows: Sequence[Sequence[pa.Table]], watermark: int, before: int | None = None
    ) -> Result:
        calls = (state[1].column("calls")[0].as_py() if 1 in state else 0) + 1
        kept = [row for table in ([state[0]] if 0 in state else []) for row in table.to_pylist()]
        kept += [row for table in rows[0] for row in table.to_pylist()]
        due = [row for row in kept if row[TIME] + self.wait <= watermark]
        rest = [row for row in kept if row[TIME] + self.wait > watermark]
        given = [{"id": row["id"], "watermark": watermark, "calls": calls} for row in due]
        return Result(
            pa.Table.from_pylist(given, schema=self.output),
            put={0: pa.Table.from_pylist(rest), 1: pa.table({"calls": [calls]})} if rest else {},
            drop=[] if rest else [0, 1],
            wake=min((row[TIME] + self.wait for row in rest), default=None),
        )


@dataclass
class Stream:
    """A query that carries the kernel over rows which a test feeds; its batches are collected."""

    spark: SparkSession
    folder: Path
    wait: float
    hold: float = 0
    given: list[tuple[int, float, int]] = field(default_factory=list)
    """Id, watermark in seconds and calls of its bucket for each row that left."""

    def frame(self) -> DataFrame:
        (self.folder / "in").mkdir(exist_ok=True)
        read = self.spark.readStream.name("rows").schema("id bigint, k string, ts timestamp")
        rows = read.option("maxFilesPerTrigger", "1").json(str(self.folder / "in")).withWatermark("ts", "0 seconds")
        if self.hold:
            rows = with_event_time(rows, "ts", 0, hold=int(self.hold * SECOND))
        packed = rows.select(micros_of(rows, "ts").alias(TIME), "id", "k")
        carried = Carried(Waiting(int(self.wait * SECOND)), (KernelInput(packed, ("k",)),))
        return carry("waiting", carried, [rows], hold_of(rows), 16, None)

    def feed(self, *rows: tuple[int, str, float]) -> None:
        number = len(list((self.folder / "in").iterdir()))
        text = "".join(json.dumps({"id": id, "k": key, "ts": at(time).isoformat()}) + "\n" for id, key, time in rows)
        hidden = self.folder / f"{number}.json"
        hidden.write_text(text)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(self.folder / "in" / hidden.name)

    def run(self) -> None:
        """From where the last run stopped to the end of what is there."""
        query = (
            self.frame()
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def _collect(self, rows: DataFrame, batch: int) -> None:
        for row in rows.collect():
            seconds = (row["watermark"] - int(START.timestamp()) * SECOND) / SECOND
            self.given.append((row["id"], seconds, row["calls"]))


@pytest.mark.spark
def test_the_watermark_wakes_a_bucket_without_rows_and_state_outlives_a_restart(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "in").mkdir()
    stream = Stream(spark, tmp_path, wait=10)
    stream.feed((1, "a", 0), (2, "b", 3.0005))
    stream.feed((3, "c", 9))
    stream.run()
    assert stream.given == []
    # Spark knows the watermark of a batch when it is over: what it allows happens in the next one.
    stream.feed((4, "d", 13))
    stream.run()
    assert stream.given == [(1, 13.0, 2)]
    stream.feed((5, "d", 13.001))
    stream.feed((6, "d", 30))
    stream.run()
    assert stream.given[1:] == [(2, 13.001, 2), (3, 30.0, 2), (4, 30.0, 4), (5, 30.0, 4)]


@pytest.mark.spark
def test_a_kernel_after_rows_that_are_held_is_told_an_earlier_watermark(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    stream = Stream(spark, tmp_path, wait=10, hold=5)
    for row in ((1, "a", 0), (2, "b", 14.999), (3, "c", 15), (4, "d", 16)):
        stream.feed(row)
    stream.run()
    assert [(id, watermark) for id, watermark, _ in stream.given] == [(1, 10.0)]


U = dt.UTC
POINT = pa.struct([("p", pa.int32()), ("q", pa.string())])
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, None, False]),
    "tinyint": (pa.int8(), [1, None, -1]),
    "bigint": (pa.int64(), [1 << 60, None]),
    "float": (pa.float32(), [1.5, None, math.nan, math.inf]),
    "double": (pa.float64(), [0.1, None, math.nan, -0.0]),
    "decimal": (pa.decimal128(38, 10), [decimal.Decimal("9" * 28 + ".0123456789"), None]),
    "string": (pa.string(), ["a", None, ""]),
    "binary": (pa.binary(), [b"ab", None, b""]),
    "date": (pa.date32(), [dt.date(2024, 1, 1), None, dt.date(1, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [at(1.000004), None, dt.datetime(1, 1, 1, tzinfo=U)]),
    "timestamp_ntz": (pa.timestamp("us"), [at(1.000004).replace(tzinfo=None), None]),
    "interval": (pa.duration("us"), [dt.timedelta(seconds=1, microseconds=1), None]),
    "array of numbers": (pa.list_(pa.float64()), [[math.nan, 1.0, None], None, []]),
    "array of times": (pa.list_(pa.timestamp("us", "UTC")), [[at(0), None], None]),
    "array of arrays": (pa.list_(pa.list_(pa.int64())), [[[1], None, []], None]),
    "array of structs": (pa.list_(POINT), [[{"p": 1, "q": "x"}, {"p": None, "q": None}], None, []]),
    "struct": (POINT, [{"p": 1, "q": "x"}, None, {"p": None, "q": None}]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], None, []]),
    "map of structs": (pa.map_(pa.string(), POINT), [[("a", {"p": 1, "q": "x"})], None]),
    "struct of a map": (pa.struct([("m", pa.map_(pa.string(), pa.int32()))]), [{"m": [("a", 1)]}, {"m": None}, None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_every_type_leave_as_they_are(kind: str) -> None:
    type, values = KINDS[kind]
    rows = pa.table({"value": pa.array(values, type)})
    schema = StructType([StructField("_0", from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))])
    (frame,) = as_pandas(rows)
    # What Spark's worker does with the frames it is given.
    batch = PandasToArrowConversion.convert(
        [frame], schema, timezone="UTC", safecheck=True, arrow_cast=True, assign_cols_by_name=True
    )
    assert repr(batch.column(0).field(0).to_pylist()) == repr(rows.column(0).to_pylist())


WIDE = """
    sources:
      rows:
        memory:
          schema:
            "a b": string
            "c.d": double
            ts: timestamp
            tags: array<string>
            counts: map<string,int>
            place: struct<lat:double,names:array<string>>
            price: decimal(10,2)
            day: date
            data: binary
        eventTime: {column: ts, maxDelay: 0 seconds}
      others:
        memory: {schema: {"c.d": double, at: timestamp, "x.y": "array<int>"}}
        eventTime: {column: at, maxDelay: 0 seconds}
    steps:
      rolled: {from: rows, rolling: {by: ["a b", "c.d"], over: 1 minute, values: {n: "sum(`c.d`)"}}}
      once: {from: rows, dedupe: {by: ["a b"], within: 1 second}}
      last: {from: rows, latest: {by: ["a b"]}}
      best: {from: rows, top_n: {size: 1 minute, by: ["a b"], order: ["c.d desc"], n: 1}}
      pairs: {from: rows, join: {with: others, on: ["c.d"], within: ["0 seconds", "1 second"], prefix: "o."}}
    sinks:
      to_rolled: {from: rolled, memory: {}}
      to_once: {from: once, memory: {}}
      to_last: {from: last, memory: {}}
      to_best: {from: best, memory: {}}
      to_pairs: {from: pairs, memory: {}}
"""


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["ts"]))


@pytest.mark.spark
def test_rows_with_nested_columns_and_any_names_pass_every_step(project: Project) -> None:
    full = {
        "a b": "full",
        "c.d": 1.5,
        "tags": ["x", None],
        "counts": {"a": 1, "b": None},
        "place": {"lat": 52.5, "names": ["Berlin", None]},
        "price": "1.50",
        "day": "2024-01-01",
        "data": "QUJD",
    }
    rows: list[dict[str, Any]] = [
        {**full, "ts": at(1).isoformat()},
        {"a b": "empty", "c.d": None, "ts": at(2).isoformat()},
    ]
    expected = [
        {**full, "ts": at(1), "counts": [("a", 1), ("b", None)], "price": decimal.Decimal("1.50"),
         "day": dt.date(2024, 1, 1), "data": b"ABC"},
        {**dict.fromkeys(full), "a b": "empty", "ts": at(2)},
    ]  # fmt: skip
    with Harness(project.write(WIDE)) as harness:
        harness.feed("rows", rows)
        harness.feed("others", [{"c.d": 1.5, "at": at(1.5).isoformat(), "x.y": [1, None]}])
        harness.finish()
        for step in ("rolled", "once", "last", "best"):
            found = [{name: row[name] for name in expected[0]} for row in in_order(harness.rows(f"to_{step}"))]
            assert found == expected, step
        assert [row["n"] for row in in_order(harness.rows("to_rolled"))] == [1.5, None]
        (pair,) = harness.rows("to_pairs")
        assert pair == {**expected[0], "o.at": at(1.5), "o.x.y": [1, None]}
