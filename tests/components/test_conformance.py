"""What every component must keep to; its subjects are found in the registry, third parties' included."""

from __future__ import annotations

import builtins
import inspect
import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar
from unittest.mock import patch

import jsonschema
import pytest
from ruamel.yaml import YAML

from penstock.components import registry
from penstock.components.base import Component, ComponentKind, Sink, SinkContext, SinkWriter
from penstock.errors import CODES, PenstockError, Problem, Severity
from penstock.frontends.configs import aliases
from penstock.frontends.json_schema import json_schema
from penstock.frontends.yaml import parse_yaml
from penstock.graph.build import build
from penstock.graph.validate import World, check
from penstock.spec.fields import Config, change_of, field, is_secret
from penstock.spec.secrets import SecretRef

COMPONENTS = list(registry.all_components())
EACH = pytest.mark.parametrize("component", COMPONENTS, ids=lambda cls: f"{cls.kind}-{cls.name}")
HEAD = "apiVersion: penstock/v1\nkind: Pipeline\nmetadata: {name: demo}\nspec:\n"
ROWS = "{memory: {schema: {id: string, ts: timestamp, user: string, article: string, ms: bigint, country: string}}, eventTime: {column: ts}}"  # noqa: E501
FILES = "{path: ./in}"


def inputs_of(part: dict[str, Any]) -> list[str]:
    read = part.get("from", "views")
    return read if isinstance(read, list) else [read]


def whole(component: type[Component], part: str) -> str:
    """A pipeline around one source, step or sink, so that it can be read as a user's file is."""
    content = YAML(typ="safe").load(part)
    named = content.get(component.name)
    further = [named["with"]] if isinstance(named, dict) and isinstance(named.get("with"), str) else []
    sources = dict.fromkeys([*inputs_of(content), *further], ROWS)
    if component.kind in ("source", "format"):
        return (
            f"{HEAD}  sources:\n    views:\n{indent(part, ' ' * 6)}  sinks:\n    out: {{from: views, console: {{}}}}\n"
        )
    listed = "".join(f"    {name}: {text}\n" for name, text in sources.items())
    if component.kind == "step":
        return (
            f"{HEAD}  sources:\n{listed}  steps:\n    s:\n{indent(part, ' ' * 6)}"
            "  sinks:\n    out: {from: s, console: {}}\n"
        )
    return f"{HEAD}  sources:\n{listed}  sinks:\n    out:\n{indent(part, ' ' * 6)}"


def with_config(component: type[Component], config: dict[str, Any]) -> str:
    """A pipeline in which the component has that configuration."""
    written = _flow(config)
    if component.kind == "format":
        return whole(component, f"files: {FILES}\nformat: {{{component.name}: {written}}}\n")
    if component.kind == "source":
        more = "format: {text: {}}\n" if getattr(component, "takes_format", False) else ""
        return whole(component, f"{component.name}: {written}\n{more}")
    least = getattr(component, "inputs_expected", (1, 1))[0]
    read = "views" if least == 1 else f"[{', '.join(f'v{number}' for number in range(least))}]"
    return whole(component, f"from: {read}\n{component.name}: {written}\n")


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def example_config(component: type[Component]) -> dict[str, Any]:
    """The configuration in the component's own example, written out."""
    content = YAML(typ="safe").load(component.example)
    holder = content["format"] if component.kind == "format" else content
    value = holder[component.name]
    shorthand = getattr(component, "shorthand", None)
    if shorthand is not None and not (isinstance(value, dict) and set(value) <= set(aliases(component))):
        return {component.model_fields[shorthand].alias or shorthand: value}
    return dict(value or {})


def problems_in(text: str) -> tuple[Problem, ...]:
    """What is wrong with a pipeline; anything but Penstock's own error fails the test."""
    with pytest.raises(PenstockError) as raised:
        parse_yaml(text, Path("p.yaml"))
    return raised.value.problems


def refusals(text: str) -> tuple[Problem, ...] | None:
    """The same for a pipeline that may be sound."""
    try:
        parse_yaml(text, Path("p.yaml"))
    except PenstockError as error:
        return error.problems
    return None


def sound(problems: tuple[Problem, ...]) -> bool:
    return bool(problems) and all(problem.code in CODES and problem.location is not None for problem in problems)


def test_there_are_components_of_every_kind() -> None:
    assert {component.kind for component in COMPONENTS} == {"source", "format", "step", "sink"}


@EACH
def test_it_is_documented(component: type[Component]) -> None:
    text = inspect.cleandoc(component.__doc__ or "")
    first, *_ = text.split("\n\n")
    assert len(text) >= 50
    assert first.endswith(".")


@EACH
def test_its_file_has_its_name(component: type[Component]) -> None:
    assert component.__module__ == f"penstock.components.{component.kind}s.{component.name}"


@EACH
def test_its_example_is_a_sound_pipeline_that_uses_it(component: type[Component]) -> None:
    file = parse_yaml(whole(component, component.example), Path("p.yaml"))
    build(file)
    used = [node.component for node in file.pipeline.nodes()] + [source.format for source in file.pipeline.sources]
    assert any(type(found) is component for found in used)


@EACH
def test_its_example_fits_the_json_schema(component: type[Component]) -> None:
    document = YAML(typ="safe", pure=True).load(whole(component, component.example))
    jsonschema.validate(document, json_schema())
    assert component.model_json_schema()["type"] == "object"


@EACH
def test_every_field_says_what_it_is_and_what_changing_it_costs(component: type[Component]) -> None:
    for name, info in component.model_fields.items():
        assert len(info.description or "") >= 10, name
        assert (info.description or "").endswith("."), name
        assert change_of(component, name) is not None
        assert is_secret(component, name) in (True, False)


@EACH
def test_an_unknown_key_is_refused_at_its_place(component: type[Component]) -> None:
    config = {**example_config(component), "noSuchKey": 1}
    text = with_config(component, config)
    found = problems_in(text)
    assert sound(found)
    if component.name in ("select", "expect"):  # Any other key is the name of a new column or a rule there.
        assert [problem.code for problem in found] == ["SPEC_WRONG_TYPE", "SPEC_WRONG_TYPE"]
        return
    (problem,) = [problem for problem in found if problem.code == "SPEC_UNKNOWN_KEY"]
    assert problem.location is not None
    line = text.splitlines()[problem.location.line - 1]
    assert line[problem.location.column - 1 :].startswith("noSuchKey")


@EACH
def test_a_missing_key_is_named(component: type[Component]) -> None:
    config = example_config(component)
    for key, name in aliases(component).items():
        if component.model_fields[name].is_required():
            found = problems_in(with_config(component, {other: config[other] for other in config if other != key}))
            assert sound(found)
            assert [problem.params["key"] for problem in found if problem.code == "SPEC_MISSING_KEY"] == [key]


WRONG: tuple[Any, ...] = (True, 1.5, -1, "", "§ no such value §", [[1]], [None], {"a": {"b": [1]}})


def _cases() -> Iterator[Any]:
    for component in COMPONENTS:
        for key in aliases(component):
            yield pytest.param(component, key, id=f"{component.kind}-{component.name}-{key}")


@pytest.mark.parametrize(("component", "key"), list(_cases()))
def test_a_value_of_the_wrong_type_is_refused_by_penstock(component: type[Component], key: str) -> None:
    refused = 0
    for value in WRONG:
        text = with_config(component, {**example_config(component), key: value})
        found = refusals(text)
        refused += found is not None
        assert found is None or sound(found), value
        assert all(problem.location is not None for problem in problems_without_the_world(text)), value
    assert refused >= 3


@EACH
def test_a_list_or_a_number_in_place_of_the_configuration_is_refused(component: type[Component]) -> None:
    least = getattr(component, "inputs_expected", (1, 1))[0]
    read = {"step": f"from: [{', '.join(f'v{number}' for number in range(least))}]\n", "sink": "from: views\n"}
    for value in ("7", "[[1]]"):
        part = f"{read.get(component.kind, '')}{component.name}: {value}\n"
        if component.kind == "format":
            part = f"files: {FILES}\nformat: {{{component.name}: {value}}}\n"
        elif getattr(component, "takes_format", False):
            part += "format: {text: {}}\n"
        assert sound(problems_in(whole(component, part)))


REFERENCE = "${secret:env/PENSTOCK_TEST_NEVER_SET}"


@contextmanager
def closed_world() -> Iterator[None]:
    """While it lasts, whoever asks for a file, opens a connection or looks a secret up is told off."""

    def refuse(*asked: Any, **_: Any) -> Any:
        raise AssertionError(f"looked at the world: {asked[:2]}")

    with ExitStack() as patches:
        for holder, names in (
            (socket, ("socket", "create_connection", "getaddrinfo")),
            (os, ("stat", "lstat", "open", "listdir", "scandir", "getenv")),
            (io, ("open",)),
            (builtins, ("open",)),
            (subprocess, ("Popen",)),
            (SecretRef, ("value",)),
        ):
            for name in names:
                patches.enter_context(patch.object(holder, name, refuse))
        yield


def problems_without_the_world(text: str) -> list[Problem]:
    """What is wrong with what is written in a pipeline that can be read; none if it cannot."""
    try:
        graph = build(parse_yaml(text, Path("p.yaml")))
    except PenstockError:
        return []
    check(graph, World.CLOSED)  # What is imported on the way is no look at the world.
    with closed_world():
        found = check(graph, World.CLOSED)
    return [problem for problem in found if problem.severity is Severity.ERROR]


def test_a_look_at_the_world_is_noticed() -> None:
    for look in (Path("x").exists, Path("x").read_text, lambda: socket.create_connection(("127.0.0.1", 1))):
        with pytest.raises(AssertionError, match="looked at the world"), closed_world():
            look()


@EACH
def test_its_example_is_checked_without_a_look_at_the_world(component: type[Component]) -> None:
    assert problems_without_the_world(whole(component, component.example)) == []


@EACH
def test_what_is_secret_is_not_held_against_it(component: type[Component]) -> None:
    """Any text may be a secret, of which nothing is known; `at` is how a component says what a problem is about."""
    for key in aliases(component):
        for value in (REFERENCE, [REFERENCE], {"a": REFERENCE}):
            found = problems_without_the_world(with_config(component, {**example_config(component), key: value}))
            assert [problem for problem in found if problem.code == "SPEC_BAD_VALUE"] == [], (key, value)


def test_reading_specs_needs_no_spark() -> None:
    program = (
        "import sys\n"
        "from penstock.components.registry import all_components\n"
        "from penstock.frontends.json_schema import json_schema\n"
        "assert len(list(all_components())) > 5 and json_schema()\n"
        "heavy = ('pyspark', 'py4j', 'pandas', 'pyarrow', 'numpy')\n"
        "print(sorted(name for name in sys.modules if name in heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Carrier(Sink):
    """Hands every row to a pigeon, which brings it where it should go, weather permitting."""

    name: ClassVar[str] = "pigeon"
    example: ClassVar[str] = "from: views\npigeon: {loft: roof}\n"

    loft: str = field(doc="Where the pigeon lives.")

    def open(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError


class NotAComponent(Config):
    """Nothing of the kind."""


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points that a test installs; the registry reads them anew and forgets them afterwards."""
    installed: list[EntryPoint] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: [found for found in installed if found.group == group])
    registry.components.cache_clear()
    yield installed
    registry.components.cache_clear()


def entry(cls: type[Any]) -> EntryPoint:
    assert inspect.isclass(cls)
    return EntryPoint(cls.__name__.lower(), f"{__name__}:{cls.__name__}", registry.ENTRY_POINT_GROUP)


def loading(monkeypatch: pytest.MonkeyPatch, cls: type[Any]) -> None:
    monkeypatch.setattr(EntryPoint, "load", lambda self: cls)


def test_a_component_of_a_third_party_is_found_and_used(
    entry_points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pigeon" not in registry.components("sink")
    registry.components.cache_clear()
    entry_points.append(entry(Carrier))
    loading(monkeypatch, Carrier)
    assert registry.components("sink")["pigeon"] is Carrier
    kinds: list[ComponentKind] = ["source", "format", "step"]
    assert all("pigeon" not in registry.components(kind) for kind in kinds)
    file = parse_yaml(whole(Carrier, Carrier.example), Path("p.yaml"))
    assert file.pipeline.sink("out").component == Carrier(loft="roof")


def test_an_entry_point_that_is_no_component_is_said(
    entry_points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points.append(entry(NotAComponent))
    loading(monkeypatch, NotAComponent)
    with pytest.raises(TypeError, match="notacomponent"):
        registry.components("sink")
