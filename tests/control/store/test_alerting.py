"""The store as alerts use it; what holds for the databases holds for the store in memory of the other tests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import delete
from tests.control.alerts.memory import MemoryStore
from tests.control.alerts.receivers import web_receiver
from tests.control.alerts.test_measure import SAMPLE
from tests.control.store.databases import T0, create, url_of

from penstock.control.alerts.evaluate import AlertState
from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.notify.courier import Courier
from penstock.control.alerts.ports import AlertStore, Gone, OpenAlert, Outbox
from penstock.control.alerts.silences import Silence
from penstock.control.alerts.watch import Watch, Watched
from penstock.control.store import alerts as rows
from penstock.control.store.alerting import AlertingStore
from penstock.control.store.database import Store
from penstock.control.store.schema import pipelines
from penstock.spec.alerts import DEFAULTS, Alert


class Both(AlertStore, Outbox, Protocol):
    pass


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def with_pipelines(store: Store) -> AlertingStore:
    with store.writing() as connection:
        create(connection, "a")
        create(connection, "b")
    return AlertingStore(store)


@pytest.fixture
def alerting(store: Store) -> AlertingStore:
    return with_pipelines(store)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    if request.param == "memory":
        yield MemoryStore()
        return
    file = f"sqlite:///{tmp_path / 'penstock.db'}"
    store = Store(file if request.param == "sqlite" else url_of(request.getfixturevalue("postgres_database")))
    store.migrate()
    yield with_pipelines(store)
    store.close()


def test_an_alert_goes_from_pending_to_firing_to_resolved(either: Both) -> None:
    pending = AlertState("pending", at(0))
    one = either.begin("a", "restarts", "page", pending, "restarts is 3", at(0))
    two = either.begin("b", "backlog", "warn", pending, "backlog is 7", at(1))
    assert list(either.open()) == [
        OpenAlert(one, "a", "restarts", "page", pending, "restarts is 3"),
        OpenAlert(two, "b", "backlog", "warn", pending, "backlog is 7"),
    ]
    either.drop(two)
    firing = AlertState("firing", at(0))
    either.move(one, firing, "restarts is 4", at(5))
    assert list(either.open()) == [OpenAlert(one, "a", "restarts", "page", firing, "restarts is 4")]
    calm = AlertState("firing", at(0), at(9))
    either.move(one, calm, "restarts is 4", at(9))
    assert [alert.state for alert in either.open()] == [calm]
    either.resolve(one, at(70), {})
    assert (list(either.open()), list(either.due(at(999)))) == ([], [])


def test_the_times_of_an_alert_are_kept(store: Store, alerting: AlertingStore) -> None:
    one = alerting.begin("a", "restarts", "page", AlertState("pending", at(0)), "", at(0))
    alerting.move(one, AlertState("firing", at(0)), "", at(5))
    alerting.move(one, AlertState("firing", at(0), at(9)), "", at(9))
    two = alerting.begin("a", "failed", "page", AlertState("firing", at(3)), "", at(3))
    alerting.resolve(one, at(70), {})
    with store.reading() as connection:
        first, second = rows.get_alert(connection, one), rows.get_alert(connection, two)
    assert (first.state, first.since, first.fired_at, first.resolved_at) == ("resolved", at(0), at(5), at(70))
    assert (second.state, second.since, second.fired_at, second.resolved_at) == ("firing", at(3), at(3), None)


def test_a_transition_is_told_to_a_channel_once_and_in_order(either: Both) -> None:
    one = either.begin("a", "restarts", "page", AlertState("firing", at(0)), "", at(0))
    either.tell(one, ["team", "phone"], at(0), {"status": "firing"})
    either.tell(one, ["team", "later"], at(1), {"status": "again"})
    assert [alert.told for alert in either.open()] == [{"team", "phone", "later"}]
    found = list(either.due(at(1)))
    assert [(each.channel, each.content["status"], each.attempts) for each in found] == [
        ("team", "firing", 0),
        ("phone", "firing", 0),
        ("later", "again", 0),
    ]
    either.sent(found[0].id, at(2))
    either.failed(found[1].id, "no", at(20))
    either.failed(found[2].id, "never", None)
    assert list(either.due(at(19))) == []
    either.resolve(one, at(10), {"status": "resolved"})
    told = {each.channel: each.content["status"] for each in either.due(at(10))}
    assert told == {"team": "resolved", "later": "resolved"}
    again = [each for each in either.due(at(20)) if each.channel == "phone"]
    assert [(each.content["status"], each.attempts, each.created_at) for each in again] == [("firing", 1, at(0))]
    either.sent(again[0].id, at(21))
    assert [each.content["status"] for each in either.due(at(21)) if each.channel == "phone"] == ["resolved"]


def test_only_silences_that_hold_are_given(store: Store, alerting: AlertingStore) -> None:
    with store.writing() as connection:
        rows.add_silence(connection, pipeline="a", rule=None, until=at(10), by="ann", why="move", now=at(0))
        rows.add_silence(connection, pipeline=None, rule="restarts", until=at(5), by="ann", why="", now=at(0))
    assert list(alerting.silences(at(5))) == [Silence(at(10), "a", None)]
    assert len(alerting.silences(at(4))) == 2


def test_a_pipeline_that_was_deleted_meanwhile_does_not_stop_the_others(store: Store, alerting: AlertingStore) -> None:
    firing = AlertState("firing", at(0))
    known = alerting.begin("a", "restarts", "page", firing, "", at(0))
    with store.writing() as connection:
        connection.execute(delete(pipelines).where(pipelines.c.name == "a"))
    with pytest.raises(Gone):
        alerting.begin("a", "failed", "page", firing, "", at(0))
    with pytest.raises(Gone):
        alerting.tell(known, ["team"], at(0), {})
    rules = {"restarts": DEFAULTS["restarts"]}
    watched = [Watched(name, rules, replace(SAMPLE, restarts=9)) for name in ("a", "b")]
    assert [change.pipeline for change in Watch(alerting, {}).look(watched, at(9))] == ["b"]


def test_from_a_condition_to_a_webhook_over_restarts_of_the_server(store: Store, alerting: AlertingStore) -> None:
    rules = {"restarts": Alert.model_validate({"when": "restarts >= 3", "for": "20 s", "severity": "page"})}
    with web_receiver() as web:
        channels = {"team": Channel.model_validate({"webhook": {"url": web.url}})}
        told = []
        for second in range(0, 200, 10):
            fresh = AlertingStore(store)
            sample = replace(SAMPLE, now=at(second), restarts=5 if second < 60 else 0)
            told += Watch(fresh, channels).look([Watched("a", rules, sample)], at(second))
            Courier(fresh, channels, lambda: T0 + dt.timedelta(hours=1)).deliver()
    assert [(change.rule, str(change.transition)) for change in told] == [
        ("restarts", "firing"),
        ("restarts", "resolved"),
    ]
    assert [(body["status"], body["since"], body["at"]) for body in web.bodies] == [
        ("firing", at(0).isoformat(), at(20).isoformat()),
        ("resolved", at(0).isoformat(), at(120).isoformat()),
    ]
    assert alerting.waiting() == 0
