"""Whatever stands in a pipeline file, the server says what is wrong with it: it never fails, and never takes long."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.components.base import Component
from penstock.components.registry import all_components
from penstock.control.auth.roles import Role
from penstock.control.config import ServerConfig
from penstock.control.policy import Policy
from penstock.control.submitted import Submitted, drafted
from penstock.errors import PenstockError
from penstock.frontends.document import read_document

HOSTILE = ["a{99999999999}", "(" * 300, "\ud83d", "http://[::1", 10**60, float("nan"), [], {"a": 1}]
"""A repetition too large for a pattern, brackets without end, half of a character, and values of other types."""
SECONDS = 5.0
"""On a machine that does other things too; what is refused here took minutes, or would not have ended."""
PLACES = {"source": ("sources", "s"), "format": ("sources", "s"), "step": ("steps", "one"), "sink": ("sinks", "out")}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return Policy.of(ServerConfig(), tmp_path_factory.mktemp("server"))


def codes(text: str, policy: Policy, name: str = "p.yaml") -> set[str]:
    """What the server says of a file; anything but problems with a code fails the test."""
    began = time.perf_counter()
    try:
        found = drafted(Submitted(name, text), policy, Role.AUTHOR).problems
    except PenstockError as error:
        found = error.problems
    assert time.perf_counter() - began < SECONDS, text[:500]
    return {problem.code for problem in found}


def document(**parts: Any) -> dict[str, Any]:
    spec = {
        "sources": {"s": {"memory": {"schema": {"id": "long", "ts": "timestamp"}}, "eventTime": {"column": "ts"}}},
        "steps": {},
        "sinks": {"out": {"from": "s", "sqlite": {"path": "o.db", "table": "t"}}},
    }
    head = {"apiVersion": "penstock/v1", "kind": "Pipeline", "metadata": {"name": "p"}}
    return {**head, "spec": {**spec, **parts}}


def examples() -> list[type[Component]]:
    return [found for found in all_components() if found.kind in PLACES and isinstance(example(found), dict)]


def example(component: type[Component]) -> Any:
    return read_document(component.example, "example.yaml").content


def with_example(component: type[Component]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pipeline with the component's own example, and the part of it that is the example."""
    section, name = PLACES[component.kind]
    inputs = {"from": "s"} if section != "sources" else {}
    found = document(**{section: {name: {**example(component), **inputs}}})
    return found, found["spec"][section][name]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value may be put in the place of another."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("component", examples(), ids=lambda component: f"{component.kind}-{component.name}")
def test_no_value_of_any_field_makes_the_server_fail(component: type[Component], policy: Policy) -> None:
    sound, part = with_example(component)
    fields = ((component.name, info.alias or name) for name, info in component.model_fields.items())
    own = part.get(component.name)
    found = list(dict.fromkeys([*places(part), *(fields if isinstance(own, dict) else ())]))
    assert found
    refused = 0
    for path in found:
        for value in HOSTILE:
            changed = copy.deepcopy(sound)
            section, name = PLACES[component.kind]
            inside = changed["spec"][section][name]
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = value
            # JSON is YAML, and writes half of a character as the escape that it is.
            refused += bool(codes(json.dumps(changed), policy))
    assert refused >= len(found)


def avro_with(fields: list[dict[str, Any]]) -> str:
    schema = {"type": "record", "name": "Top", "fields": fields}
    source = {"kafka": {"bootstrap": "k:9092", "topic": "t"}, "format": {"avro": {"schema": json.dumps(schema)}}}
    return json.dumps(document(sources={"s": source}))


def doubled(depth: int) -> dict[str, Any]:
    """A record that holds the next one twice, and so on: a line each, and twice as many types."""
    found: dict[str, Any] = {"type": "record", "name": f"R{depth}", "fields": [{"name": "x", "type": "int"}]}
    for number in range(depth - 1, -1, -1):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{number + 1}"}]
        found = {"type": "record", "name": f"R{number}", "fields": fields}
    return found


def test_a_schema_that_stands_for_very_many_types_is_refused(policy: Policy) -> None:
    assert codes(avro_with([{"name": "r", "type": doubled(8)}]), policy) == set()
    for depth in (14, 20, 30):
        assert "SPEC_BAD_VALUE" in codes(avro_with([{"name": "r", "type": doubled(depth)}]), policy)


def test_a_default_that_stands_for_very_many_values_is_refused(policy: Policy) -> None:
    many = {"name": "r", "type": {"type": "array", "items": doubled(8)}, "default": [{}] * 5_000}
    assert "SPEC_BAD_VALUE" in codes(avro_with([many]), policy)


@pytest.mark.parametrize(
    "field",
    [
        {"name": 1.5, "type": "int"},
        {"name": [], "type": "int"},
        {"name": "a", "type": [[], "int"]},
        {"name": "a", "type": [{}, "int"]},
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": "x"}},
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": []}},
        {"name": "a", "type": {"type": "map"}},
    ],
    ids=json.dumps,
)
def test_a_schema_that_is_none_is_told(field: dict[str, Any], policy: Policy) -> None:
    assert "SPEC_BAD_VALUE" in codes(avro_with([field]), policy)


def test_steps_with_very_many_ways_between_them_are_read_quickly(policy: Policy) -> None:
    steps: dict[str, Any] = {"a0": {"from": "s", "filter": "true"}, "b0": {"from": "s", "filter": "true"}}
    for number in range(1, 60):
        for name in "ab":
            inputs = [f"a{number - 1}", f"b{number - 1}"]
            query = f"SELECT {inputs[0]}.id FROM {inputs[0]} JOIN {inputs[1]} ON {inputs[0]}.id = {inputs[1]}.id"
            steps[f"{name}{number}"] = {"from": inputs, **({"sql": query} if number % 2 else {"union": {}})}
    sinks = {"out": {"from": "a59", "sqlite": {"path": "o.db", "table": "t"}}}
    assert codes(json.dumps(document(steps=steps, sinks=sinks)), policy) <= {"STEP_UNUSED"}


def test_a_file_of_very_many_views_is_refused_before_their_tables_are_looked_for(policy: Policy) -> None:
    head = "/* penstock\nname: p\nsources: {s: {memory: {schema: {id: long}}}}\nsinks: {out: {console: {}}}\n*/\n"
    name = "a" * 50
    views = (f"CREATE VIEW {name}{number:04d} AS TABLE {name}_{number:04d};\n" for number in range(1_000))
    assert codes(head + "".join(views) + "INSERT INTO out TABLE s;\n", policy, "p.sql") == {"PIPELINE_TOO_LARGE"}


@pytest.mark.parametrize("pattern", ["{a/,b/}" * 9, "{a/,b/}" * 500, "x/" * 1_900, "{" + "x/" * 1_900 + ",a}"])
def test_paths_that_stand_for_very_many_places_are_judged_quickly(pattern: str, policy: Policy) -> None:
    sources = {
        f"s{number}": {"files": {"path": f"./{pattern}"}, "format": {"text": {}}}
        for number in range(400 if len(pattern) < 100 else 60)
    }
    sinks = {"out": {"from": "s0", "sqlite": {"path": "o.db", "table": "t"}}}
    assert codes(json.dumps(document(sources=sources, sinks=sinks)), policy) <= {"PATH_NOT_ALLOWED", "STEP_UNUSED"}


def test_two_escapes_of_one_character_are_that_character(policy: Policy) -> None:
    # As JSON writes what lies beyond the first 65,536 characters.
    text = json.dumps(document(sources={"s": {"memory": {"schema": {"id": "long"}, "rows": [{"id": 1}]}}}))
    assert codes(text.replace('"p"', '"p\\ud83d\\ude00"', 1), policy) == {"SPEC_BAD_NAME"}
    labelled = text.replace('{"name": "p"}', '{"name": "p", "labels": {"mark": "\\ud83d\\ude00"}}')
    found = drafted(Submitted("p.yaml", labelled), policy, Role.AUTHOR)
    assert found.graph is not None
    assert found.graph.file.pipeline.labels == {"mark": "\U0001f600"}
    half = text.replace('{"name": "p"}', '{"name": "p", "labels": {"mark": "\\ud83d"}}')
    assert "SPEC_BAD_VALUE" in codes(half, policy)


def test_the_folder_of_the_server_is_left_as_it_was(policy: Policy) -> None:
    """Reading a file writes nothing."""
    assert list(Path(policy.data).rglob("*")) == []
