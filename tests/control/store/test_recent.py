from __future__ import annotations

import datetime as dt

import pytest
from tests.control.clocks import HandClock
from tests.control.store.databases import T0, create
from tests.control.test_metrics import scraped, value

from penstock.control.alerts.evaluate import AlertState
from penstock.control.metrics import scrape
from penstock.control.samples import seen
from penstock.control.store import history, pipelines, runs
from penstock.control.store.alerting import AlertingStore
from penstock.control.store.database import Store
from penstock.control.store.recent import Recent, recent
from penstock.control.supervisor.health import Health
from penstock.control.supervisor.ports import Run, RunOutcome, State
from penstock.control.supervisor.watched import Live
from penstock.reports.values import BatchLine, RunStatus

NOW = T0 + dt.timedelta(days=1)


def ago(**time: float) -> dt.datetime:
    return NOW - dt.timedelta(**time)


def batch(pipeline: str, number: int, at: dt.datetime, **more: bool | int) -> history.BatchNumbers:
    return history.BatchNumbers(pipeline, "r000000000001", number, at, 10, rows_in=100, rows_out=90, dead=4, late=1,
                                details={"sink_ms": {"out": number}}, **more)  # type: ignore[arg-type]  # fmt: skip


def run(number: int, started_at: dt.datetime, outcome: RunOutcome | None, generation: int = 1) -> Run:
    ended_at = None if outcome is None else started_at
    return Run(f"r{number:012x}", "a", 1, generation, "local", started_at, ended_at=ended_at, outcome=outcome)


@pytest.fixture
def filled(store: Store) -> Store:
    with store.writing() as connection:
        for name in ("a", "b", "c"):
            create(connection, name)
        pipelines.steer(connection, "c", revision=1, now=NOW, desired="stopped")
        young = [batch("a", 5, ago(minutes=9)), batch("a", 6, ago(minutes=1), balanced=False)]
        old = [batch("a", 4, ago(minutes=11)), batch("a", 3, ago(minutes=59), balanced=False)]
        older = [batch("a", 2, ago(minutes=61), balanced=False), batch("b", 1, ago(hours=3))]
        thinned = [batch("a", 1, ago(minutes=5), grain=60)]
        history.add_batches(connection, [*young, *old, *older, *thinned])
        outcomes: list[RunOutcome | None] = ["failed", "died", "stopped", "lost", None]
        times = [ago(hours=3), ago(hours=2), ago(minutes=50), ago(minutes=40), ago(minutes=30)]
        runs.put(connection, (run(n, at, how) for n, (at, how) in enumerate(zip(times, outcomes, strict=True))))
    return store


def test_rows_and_trouble_of_the_last_times_are_counted(filled: Store) -> None:
    with filled.reading() as connection:
        found = recent(connection, ago(minutes=10), ago(hours=1))
    assert found["a"] == Recent(
        rows_in=200, rows_dead=8, rows_late=2, unbalanced=2, restarts=2, restarts_ever=3,
        last_batch=BatchLine(6, ago(minutes=1), 10, sink_ms={"out": 6}),
        wanted_since=ago(hours=3),
    )  # fmt: skip
    assert found["b"] == Recent(last_batch=BatchLine(1, ago(hours=3), 10, sink_ms={"out": 1}), wanted_since=T0)
    assert found["c"] == Recent()


def test_a_person_who_starts_it_again_makes_no_restart(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        runs.put(connection, [run(1, ago(minutes=9), "failed", 1), run(2, ago(minutes=5), None, 2)])
        found = recent(connection, NOW, ago(hours=1))
    assert (found["a"].restarts, found["a"].restarts_ever) == (0, 0)


def live_of(name: str, state: State, status: RunStatus) -> Live:
    return Live(name, Health(state, "a sink is slow"), run(4, ago(minutes=30), None), status)


STATUS = RunStatus("r000000000004", 7, "1", "running", NOW, rows_in={"views": 12}, disk_free=2**40)


def test_a_sample_holds_what_the_run_and_the_store_say(filled: Store) -> None:
    found = {each.name: each for each in seen(filled, {"a": live_of("a", "DEGRADED", STATUS)}, HandClock(NOW))}
    one = found["a"].sample
    assert (one.health, one.status, one.last_commit) == ("DEGRADED", STATUS, ago(minutes=1))
    assert (one.rows_in, one.rows_dead, one.rows_late, one.unbalanced, one.restarts) == (200, 8, 2, 2, 2)
    assert (found["a"].reason, found["a"].version, found["a"].target) == ("a sink is slow", 1, "local")
    assert found["a"].restarts == 3
    stopped = found["c"]
    assert (stopped.sample.wanted_since, stopped.sample.health, stopped.sample.status) == (None, "STOPPED", None)
    assert stopped.reason == "it was just registered"


def test_what_prometheus_asks_for_is_answered_without_the_store_too(filled: Store) -> None:
    live = {"a": live_of("a", "RUNNING", STATUS)}
    AlertingStore(filled).begin("a", "restarts", "page", AlertState("firing", NOW), "", NOW)
    found = scraped(scrape(filled, live, HandClock(NOW), tick_seconds=0.5))
    assert value(found, "penstock_rows_in_total", pipeline="a", node="views") == 12
    assert value(found, "penstock_sink_duration_seconds", pipeline="a", node="out") == 0.006
    assert value(found, "penstock_alert_firing", pipeline="a", rule="restarts", severity="page") == 1
    assert value(found, "penstock_restarts_total", pipeline="a") == 3
    assert value(found, "penstock_pipeline_wanted", pipeline="c") == 0
    assert (value(found, "penstock_store_up"), value(found, "penstock_notifications_waiting")) == (1, 0)
    gone = Store("postgresql://nobody@127.0.0.1:1/none")
    found = scraped(scrape(gone, live, HandClock(NOW), tick_seconds=0.5))
    assert value(found, "penstock_store_up") == 0
    assert value(found, "penstock_rows_in_total", pipeline="a", node="views") == 12
    assert value(found, "penstock_disk_free_bytes", pipeline="a") == 2**40


def test_who_may_see_some_pipelines_gets_the_metrics_of_these(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a", team="news")
        create(connection, "b", team="ads")
    found = scraped(scrape(store, {}, HandClock(NOW), tick_seconds=0.0, within={"team": "news"}))
    assert {dict(labels)["pipeline"] for _, labels in found if labels} == {"a"}
