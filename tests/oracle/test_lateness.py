"""What is late is late for Spark too: the same rows, in the same batches, as its own windows drop."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.oracle.streams import SECOND, Feed, Moment, Row, Step, Verdict, draw_feeds, moments, pipeline

from penstock.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id: bigint, ts: timestamp"
DELAY = 5
SIZES = {"tumbling": (12, 12), "sliding": (20, 8)}


class Nobody:
    """Spark is asked instead."""

    def batch(self, moment: Moment) -> Verdict:
        raise NotImplementedError


def draw_row(chance: random.Random, number: int) -> Row:
    return {"id": number}


def step(name: str, size: int, slide: int) -> Step:
    slides = f", slide: {slide} seconds" if slide != size else ""
    return Step(
        name, f"from: rows, window: {{size: {size} seconds{slides}, by: [id], values: {{n: count(*)}}}}", Nobody()
    )


def dropped_by_spark(
    spark: SparkSession, folder: Path, spool: Path, size: int, slide: int, *, apart: bool
) -> list[int]:
    """What Spark's own window drops of the same files, for each file.

    It counts after combining the rows of a group, so each row is a group of its own. With `apart` it has moved its
    watermark on before it reads the next file; else it follows a batch behind.
    """
    from pyspark.sql import functions as F

    place = folder / f"files-{size}"
    place.mkdir()
    rows = (
        spark.readStream.name("rows")
        .schema("id bigint, ts timestamp")
        .option("maxFilesPerTrigger", "1")
        .json(str(place))
    )
    windows = F.window("ts", f"{size} seconds", f"{slide} seconds")
    counts = rows.withWatermark("ts", f"{DELAY} seconds").groupBy(windows, "id").count()
    found: list[int] = []
    files = sorted(spool.glob("*.json"))
    for some in [[file] for file in files] if apart else [files]:
        for file in some:
            shutil.copy2(file, place / file.name)
        query = (
            counts.writeStream.format("noop")
            .option("checkpointLocation", str(folder / f"checkpoint-{size}"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        reports = [json.loads(report.json) for report in query.recentProgress]
        drops = [
            sum(operator["numRowsDroppedByWatermark"] for operator in report["stateOperators"]) for report in reports
        ]
        found += drops[: len(some)]
    return found


def by_model(history: list[Moment], size: int, slide: int) -> dict[int, int]:
    """Spark's rule in words: a row misses the windows that ended at or before the watermark of the batch before."""
    found: dict[int, int] = {}
    for moment in history:
        starts = [
            start
            for row in moment.rows["rows"]
            for start in range(
                row["_time"] // (slide * SECOND) * slide * SECOND, row["_time"] - size * SECOND, -slide * SECOND
            )
        ]
        found[moment.number] = sum(start + size * SECOND <= moment.before for start in starts)
    return found


def together(feeds: list[Feed]) -> list[Feed]:
    """The same stream without a crash or a stop: Spark's own counts do not outlive a query."""
    return [Feed(feed.rows, "go on") for feed in feeds]


def check_lateness(folder: Path, spark: SparkSession, seed: int, *, apart: bool) -> None:
    chance = random.Random(seed)
    feeds = together(draw_feeds(chance, {"rows": draw_row}, DELAY, late=True))
    path = pipeline(folder / "late.yaml", {"rows": SCHEMA}, DELAY, [step(name, *size) for name, size in SIZES.items()])
    print(path.read_text(), *feeds, sep="\n")
    with Harness(path) as harness:
        for feed in feeds:
            harness.feed("rows", [{"id": row["id"], "ts": row["ts"].isoformat()} for row in feed.rows["rows"]])
        harness.step()
        history, entries = moments(harness, feeds, DELAY), harness.ledger()
        spool = harness.state_dir / "spool" / "rows"
        spark_drops = {name: dropped_by_spark(spark, folder, spool, *size, apart=apart) for name, size in SIZES.items()}
    for name, (size, slide) in SIZES.items():
        late = {entry.batch: entry.late.get(name, 0) for entry in entries}
        assert late == by_model(history, size, slide)
        files = spark_drops[name]
        assert files == [late[batch] for batch in range(len(files))]
        assert not any(late[batch] for batch in late if batch >= len(files))
    assert sum(entry.late.get("sliding", 0) for entry in entries) > 0, "a stream without late rows shows nothing"


@pytest.mark.parametrize("seed", [1])
def test_rows_are_late_where_spark_would_drop_them(tmp_path: Path, spark: SparkSession, seed: int, way: str) -> None:
    check_lateness(tmp_path, spark, seed, apart=way != "spark")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_lateness_in_many_cases(tmp_path: Path, spark: SparkSession, seed: int, way: str) -> None:
    check_lateness(tmp_path, spark, seed, apart=way != "spark")
