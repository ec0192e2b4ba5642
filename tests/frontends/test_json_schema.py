from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.frontends.reading import read, with_alert, with_body, with_source, with_step
from tests.frontends.test_load import YAML

from penstock.components.base import Component
from penstock.components.registry import all_components
from penstock.frontends.document import read_document
from penstock.frontends.json_schema import json_schema

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
COMPONENTS = [pytest.param(cls, id=f"{cls.kind}-{cls.name}") for cls in all_components()]
SECTIONS = {"source": "source", "format": "source", "step": "step", "sink": "sink"}


def content(text: str) -> dict[str, Any]:
    return read_document(text, "f.yaml").content


def pipeline_around(cls: type[Component]) -> dict[str, Any]:
    """A pipeline that uses the component as its example says."""
    section = SECTIONS[cls.kind]
    inner = {"memory": {"schema": {"id": "string"}}}
    sources: dict[str, Any] = {"one": inner}
    body: dict[str, Any] = {"sources": sources, "sinks": {"end": {"from": "one", "console": {}}}}
    body.setdefault(f"{section}s", {})["example"] = content(cls.example)
    return {"apiVersion": "penstock/v1", "kind": "Pipeline", "metadata": {"name": "demo"}, "spec": body}


def errors(document: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(document)]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("cls", COMPONENTS)
def test_the_example_of_every_component_is_valid(cls: type[Component]) -> None:
    assert errors(pipeline_around(cls)) == []


@pytest.mark.parametrize("cls", COMPONENTS)
def test_the_example_of_every_component_is_read(cls: type[Component]) -> None:
    body = f"{SECTIONS[cls.kind]}s:\n  example:\n" + "".join(f"    {line}\n" for line in cls.example.splitlines())
    others = {
        "sources": "sources: {one: {memory: {schema: id string}}}\n",
        "sinks": "sinks: {end: {from: one, console: {}}}\n",
    }
    others.pop(f"{SECTIONS[cls.kind]}s", None)
    pipeline = read(with_body(body + "".join(others.values()))).pipeline
    (example,) = [node for node in pipeline.nodes() if node.name == "example"]
    used = [example.component, getattr(example, "format", None)]
    assert any(type(component) is cls for component in used)


def test_a_whole_pipeline_is_valid() -> None:
    assert errors(content(YAML)) == []


@pytest.mark.parametrize(
    "text",
    [
        YAML.replace("maxFilesPerBatch", "maxFilesPerBach"),
        YAML.replace("eventTime", "evenTime"),
        YAML.replace("dedupe", "dedup"),
        YAML.replace("deadLetters", "deadLetter"),
        YAML.replace("metadata", "metdata"),
        YAML.replace("late: correct", "late: corect"),
        YAML.replace("late: correct", "late: {policy: correct, sink: too_late}"),
        YAML.replace("late: correct", "late: {sink: {console: {}}}"),
        YAML.replace("late: correct", "late: {policy: side, sink: {consle: {}}}"),
        YAML.replace("policy: side, allowed", "policy: side, alowed"),
        YAML.replace("sink: too_late", "sink: {files: {path: x}}"),
        YAML.replace("maxAhead: null", "maxAhead: off"),
        YAML.replace("idleAfter: 30 seconds", "idleAfter: 30"),
        YAML.replace("partitions: 4", "partitions: many"),
        YAML.replace("partitions: 4", "partitions: 0"),
        YAML.replace("penstock/v1", "penstock/v2"),
        YAML.replace("name: engagement", "name: Engagement!"),
        YAML.replace("trigger: 2 seconds", "trigger: 2"),
        YAML.replace("    unique:", "    Unique:"),
        with_alert("when: wtermark_lag > 5 minutes"),
        with_alert("when: watermark_lag = 5 minutes"),
        with_alert("when: watermark_lag > 5 minutes, severity: loud"),
        with_alert("when: watermark_lag > 5 minutes, for: 3"),
        with_alert("when: watermark_lag > 5 minutes, name: Lag!"),
        with_alert("for: 5 minutes"),
        with_alert("off: true"),
        with_alert("name: restarts, off: true, when: restarts > 1"),
        with_source("{files: {path: x}}"),
        with_source("{files: {path: x}, memory: {schema: {id: string}}, format: {text: {}}}"),
        with_source("{memory: {schema: {id: string}}, format: {text: {}}}"),
        with_source("{memory: {schema: {}}}"),
        with_source("{}"),
        with_step("{sql: SELECT 1}"),
        with_step("{from: views}"),
        with_step("{from: [], sql: SELECT 1}"),
        with_step("{from: views, sql: 5}"),
        with_body("sources: {}\nsinks: {}\n"),
        with_body("sources: {a: {memory: {schema: {id: string}}}}\nsinks: {out: {console: {}}}\n"),
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(text: str) -> None:
    assert errors(content(text)) != []


@pytest.mark.parametrize("alert", ["when: backlog(views) >= 1_000, for: 5 min", "name: restarts, off: true"])
def test_alerts_are_valid(alert: str) -> None:
    assert len(read(with_alert(alert)).pipeline.alerts) == 1
    assert errors(content(with_alert(alert))) == []


@pytest.mark.parametrize("step", ["sql: {query: SELECT 1}", "select: [id]", "select: {a: id}", "union: "])
def test_short_forms_are_valid(step: str) -> None:
    assert errors(content(with_step(f"{{from: views, {step}}}"))) == []


def test_editors_get_docs_and_defaults() -> None:
    source = SCHEMA["$defs"]["source"]
    assert source["properties"]["memory"]["description"].startswith("Rows from the pipeline file itself")
    delay = SCHEMA["$defs"]["EventTime"]["properties"]["maxDelay"]
    assert (delay["default"], delay["type"]) == ("10 seconds", "string")
    assert "watermark" in delay["description"]
    assert "title" not in delay


@pytest.mark.parametrize(
    "late",
    [
        "side", "{}", "", "{policy: correct, allowed: 2 h}", "{policy: side, sink: {files: {path: ./late}}}",
        "{policy: side, sink: too_late}", "{policy: drop, sink: null}",
    ],
)  # fmt: skip
def test_late_is_valid_in_all_its_forms(late: str) -> None:
    text = YAML.replace("late: correct", f"late: {late}")
    read(text)
    assert errors(content(text)) == []


def test_editors_get_docs_and_defaults_of_late() -> None:
    allowed = SCHEMA["$defs"]["LatePolicy"]["properties"]["allowed"]
    assert (allowed["default"], allowed["type"]) == ("1 hour", "string")
    assert SCHEMA["$defs"]["LatePolicy"]["properties"]["policy"]["enum"] == ["drop", "side", "correct"]
    assert SCHEMA["$defs"]["EventTime"]["properties"]["maxAhead"]["default"] == "1 day"
    assert SCHEMA["$defs"]["step"]["properties"]["late"]["description"].startswith("What becomes of rows")
    assert "Config" not in SCHEMA["$defs"]
