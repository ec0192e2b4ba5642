"""Spark's reports as plain values."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

from penstock.engine.progress import Status, Waiting, batch_report, progress_after

PROGRESS: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2024-01-01T00:00:05.250Z",
    "batchDuration": 420,
    "numInputRows": 12,
    "processedRowsPerSecond": 28.5,
    "durationMs": {"addBatch": 300, "walCommit": 50},
    "eventTime": {"watermark": "2024-01-01T00:00:00.000Z", "max": "2024-01-01T00:00:10.000Z"},
    "stateOperators": [
        {"numRowsTotal": 3, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 4, "memoryUsedBytes": 50, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [{"description": "one"}, {"description": "two"}],
}


def time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


class InTheJvm:
    """A report as Spark keeps it: each call takes a round trip."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.fetched = 0

    def batchId(self) -> int:
        return self.batch

    def json(self) -> str:
        self.fetched += 1
        return json.dumps({"batchId": self.batch})


def test_only_reports_of_later_batches_are_fetched() -> None:
    kept = [InTheJvm(number) for number in range(100, 200)]
    assert [progress["batchId"] for progress in progress_after(197, kept)] == [198, 199]
    assert sum(item.fetched for item in kept) == 2
    assert progress_after(199, kept) == []
    assert [progress["batchId"] for progress in progress_after(-1, kept)] == list(range(100, 200))


def test_a_report_is_read_whole() -> None:
    report = batch_report(PROGRESS, ["a", "b"])
    assert (report.batch, report.duration_ms, report.rows, report.rows_per_second) == (7, 420, 12, 28.5)
    assert report.at == time("2024-01-01T00:00:05.250")
    assert report.watermark == time("2024-01-01T00:00:00")
    assert report.phases_ms == {"addBatch": 300, "walCommit": 50}
    assert (report.state_rows, report.state_bytes, report.late_rows) == (7, 150, 2)
    assert report.sources == {"a": {"description": "one"}, "b": {"description": "two"}}


def test_a_report_of_a_batch_without_state_or_time_has_none() -> None:
    report = batch_report({"batchId": 0, "timestamp": "2024-01-01T00:00:00.000Z"}, ["a"])
    assert (report.rows, report.rows_per_second, report.watermark) == (0, 0.0, None)
    assert (report.state_rows, report.late_rows, report.sources) == (0, 0, {})


def test_a_watermark_that_has_not_moved_is_none() -> None:
    event_time = {"watermark": "1970-01-01T00:00:00.000Z"}
    assert batch_report({**PROGRESS, "eventTime": event_time}, []).watermark is None


def test_a_rate_that_spark_could_not_tell_is_zero() -> None:
    assert batch_report({**PROGRESS, "processedRowsPerSecond": None}, []).rows_per_second == 0.0


def test_a_clock_that_was_set_back_in_a_batch_makes_nothing_negative() -> None:
    durations = {"batchDuration": -3_598_741, "durationMs": {"addBatch": -3_598_800, "walCommit": 12}}
    report = batch_report({**PROGRESS, **durations, "processedRowsPerSecond": -0.1}, ["a", "b"])
    assert (report.duration_ms, report.rows_per_second) == (0, 0.0)
    assert report.phases_ms == {"addBatch": 0, "walCommit": 12}


def test_sources_are_not_named_when_spark_reports_another_number_of_them() -> None:
    assert batch_report(PROGRESS, ["a"]).sources == {}


def test_the_lag_is_the_time_from_the_watermark_to_now() -> None:
    status = Status("demo", "running", time("2024-01-01"))
    now = time("2024-01-01T00:02:30")
    assert status.lag(now) is None
    assert replace(status, last=batch_report(PROGRESS, [])).lag(now) == dt.timedelta(seconds=150)
    unmoved = batch_report({**PROGRESS, "eventTime": {}}, [])
    assert replace(status, last=unmoved).lag(now) is None


def test_the_time_until_nothing_waits_follows_the_pace_of_the_last_while() -> None:
    waiting = Waiting().noted(0.0, 1_000)
    assert waiting.seconds_left is None
    assert waiting.noted(10.0, 750).seconds_left == 30.0
    assert waiting.noted(10.0, 1_000).seconds_left is None
    assert waiting.noted(10.0, 1_001).seconds_left == float("inf")
    assert waiting.noted(10.0, 0).seconds_left is None
    # What was long ago no longer counts.
    assert waiting.noted(50.0, 900).noted(100.0, 800).seconds_left == 400.0
