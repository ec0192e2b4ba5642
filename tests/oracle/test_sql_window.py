"""Windowed queries on the kernel give what Spark itself gives for the same text over all rows at once."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.kernels.driving import Driver
from tests.oracle.streams import SECOND, Feed, Moment, Row, Step, Verdict, draw_feeds, pipeline, plain, play

from penstock.components.base import StepContext
from penstock.components.shared.kernel_inputs import arrow_schema
from penstock.components.steps.sql import Sql
from penstock.engine.frames import columns_of
from penstock.kernels.base import TIME
from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.graph.nodes import NodeFacts

pytestmark = pytest.mark.spark

SCHEMA = "k: string, j: int, n: bigint, x: double, d: 'decimal(8, 2)', ok: boolean, ts: timestamp"
KEYS = {"k": "k", "j": "j", "big": "upper(k)", "rest": "n % 3", "x": "rows.x", "d": "d", "odd": "j = 1 OR ok"}
CALLS = {
    "every": "count(*)",
    "known": "count(n)",
    "kinds": "count(DISTINCT j)",
    "few_kinds": "count(DISTINCT k) FILTER (WHERE j > 1)",
    "total": "sum(n)",
    "exact": "sum(d)",
    "rough": "sum(x)",
    "mean": "avg(n)",
    "least": "min(k)",
    "most": "max(x)",
    "cheap": "min(d)",
    "latest": "max(rows.ts)",
    "spread": "stddev(n)",
    "middle": "percentile(n, 0.5)",
    "good": "count(*) FILTER (WHERE ok)",
    "ratio": "sum(n) / count(*)",
    "rounded": "round(avg(n), 3)",
    "mixed": "coalesce(max(j), 0) * 2 + count(*)",
    "chosen": "sum(CASE WHEN ok THEN j ELSE -1 END)",
}
CONDITIONS = (None, None, "n IS NOT NULL", "k <> 'b' OR j > 1 AND ok", "n BETWEEN -10 AND 5", "NOT ok")


def draw_row(chance: random.Random, number: int) -> Row:
    return {
        "k": chance.choice(["a", "a", "a", "b", "B", None]),
        "j": chance.choice([1, 1, 2, 3, None]),
        "n": chance.choice([0, 1, 2, -7, 1 << 40, None]),
        "x": chance.choice([0.0, -0.0, 0.1, 0.2, -2.25, 1e10, float("nan"), None]),
        "d": chance.choice([1.5, 1.5, -0.25, 99999.99, None]),
        "ok": chance.choice([True, False, None]),
    }


@dataclass(frozen=True)
class Draw:
    """A query put together by chance."""

    chance: random.Random

    def query(self) -> str:
        chance = self.chance
        size = chance.choice([5, 12, 30, 90])
        slide = chance.choice(["", "", f", '{chance.randint(2, size)} seconds'"])
        window = f"window(ts, '{size} seconds'{slide})"
        keys = chance.sample(sorted(KEYS), chance.choice([0, 1, 1, 2]))
        calls = chance.sample(sorted(CALLS), chance.choice([0, 1, 2, 3, 4]))
        windows, grouped = self.spelled(window, keys)
        items = [*(f"{KEYS[key]} AS {key}" for key in keys), *(f"{CALLS[call]} AS {call}" for call in calls)]
        chance.shuffle(items)
        text = f"SELECT {', '.join([*windows, *items])} FROM rows"
        where = chance.choice(CONDITIONS)
        having = chance.choice([None, None, "count(*) > 1", *(f"{call} IS NOT NULL" for call in calls)])
        text += f" WHERE {where}" if where else ""
        return f"{text} GROUP BY {grouped}{f' HAVING {having}' if having else ''}"

    def spelled(self, window: str, keys: Sequence[str]) -> tuple[list[str], str]:
        """How the window is selected, and how windows and keys are grouped by."""
        chance = self.chance
        by = [KEYS[key] for key in keys]
        match chance.choice(["function", "function", "alias", "number", "all"]):
            case "function":
                bounds = ["window", "window.start AS since", "window.end AS until", f"{window}.end AS closed"]
                listed = chance.sample(bounds, chance.randint(1, 3))
                order = [window, *by]
                chance.shuffle(order)
                return listed, ", ".join(order)
            case "alias":
                return [f"{window} AS w", "w.start AS since"], ", ".join(["w", *by])
            case "number":
                return [window, "window.end AS until"], ", ".join(["1", *by])
            case _:
                return [f"{window} AS w"], "ALL"


class Nobody:
    """Spark is asked instead, once for all rows."""

    def batch(self, moment: Moment) -> Verdict:
        raise NotImplementedError


def facts_of(harness: Harness) -> dict[str, NodeFacts]:
    harness.start()
    assert harness._running is not None
    return dict(harness._running.analysed.analysis.facts)


def every_row(spark: SparkSession, folder: Path, feeds: Sequence[Feed]) -> DataFrame:
    """All rows of a stream as a table, read as the source reads them."""
    rows = [row for feed in feeds for row in feed.rows["rows"]]
    path = folder / "every.json"
    path.write_text("".join(json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n" for row in rows))
    schema = "k string, j int, n bigint, x double, d decimal(8, 2), ok boolean, ts timestamp, _time bigint"
    return spark.read.schema(schema).json(str(path))


def check(every: DataFrame, query: str, columns: Mapping[str, str], rows: list[Row]) -> None:
    """Compares columns and rows with those that Spark gives over all rows at once."""
    every.createOrReplaceTempView("rows")
    found = every.sparkSession.sql(query)
    every.sparkSession.catalog.dropTempView("rows")
    assert list(columns.items()) == list(columns_of(found).items()), query
    assert plain(rows) == plain([row.asDict(recursive=True) for row in found.collect()]), query


def check_streams(folder: Path, spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    delay = chance.choice([5, 10])
    feeds = draw_feeds(chance, {"rows": draw_row}, delay, late=False)
    queries = {f"q{number}": Draw(chance).query() for number in range(2)}
    steps = [Step(name, f'from: rows, sql: "{query}"', Nobody()) for name, query in queries.items()]
    path = pipeline(folder / "queries.yaml", {"rows": SCHEMA}, delay, steps)
    print(path.read_text(), *feeds, sep="\n")
    with Harness(path) as harness:
        facts = facts_of(harness)
        assert {name: facts[name].kernel for name in queries} == dict.fromkeys(queries, True)
        play(harness, feeds)
        given = {name: harness.rows(f"to_{name}") for name in queries}
    every = every_row(spark, folder, feeds)
    for name, query in queries.items():
        check(every, query, facts[name].columns, given[name])


@pytest.mark.parametrize("seed", [1])
def test_streams_give_what_spark_gives_over_all_rows(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    check_streams(tmp_path, spark, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1080))
def test_streams_in_many_cases(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    check_streams(tmp_path, spark, seed)


def check_kernels(folder: Path, spark: SparkSession, seed: int) -> None:
    """The same without a stream, which is far quicker: the kernel is driven by hand."""
    chance = random.Random(seed)
    feeds = draw_feeds(chance, {"rows": draw_row}, 10, late=False)
    every = every_row(spark, folder, feeds).withWatermark("ts", "10 seconds")
    context = StepContext(spark, "q", folder, "ts", times={"rows": "ts"})
    came = [(row["_time"], number) for number, feed in enumerate(feeds) for row in feed.rows["rows"]]
    first = dict(reversed(came))
    for query in (Draw(chance).query() for _ in range(4)):
        print(query, *feeds, sep="\n")
        carried = Sql(query=query).carried({"rows": every}, context)
        assert carried is not None
        (read,) = carried.inputs
        driver = Driver(carried.kernel, [arrow_schema(read.rows)], [read.keys], 10 * SECOND, seed=seed)
        rows = read.rows.toArrow().to_pylist()
        for number in range(len(feeds)):
            driver.batch([row for row in rows if first[row[TIME]] == number])
        # Spark gives every watermark a batch, and the last one does without rows.
        driver.batch([])
        driver.finish(1 << 60)
        result = spark.createDataFrame(pa.Table.from_pylist(driver.main, schema=carried.kernel.output))
        finished = carried.finish(result)
        check(every, query, columns_of(finished), finished.toArrow().to_pylist())


@pytest.mark.parametrize("seed", range(2000, 2010))
def test_kernels_give_what_spark_gives_over_all_rows(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    check_kernels(tmp_path, spark, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3000, 3200))
def test_kernels_in_many_cases(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    check_kernels(tmp_path, spark, seed)
