from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.alerts.memory import MemoryStore
from tests.control.alerts.test_measure import SAMPLE
from tests.frontends.reading import read, with_alert

from penstock.control.alerts.evaluate import Transition
from penstock.control.alerts.notify.channels import Channel
from penstock.control.alerts.rules import channels_for, rules_of, unknown_channels
from penstock.control.alerts.silences import Silence
from penstock.control.alerts.watch import Watch, Watched
from penstock.spec.alerts import DEFAULTS, Alert
from penstock.spec.secrets import resolve

START = SAMPLE.now
CHANNELS = {
    "team": Channel.model_validate({"webhook": {"url": "http://localhost/team"}}),
    "phone": Channel.model_validate({"webhook": {"url": "http://localhost/phone"}, "severities": ["page"]}),
    "quiet": Channel.model_validate({"webhook": {"url": "http://localhost/quiet"}, "severities": []}),
}


def alert(when: str, **more: object) -> Alert:
    return Alert.model_validate({"when": when, **more})


def at(seconds: int) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


class Stage:
    """A pipeline that is looked at once in ten seconds, with a number of restarts that the test chooses."""

    def __init__(self, *alerts: Alert, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.watch = Watch(self.store, CHANNELS)
        self.rules: Mapping[str, Alert] = {alert.title: alert for alert in alerts}
        self.second = 0

    def look(self, restarts: int, times: int = 1, health: str = "RUNNING", reason: str = "") -> list[tuple[str, str]]:
        """The changes of this many looks: what became of the alert, and the evidence."""
        found = []
        for _ in range(times):
            sample = replace(SAMPLE, restarts=restarts, now=at(self.second), health=health)
            watched = Watched("demo", self.rules, sample, reason, {"team": "news"})
            found += [(str(c.transition), c.evidence) for c in self.watch.look([watched], at(self.second))]
            self.second += 10
        return found

    def told(self) -> list[tuple[str, str]]:
        return [(row.outgoing.channel, row.transition) for row in self.store.outbox]


LOOP = alert("restarts >= 3", **{"for": "20 s"}, severity="page")


def test_an_alert_fires_after_its_time_and_is_over_after_a_calm_minute() -> None:
    stage = Stage(LOOP)
    assert stage.look(3, times=2) == []
    assert [one.state.phase for one in stage.store.open()] == ["pending"]
    assert stage.look(4) == [("firing", "restarts is 4, at least 3")]
    assert stage.look(5, times=3) == []
    assert stage.look(0, times=6) == []
    assert stage.look(0) == [("resolved", "restarts is 0")]
    assert stage.told() == [("team", "firing"), ("phone", "firing"), ("phone", "resolved"), ("team", "resolved")]
    assert [one.evidence for one in stage.store.over] == ["restarts is 4, at least 3"]
    assert stage.store.open() == []


def test_what_is_told_holds_all_that_is_needed() -> None:
    stage = Stage(replace_for(LOOP))
    stage.look(3)
    assert stage.store.outbox[0].outgoing.content == {
        "status": "firing", "pipeline": "demo", "rule": "restarts", "severity": "page", "condition": "restarts >= 3",
        "evidence": "restarts is 3, at least 3", "since": START.isoformat(), "at": START.isoformat(),
        "labels": {"team": "news"},
    }  # fmt: skip


def replace_for(one: Alert) -> Alert:
    return one.model_copy(update={"for_": alert("restarts > 1").for_})


def test_one_that_passes_in_time_leaves_no_trace() -> None:
    stage = Stage(LOOP)
    assert stage.look(3, times=2) + stage.look(0, times=9) == []
    assert (stage.store.open(), stage.store.over, stage.told()) == ([], [], [])


def test_it_goes_on_after_a_restart_of_the_server_and_tells_nothing_twice() -> None:
    store = MemoryStore()
    first = Stage(LOOP, store=store)
    first.look(3, times=2)
    second = Stage(LOOP, store=store)
    second.second = first.second
    assert [what for what, _ in second.look(3, times=3)] == ["firing"]
    third = Stage(LOOP, store=store)
    third.second = second.second
    assert third.look(3, times=3) == []
    assert third.told() == [("team", "firing"), ("phone", "firing")]


def test_nobody_is_told_during_a_silence_and_afterwards_only_of_what_still_fires() -> None:
    stage = Stage(replace_for(LOOP))
    stage.store.quiet.append(Silence(at(100), pipeline="demo", rule="restarts"))
    assert stage.look(3, times=10) == [("firing", "restarts is 3, at least 3")]
    assert stage.told() == []
    stage.look(3)
    assert stage.told() == [("team", "firing"), ("phone", "firing")]


def test_of_one_that_came_and_went_in_silence_nobody_is_told() -> None:
    stage = Stage(replace_for(LOOP))
    stage.store.quiet.append(Silence(at(1000)))
    assert [what for what, _ in stage.look(3) + stage.look(0, times=20)] == ["firing", "resolved"]
    assert stage.told() == []


@pytest.mark.parametrize(
    ("silence", "covers"),
    [
        (Silence(at(10)), True),
        (Silence(at(10), pipeline="demo"), True),
        (Silence(at(10), rule="restarts"), True),
        (Silence(at(10), pipeline="demo", rule="restarts"), True),
        (Silence(at(10), pipeline="other"), False),
        (Silence(at(10), rule="backlog"), False),
        (Silence(at(10), pipeline="demo", rule="backlog"), False),
        (Silence(at(0)), False),
    ],
)
def test_a_silence_covers_what_it_names_until_its_end(silence: Silence, covers: bool) -> None:
    assert silence.covers("demo", "restarts", at(0)) is covers


def test_an_alert_that_is_removed_ends_and_one_that_was_pending_is_forgotten() -> None:
    stage = Stage(replace_for(LOOP), alert("backlog > 1", **{"for": "1 hour"}))
    stage.look(3)
    stage.rules = {}
    assert stage.look(3) == [("resolved", "the alert is no longer there")]
    assert stage.told()[2:] == [("phone", "resolved"), ("team", "resolved")]
    assert stage.store.open() == []


def test_a_health_comes_with_its_reason_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "hunter2-canary")
    assert resolve("${secret:env/CANARY}") == "hunter2-canary"
    stage = Stage(DEFAULTS["failed"])
    ((what, said),) = stage.look(0, health="FAILED", reason="login hunter2-canary was refused")
    assert (what, said) == ("firing", "health is FAILED: login ${secret:env/CANARY} was refused")
    assert "hunter2" not in str(stage.store)


def test_own_alerts_replace_those_of_every_pipeline_by_name() -> None:
    assert rules_of([]) == DEFAULTS
    own = [alert("restarts > 9"), alert("restarts > 20", name="many"), Alert(name="disk_free", off=True)]
    rules = rules_of(own)
    assert (rules["restarts"], rules["many"]) == (own[0], own[1])
    assert rules.keys() == (DEFAULTS.keys() | {"many"}) - {"disk_free"}


def test_who_is_told_is_named_by_the_alert_or_follows_from_its_severity() -> None:
    assert channels_for(alert("restarts > 1", severity="page"), CHANNELS) == ("team", "phone")
    assert channels_for(alert("restarts > 1", severity="warn"), CHANNELS) == ("team",)
    assert channels_for(alert("restarts > 1", severity="info"), CHANNELS) == ()
    assert channels_for(alert("restarts > 1", notify=["quiet", "gone", "quiet"]), CHANNELS) == ("quiet",)


def test_a_channel_that_the_server_does_not_have_is_said_with_its_place() -> None:
    file = read(with_alert("when: restarts > 1, notify: [team, fone]"))
    (problem,) = unknown_channels(file, CHANNELS)
    assert problem.location is not None
    assert (problem.code, problem.location.line, problem.location.column) == ("ALERT_CHANNEL_UNKNOWN", 8, 43)
    assert problem.hint == "Did you mean 'phone'?"
    assert file.path == Path("p.yaml")


def test_many_pipelines_are_looked_at_each_for_itself() -> None:
    store = MemoryStore()
    watched = [
        Watched(f"p{number}", rules_of([]), replace(SAMPLE, restarts=number, unbalanced=0, rows_dead=0))
        for number in range(6)
    ]
    changes = Watch(store, CHANNELS).look(watched, START)
    assert [(change.pipeline, change.rule) for change in changes if change.transition is Transition.FIRING] == [
        ("p3", "restarts"), ("p4", "restarts"), ("p5", "restarts"),
    ]  # fmt: skip
