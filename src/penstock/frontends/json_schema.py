"""The JSON Schema of the pipeline file, by which editors complete, document and check it."""

from __future__ import annotations

from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from penstock.components.base import Component, ComponentKind, Source
from penstock.components.registry import all_components, components
from penstock.spec import pipeline as spec
from penstock.spec.alerts import Alert
from penstock.spec.fields import Config
from penstock.spec.scale import ScaleSettings
from penstock.spec.schema import Schema
from penstock.spec.units import Duration, Size

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SETTINGS: tuple[type[Config], ...] = (
    spec.EventTime, spec.Throttle, spec.LatePolicy, spec.StateSettings, spec.RestartSettings, spec.RunSettings,
    spec.LedgerSettings, spec.SavepointSettings, ScaleSettings, Alert, spec.TestCase,
)  # fmt: skip


class _AsWritten(GenerateJsonSchema):
    """Shows defaults as people write them, and leaves out titles, which only repeat the keys."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Duration | Size):
            return str(dft)
        if isinstance(dft, Schema):
            return dft.as_mapping()
        if isinstance(dft, Config):
            return dft.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The schema of a pipeline file, with every component that is installed."""
    classes = [*_SETTINGS, *all_components()]
    references, shared = models_json_schema(
        [(cls, "validation") for cls in classes],
        by_alias=True, ref_template="#/$defs/{model}", schema_generator=_AsWritten,
    )  # fmt: skip
    parts = _Parts({cls: references[(cls, "validation")] for cls in classes}, shared["$defs"])
    return {
        "$schema": DIALECT,
        "title": "Penstock pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": spec.API_VERSION, "description": "Version of the file's shape."},
            "kind": {"const": "Pipeline", "description": "What the file describes."},
            "metadata": _metadata(),
            "spec": parts.body(),
        },
        "$defs": {
            **parts.shared,
            "format": parts.format(),
            "source": parts.source(),
            "bootstrap": parts.bootstrap(),
            "step": parts.step(),
            "sink": parts.sink(),
            "deadLetters": parts.dead_letters(),
            "LatePolicy": parts.late_policy(),
            "Alert": parts.alert(),
        },
    }


class _Parts:
    """The definitions of components, put together to sources, steps and sinks."""

    def __init__(self, references: dict[type[Config], Any], definitions: dict[str, Any]) -> None:
        self.references = references
        self.shared = {name: _untitled(definition) for name, definition in definitions.items() if name != "Config"}

    def body(self) -> dict[str, Any]:
        fields = spec.Pipeline.model_fields
        return _closed(
            {
                "sources": self._section("source", "Where rows come from.") | {"minProperties": 1},
                "steps": _or_nothing(self._section("step", "What is done with them.")),
                "sinks": self._section("sink", "Where they go.") | {"minProperties": 1},
                "deadLetters": _or_nothing({"$ref": "#/$defs/deadLetters"}, fields["dead_letters"].description),
                "late": self._late(fields["late"].description),
                "state": _or_nothing(self.references[spec.StateSettings], fields["state"].description),
                "run": _or_nothing(self.references[spec.RunSettings], fields["run"].description),
                "ledger": _or_nothing(self.references[spec.LedgerSettings], fields["ledger"].description),
                "savepoints": _or_nothing(self.references[spec.SavepointSettings], fields["savepoints"].description),
                "scale": _or_nothing(self.references[ScaleSettings], fields["scale"].description),
                "alerts": _or_nothing({"type": "array", "items": self.references[Alert]}, fields["alerts"].description),
                "tests": _or_nothing(
                    {"type": "array", "items": self.references[spec.TestCase]}, fields["tests"].description
                ),
            },
            required=["sources", "sinks"],
            **_sinks_are_fed(),
        )

    def source(self) -> dict[str, Any]:
        fields = spec.Source.model_fields
        event_time = fields["event_time"].description
        properties = {
            "format": {"$ref": "#/$defs/format"},
            "eventTime": _or_nothing(self.references[spec.EventTime], event_time),
            "bootstrap": _or_nothing({"$ref": "#/$defs/bootstrap"}, fields["bootstrap"].description),
            "throttle": _or_nothing(self.references[spec.Throttle], fields["throttle"].description),
            "renamedFrom": _renamed_from(),
            **self._components("source"),
        }
        formats = [
            {"if": {"required": [name]}, "then": {"required": ["format"]}}
            if cast(type[Source], cls).takes_format
            else {"if": {"required": [name]}, "then": {"not": {"required": ["format"]}}}
            for name, cls in components("source").items()
        ]
        return _closed(properties, oneOf=_one_of("source"), allOf=formats, description=_doc(spec.Source))

    def bootstrap(self) -> dict[str, Any]:
        until = spec.Bootstrap.model_fields["until"].description
        bounded = [name for name, cls in components("source").items() if cast(type[Source], cls).bounded]
        properties = {
            "format": _or_nothing({"$ref": "#/$defs/format"}, spec.Bootstrap.model_fields["format"].description),
            "until": _or_nothing({"type": "string", "format": "date-time"}, until),
            **{name: self._component(components("source")[name]) for name in bounded},
        }
        one_of = [{"required": [name]} for name in bounded]
        return _closed(properties, oneOf=one_of, description=_doc(spec.Bootstrap))

    def step(self) -> dict[str, Any]:
        late = self._late(spec.Step.model_fields["late"].description)
        properties = {"from": _inputs(), "late": late, "renamedFrom": _renamed_from(), **self._components("step")}
        return _closed(properties, required=["from"], oneOf=_one_of("step"), description=_doc(spec.Step))

    def sink(self) -> dict[str, Any]:
        """A sink that `late` names has no `from`, so whether it is required is said where both can be seen."""
        properties = {"from": _input(), "renamedFrom": _renamed_from(), **self._components("sink")}
        return _closed(properties, oneOf=_one_of("sink"), description=_doc(spec.Sink))

    def format(self) -> dict[str, Any]:
        description = spec.Source.model_fields["format"].description
        return _closed(self._components("format"), oneOf=_one_of("format"), description=description)

    def dead_letters(self) -> dict[str, Any]:
        return _closed(self._components("sink"), oneOf=_one_of("sink"))

    def late_policy(self) -> dict[str, Any]:
        """The long form of `late`."""
        definition = self.shared["LatePolicy"]
        named = {"type": "string", "description": "The name of a sink without `from`."}
        forms = [{"$ref": "#/$defs/deadLetters"}, named, {"type": "null"}]
        sink = {"anyOf": forms, "description": spec.LatePolicy.model_fields["sink"].description}
        kept = {"properties": {"policy": {"const": "side"}}, "required": ["policy"]}
        used = {"if": {"properties": {"sink": {"not": {"type": "null"}}}, "required": ["sink"]}, "then": kept}
        return {**definition, "properties": {**definition["properties"], "sink": sink}, **used}

    def alert(self) -> dict[str, Any]:
        """An alert has a condition, or turns off another by its name."""
        on = {"required": ["when"], "properties": {"when": {"type": "string"}, "off": {"const": False}}}
        named = {"off": {"const": True}, "name": {"type": "string"}, "when": {"type": "null"}}
        return {**self.shared["Alert"], "anyOf": [on, {"required": ["name", "off"], "properties": named}]}

    def _late(self, description: str | None) -> dict[str, Any]:
        policy = self.shared["LatePolicy"]["properties"]["policy"]
        return _or_nothing({"anyOf": [self.references[spec.LatePolicy], policy]}, description)

    def _section(self, kind: spec.Kind, description: str) -> dict[str, Any]:
        return {
            "type": "object",
            "description": description,
            "propertyNames": {"pattern": f"^{spec.NODE_NAME.pattern}$"},
            "additionalProperties": {"$ref": f"#/$defs/{kind}"},
        }

    def _components(self, kind: ComponentKind) -> dict[str, Any]:
        return {name: self._component(cls) for name, cls in components(kind).items()}

    def _component(self, cls: type[Component]) -> dict[str, Any]:
        """The long form, the short form if there is one, and nothing if nothing is required."""
        forms = [self.references[cls]]
        shorthand: str | None = getattr(cls, "shorthand", None)
        if shorthand is not None:
            definition = self.shared[str(self.references[cls]["$ref"]).rsplit("/", 1)[-1]]
            forms.append(definition["properties"][cls.model_fields[shorthand].alias or shorthand])
        if not any(info.is_required() for info in cls.model_fields.values()):
            forms.append({"type": "null"})
        alternatives = forms[0] if len(forms) == 1 else {"anyOf": forms}
        return {**alternatives, "description": _doc(cls)}


def _renamed_from() -> dict[str, Any]:
    return _or_nothing({"type": "string", "pattern": f"^{spec.NODE_NAME.pattern}$"}, spec.RENAMED_FROM)


def _metadata() -> dict[str, Any]:
    fields = spec.Pipeline.model_fields
    return _closed(
        {
            "name": {
                "type": "string",
                "pattern": f"^{spec.PIPELINE_NAME.pattern}$",
                "description": fields["name"].description,
            },
            "labels": _or_nothing(
                {"type": "object", "additionalProperties": {"type": "string"}}, fields["labels"].description
            ),
        },
        required=["name"],
        description="Name and labels.",
    )


def _inputs() -> dict[str, Any]:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return {"anyOf": [{"type": "string"}, several], "description": spec.Step.model_fields["inputs"].description}


def _input() -> dict[str, Any]:
    return {"type": "string", "description": spec.Sink.model_fields["input"].description}


def _sinks_are_fed() -> dict[str, Any]:
    """Every sink has a `from`, unless some `late` gives a sink by name."""
    named = {"type": "object", "required": ["sink"], "properties": {"sink": {"type": "string"}}}
    late = {"type": "object", "required": ["late"], "properties": {"late": named}}
    in_a_step = {"type": "object", "not": {"additionalProperties": {"not": late}}}
    somewhere = {"anyOf": [late, {"required": ["steps"], "properties": {"steps": in_a_step}}]}
    fed = {"properties": {"sinks": {"additionalProperties": {"required": ["from"]}}}}
    return {"if": {"not": somewhere}, "then": fed}


def _one_of(kind: ComponentKind) -> list[dict[str, Any]]:
    return [{"required": [name]} for name in components(kind)]


def _closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _or_nothing(schema: dict[str, Any], description: str | None = None) -> dict[str, Any]:
    """The schema of a key that may also stand without a value."""
    described = description or schema.get("description")
    return {"anyOf": [schema, {"type": "null"}], **({"description": described} if described else {})}


def _doc(cls: type[Config]) -> str:
    return "\n".join(line.strip() for line in (cls.__doc__ or "").strip().splitlines())


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic gives to classes; a property called `title` stays."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    return {key: _untitled(value) for key, value in kept.items()}
