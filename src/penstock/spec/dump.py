"""A pipeline back in the shape of a pipeline file, and a fingerprint that is equal for equal pipelines."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from penstock.spec.fields import Config
from penstock.spec.pipeline import API_VERSION, Bootstrap, LatePolicy, Pipeline, Sink, Source, Step
from penstock.spec.schema import Schema
from penstock.spec.units import Parsed


def as_document(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline as a file would say it: camelCase, units as people write them, defaults left out."""
    metadata: dict[str, Any] = {"name": pipeline.name}
    if pipeline.labels:
        metadata["labels"] = dict(pipeline.labels)
    body: dict[str, Any] = {"sources": {source.name: _source(source) for source in pipeline.sources}}
    if pipeline.steps:
        body["steps"] = {step.name: _step(step) for step in pipeline.steps}
    body["sinks"] = {sink.name: _sink(sink) for sink in pipeline.sinks}
    if pipeline.dead_letters is not None:
        body["deadLetters"] = _component(pipeline.dead_letters)
    if pipeline.late != LatePolicy():
        body["late"] = _late(pipeline.late)
    for key in ("state", "run", "ledger", "savepoints"):
        settings: Config = getattr(pipeline, key)
        if written := _written(settings):
            body[key] = written
    if pipeline.scale is not None:
        body["scale"] = _written(pipeline.scale)
    if pipeline.alerts:
        body["alerts"] = [_written(alert) for alert in pipeline.alerts]
    if pipeline.tests:
        body["tests"] = [_written(test) for test in pipeline.tests]
    return {"apiVersion": API_VERSION, "kind": "Pipeline", "metadata": metadata, "spec": body}


def fingerprint(pipeline: Pipeline) -> str:
    """SHA-256 of the pipeline's canonical JSON. How a file was written, and its comments, make no difference."""
    text = json.dumps(_canonical(pipeline), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _source(source: Source) -> dict[str, Any]:
    written = _component(source.component)
    if source.format is not None:
        written["format"] = _component(source.format)
    if source.event_time is not None:
        written["eventTime"] = _written(source.event_time)
    if source.bootstrap is not None:
        written["bootstrap"] = _bootstrap(source.bootstrap)
    if throttle := _written(source.throttle):
        written["throttle"] = throttle
    return {**written, **_renamed(source)}


def _bootstrap(bootstrap: Bootstrap) -> dict[str, Any]:
    written = _component(bootstrap.component)
    if bootstrap.format is not None:
        written["format"] = _component(bootstrap.format)
    if bootstrap.until is not None:
        written["until"] = bootstrap.until.isoformat().replace("+00:00", "Z")
    return written


def _step(step: Step) -> dict[str, Any]:
    inputs: Any = step.inputs[0] if len(step.inputs) == 1 else list(step.inputs)
    late = {} if step.late is None else {"late": _late(step.late)}
    return {"from": inputs, **_component(step.component), **late, **_renamed(step)}


def _renamed(node: Source | Step | Sink) -> dict[str, Any]:
    return {} if node.renamed_from is None else {"renamedFrom": node.renamed_from}


def _late(late: LatePolicy) -> dict[str, Any] | str:
    """The policy alone where there is no more to say; it is always named, as a step may say what is the default."""
    written = {"policy": late.policy, **_written(late)}
    if late.sink is not None:
        written["sink"] = _component(late.sink)
    return late.policy if [*written] == ["policy"] else written


def _sink(sink: Sink) -> dict[str, Any]:
    return {"from": sink.input, **_component(sink.component), **_renamed(sink)}


def _component(component: Config) -> dict[str, Any]:
    """A component under its name, in short form where its class has one."""
    cls = type(component)
    written = _written(component)
    shorthand: str | None = getattr(cls, "shorthand", None)
    if shorthand is not None:
        key = cls.model_fields[shorthand].alias or shorthand
        if [*written] == [key] and not _reads_as_long_form(cls, written[key]):
            return {_name(component): written[key]}
    return {_name(component): written}


def _reads_as_long_form(cls: type[Config], value: Any) -> bool:
    """Whether a mapping in short form would be taken for the component's own keys."""
    keys = {info.alias or name for name, info in cls.model_fields.items()}
    return value is None or (isinstance(value, dict) and set(value) <= keys)


def _written(config: Config) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _name(component: Config) -> str:
    return str(getattr(type(component), "name", type(component).__name__))


def _canonical(value: Any) -> Any:
    """Values as JSON that is equal exactly if they are: the columns of a schema keep their order, mappings do not."""
    if isinstance(value, Config):
        fields = {
            name: _canonical(getattr(value, name))
            for name, info in type(value).model_fields.items()
            if info.is_required() or getattr(value, name) != info.default
        }
        return {"": _name(value), **fields}
    if isinstance(value, Schema | Parsed | dt.datetime):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    return value
