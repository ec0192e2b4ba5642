"""What differs between two versions of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.spec.test_dump import pipelines

from penstock.frontends.yaml import parse_yaml
from penstock.spec.diff import Difference, cost, differences
from penstock.spec.dump import fingerprint
from penstock.spec.fields import Change
from penstock.spec.pipeline import Pipeline

BASE = """\
apiVersion: penstock/v1
kind: Pipeline
metadata: {name: p, labels: {team: news}}
spec:
  sources:
    s: {memory: {schema: {id: long, ts: timestamp}}, eventTime: {column: ts, maxDelay: 5 seconds}}
  steps:
    one: {from: s, filter: id > 1}
  sinks:
    out: {from: one, sqlite: {path: out.db, table: t}}
"""


def pipeline(old: str = "", new: str = "") -> Pipeline:
    assert old in BASE
    return parse_yaml(BASE.replace(old, new) if old else BASE, Path("p.yaml")).pipeline


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("team: news", "team: ads", "labels", Change.NOTHING),
        ("5 seconds", "6 seconds", "sources.s.eventTime.maxDelay", Change.RESTART),
        ("id > 1", "id > 2", "steps.one.filter.where", Change.RESTART),
        ("out.db", "other.db", "sinks.out.sqlite.path", Change.LOSES_STATE),
        ("filter: id > 1", "sql: SELECT * FROM s", "steps.one.component", Change.LOSES_STATE),
        ("    one: {", "    two: {from: s, filter: id > 9}\n    one: {", "steps.two", Change.RESTART),
        ("  sinks:", "  state: {partitions: 4}\n  sinks:", "state.partitions", Change.RESCALE),
    ],
)
def test_a_change_is_told_by_its_field_with_its_cost(old: str, new: str, path: str, expected: Change) -> None:
    found = differences(pipeline(), pipeline(old, new))
    assert [(each.path, each.cost) for each in found] == [(path, expected)]
    assert cost(found) is expected


def test_what_is_gone_loses_its_state() -> None:
    found = differences(pipeline("    one: {", "    two: {from: s, filter: id > 9}\n    one: {"), pipeline())
    assert [(each.path, each.after, each.cost) for each in found] == [("steps.two", None, Change.LOSES_STATE)]


def test_values_are_told_as_files_write_them() -> None:
    (found,) = differences(pipeline(), pipeline("5 seconds", "1 hour"))
    assert found == Difference("sources.s.eventTime.maxDelay", "5 seconds", "1 hour", Change.RESTART)


def test_all_together_cost_as_much_as_the_dearest() -> None:
    assert cost([]) is Change.NOTHING
    found = differences(pipeline(), pipeline("metadata: {name: p, labels: {team: news}}", "metadata: {name: q}"))
    assert {each.path for each in found} == {"name", "labels"}
    assert cost(found) is Change.LOSES_STATE


@settings(max_examples=20)
@given(pipelines(), pipelines())
def test_nothing_differs_exactly_if_two_pipelines_are_the_same(one: Pipeline, other: Pipeline) -> None:
    assert differences(one, one) == []
    assert (differences(one, other) == []) == (fingerprint(one) == fingerprint(other))
