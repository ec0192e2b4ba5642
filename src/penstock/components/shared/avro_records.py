"""Avro records as rows: the types of a schema in Arrow's words, and messages and files read with it."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TypeAlias, cast

import fastavro
import pyarrow as pa  # noqa: TID253 - imported by the format only when it reads
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from penstock.components.shared.avro_resolution import Incompatible, aligned, parsed_with, reader_of, same_schema
from penstock.components.shared.message_rows import Decoder, Unreadable
from penstock.components.shared.schema_registry import Client
from penstock.components.shared.source_errors import SourceError
from penstock.errors import Problem

Framing = Literal["none", "confluent", "single_object"]
_Convert: TypeAlias = Callable[[Any], Any]
_CONFLUENT_HEADER = 5
_SINGLE_OBJECT, _SINGLE_OBJECT_HEADER = b"\xc3\x01", 10
_ROWS_AT_ONCE = 10_000
_READINGS_KEPT = 1000
_MOST_TYPES = 10_000
"""Spark has no names for types, so a schema of a few lines can stand for more of them than any machine has room for."""
_WIDEST_DECIMAL = 38
_EXACT = Context(prec=_WIDEST_DECIMAL + 1)
_UTC_MICROS, _LOCAL_MICROS = pa.timestamp("us", "UTC"), pa.timestamp("us")
_SIMPLE = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _UTC_MICROS,
    ("long", "timestamp-micros"): _UTC_MICROS,
    ("long", "local-timestamp-millis"): _LOCAL_MICROS,
    ("long", "local-timestamp-micros"): _LOCAL_MICROS,
    ("int", "time-millis"): pa.int64(),
    ("long", "time-micros"): pa.int64(),
    ("string", "uuid"): pa.string(),
}
_NAMED = ("record", "error", "enum", "fixed")
_WIDER = {"int": "long", "float": "double"}
_CLASSES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,), "int": (int, dt.datetime, dt.date, dt.time), "long": (int, dt.datetime, dt.time),
    "float": (float,), "double": (float,), "bytes": (bytes, Decimal), "string": (str, uuid.UUID), "enum": (str,),
    "fixed": (bytes, Decimal), "array": (list,), "map": (dict,), "record": (dict,),
}  # fmt: skip
"""What values of a type come as. Those of files come as what they mean, those of messages as they are written."""


@dataclass(frozen=True)
class _Kind:
    """What becomes of the values of a type."""

    type: pa.DataType
    convert: _Convert | None = None
    """None if they stay as they are."""
    classes: tuple[type, ...] = ()


class BadSchema(ValueError):
    """Why a schema cannot be used."""


# --- types ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """A schema, ready for reading."""

    parsed: Any
    as_written: Any
    schema: pa.Schema
    converts: tuple[tuple[str, _Convert | None], ...]
    print: str
    """Its fingerprint, as single objects carry it."""
    reader: Any
    """To read what was written with another schema."""

    def values(self, record: Mapping[str, Any]) -> list[Any]:
        return [
            record[name] if convert is None or record[name] is None else convert(record[name])
            for name, convert in self.converts
        ]


@lru_cache(_READINGS_KEPT)
def record_of(text: str) -> Record:
    """The record that a schema in JSON describes; raises BadSchema."""
    try:
        written = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadSchema(f"it is not JSON: {error}") from None
    if not isinstance(written, dict) or written.get("type") != "record" or not written.get("fields"):
        raise BadSchema("it is not the schema of a record with fields")
    try:
        parsed = parse_schema(written)
    except Exception as error:
        raise BadSchema(f"it is not an Avro schema: {error}") from None
    assert isinstance(parsed, dict)
    try:
        named = _Named()
        kinds = {item["name"]: _kind(item["type"], named, (parsed["name"],)) for item in parsed["fields"]}
        names = {name.lower() for name in kinds}
        reader = reader_of(parsed, named.count)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The library takes schemas that are none, such as a field whose name is a number.
        raise error if isinstance(error, BadSchema) else BadSchema("it is not an Avro schema") from None
    if len(names) < len(kinds):
        raise BadSchema("it has two fields whose names differ only in upper and lower case")
    return Record(
        parsed,
        parse_schema(_as_written(written)),
        pa.schema([(name, kind.type) for name, kind in kinds.items()]),
        tuple((name, kind.convert) for name, kind in kinds.items()),
        fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"),
        reader,
    )


@dataclass
class _Named:
    """Types by name, and how many types were made so far: each name stands for all that is in its type."""

    types: dict[str, Any] = field(default_factory=dict)
    made: int = 0

    def count(self) -> None:
        self.made += 1
        if self.made > _MOST_TYPES:
            raise BadSchema(f"it has more than {_MOST_TYPES:,} types, with those that names stand for")


def _kind(schema: Any, named: _Named, inside: tuple[str, ...]) -> _Kind:
    """The kind of a type; `named` are types by name, `inside` the records around it."""
    named.count()
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        if schema in inside:
            raise BadSchema(f"record {schema} contains itself, for which Spark has no type")
        return _kind(named.types[schema], named, inside) if schema in named.types else _simple(schema, {})
    if schema["type"] in _NAMED:
        named.types[schema["name"]] = schema
    if schema["type"] in ("record", "error"):
        return _struct(schema, named, inside)
    if schema["type"] == "array":
        return _array(_kind(schema["items"], named, inside))
    if schema["type"] == "map":
        return _map(_kind(schema["values"], named, inside))
    return _simple(schema["type"], schema)


def _simple(name: str, schema: Mapping[str, Any]) -> _Kind:
    if name == "null":
        return _Kind(pa.null())
    logical, classes = schema.get("logicalType"), _CLASSES[name]
    if logical == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > _WIDEST_DECIMAL:
            raise BadSchema(f"it has a decimal of {precision} digits; Spark has {_WIDEST_DECIMAL} at most")
        return _Kind(pa.decimal128(precision, scale), lambda value: _decimal(value, scale), classes)
    found = _LOGICAL.get((name, logical or ""))
    if found is None:
        return _Kind(_SIMPLE[name], classes=classes)
    if logical == "uuid":
        return _Kind(found, str, classes)
    if logical in ("time-millis", "time-micros"):
        unit = 1000 if logical == "time-millis" else 1
        return _Kind(found, lambda value: _micros_of_day(value, unit), classes)
    return _Kind(found, _millis if logical and logical.endswith("-millis") else None, classes)


def _decimal(value: bytes | Decimal, scale: int) -> Decimal:
    if isinstance(value, Decimal):
        return value
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)


def _millis(value: int | dt.datetime) -> int | dt.datetime:
    return value * 1000 if isinstance(value, int) else value


def _micros_of_day(value: int | dt.time, unit: int) -> int:
    if isinstance(value, int):
        return value * unit
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _struct(schema: Mapping[str, Any], named: _Named, inside: tuple[str, ...]) -> _Kind:
    within = (*inside, schema["name"])
    kinds = {item["name"]: _kind(item["type"], named, within) for item in schema["fields"]}
    if not kinds:
        raise BadSchema(f"record {schema['name']} has no fields, for which Spark has no type")
    converts = [(name, kind.convert) for name, kind in kinds.items() if kind.convert is not None]

    def convert(value: Mapping[str, Any]) -> Mapping[str, Any]:
        changed = {name: change(value[name]) for name, change in converts if value[name] is not None}
        return {**value, **changed}

    kind = pa.struct([(name, kind.type) for name, kind in kinds.items()])
    return _Kind(kind, convert if converts else None, _CLASSES["record"])


def _array(items: _Kind) -> _Kind:
    if pa.types.is_null(items.type):
        # A few bytes could announce billions of them.
        raise BadSchema("it has an array of nulls")
    change = items.convert

    def convert(values: Sequence[Any]) -> list[Any]:
        assert change is not None
        return [None if value is None else change(value) for value in values]

    return _Kind(pa.list_(items.type), convert if change else None, _CLASSES["array"])


def _map(values: _Kind) -> _Kind:
    def convert(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
        if values.convert is None:
            return list(found.items())
        return [(key, None if value is None else values.convert(value)) for key, value in found.items()]

    return _Kind(pa.map_(pa.string(), values.type), convert, _CLASSES["map"])


def _union(schemas: Sequence[Any], named: _Named, inside: tuple[str, ...]) -> _Kind:
    """One type besides null is that type; of several each has a place in a struct, as in Spark's own reader."""
    branches = [schema for schema in schemas if schema != "null"]
    # A wider number holds the narrower one, too.
    branches = [item for item in branches if not (isinstance(item, str) and _WIDER.get(item) in branches)]
    names = [_name(branch) for branch in branches]
    kinds = [_kind(branch, named, inside) for branch in branches]
    if not kinds:
        return _Kind(pa.null())
    if len(kinds) == 1:
        return _Kind(kinds[0].type, lambda value: _member(value, kinds[0])) if names[0] else kinds[0]

    unnamed = [kind.classes[0] for name, kind in zip(names, kinds, strict=True) if name is None]
    if len(set(unnamed)) < len(unnamed):
        raise BadSchema(f"it has a union whose types cannot be told apart: {json.dumps(branches)}")

    def convert(value: Any) -> dict[str, Any]:
        named_as, plain = value if isinstance(value, tuple) else (None, value)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            if named_as == name if named_as or name else type(plain) in kind.classes:
                return {f"member{number}": plain if kind.convert is None else kind.convert(plain)}
        raise Unreadable("a value is of no type of its union")

    return _Kind(pa.struct([(f"member{number}", kind.type) for number, kind in enumerate(kinds)]), convert)


def _member(value: Any, kind: _Kind) -> Any:
    """A value of a union of null and one named type, which comes with the name."""
    plain = value[1] if isinstance(value, tuple) else value
    return plain if kind.convert is None else kind.convert(plain)


def _name(schema: Any) -> str | None:
    """The name of a named type."""
    if isinstance(schema, str):
        return None if schema in _SIMPLE else schema
    return schema["name"] if isinstance(schema, dict) and schema["type"] in _NAMED else None


def _as_written(schema: Any) -> Any:
    """A schema whose values are read as they are written: Arrow gives them their meaning many times faster."""
    if isinstance(schema, dict):
        return {key: _as_written(value) for key, value in schema.items() if key != "logicalType"}
    return [_as_written(item) for item in schema] if isinstance(schema, list) else schema


@dataclass(frozen=True)
class Reading:
    """The schemas with which a message is read."""

    writer: Any
    reader: Any = None
    """None if values are to come as they were written."""


@lru_cache(_READINGS_KEPT)
def reading(text: str, writer: str, references: tuple[str, ...]) -> Reading:
    """How a record that was written with one schema is read with another; raises BadSchema if it cannot be."""
    record = record_of(text)
    try:
        parsed, named = parsed_with(writer, references)
    except Exception as error:
        raise BadSchema(f"that schema is not usable: {_said(error)}") from None
    if not references and same_schema(parsed, record.parsed):
        return Reading(record.as_written)
    try:
        return Reading(aligned(parsed, named, record.parsed), record.reader)
    except Incompatible as error:
        raise BadSchema(str(error)) from None


# --- messages ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AvroDecoder(Decoder):
    """Reads single records."""

    text: str
    framing: Framing = "none"
    ids: frozenset[int] = frozenset()
    """Numbers that the registry has given to this very schema."""
    registry: Client | None = None

    @property
    def schema(self) -> pa.Schema:
        return record_of(self.text).schema

    def row(self, message: bytes) -> list[Any]:
        record = record_of(self.text)
        written = self._writer(message, record) if self.framing == "confluent" else Reading(record.as_written)
        body = io.BytesIO(self._body(message, record))
        try:
            found = fastavro.schemaless_reader(body, written.writer, written.reader, return_named_type=True)
            values = record.values(cast("dict[str, Any]", found))
        except EOFError:
            raise Unreadable("it ends too early") from None
        except Unreadable:
            raise
        except Exception as error:
            schema = "the schema" if written.reader is None else "the schema given here and that of its writer"
            raise Unreadable(f"not a record of {schema}: {_said(error)}") from None
        left = len(body.getvalue()) - body.tell()
        if left:
            raise Unreadable(f"{left} bytes are left over")
        return values

    def _writer(self, message: bytes, record: Record) -> Reading:
        """How to read what was written with the schema that the message names."""
        if len(message) < _CONFLUENT_HEADER or message[0] != 0:
            raise Unreadable("it does not begin with the header of a schema registry")
        number = int.from_bytes(message[1:_CONFLUENT_HEADER], "big")
        if number in self.ids:
            return Reading(record.as_written)
        if self.registry is None:
            raise Unreadable(f"it was written with schema {number}, which is not among `schemaIds`")
        written = self.registry.schema(number)
        try:
            return reading(self.text, written.text, written.references)
        except BadSchema as error:
            raise Unreadable(f"it was written with schema {number}: {error}") from None

    def _body(self, message: bytes, record: Record) -> bytes:
        if self.framing == "confluent":
            return message[_CONFLUENT_HEADER:]
        if self.framing == "single_object":
            if len(message) < _SINGLE_OBJECT_HEADER or not message.startswith(_SINGLE_OBJECT):
                raise Unreadable("it does not begin with the header of a single object")
            if message[2:_SINGLE_OBJECT_HEADER].hex() != record.print:
                raise Unreadable("it was written with another schema")
            return message[_SINGLE_OBJECT_HEADER:]
        return message


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


# --- files ------------------------------------------------------------------------------------------------


def schema_in(head: bytes) -> str:
    """The schema of a container file, from its beginning; raises BadSchema."""
    try:
        written = fastavro.reader(io.BytesIO(head)).writer_schema
    except Exception as error:
        raise BadSchema(f"not an Avro file: {_said(error)}") from None
    return json.dumps(written)


def batches_in(place: str, content: bytes, text: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a container file, in the columns of a schema, which may be newer or older, and where they lie."""
    record = record_of(text)
    try:
        rows = fastavro.reader(io.BytesIO(content), record.reader, return_named_type=True)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            values = [record.values(cast("dict[str, Any]", row)) for row in some]
            columns = [[row[number] for row in values] for number in range(len(record.schema))]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip([*columns, [place] * len(some)], schema, strict=True)
                ],
                schema=schema,
            )
    except Exception as error:
        reason = f"{place}: {_said(error)}"
        raise SourceError(Problem("SOURCE_FILE_CORRUPT", {"reason": reason})) from None
