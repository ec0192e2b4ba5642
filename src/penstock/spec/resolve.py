"""Puts the values of secrets in place of their references, in memory, just before a component is used."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.spec.fields import Config
from penstock.spec.pipeline import Pipeline
from penstock.spec.secrets import references, resolve, texts

_C = TypeVar("_C", bound=Config)


def with_secrets(config: _C) -> _C:
    """The same configuration with every reference replaced by its value; itself if it holds none."""
    document = config.model_dump(by_alias=True)
    if not any(references(text) for _, text in texts(document)):
        return config
    return type(config).model_validate(_replaced(document))


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return resolve(value)
    if isinstance(value, dict):
        return {key: _replaced(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner) for inner in value]
    return value


def secret_values(pipeline: Pipeline) -> list[str]:
    """The values of all secrets a pipeline refers to, the longest first: one may be a part of another."""
    values: set[str] = set()
    parts = [node.component for node in pipeline.nodes()]
    parts += [source.format for source in pipeline.sources if source.format is not None]
    for history in (source.bootstrap for source in pipeline.sources if source.bootstrap is not None):
        parts += [history.component] if history.format is None else [history.component, history.format]
    parts += [pipeline.dead_letters] if pipeline.dead_letters is not None else []
    parts += pipeline.late_sinks()
    for part in parts:
        for _, text in texts(part.model_dump(by_alias=True)):
            values.update(reference.value() for reference in references(text))
    return sorted((value for value in values if value), key=lambda value: (-len(value), value))
