"""Alerts from pipeline files in the store to events and notifications."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.control.alerts.receivers import web_receiver
from tests.control.alerts.test_measure import SAMPLE
from tests.control.clocks import HandClock
from tests.frontends.reading import read, with_alert

from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.service import AlertService, alerts_in
from penstock.control.samples import Seen
from penstock.control.store import alerts, history, pipelines
from penstock.control.store.database import Store
from penstock.control.supervisor.ports import State
from penstock.errors import PenstockError
from penstock.spec.alerts import Alert
from penstock.spec.conditions import HEALTH
from penstock.spec.dump import as_document

NOW = SAMPLE.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.in_folder(tmp_path)
    store.migrate()
    yield store
    store.close()


def draft(alert: str) -> pipelines.Draft:
    text = with_alert(alert)
    return pipelines.Draft("yaml", text, {"team": "news"}, as_document(read(text).pipeline))


def look_at(version: int = 1) -> list[Seen]:
    return [Seen("demo", replace(SAMPLE, unbalanced=0), "", version, "local", {"team": "news"})]


def test_another_pipeline_of_the_same_name_has_its_own_alerts(store: Store) -> None:
    with store.writing() as connection:
        pipelines.create(connection, "demo", draft("when: state_rows > 50"), now=NOW, by="ann")
    seen = [replace(each, made=NOW) for each in look_at()]
    service = AlertService(store, lambda: seen, {}, HandClock(NOW))
    assert service.look() == []
    later = NOW + dt.timedelta(seconds=1)
    with store.writing() as connection:
        pipelines.forget(connection, "demo")
        pipelines.create(connection, "demo", draft("when: state_rows > 5"), now=later, by="bob")
    seen = [replace(each, made=later) for each in look_at()]
    assert [change.rule for change in service.look()] == ["state_rows"]


def test_the_alerts_of_the_version_that_runs_are_evaluated(store: Store) -> None:
    with store.writing() as connection:
        pipelines.create(connection, "demo", draft("when: state_rows > 5"), now=NOW, by="ann")
    seen = look_at()
    service = AlertService(store, lambda: seen, {}, HandClock(NOW))
    assert [(change.rule, str(change.transition)) for change in service.look()] == [("state_rows", "firing")]
    assert service.look() == []
    with store.writing() as connection:
        pipelines.upgrade(connection, "demo", draft("when: state_rows > 50"), revision=1, now=NOW, by="ann")
    seen = look_at(2)
    assert service.look() == []
    service = AlertService(store, lambda: seen, {}, HandClock(NOW + dt.timedelta(minutes=2)))
    assert [(change.rule, change.evidence) for change in service.look()] == [("state_rows", "state_rows is 10")]
    with store.reading() as connection:
        events = [(event.kind, event.text) for event in history.listed_events(connection, pipeline="demo").items]
        (kept,) = alerts.listed_alerts(connection, pipeline="demo", state="resolved").items
    assert events == [
        ("alert", "alert 'state_rows' is resolved: state_rows is 10"),
        ("alert", "alert 'state_rows' is firing: state_rows is 10, more than 5"),
    ]
    assert (kept.rule, kept.evidence) == ("state_rows", "state_rows is 10, more than 5")


def test_the_thread_sends_and_a_look_that_fails_is_not_the_last(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.alerts.service.LOOK_SECONDS", 0.01)
    with store.writing() as connection:
        pipelines.create(connection, "demo", draft("when: state_rows > 5"), now=NOW, by="ann")
    looks = iter([PenstockError.of("STORE_DOWN", reason="gone"), RuntimeError("odd")])
    troubles: list[str | None] = []
    told = threading.Event()

    def seen() -> list[Seen]:
        troubles.append(service.trouble)
        error = next(looks, None)
        if error is not None:
            raise error
        if len(web.bodies) == 1:
            told.set()
        return look_at()

    with web_receiver() as web:
        channels = {"team": Channel.model_validate({"webhook": {"url": web.url}})}
        service = AlertService(store, seen, channels, HandClock(NOW))
        thread = threading.Thread(target=service.run)
        thread.start()
        assert told.wait(20)
        service.end()
        thread.join(20)
    assert [body["rule"] for body in web.bodies] == ["state_rows"]
    assert troubles[:3] == [None, "the server's database does not answer: gone", "RuntimeError: odd"]
    assert service.trouble is None


def test_alerts_are_read_from_the_document_as_they_were_written() -> None:
    pipeline = read(with_alert("when: backlog(views) > 1_000, for: 5 min, notify: [team]")).pipeline
    assert tuple(alerts_in(as_document(pipeline))) == pipeline.alerts
    assert alerts_in({}) == []
    assert alerts_in({"spec": {"alerts": [{"name": "restarts", "off": True}]}}) == [Alert(name="restarts", off=True)]


def test_conditions_know_every_state_of_the_supervisor() -> None:
    assert sorted(HEALTH) == sorted(get_args(State))
