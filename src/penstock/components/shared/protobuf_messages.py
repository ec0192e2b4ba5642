"""Protocol Buffers messages as rows: message types in Arrow's words, and messages read with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias

import pyarrow as pa  # noqa: TID253 - imported by the format only when it reads
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.components.shared.message_rows import Decoder, Unreadable

Framing = Literal["none", "confluent"]
_Convert: TypeAlias = Callable[[Any], Any]
_CONFLUENT_HEADER = 5
_LONGEST_NUMBER = 70
"""Bits of a number of variable length, as Protocol Buffers write it."""
_GOOGLE = "google/protobuf/"
_AS_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
_F = FieldDescriptor
_SIMPLE = {
    _F.TYPE_DOUBLE: pa.float64(), _F.TYPE_FLOAT: pa.float32(), _F.TYPE_BOOL: pa.bool_(), _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(), _F.TYPE_INT32: pa.int32(), _F.TYPE_SINT32: pa.int32(), _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_INT64: pa.int64(), _F.TYPE_SINT64: pa.int64(), _F.TYPE_SFIXED64: pa.int64(), _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(), _F.TYPE_UINT64: pa.decimal128(20), _F.TYPE_FIXED64: pa.decimal128(20),
}  # fmt: skip


class BadDescriptors(ValueError):
    """Why a descriptor file, or a message type in it, cannot be used."""


@dataclass(frozen=True)
class _Kind:
    """What becomes of the values of a field."""

    type: pa.DataType
    convert: _Convert | None = None
    """None if they stay as they are."""


@dataclass(frozen=True)
class MessageType:
    """A message type, ready for reading."""

    make: type[Message]
    schema: pa.Schema
    takes: tuple[_Convert, ...]
    """Each takes the value of one column out of a message."""
    indexes: tuple[int, ...]
    """Where the type stands in its file, which a schema registry's header repeats."""


# --- types ------------------------------------------------------------------------------------------------


@cache
def message_type(descriptors: bytes, name: str) -> MessageType:
    """A message type of a descriptor file; raises BadDescriptors."""
    pool, names = _pool(descriptors)
    if name not in names:
        own = sorted(found for found in names if not found.startswith("google.protobuf."))
        raise BadDescriptors(f"there is no message {name}, only {', '.join(own) or 'none'}")
    found = pool.FindMessageTypeByName(name)
    if not found.fields:
        raise BadDescriptors(f"message {name} has no fields")
    kinds = {field.name: _field(field, (found.full_name,), pool) for field in found.fields}
    if len({column.lower() for column in kinds}) < len(kinds):
        raise BadDescriptors(f"message {name} has two fields whose names differ only in upper and lower case")
    return MessageType(
        GetMessageClass(found),
        pa.schema([(column, kind.type) for column, kind in kinds.items()]),
        tuple(_taking(field, kinds[field.name]) for field in found.fields),
        _indexes(found),
    )


def _pool(descriptors: bytes) -> tuple[Any, set[str]]:
    """All types of a descriptor file, and the names of its messages."""
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    except DecodeError:
        raise BadDescriptors("it is not a descriptor file; write it with protoc --descriptor_set_out") from None
    pool: Any = DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = files.get(name) or _of_google(name)
        for needed in file.dependency:
            add(needed)
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise BadDescriptors(f"{name} is damaged: {error}") from None

    for name in files:
        add(name)
    return pool, {found for file in files.values() for found in _messages(file)}


def _of_google(name: str) -> FileDescriptorProto:
    """One of the files that come with Protocol Buffers and that descriptor files often leave out."""
    found = FileDescriptorProto()
    try:
        if not name.startswith(_GOOGLE):
            raise ModuleNotFoundError
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ModuleNotFoundError:
        raise BadDescriptors(f"{name} is missing in it; write it with protoc --include_imports") from None
    module.DESCRIPTOR.CopyToProto(found)
    return found


def _messages(file: FileDescriptorProto) -> list[str]:
    """The names of the messages of a file, those inside of others too."""
    found = []
    waiting = [(file.package, kind) for kind in file.message_type]
    while waiting:
        outer, kind = waiting.pop()
        name = f"{outer}.{kind.name}" if outer else kind.name
        found.append(name)
        waiting.extend((name, inner) for inner in kind.nested_type if not inner.options.map_entry)
    return found


def _field(field: FieldDescriptor, inside: tuple[str, ...], pool: DescriptorPool) -> _Kind:
    """The kind of a field, as a whole; `inside` are the messages around it."""
    if not field.is_repeated:
        return _single(field, inside, pool)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_single(entry.fields_by_name[part], inside, pool) for part in ("key", "value"))
        return _Kind(pa.map_(key.type, value.type), lambda found: _pairs(found, key.convert, value.convert))
    kind = _single(field, inside, pool)
    convert = kind.convert
    return _Kind(pa.list_(kind.type), list if convert is None else lambda found: [convert(value) for value in found])


def _pairs(found: Any, key: _Convert | None, value: _Convert | None) -> list[tuple[Any, Any]]:
    return [
        (name if key is None else key(name), found[name] if value is None else value(found[name])) for name in found
    ]


def _single(field: FieldDescriptor, inside: tuple[str, ...], pool: DescriptorPool) -> _Kind:
    """The kind of one value of a field."""
    if field.enum_type is not None:
        names = {number: found.name for number, found in field.enum_type.values_by_number.items()}
        return _Kind(pa.string(), lambda value: names.get(value, str(value)))
    if field.message_type is not None:
        return _message(field.message_type, inside, pool)
    return _Kind(_SIMPLE[field.type])


def _message(found: Descriptor, inside: tuple[str, ...], pool: DescriptorPool) -> _Kind:
    name = found.full_name
    if name == "google.protobuf.Timestamp":
        return _Kind(pa.timestamp("us", "UTC"), _micros)
    if name == "google.protobuf.Duration":
        return _Kind(pa.int64(), _micros)
    if name in _WRAPPERS:
        return _Kind(_SIMPLE[found.fields_by_name["value"].type], lambda message: message.value)
    if name in _AS_JSON or name in inside:
        # Spark has no type for what contains itself.
        return _Kind(pa.string(), lambda message: _json(message, pool))
    if not found.fields:
        return _Kind(pa.bool_(), lambda message: True)
    kinds = {field.name: _field(field, (*inside, name), pool) for field in found.fields}
    takes = [(field.name, _taking(field, kinds[field.name])) for field in found.fields]
    kind = pa.struct([(column, kind.type) for column, kind in kinds.items()])
    return _Kind(kind, lambda message: {column: take(message) for column, take in takes})


def _taking(field: FieldDescriptor, kind: _Kind) -> _Convert:
    """A function that takes a field out of a message: null if it is not set and that can be told."""
    name, convert = field.name, kind.convert
    if field.has_presence:

        def take(message: Any) -> Any:
            if not message.HasField(name):
                return None
            value = getattr(message, name)
            return value if convert is None else convert(value)

        return take
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _micros(message: Any) -> int:
    return int(message.seconds * 1_000_000 + message.nanos // 1000)


def _json(message: Message, pool: DescriptorPool) -> str:
    return json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True, descriptor_pool=pool)


def _indexes(found: Descriptor) -> tuple[int, ...]:
    outer = found.containing_type
    siblings: Sequence[Descriptor] = (
        list(found.file.message_types_by_name.values()) if outer is None else list(outer.nested_types)
    )
    place = [sibling.full_name for sibling in siblings].index(found.full_name)
    return (place,) if outer is None else (*_indexes(outer), place)


# --- messages ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProtobufDecoder(Decoder):
    """Reads single messages."""

    descriptors: bytes
    message: str
    framing: Framing = "none"

    @property
    def schema(self) -> pa.Schema:
        return message_type(self.descriptors, self.message).schema

    def row(self, message: bytes) -> list[Any]:
        found = message_type(self.descriptors, self.message)
        body = message if self.framing == "none" else _without_header(message, found.indexes)
        parsed: Any = found.make()
        try:
            parsed.ParseFromString(body)
            if not parsed.IsInitialized():
                raise Unreadable(f"fields are missing: {', '.join(parsed.FindInitializationErrors())}")
            return [take(parsed) for take in found.takes]
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"not a message {self.message}: {error}") from None


def _without_header(message: bytes, wanted: tuple[int, ...]) -> bytes:
    """What follows the header of a schema registry, which names the message type by its place in its file."""
    if len(message) < _CONFLUENT_HEADER or message[0] != 0:
        raise Unreadable("it does not begin with the header of a schema registry")
    count, position = _number(message, _CONFLUENT_HEADER)
    indexes = []
    for _ in range(min(count, len(message))):
        index, position = _number(message, position)
        indexes.append(index)
    # The first message of a file is so common that it is written as nothing.
    if (tuple(indexes) or (0,)) != wanted:
        raise Unreadable("it is another message of the file")
    return message[position:]


def _number(message: bytes, position: int) -> tuple[int, int]:
    """A zigzag number of variable length, and where it ends."""
    value = shift = 0
    while True:
        if position >= len(message):
            raise Unreadable("it ends too early")
        if shift >= _LONGEST_NUMBER:
            raise Unreadable("a number in its header is too long")
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
