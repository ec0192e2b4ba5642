from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from tests.control.alerts.test_measure import NOW, SAMPLE, STATUS, ago

from penstock.control.metrics import (
    CATALOGUE,
    SERVER_CATALOGUE,
    Metric,
    PipelineNow,
    ServerMetric,
    ServerNow,
    exposition,
)
from penstock.reports.values import BatchLine, HistoryReport
from penstock.spec.conditions import HEALTH

FULL = replace(
    STATUS,
    at=ago(2),
    batches=9,
    rows_in={"views": 100, "clicks": 5}, rows_out={"out": 90}, rows_late={"per_minute": 3}, rows_dead={"views": 2},
    rows_filtered={"clean": 4}, history=HistoryReport(1, 4), checkpoint_at=ago(7), sink_retries={"out": 1},
)  # fmt: skip
BATCH = BatchLine(
    batch=3, at=ago(2), duration_ms=1500, sink_ms={"out": 700},
    phases_ms={"addBatch": 1200, "walCommit": 20, "commitOffsets": 30},
)  # fmt: skip
VIEWS = PipelineNow(
    "views", 4, "local", replace(SAMPLE, status=FULL, last_batch=BATCH), restarts=6, firing=[("restarts", "page")]
)
FRESH = PipelineNow(
    "fresh", 1, "big", replace(SAMPLE, status=None, last_batch=None, last_commit=None, health="STARTING")
)
SERVER = ServerNow(store_up=True, tick_seconds=0.25, notifications_waiting=2)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(text: bytes) -> Samples:
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_all_that_is_known_is_told() -> None:
    found = scraped(exposition([VIEWS, FRESH], SERVER))
    one = {"pipeline": "views"}
    assert value(found, "penstock_rows_in_total", node="views", **one) == 100
    assert value(found, "penstock_rows_out_total", node="out", **one) == 90
    assert value(found, "penstock_rows_late_total", node="per_minute", **one) == 3
    assert value(found, "penstock_rows_dead_total", node="views", **one) == 2
    assert value(found, "penstock_rows_filtered_total", node="clean", **one) == 4
    assert value(found, "penstock_rows_per_second", **one) == 120.5
    assert value(found, "penstock_backlog", node="clicks", unit="messages", **one) == 1200
    assert value(found, "penstock_catch_up_seconds", node="views", **one) == 4
    assert math.isinf(value(found, "penstock_catch_up_seconds", node="clicks", **one))
    assert value(found, "penstock_history_ratio", **one) == 0.25
    assert value(found, "penstock_watermark_timestamp_seconds", node="clicks", **one) == NOW.timestamp() - 400
    assert value(found, "penstock_watermark_lag_seconds", node="clicks", **one) == 400
    assert ("penstock_watermark_lag_seconds", (("node", "new"), ("pipeline", "views"))) not in found
    assert value(found, "penstock_batches_total", **one) == 9
    assert value(found, "penstock_batch_duration_seconds", **one) == 1.5
    assert value(found, "penstock_batch_phase_seconds", phase="addBatch", **one) == 1.2
    assert value(found, "penstock_commit_age_seconds", **one) == 60
    assert value(found, "penstock_checkpoint_duration_seconds", **one) == 0.05
    assert value(found, "penstock_checkpoint_age_seconds", **one) == 7
    assert value(found, "penstock_checkpoint_bytes", **one) == 4096
    assert value(found, "penstock_state_rows", **one) == 10
    assert value(found, "penstock_state_bytes", **one) == 2048
    assert value(found, "penstock_sink_duration_seconds", node="out", **one) == 0.7
    assert value(found, "penstock_sink_retries_total", node="out", **one) == 1
    assert value(found, "penstock_ledger_unbalanced_batches", **one) == 1
    assert value(found, "penstock_disk_free_bytes", **one) == 3 * 2**30
    assert value(found, "penstock_report_age_seconds", **one) == 2
    assert value(found, "penstock_restarts_total", **one) == 6
    assert value(found, "penstock_alert_firing", rule="restarts", severity="page", **one) == 1
    assert value(found, "penstock_pipeline_info", version="4", target="local", **one) == 1
    assert value(found, "penstock_pipeline_wanted", **one) == 1
    assert value(found, "penstock_store_up") == 1
    assert value(found, "penstock_tick_duration_seconds") == 0.25
    assert value(found, "penstock_notifications_waiting") == 2


def test_every_metric_of_the_catalogue_is_told_of_and_no_other() -> None:
    found = scraped(exposition([VIEWS], SERVER))
    expected = {metric.name: {"pipeline", *metric.labels} for metric in CATALOGUE}
    expected |= {metric.name: set() for metric in SERVER_CATALOGUE}
    assert {name: {key for key, _ in labels} for name, labels in found} == expected


def test_the_health_is_one_of_all() -> None:
    found = scraped(exposition([VIEWS, FRESH], SERVER))
    for name, health in (("views", "RUNNING"), ("fresh", "STARTING")):
        states = {state: value(found, "penstock_health", pipeline=name, state=state) for state in HEALTH}
        assert states == {state: float(state == health) for state in HEALTH}


def test_of_a_pipeline_without_a_run_only_what_is_known_is_told() -> None:
    stopped = PipelineNow("fresh", 1, "big", replace(FRESH.sample, wanted_since=None, unbalanced=0, health="STOPPED"))
    found = scraped(exposition([stopped], ServerNow(False, 0.0)))
    told = {name for name, labels in found if ("pipeline", "fresh") in labels}
    assert told == {
        "penstock_pipeline_info", "penstock_pipeline_wanted", "penstock_health", "penstock_restarts_total",
        "penstock_ledger_unbalanced_batches",
    }  # fmt: skip
    assert value(found, "penstock_pipeline_wanted", pipeline="fresh") == 0
    assert value(found, "penstock_store_up") == 0
    assert ("penstock_notifications_waiting", ()) not in found


def test_names_follow_the_rules_of_prometheus() -> None:
    metrics: list[Metric | ServerMetric] = [*CATALOGUE, *SERVER_CATALOGUE]
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert re.fullmatch(r"penstock_[a-z_]+", metric.name)
        assert metric.help.endswith(".")
        assert ("_seconds" in metric.name) == metric.unit.startswith("seconds")
        assert ("_bytes" in metric.name) == (metric.unit == "bytes")
    assert all((metric.kind == "counter") == metric.name.endswith("_total") for metric in CATALOGUE)


def test_two_hundred_pipelines_are_told_of_quickly() -> None:
    pipelines = [replace(VIEWS, name=f"p{number}") for number in range(200)]
    before = dt.datetime.now(dt.UTC)
    text = exposition(pipelines, SERVER)
    assert (dt.datetime.now(dt.UTC) - before).total_seconds() < 2
    assert len(scraped(text)) > 200 * len(CATALOGUE)
