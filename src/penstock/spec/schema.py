"""Row schemas, written as `{name: type}` or as Spark DDL, parsed and checked without a JVM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from penstock.errors import did_you_mean

_ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "bool": "boolean", "text": "string", "dec": "decimal", "numeric": "decimal",
}  # fmt: skip
_SIMPLE = {
    "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "boolean",
    "date", "timestamp", "timestamp_ntz", "variant",
}  # fmt: skip
_KNOWN = _SIMPLE | set(_ALIASES) | {"decimal", "array", "map", "struct"}
_DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*|\d+)|([<>(),:]))")


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Schema:
    """Named columns with Spark type names in canonical spelling."""

    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, value: Any) -> Schema:
        if isinstance(value, Schema):
            return value
        if isinstance(value, str):
            return cls(_unique(_Reader(value).columns_to_end()))
        if isinstance(value, dict):
            return cls(_unique([Column(str(name), _compact_type(name, kind)) for name, kind in value.items()]))
        raise ValueError("a schema is a mapping {name: type} or a text of Spark DDL such as 'id string, ts timestamp'")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quote(column.name)} {column.type}" for column in self.columns)

    def __str__(self) -> str:
        return self.ddl

    def as_mapping(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.as_mapping)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        types = [*sorted(_SIMPLE), "decimal(10,2)", "array<string>", "map<string,bigint>", "struct<a: int>"]
        column = {"anyOf": [{"type": "string", "examples": types}, {"type": "object"}]}
        return {
            "anyOf": [
                {"type": "object", "additionalProperties": column, "minProperties": 1},
                {"type": "string", "examples": ["id string, ts timestamp"]},
            ]
        }


def quote(name: str) -> str:
    """A column name as Spark SQL takes it anywhere."""
    return "`" + name.replace("`", "``") + "`"


def _compact_type(name: Any, kind: Any) -> str:
    if isinstance(kind, dict):
        inner = ",".join(f"{quote(str(key))}:{_compact_type(key, value)}" for key, value in kind.items())
        return f"struct<{inner}>"
    if not isinstance(kind, str):
        raise ValueError(f"the type of column '{name}' is {kind!r}; write a type name such as string or bigint")
    reader = _Reader(kind)
    result = reader.type()
    reader.end()
    return result


def _unique(columns: list[Column]) -> tuple[Column, ...]:
    if not columns:
        raise ValueError("a schema needs at least one column")
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise ValueError(f"column '{column.name}' is declared twice")
        seen.add(column.name.lower())
    return tuple(columns)


class _Reader:
    """A recursive-descent reader of Spark's type grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.depth = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"'{text}' is not a type: unexpected '{text[position:].strip()[:10]}'")
            self.tokens.append(match[1] or match[2] or match[3])
            position = match.end()
        self.next = 0

    def take(self, expected: str | None = None) -> str:
        if self.next >= len(self.tokens):
            raise ValueError(f"'{self.text}' ends too early" + (f", '{expected}' is missing" if expected else ""))
        token = self.tokens[self.next]
        if expected is not None and token != expected:
            raise ValueError(f"'{self.text}': expected '{expected}' before '{token}'")
        self.next += 1
        return token

    def peek(self) -> str | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def end(self) -> None:
        if self.peek() is not None:
            raise ValueError(f"'{self.text}': unexpected '{self.peek()}'")

    def columns_to_end(self) -> list[Column]:
        columns = [] if self.peek() is None else self.columns()
        self.end()
        return columns

    def columns(self) -> list[Column]:
        columns = [self.column()]
        while self.peek() == ",":
            self.take()
            columns.append(self.column())
        return columns

    def column(self) -> Column:
        name = self.take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self.peek() == ":":
            self.take()
        return Column(name, self.type())

    def type(self) -> str:
        word = self.take().lower()
        name = _ALIASES.get(word, word)
        if name in _SIMPLE:
            return name
        if name == "decimal":
            return self.decimal()
        if name == "array":
            return f"array<{self.inside(self.type)}>"
        if name == "map":
            return f"map<{self.inside(self.pair)}>"
        if name == "struct":
            return f"struct<{self.inside(self.members)}>"
        raise ValueError(f"there is no type '{word}'. {did_you_mean(word, _KNOWN)}")

    def decimal(self) -> str:
        if self.peek() != "(":
            return "decimal(10,0)"
        self.take("(")
        precision, scale = self.take(), "0"
        if self.peek() == ",":
            self.take()
            scale = self.take()
        self.take(")")
        if not (precision.isdigit() and scale.isdigit() and int(scale) <= int(precision) <= 38):
            raise ValueError(f"'{self.text}': decimal takes a precision up to 38 and a scale up to the precision")
        return f"decimal({precision},{scale})"

    def inside(self, content: Any) -> str:
        self.take("<")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError(f"a type is nested more than {_DEEPEST} levels deep")
        result = content()
        self.depth -= 1
        self.take(">")
        return str(result)

    def pair(self) -> str:
        key = self.type()
        self.take(",")
        return f"{key},{self.type()}"

    def members(self) -> str:
        return ",".join(f"{quote(column.name)}:{column.type}" for column in self.columns())
