from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError
from tests.spec.strategies import conditions

from penstock.spec.alerts import DEFAULTS
from penstock.spec.conditions import HEALTH, MEASURES, Condition, in_words

PLAIN = {
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("watermark_lag > 5 minutes", Condition("watermark_lag", ">", 300.0)),
        ("  watermark_lag(views)>=1h 30m ", Condition("watermark_lag", ">=", 5400.0, "views")),
        ("backlog( views ) > 100_000", Condition("backlog", ">", 100_000.0, "views")),
        ("dead_share > 1%", Condition("dead_share", ">", 0.01)),
        ("dead_share > 0.5 %", Condition("dead_share", ">", 0.005)),
        ("late_share <= 0.25", Condition("late_share", "<=", 0.25)),
        ("disk_free < 10 GiB", Condition("disk_free", "<", 10.0 * 2**30)),
        ("state_bytes > 64MB", Condition("state_bytes", ">", 64e6)),
        ("restarts == 0", Condition("restarts", "==", 0.0)),
        ("health != running", Condition("health", "!=", "RUNNING")),
    ],
)
def test_a_condition_is_read_in_the_unit_of_what_it_watches(text: str, expected: Condition) -> None:
    assert Condition.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason", "advice"),
    [
        ("", "'' is not a condition", "Write for example `watermark_lag > 5 minutes`."),
        ("watermark_lag", "'watermark_lag' is not a condition", "Write for example `watermark_lag > 5 minutes`."),
        ("watermark_lag > ", "'' cannot be compared with watermark_lag", "watermark_lag is compared with a duration"),
        ("watermark_leg > 5 s", "'watermark_leg' cannot be watched", "Did you mean 'watermark_lag'?"),
        ("watermark_lag = 5 s", "`=` does not compare", "Write `==`."),
        ("watermark_lag > 5", "'5' cannot be compared with watermark_lag", "a duration such as `5 minutes`"),
        ("disk_free < 10 parsecs", "'10 parsecs' cannot be compared", "a size such as `10 GiB`"),
        ("restarts > 5%", "'5%' cannot be compared", "a number such as `1000`"),
        ("restarts > -1", "'-1' cannot be compared", "a number"),
        ("dead_share > 101%", "'101%' cannot be compared", "at most 100%"),
        ("dead_share > 5", "'5' cannot be compared", "at most 100%"),
        ("restarts(views) > 5", "there is one restarts of the whole pipeline", "Write `restarts > 5`."),
        ("health > RUNNING", "a health cannot be compared with `>`", "health == STALLED"),
        ("health == STALED", "'STALED' is not a health", "Did you mean 'STALLED'?"),
        ("restarts > 1 and backlog > 2", "'1 and backlog > 2' cannot be compared", "a number"),
        ("__import__('os') > 1", "is not a condition", "Write for example"),
        (5, "a condition is a text", "Write for example"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_to_write(text: object, reason: str, advice: str) -> None:
    with pytest.raises(PydanticCustomError) as raised:
        Condition.parse(text)
    assert raised.value.context is not None
    assert reason in raised.value.context["reason"]
    assert advice in raised.value.context["advice"]


@given(conditions())
def test_a_condition_written_out_reads_back_as_the_same(condition: Condition) -> None:
    assert Condition.parse(str(condition)) == condition


@given(conditions(), st.data())
def test_a_condition_holds_as_its_sign_says(condition: Condition, data: st.DataObject) -> None:
    values = st.sampled_from(HEALTH) if condition.measure == "health" else st.floats(0, 1e9)
    value = data.draw(values | st.just(condition.threshold))
    assert condition.holds(value) == PLAIN[condition.operator](value, condition.threshold)
    assert not condition.holds(None)


def test_values_are_shown_as_they_are_written() -> None:
    shown = {name: in_words(name, "FAILED" if name == "health" else 0.25) for name in MEASURES}
    assert (shown["dead_share"], shown["commit_age"], shown["backlog"]) == ("25%", "250 milliseconds", "0.25")
    assert (shown["health"], in_words("disk_free", 3 * 2**30), in_words("restarts", 4.0)) == ("FAILED", "3 GiB", "4")


def test_every_pipeline_has_alerts_for_what_must_not_go_unnoticed() -> None:
    assert {name: (str(alert.when), str(alert.for_), alert.severity) for name, alert in DEFAULTS.items()} == {
        "watermark_lag": ("watermark_lag > 15 minutes", "5 minutes", "warn"),
        "commit_age": ("commit_age > 10 minutes", "0 milliseconds", "page"),
        "restarts": ("restarts >= 3", "0 milliseconds", "page"),
        "dead_share": ("dead_share > 1%", "5 minutes", "warn"),
        "ledger_unbalanced": ("ledger_unbalanced > 0", "0 milliseconds", "page"),
        "disk_free": ("disk_free < 2 GiB", "1 minute", "page"),
        "failed": ("health == FAILED", "0 milliseconds", "page"),
        "stalled": ("health == STALLED", "5 minutes", "page"),
    }
