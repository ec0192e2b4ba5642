"""Alerts as pipeline files say them."""

from __future__ import annotations

import pytest
from tests.frontends.reading import mistakes, only_problem, problems_of, read, with_alert
from tests.frontends.test_python import failed, line, views

import penstock as ps
from penstock.errors import PenstockError
from penstock.spec.alerts import Alert
from penstock.spec.conditions import Condition
from penstock.spec.units import Duration

LAG = Condition("watermark_lag", ">", 300.0)


def test_an_alert_is_read_with_all_it_says() -> None:
    keys = "name: lag, when: watermark_lag > 5 minutes, for: 2 minutes, severity: page, notify: [team, boss]"
    (alert,) = read(with_alert(keys)).pipeline.alerts
    assert (alert.title, alert.when, alert.for_) == ("lag", LAG, Duration(120_000))
    assert (alert.severity, alert.notify, alert.off) == ("page", ("team", "boss"), False)


def test_an_alert_without_a_name_is_called_as_what_it_watches() -> None:
    (alert,) = read(with_alert("when: backlog(views) > 10")).pipeline.alerts
    assert (alert.title, alert.severity, alert.for_) == ("backlog", "warn", Duration(0))


def test_an_alert_can_be_turned_off() -> None:
    assert [alert.off for alert in read(with_alert("name: restarts, off: true")).pipeline.alerts] == [True]


@pytest.mark.parametrize(
    ("alert", "found", "message", "hint"),
    [
        ("when: watermark_leg > 5 s", ("SPEC_BAD_VALUE", 8, 14), "`when` of alert 1: 'watermark_leg' cannot be watched",
         "Did you mean 'watermark_lag'?"),
        ("when: backlog(vews) > 5", ("SPEC_BAD_VALUE", 8, 14), "`when` of alert 1: there is no source 'vews'",
         "Did you mean 'views'?"),
        ("when: sink_duration(views) > 5 s", ("SPEC_BAD_VALUE", 8, 14), "`when` of alert 1: there is no sink 'views'",
         "Known: out."),
        ("when: 5", ("SPEC_BAD_VALUE", 8, 14), "`when` of alert 1: a condition is a text",
         "Write for example `watermark_lag > 5 minutes`."),
        ("for: 5 s", ("SPEC_BAD_VALUE", 8, 7), "alert 1: an alert needs a condition",
         "Write for example `when: watermark_lag > 5 minutes`."),
        ("when: restarts > 1, sevrity: page", ("SPEC_UNKNOWN_KEY", 8, 28), "unknown key 'sevrity' in alert 1",
         "Did you mean 'severity'?"),
        ("when: restarts > 1, severity: loud", ("SPEC_BAD_VALUE", 8, 38),
         "`severity` of alert 1: the text 'loud' is not one of 'page', 'warn' or 'info'", "Known: info, page, warn."),
        ("when: restarts > 1, for: soon", ("SPEC_BAD_VALUE", 8, 33), "`for` of alert 1: 'soon' is not a duration", ""),
        ("name: restart, off: true", ("SPEC_BAD_VALUE", 8, 14),
         "`name` of alert 1: there is no alert 'restart' that every pipeline has", "Did you mean 'restarts'?"),
        ("off: true", ("SPEC_BAD_VALUE", 8, 7), "alert 1: which alert is off is not said", "Add its `name`"),
        ("name: restarts, off: true, when: restarts > 1", ("SPEC_BAD_VALUE", 8, 41),
         "`when` of alert 1: an alert that is off has no condition", "Remove `when`, or remove `off`."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(alert: str, found: tuple[str, int, int], message: str, hint: str) -> None:
    problem = only_problem(with_alert(alert))
    assert problem.location is not None
    assert (problem.code, problem.location.line, problem.location.column) == found
    assert problem.message.startswith(message)
    assert problem.hint.startswith(hint)


def test_two_alerts_cannot_have_one_name() -> None:
    text = with_alert("when: backlog > 1", "  - {when: disk_free > 1 GB}\n  - {when: backlog > 2, severity: page}\n")
    assert mistakes(text) == [("ALERT_DUPLICATE", 10, 7)]
    assert "The first is at p.yaml:8:7." in only_problem(text).hint
    named = with_alert("when: backlog > 1", "  - {when: backlog > 2, name: much, severity: page}\n")
    assert [alert.title for alert in read(named).pipeline.alerts] == ["backlog", "much"]


def test_alerts_are_a_list() -> None:
    text = with_alert("when: backlog > 1").replace("- {when: backlog > 1}", "when: backlog > 1")
    (problem,) = problems_of(read, text)
    assert (problem.code, problem.hint) == ("SPEC_WRONG_TYPE", "Start each alert with `- when:`.")


def test_alerts_are_said_in_python() -> None:
    p = ps.Pipeline("demo")
    views(p).to("out", ps.sinks.Console())
    p.alert("watermark_lag > 5 minutes", for_="2 minutes", severity="page", notify=["team"])
    p.alert(name="restarts", off=True)
    lag = Alert.model_validate({"when": LAG, "for": "2 minutes", "severity": "page", "notify": ["team"]})
    assert p.build().alerts == (lag, Alert(name="restarts", off=True))


def test_a_wrong_alert_is_raised_with_the_place_of_the_call() -> None:
    p = ps.Pipeline("demo")
    views(p).to("out", ps.sinks.Console())
    with pytest.raises(PenstockError) as raised:
        p.alert("watermark_leg > 5 minutes")
    assert failed(raised) == ("SPEC_BAD_VALUE", __file__, line() - 1)
    p.alert("backlog(vews) > 1")
    wrong = line() - 1
    with pytest.raises(PenstockError) as raised:
        p.build()
    assert failed(raised) == ("SPEC_BAD_VALUE", __file__, wrong)
