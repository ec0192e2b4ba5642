from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from tests.spec.strategies import conditions, durations, names, rows, schemas, times, words

import penstock as ps
from penstock.frontends.assemble import assemble
from penstock.frontends.json_schema import json_schema
from penstock.frontends.yaml import parse_yaml
from penstock.spec.alerts import AlertSeverity
from penstock.spec.dump import as_document, fingerprint
from penstock.spec.location import Places
from penstock.spec.pipeline import EventTime, LatePolicy, Pipeline

SEVERITIES: list[AlertSeverity] = ["page", "warn", "info"]
VALIDATOR = Draft202012Validator(json_schema())


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Pipelines of random shape that use every field in which dumping could go wrong."""
    labels = draw(st.dictionaries(words, words, max_size=2))
    trigger, partitions = draw(st.none() | durations), draw(st.none() | st.integers(1, 4096))
    dead = ps.sinks.Files(path=draw(words)) if draw(st.booleans()) else None
    late = draw(st.none() | late_policies())
    p = ps.Pipeline(draw(names), labels=labels, trigger=trigger, partitions=partitions, dead_letters=dead, late=late)
    free = iter(draw(st.lists(names, min_size=8, max_size=8, unique=True)))
    event_time = draw(st.none() | event_times())
    files = ps.sources.Files(path=draw(words), ignore_older_than=draw(st.none() | durations))
    made = [
        p.source(next(free), files, format=draw(formats()), event_time=event_time),
        p.source(next(free), ps.sources.Memory(schema=draw(schemas()), rows=draw(rows))),
    ]
    read = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    made.append(p.sql(next(free), draw(words), inputs=read, late=draw(st.none() | late_policies())))
    late = draw(st.none() | late_policies())
    made.append(p.step(next(free), draw(steps()), inputs=[draw(st.sampled_from(made))], late=late))
    draw(st.sampled_from(made)).to(next(free), ps.sinks.Sqlite(path=draw(words), table="t", key=draw(st.lists(words))))
    if draw(st.booleans()):
        p.test(draw(words), given={made[0]: draw(rows)}, expect={made[2]: draw(rows)})
    if draw(st.booleans()):
        condition = draw(conditions(st.sampled_from([node.name for node in made[:2]])))
        severity, notify = draw(st.sampled_from(SEVERITIES)), draw(st.lists(names, max_size=2))
        p.alert(condition, for_=draw(st.none() | durations), severity=severity, name=draw(names), notify=notify)
        p.alert(name="restarts", off=True)
    return p.build()


@st.composite
def event_times(draw: st.DrawFn) -> EventTime:
    max_delay, idle_after = draw(st.none() | durations), draw(st.none() | times)
    if draw(st.booleans()):
        return ps.EventTime(draw(words), max_delay, idle_after=idle_after)
    return ps.EventTime(draw(words), max_delay, idle_after=idle_after, max_ahead=draw(st.none() | times))


@st.composite
def late_policies(draw: st.DrawFn) -> LatePolicy:
    allowed = draw(st.none() | times)
    sinks = st.none() | st.builds(lambda path: ps.sinks.Files(path=path), words) | st.just(ps.sinks.Console())
    if draw(st.booleans()):
        return ps.Late("side", allowed=allowed, sink=draw(sinks))
    return ps.Late("drop" if draw(st.booleans()) else "correct", allowed=allowed)


def formats() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda schema: ps.formats.Json(schema=schema), schemas()),
        st.builds(lambda schema, header: ps.formats.Csv(schema=schema, header=header), schemas(), st.booleans()),
        st.builds(lambda: ps.formats.Text()),
    )


def steps() -> st.SearchStrategy[Any]:
    mapped: st.SearchStrategy[Any] = st.dictionaries(words | st.just("columns"), words, min_size=1, max_size=2)
    return st.one_of(
        st.builds(lambda where: ps.steps.Filter(where=where), words),
        st.builds(lambda columns: ps.steps.Select(columns=columns), mapped | st.lists(words, min_size=1, max_size=3)),
        st.builds(lambda by, within: ps.steps.Dedupe(by=[by], within=within), words, st.none() | durations),
        st.builds(lambda missing: ps.steps.Union(allow_missing=missing), st.booleans()),
    )


@given(pipelines())
def test_a_document_reads_back_as_the_same_pipeline(pipeline: Pipeline) -> None:
    again = assemble(as_document(pipeline), Places("f"))
    assert again == pipeline
    assert fingerprint(again) == fingerprint(pipeline)


@given(pipelines())
def test_a_document_fits_the_json_schema(pipeline: Pipeline) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(as_document(pipeline))] == []


@given(pipelines())
def test_a_document_written_as_yaml_reads_back(pipeline: Pipeline) -> None:
    text = StringIO()
    YAML().dump(as_document(pipeline), text)
    assert parse_yaml(text.getvalue(), Path("f.yaml")).pipeline == pipeline


def small(schema: Any = "a int, b int", labels: Any = None, query: str = "SELECT 1") -> ps.Pipeline:
    p = ps.Pipeline("demo", labels=labels)
    p.source("v", ps.sources.Memory(schema=schema)).sql("s", query).to("out", ps.sinks.Console())
    return p


def test_a_document_is_written_as_people_write_it() -> None:
    p = small()
    p.source("w", ps.sources.Files(path="in", ignore_older_than="2 days"), format=ps.formats.Text())
    assert as_document(p.build())["spec"] == {
        "sources": {
            "v": {"memory": {"schema": {"a": "int", "b": "int"}}},
            "w": {"files": {"path": "in", "ignoreOlderThan": "2 days"}, "format": {"text": {}}},
        },
        "steps": {"s": {"from": "v", "sql": "SELECT 1"}},
        "sinks": {"out": {"from": "s", "console": {}}},
    }


def test_a_mapping_that_would_be_mistaken_for_the_long_form_is_written_in_it() -> None:
    p = ps.Pipeline("demo")
    selected = p.source("v", ps.sources.Memory(schema="a int")).step("s", ps.steps.Select(columns={"columns": "a"}))
    selected.to("out", ps.sinks.Console())
    assert as_document(p.build())["spec"]["steps"]["s"] == {"from": "v", "select": {"columns": {"columns": "a"}}}


def test_the_fingerprint_is_equal_exactly_for_equal_pipelines() -> None:
    same = [small(labels={"a": "1", "b": "2"}), small(labels={"b": "2", "a": "1"})]
    assert len({fingerprint(p.build()) for p in same}) == 1
    different = [small(), small(schema="b int, a int"), small(labels={"a": "1"}), small(query="SELECT 2")]
    assert len({fingerprint(p.build()) for p in different}) == 4


def test_late_is_written_in_short_where_the_policy_says_all() -> None:
    p = ps.Pipeline("demo", late=ps.Late("side", allowed="1 day", sink=ps.sinks.Files(path="late")))
    source = p.source("v", ps.sources.Memory(schema="a int"), event_time=ps.EventTime("t", max_ahead=None))
    source.step("own", ps.steps.Filter(where="a > 1"), late="drop").to("out", ps.sinks.Console())
    body = as_document(p.build())["spec"]
    assert body["late"] == {"policy": "side", "allowed": "1 day", "sink": {"files": {"path": "late"}}}
    assert body["steps"]["own"] == {"from": "v", "filter": "a > 1", "late": "drop"}
    assert body["sources"]["v"]["eventTime"] == {"column": "t", "maxAhead": None}


def test_what_becomes_of_late_rows_makes_pipelines_differ() -> None:
    def fingerprint_with(late: Any = None, own: Any = None, **event_time: Any) -> str:
        p = ps.Pipeline("demo", late=late)
        source = p.source("v", ps.sources.Memory(schema="a int"), event_time=ps.EventTime("t", **event_time))
        source.sql("s", "SELECT 1", late=own).to("out", ps.sinks.Console())
        return fingerprint(p.build())

    assert fingerprint_with() == fingerprint_with(late="drop", max_ahead="24 hours")
    different = [
        fingerprint_with(), fingerprint_with(late="side"), fingerprint_with(late="correct"),
        fingerprint_with(own="drop"), fingerprint_with(late=ps.Late("drop", allowed="2 h")),
        fingerprint_with(late=ps.Late("side", sink=ps.sinks.Files(path="a"))),
        fingerprint_with(late=ps.Late("side", sink=ps.sinks.Files(path="b"))),
        fingerprint_with(max_ahead=None), fingerprint_with(max_ahead="1 h"), fingerprint_with(idle_after="1 h"),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
