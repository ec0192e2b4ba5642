from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from penstock.control.alerts.evidence import after_all, evidence, shown
from penstock.control.alerts.measure import Sample, value_of
from penstock.reports.values import BacklogReport, BatchLine, HistoryReport, LastBatch, RunStatus
from penstock.spec.conditions import HEALTH, MEASURES, Condition

NOW = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def millis(seconds_ago: float) -> int:
    return round(ago(seconds_ago).timestamp() * 1000)


STATUS = RunStatus(
    run="r000000000001", pid=1, process_started="1", phase="running", at=NOW,
    rows_per_second=120.5,
    watermarks={"views": millis(30), "clicks": millis(400), "new": 0},
    backlog={"views": BacklogReport(7, "files"), "clicks": BacklogReport(1200, "messages")},
    caught_up_in={"views": 4.0, "clicks": None},
    last_batch=LastBatch(3, ago(2), 1500),
    state_rows=10, state_bytes=2048, checkpoint_bytes=4096, disk_free=3 * 2**30,
)  # fmt: skip
SAMPLE = Sample(
    now=NOW, health="RUNNING", wanted_since=ago(7200), status=STATUS,
    last_batch=BatchLine(batch=3, at=ago(2), duration_ms=1500, sink_ms={"out": 700, "copy": 90}),
    last_commit=ago(60), restarts=2, unbalanced=1, rows_in=1000, rows_dead=20, rows_late=5,
)  # fmt: skip


def measured(text: str, sample: Sample = SAMPLE) -> float | str | None:
    zero = "RUNNING" if text == "health" else "0 s" if MEASURES[text.split("(")[0]].quantity == "duration" else "0"
    return value_of(Condition.parse(f"{text} == {zero}"), sample)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("watermark_lag", 400.0),
        ("watermark_lag(views)", 30.0),
        ("watermark_lag(new)", None),
        ("commit_age", 60.0),
        ("backlog", 1200.0),
        ("backlog(views)", 7.0),
        ("catch_up(views)", 4.0),
        ("catch_up", float("inf")),
        ("batch_duration", 1.5),
        ("sink_duration", 0.7),
        ("sink_duration(copy)", 0.09),
        ("rows_per_second", 120.5),
        ("restarts", 2.0),
        ("dead_share", 0.02),
        ("late_share", 0.005),
        ("ledger_unbalanced", 1.0),
        ("disk_free", 3.0 * 2**30),
        ("state_rows", 10.0),
        ("state_bytes", 2048.0),
        ("checkpoint_bytes", 4096.0),
        ("health", "RUNNING"),
    ],
)
def test_what_is_watched_is_measured(text: str, expected: float | str | None) -> None:
    assert measured(text) == expected


@pytest.mark.parametrize("name", MEASURES)
def test_of_a_pipeline_that_is_not_meant_to_run_nothing_is_measured(name: str) -> None:
    assert measured(name) is not None
    assert measured(name, replace(SAMPLE, wanted_since=None)) is None


@pytest.mark.parametrize("name", MEASURES)
def test_before_the_first_report_nothing_is_missing(name: str) -> None:
    fresh = Sample(now=NOW, health="STARTING", wanted_since=ago(5))
    expected = {"health": "STARTING", "commit_age": 5.0, "restarts": 0.0, "ledger_unbalanced": 0.0}
    assert measured(name, fresh) == expected.get(name)


@pytest.mark.parametrize("health", HEALTH)
def test_a_pipeline_with_nothing_to_read_is_not_behind(health: str) -> None:
    sample = replace(SAMPLE, health=health)
    nothing_to_do = health in ("IDLE", "STOPPING", "STOPPED")
    assert (measured("watermark_lag", sample) is None) == nothing_to_do
    assert (measured("commit_age", sample) is None) == nothing_to_do


def test_while_history_is_read_the_watermark_is_not_behind() -> None:
    reading = replace(SAMPLE, status=replace(STATUS, history=HistoryReport(1, 10)))
    assert measured("watermark_lag", reading) is None
    assert measured("commit_age", reading) == 60.0


def test_the_age_of_a_commit_counts_from_when_the_pipeline_was_wanted() -> None:
    assert measured("commit_age", replace(SAMPLE, wanted_since=ago(10), last_commit=ago(90_000))) == 10.0
    assert measured("commit_age", replace(SAMPLE, wanted_since=ago(900), last_commit=None)) == 900.0


@pytest.mark.parametrize(
    ("condition", "value", "words"),
    [
        ("watermark_lag > 5 minutes", 431.2, "watermark_lag is 7 min 11 s, more than 5 minutes"),
        ("catch_up(views) >= 1 hour", float("inf"), "catch_up(views) is without end, at least 1 hour"),
        ("disk_free < 2 GiB", 1.5 * 2**30, "disk_free is 1.5 GiB, less than 2 GiB"),
        ("dead_share > 1%", 0.0251, "dead_share is 2.51%, more than 1%"),
        ("restarts >= 3", 4.0, "restarts is 4, at least 3"),
        ("health == FAILED", "FAILED", "health is FAILED: the table is gone"),
    ],
)
def test_evidence_is_a_sentence(condition: str, value: float | str, words: str) -> None:
    assert evidence(Condition.parse(condition), value, "the table is gone") == words


def test_values_are_rounded_as_people_say_them() -> None:
    times = {
        0.25: "250 ms",
        1.0: "1 s",
        59.6: "1 min",
        3600: "1 h",
        3661: "1 h 1 min",
        90_000: "1 d 1 h",
        86_405: "1 d",
    }
    assert {seconds: shown("commit_age", seconds) for seconds in times} == times
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1.5 * 2**40: "1.5 TiB", 5000 * 2**40: "5000 TiB"}
    assert {count: shown("disk_free", count) for count in sizes} == sizes
    assert (shown("backlog", 1234567), shown("rows_per_second", 1.25)) == ("1,234,567", "1.2")
    lag = Condition.parse("watermark_lag > 5 s")
    assert after_all(lag, 3.0) == "watermark_lag is 3 s"
    assert after_all(lag, None) == "watermark_lag is not measured any more"
