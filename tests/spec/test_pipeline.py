from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import penstock as ps
from penstock.spec.fields import Change, change_of
from penstock.spec.pipeline import EventTime, LatePolicy
from penstock.spec.resolve import secret_values
from penstock.spec.units import Duration


def test_late_rows_are_dropped_unless_more_is_said() -> None:
    assert LatePolicy() == LatePolicy(policy="drop", allowed=Duration(3_600_000), sink=None)
    assert change_of(LatePolicy, "allowed") is Change.RESTART


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": "correct", "allowed": Duration(0)},
        {"policy": "side", "allowed": Duration(-1)},
        {"policy": "drop", "sink": ps.sinks.Console()},
        {"policy": "correct", "sink": ps.sinks.Console()},
        {"policy": "keep"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LatePolicy.model_validate(fields)


@pytest.mark.parametrize("name", ["idle_after", "max_ahead"])
def test_no_time_at_all_is_no_limit(name: str) -> None:
    with pytest.raises(ValidationError):
        EventTime.model_validate({"column": "ts", name: Duration(0)})


def test_secrets_of_sinks_for_late_rows_are_secrets_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(name: str) -> LatePolicy:
        return ps.Late("side", sink=ps.sinks.Postgres(url=f"${{secret:env/{name}}}", table="t"))

    monkeypatch.setenv("PENSTOCK_TEST_ONE", "one")
    monkeypatch.setenv("PENSTOCK_TEST_TWO", "two")
    p = ps.Pipeline("demo", late=late("PENSTOCK_TEST_ONE"))
    source = p.source("v", ps.sources.Memory(schema="a int"))
    source.sql("s", "SELECT 1", late=late("PENSTOCK_TEST_TWO")).to("out", ps.sinks.Console())
    assert secret_values(p.build()) == ["one", "two"]
