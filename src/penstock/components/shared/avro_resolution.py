"""Records of one Avro schema read with another: what the library leaves open so that no value changes its meaning.

The rules of resolution know nothing of logical types. The library gives a value the meaning it has for its writer, and
leaves it as a number where the writer says nothing of it. So the writer's logical types are taken away where the reader
has none, kept where both mean the same kind of thing, and refused where they do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastavro.schema import parse_schema

_NAMED = ("record", "error", "enum", "fixed")
_UNIMPORTANT = ("doc", "aliases", "default", "order", "__fastavro_parsed__", "__named_schemas")
_SAME_KIND = (
    {"timestamp-millis", "timestamp-micros"}, {"local-timestamp-millis", "local-timestamp-micros"},
    {"time-millis", "time-micros"},
)  # fmt: skip
"""Logical types that differ in their unit only."""

Named = Mapping[str, Any]


class Incompatible(ValueError):
    """Why records of one schema cannot be read with another."""


def parsed_with(text: str, references: Sequence[str] = ()) -> tuple[Any, dict[str, Any]]:
    """A schema in JSON, and all named types in it and in those it refers to."""
    named: dict[str, Any] = {}
    for reference in references:
        parse_schema(json.loads(reference), named_schemas=named)
    return parse_schema(json.loads(text), named_schemas=named), named


def same_schema(one: Any, other: Any) -> bool:
    """Whether two schemas differ in nothing that changes what a record says."""
    return bool(_important(one) == _important(other))


def _important(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _important(value) for key, value in schema.items() if key not in _UNIMPORTANT}
    return [_important(item) for item in schema] if isinstance(schema, list) else schema


# --- the writer's side ----------------------------------------------------------------------------------------


def aligned(writer: Any, named: dict[str, Any], reader: Any) -> Any:
    """The writer's schema with the logical types that the reader asks for; raises Incompatible."""
    _Alignment(named, _names_in(reader, {})).align(writer, reader, "the record")
    return writer


class _Alignment:
    """Changes schemas in place, each named type once."""

    def __init__(self, writers: Named, readers: Named) -> None:
        self.writers = writers
        self.readers = readers
        self._met: dict[int, Any] = {}

    def align(self, writer: Any, reader: Any, where: str) -> None:
        writer, reader = self._resolved(writer, self.writers), self._resolved(reader, self.readers)
        if isinstance(writer, list):
            for branch in writer:
                self.align(branch, self._branch(branch, reader), where)
            return
        if isinstance(reader, list):
            reader = self._branch(writer, reader)
        if not isinstance(writer, dict):
            return
        if id(writer) in self._met:
            self._refuse_second_use(writer, reader, where)
            return
        if writer["type"] in _NAMED:
            self._met[id(writer)] = reader
        self._logical(writer, reader, where)
        self._below(writer, reader, where)

    def _resolved(self, schema: Any, named: Named) -> Any:
        return named.get(schema, schema) if isinstance(schema, str) else schema

    def _refuse_second_use(self, writer: Any, reader: Any, where: str) -> None:
        """A type of the writer that stands for two of the reader's cannot have the logical types of both."""
        before = self._met[id(writer)]
        if not (before is reader or same_schema(before, reader)) and _has_logical(writer, reader, before):
            raise Incompatible(f"{where} has a type that the schema given here has twice, and not alike")

    def _below(self, writer: Any, reader: Any, where: str) -> None:
        kind = writer["type"]
        same = isinstance(reader, dict) and reader["type"] == kind
        if kind in ("record", "error"):
            for item in writer["fields"]:
                found = self._field(item["name"], reader) if same else None
                self.align(item["type"], found and found["type"], item["name"])
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            self.align(writer[part], reader[part] if same else None, where)
        elif isinstance(kind, (dict, list)):
            self.align(kind, reader["type"] if isinstance(reader, dict) else reader, where)

    @staticmethod
    def _field(name: str, reader: Any) -> Any:
        by_name = {item["name"]: item for item in reader["fields"]}
        renamed = (item for item in reader["fields"] if name in item.get("aliases", ()))
        return by_name.get(name) or next(renamed, None)

    def _branch(self, writer: Any, reader: Any) -> Any:
        """The type of a union that values of a type go to."""
        if not isinstance(reader, list):
            return reader
        wanted = _kind(self._resolved(writer, self.writers))
        branches = [self._resolved(item, self.readers) for item in reader]
        return next((item for item in branches if _kind(item) == wanted), None) or next(
            (item for item in branches if _kind(item)[0] == wanted[0]), None
        )

    def _logical(self, writer: dict[str, Any], reader: Any, where: str) -> None:
        mine = writer.get("logicalType")
        wanted = reader.get("logicalType") if isinstance(reader, dict) else None
        if mine is None:
            return
        if wanted is None:
            del writer["logicalType"]
        elif mine != wanted and not any({mine, wanted} <= kinds for kinds in _SAME_KIND):
            raise Incompatible(f"its {where} is {mine}, and {wanted} in the schema given here")


def _kind(schema: Any) -> tuple[str, str]:
    if not isinstance(schema, dict):
        return str(schema), ""
    kind = str(schema["type"])
    return kind, schema["name"].rpartition(".")[2] if kind in _NAMED else ""


def _has_logical(*schemas: Any) -> bool:
    return any("logicalType" in json.dumps(_important(schema)) for schema in schemas)


def _names_in(schema: Any, named: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema, list):
        for item in schema:
            _names_in(item, named)
    elif isinstance(schema, dict):
        if schema["type"] in _NAMED:
            named[schema["name"]] = schema
        for item in (schema["type"], schema.get("items"), schema.get("values")):
            _names_in(item, named)
        for item in schema.get("fields", ()):
            _names_in(item["type"], named)
    return named


# --- the reader's side ----------------------------------------------------------------------------------------


def reader_of(parsed: Any, count: Callable[[], None]) -> Any:
    """A parsed schema whose defaults are values as the library reads them: it hands them out as they are.

    `count` is called for each value that is made: defaults of a few lines can stand for very many.
    """
    named = _names_in(parsed, {})

    def with_defaults(schema: Any) -> Any:
        if isinstance(schema, list):
            return [with_defaults(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        found = {
            key: with_defaults(value) if key in ("type", "items", "values") else value for key, value in schema.items()
        }
        if "fields" in schema:
            found["fields"] = [_field(item) for item in schema["fields"]]
        return found

    def _field(item: dict[str, Any]) -> dict[str, Any]:
        found = {**item, "type": with_defaults(item["type"])}
        if "default" in item:
            found["default"] = default_value(item["type"], item["default"], named, count)
        return found

    return with_defaults(parsed)


def default_value(schema: Any, default: Any, named: Named, count: Callable[[], None]) -> Any:
    """A default as it stands in a schema, as a value."""
    count()
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if isinstance(schema, list):
        return default_value(schema[0], default, named, count)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return default_value(kind, default, named, count)
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if kind == "array":
        return [default_value(schema["items"], item, named, count) for item in default]
    if kind == "map":
        return {key: default_value(schema["values"], item, named, count) for key, item in default.items()}
    if kind in ("record", "error"):
        return {
            item["name"]: default_value(item["type"], default.get(item["name"], item.get("default")), named, count)
            for item in schema["fields"]
        }
    return default
