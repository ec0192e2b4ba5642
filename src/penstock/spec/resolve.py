"""Puts the values of secrets in place of their references, in memory, just before a component is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.spec.fields import Config, takes_secrets
from penstock.spec.location import Path_
from penstock.spec.pipeline import Pipeline
from penstock.spec.secrets import SecretRef, forms, references, resolve, texts, well_formed

_C = TypeVar("_C", bound=Config)


def with_secrets(config: _C) -> _C:
    """The same configuration with every reference replaced by its value; itself if it holds none.

    References are looked up in fields for connections and secrets; raises SECRET_NOT_HERE for one elsewhere, where its
    value could come out as a row.
    """
    misplaced = [reference for _, found in misplaced_secrets(config) for reference in found]
    if misplaced:
        where = getattr(config, "name", type(config).__name__)
        raise PenstockError.of("SECRET_NOT_HERE", where=where, reference=misplaced[0])
    document = config.model_dump(by_alias=True)
    if not any(references(text) for _, text in texts(document)):
        return config
    return type(config).model_validate(_replaced(document))


def misplaced_secrets(config: Config) -> Iterator[tuple[Path_, list[SecretRef]]]:
    """References in fields where they are not looked up, by where they stand in the configuration."""
    for path, takes, text in _texts(config):
        found = [] if takes else well_formed(text)
        if found:
            yield path, found


def _texts(config: Config, path: Path_ = ()) -> Iterator[tuple[Path_, bool, str]]:
    """Every text in a configuration, with whether secrets are looked up there."""
    for name, info in type(config).model_fields.items():
        inner: Path_ = (*path, info.alias or name)
        takes = takes_secrets(type(config), name)
        yield from _texts_in(getattr(config, name), takes, inner)


def _texts_in(value: Any, takes: bool, path: Path_) -> Iterator[tuple[Path_, bool, str]]:
    if isinstance(value, Config):
        yield from _texts(value, path)
    elif isinstance(value, str):
        yield path, takes, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield (*path, str(key)), False, str(key)
            yield from _texts_in(inner, takes, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _texts_in(inner, takes, (*path, index))


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
            for reference in references(text):
                values.update(forms(reference.value()))
    return sorted(values, key=lambda value: (-len(value), value))
