"""The ledger by windows of event time is what counting all rows by hand gives."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.running import course, json_lines, problems

from penstock.engine.by_time import BINS, difference, times_of
from penstock.errors import PenstockError
from penstock.runner.ledger import read_windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def pipeline(more: str = "", steps: str = "", ledger: str = "{window: 1 minute}") -> str:
    return f"""
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, ts: timestamp}}}}}}
            eventTime: {{column: ts, maxDelay: 30 seconds}}
        ledger: {ledger}
        steps:
          even: {{from: rows, filter: id % 2 = 0}}
          good: {{from: even, expect: {{small: id < 900}}}}
          {steps}
        sinks:
          out: {{from: good, sqlite: {{path: out.db, table: t}}}}
          {more}
    """


def draw(seed: int) -> list[list[dict[str, Any]]]:
    """Three batches of rows, of which some come late, are odd or too large."""
    chance = random.Random(seed)
    batches = []
    for number in range(3):
        seconds = [number * 150 + chance.randrange(0, 200) for _ in range(60)]
        times = [(START + dt.timedelta(seconds=second)).isoformat() for second in seconds]
        batches.append([{"id": chance.randrange(1_000), "ts": time} for time in times])
    return batches


def minutes(rows: list[dict[str, Any]]) -> dict[dt.datetime, int]:
    times = (dt.datetime.fromisoformat(row["ts"]) for row in rows)
    return dict(Counter(time.replace(second=0) for time in times))


def by_window(project: Project, body: str, what: str, node: str) -> dict[dt.datetime, int]:
    found = read_windows(project.load(body), project.folder / "state")
    return {w.start: rows for w in found if (rows := dict(getattr(w.entry, what)).get(node, 0))}


@pytest.mark.spark
@pytest.mark.parametrize("several", [False, True])
def test_each_window_says_what_became_of_its_rows(several: bool, project: Project) -> None:
    body = pipeline("raw: {from: rows, sqlite: {path: out.db, table: raw}}" if several else "")
    batches = draw(3)
    for number, batch in enumerate(batches):
        project.put(f"in/{number}.json", json_lines(batch))
    # A crash after the ledger was written, and the batch that comes again, count once.
    course(project.build(body), project.folder / "state", die_at="batch.after_ledger")
    course(project.build(body), project.folder / "state")
    rows = [row for batch in batches for row in batch]
    even = [row for row in rows if row["id"] % 2 == 0]
    assert by_window(project, body, "rows_in", "rows") == minutes(rows)
    assert by_window(project, body, "filtered", "even") == minutes([row for row in rows if row["id"] % 2])
    assert by_window(project, body, "rows_dead", "good") == minutes([row for row in even if row["id"] >= 900])
    assert by_window(project, body, "rows_out", "out") == minutes([row for row in even if row["id"] < 900])
    if several:
        assert by_window(project, body, "rows_out", "raw") == minutes(rows)
    # Rows are late by the watermark with which the batch before theirs began.
    newest = max(dt.datetime.fromisoformat(row["ts"]) for batch in batches[:-1] for row in batch)
    for window in read_windows(project.load(body), project.folder / "state"):
        sealed = window.start + MINUTE <= newest - dt.timedelta(seconds=30)
        assert (window.verdict, window.imbalances) == ("sealed" if sealed else "open", ())


@pytest.mark.spark
def test_late_rows_are_counted_in_the_window_they_happened_in(project: Project) -> None:
    steps = "sums: {from: rows, window: {size: 1 minute, values: {n: count(*)}}}"
    body = pipeline("sums_out: {from: sums, sqlite: {path: out.db, table: sums}}", steps)
    for number, seconds in enumerate([[0, 300], [301], [5, 6, 65, 302]]):
        times = [(START + dt.timedelta(seconds=second)).isoformat() for second in seconds]
        project.put(f"in/{number}.json", json_lines({"id": 2, "ts": time} for time in times))
    course(project.build(body), project.folder / "state")
    assert by_window(project, body, "late", "sums") == {START: 2, START + MINUTE: 1}
    # The rows of a window are stored with its end as their time; here one window of one row.
    assert by_window(project, body, "rows_out", "sums_out") == {START: 1}


@given(st.dictionaries(st.integers(-10_000, 10_000), st.integers(1, 1 << 40), max_size=30), st.integers(1, 90_000_000))
def test_bins_are_counts(counts: dict[int, int], window: int) -> None:
    bins = [{"x": float(number), "y": float(rows)} for number, rows in counts.items()]
    assert times_of(bins + bins, window) == {number * window: 2 * rows for number, rows in counts.items()}
    assert difference(times_of(bins + bins, window), times_of(bins, window)) == times_of(bins, window)


def test_too_many_windows_are_not_told_wrongly() -> None:
    assert times_of([{"x": float(number), "y": 1.0} for number in range(BINS)], 1000) == {}
    assert times_of(None, 1000) == {}


@pytest.mark.spark
def test_columns_without_one_way_to_write_them_are_refused(project: Project, spark: SparkSession) -> None:
    (project.folder / "in").mkdir()
    (found,) = problems(spark, project.build(pipeline(ledger="{checksum: [ts]}")), project.folder / "spool")
    assert (found.code, "timestamp" in found.message) == ("CHECKSUM_COLUMN", True)
    (found,) = problems(spark, project.build(pipeline(ledger="{checksum: [no]}")), project.folder / "spool")
    assert (found.code, "no sink" in found.message) == ("CHECKSUM_COLUMN", True)


def test_a_ledger_that_does_not_count_by_time_says_so(project: Project) -> None:
    with pytest.raises(PenstockError) as raised:
        read_windows(project.load(pipeline(ledger="{}")), project.folder / "state")
    assert raised.value.code == "LEDGER_WITHOUT_WINDOWS"
