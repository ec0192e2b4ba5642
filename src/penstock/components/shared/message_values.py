"""Rows as values of messages that Spark cannot write itself: encoded in Python, from Arrow columns."""

from __future__ import annotations

import base64
import datetime as dt
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TID253 - imported by sinks only when they write

if TYPE_CHECKING:
    from pyspark.sql import Column


class Misfit(ValueError):
    """Why a row does not fit the schema of messages."""


class Encoder(ABC):
    """How rows are written. Travels to Spark's tasks."""

    @abstractmethod
    def value(self, row: Mapping[str, Any]) -> bytes:
        """The message of a row; raises whatever a value may bring about."""


@dataclass(frozen=True)
class AvroEncoder(Encoder):
    schema: str
    """As JSON."""

    def value(self, row: Mapping[str, Any]) -> bytes:
        import fastavro

        from penstock.components.shared.avro_records import record_of

        out = io.BytesIO()
        fastavro.schemaless_writer(out, record_of(self.schema).parsed, dict(row))
        return out.getvalue()


@dataclass(frozen=True)
class ProtobufEncoder(Encoder):
    descriptors: bytes
    message: str

    def value(self, row: Mapping[str, Any]) -> bytes:
        from google.protobuf.json_format import ParseDict

        from penstock.components.shared.protobuf_messages import message_type

        kind = message_type(self.descriptors, self.message)
        given = {name: _as_json(row[name]) for name in kind.schema.names if row.get(name) is not None}
        return ParseDict(given, kind.make()).SerializeToString(deterministic=True)


def _as_json(value: Any) -> Any:
    """A value as the JSON form of Protobuf has it."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _as_json(inner) for key, inner in value.items() if inner is not None}
    return [_as_json(inner) for inner in value] if isinstance(value, list) else value


def encoded(rows: pa.StructArray, encoder: Encoder) -> pa.Array:
    """The message of each row."""
    kinds = {field.name: field.type for field in rows.type}
    found = []
    for row in rows.to_pylist():
        plain = {name: _plain(value, kinds[name]) for name, value in row.items()}
        try:
            found.append(encoder.value(plain))
        except Exception as error:
            raise Misfit(f"a row does not fit the schema of messages: {error}") from None
    return pa.array(found, pa.binary())


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value with maps as such: Arrow gives them as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(inner, kind.item_type) for key, inner in value}
    if pa.types.is_list(kind):
        return [_plain(inner, kind.value_type) for inner in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value


def value_column(row: Column, encoder: Encoder) -> Column:
    """The messages of a column of rows, which are structs."""
    from penstock.components.shared.message_rows import applied

    def values(rows: pa.Array) -> pa.Array:
        return encoded(rows, encoder)

    return applied(values, "binary", row)
