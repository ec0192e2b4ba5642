"""Change records in Debezium's JSON, with or without their schema, as rows.

What a number or a text means is said by the schema that comes with a record; without one by the declared column, and
where that leaves it open by the source's settings.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, Literal, TypeAlias

import pyarrow as pa  # noqa: TID253 - imported by the source only when it reads

from penstock.components.shared.malformed import BASE64
from penstock.components.shared.message_rows import Decoder, Unreadable

Part = Literal["op", "deleted", "ts", "version"]
Unit = Literal["millis", "micros", "nanos"]
About: TypeAlias = Mapping[str, Any] | None
"""What a record's schema says of a value."""
KEPT = "_penstock_change"
"""Column that is true for changes; records without one, that are no malformed ones, say nothing of rows."""
_PARTS = {"op": pa.string(), "deleted": pa.bool_(), "ts": pa.timestamp("us", "UTC"), "version": pa.string()}
_UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_BYTES = base64.b64encode(_UNAVAILABLE.encode()).decode()
_UNITS: dict[str, tuple[int, int]] = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
"""By what a number is multiplied and divided to be microseconds."""
_NAMED = {
    "io.debezium.time.Timestamp": _UNITS["millis"],
    "org.apache.kafka.connect.data.Timestamp": _UNITS["millis"],
    "io.debezium.time.MicroTimestamp": _UNITS["micros"],
    "io.debezium.time.NanoTimestamp": _UNITS["nanos"],
    "io.debezium.time.Date": (86_400_000_000, 1),
    "org.apache.kafka.connect.data.Date": (86_400_000_000, 1),
}
_EXACT = Context(prec=100)


@dataclass(frozen=True)
class DebeziumDecoder(Decoder):
    """Reads change records: `{"key": …, "value": …}`, both as bytes."""

    row_schema: pa.Schema
    """The columns of the table, as they are declared."""
    parts: Mapping[str, Part]
    """Further columns, by what they hold of the change."""
    units: Unit | Mapping[str, Unit] | None = None
    decimals: Literal["base64", "text"] = "base64"

    @cached_property
    def schema(self) -> pa.Schema:
        further = [(name, _PARTS[part]) for name, part in self.parts.items()]
        return pa.schema([*self.row_schema, *further, (KEPT, pa.bool_())])

    @cached_property
    def _values(self) -> _Values:
        return _Values(self.units, self.decimals)

    def as_text(self, message: Mapping[str, bytes | None]) -> str:
        value = message["value"] or b""
        try:
            return value.decode()
        except UnicodeDecodeError:
            return super().as_text(value)

    def from_text(self, text: str) -> Mapping[str, bytes | None]:
        return {"key": None, "value": super().from_text(text) if text.startswith(BASE64) else text.encode()}

    def row(self, message: Mapping[str, bytes | None]) -> list[Any]:
        value = message["value"]
        nothing = [None] * len(self.schema)
        if value is None or not value.strip():
            return nothing
        payload, about = _opened(_read(value))
        if payload is None or _says_nothing(payload):
            return nothing
        op = payload.get("op")
        found, side = _changed(op, payload, message["key"])
        kinds = _fields(about, side)
        row = [
            None if found.get(name) is None else self._values.of(name, kind, found[name], kinds.get(name))
            for name, kind in zip(self.row_schema.names, self.row_schema.types, strict=True)
        ]
        told = payload.get("source")
        source = told if isinstance(told, dict) else {}
        time = _time(payload, source)
        known = {"op": op, "deleted": op == "d", "ts": time, "version": version(source, time or 0)}
        return [*row, *(known[part] for part in self.parts.values()), True]


# --- records ----------------------------------------------------------------------------------------------


def _read(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise Unreadable("not a JSON object") from None
    if not isinstance(found, dict):
        raise Unreadable("not a JSON object")
    return found


def _opened(record: dict[str, Any]) -> tuple[dict[str, Any] | None, About]:
    """The payload of a record, and its schema if it has one."""
    if "payload" not in record or "schema" not in record:
        return record, None
    payload = record["payload"]
    if payload is not None and not isinstance(payload, dict):
        raise Unreadable("its payload is not a JSON object")
    return payload, record["schema"] if isinstance(record["schema"], dict) else None


def _says_nothing(payload: Mapping[str, Any]) -> bool:
    """Whether it is one of Debezium's records about itself: heartbeats, transactions, changes of the schema, notes."""
    if payload.get("op") is not None:
        return bool(payload["op"] == "m")
    about_schema = "ddl" in payload or "tableChanges" in payload
    only_time = bool(payload) and set(payload) <= {"ts_ms", "ts_us", "ts_ns"}
    return only_time or about_schema or payload.get("status") in ("BEGIN", "END")


def _changed(op: Any, payload: Mapping[str, Any], key: bytes | None) -> tuple[Mapping[str, Any], str]:
    """The row of a change, and on which side of it; of a deletion the row before it, or at least its key."""
    if op == "t":
        raise Unreadable("the table was emptied by TRUNCATE, which cannot be followed row by row")
    if op not in ("c", "u", "r", "d"):
        raise Unreadable("it is no change of a row" if op is None else f"'{op}' is no operation that is known")
    side = "before" if op == "d" else "after"
    found = payload.get(side)
    if found is None and op == "d" and key is not None:
        found = _opened(_read(key))[0]
    if isinstance(found, str):
        found = _read(found.encode())
    if not isinstance(found, dict):
        raise Unreadable("the row that was deleted is not told" if op == "d" else "the row after the change is missing")
    return found, side


def _fields(about: About, side: str) -> Mapping[str, Mapping[str, Any]]:
    """What the schema says of the columns of one side."""
    for part in (about or {}).get("fields") or ():
        if part.get("field") == side:
            return {column["field"]: column for column in part.get("fields") or ()}
    return {}


def _time(payload: Mapping[str, Any], source: Mapping[str, Any]) -> int | None:
    """When the change was made, as well as it is known, in microseconds."""
    for holder in (source, payload):
        for name, (times, parts) in (("ts_us", (1, 1)), ("ts_ns", (1, 1000)), ("ts_ms", (1000, 1))):
            if isinstance(holder.get(name), int):
                return int(holder[name]) * times // parts
    return None


def version(source: Mapping[str, Any], time: int) -> str:
    """Texts that sort as the changes of a row were made: by the position in the database's log, or else by time."""
    if isinstance(source.get("lsn"), int):
        return f"{source['lsn']:020d}"
    if isinstance(source.get("file"), str) and isinstance(source.get("pos"), int):
        number = source["file"].rpartition(".")[2]
        return f"{int(number) if number.isdecimal() else 0:010d}{source['pos']:020d}{int(source.get('row') or 0):010d}"
    if isinstance(source.get("commit_lsn"), str):
        places = [(source.get(name) or "").replace(":", "").lower().zfill(20) for name in ("commit_lsn", "change_lsn")]
        return f"{places[0]}{places[1]}{int(source.get('event_serial_no') or 0):010d}"
    if str(source.get("scn") or "").isdecimal():
        return f"{int(source['scn']):020d}"
    return f"{max(time, 0):020d}{int(source.get('ord') or 0):010d}"


# --- values -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Values:
    """How values are read."""

    units: Unit | Mapping[str, Unit] | None
    decimals: str
    makers: dict[pa.DataType, Callable[[str, Any, About], Any]] = field(default_factory=dict, compare=False)

    def of(self, name: str, kind: pa.DataType, value: Any, about: About) -> Any:
        """A value of a column; raises Unreadable."""
        if isinstance(value, str) and value in (_UNAVAILABLE, _UNAVAILABLE_BYTES):
            raise Unreadable(f"column '{name}' was not sent; set REPLICA IDENTITY FULL on the table")
        try:
            return self._made(name, kind, value, about)
        except (ValueError, TypeError, ArithmeticError, KeyError, AttributeError) as error:
            if isinstance(error, Unreadable):
                raise
            shown = str(value)[:40]
            raise Unreadable(f"column '{name}': cannot read '{shown}' as {_word(kind)}") from None

    def _made(self, name: str, kind: pa.DataType, value: Any, about: About) -> Any:
        if value is None:
            return None
        if kind not in self.makers:
            self.makers[kind] = self._maker(kind)
        return self.makers[kind](name, value, about)

    def _maker(self, kind: pa.DataType) -> Callable[[str, Any, About], Any]:
        if pa.types.is_boolean(kind):
            return lambda name, value, about: _flag(value)
        if pa.types.is_integer(kind):
            return lambda name, value, about: _whole(value)
        if pa.types.is_floating(kind):
            return lambda name, value, about: float(value)
        if pa.types.is_decimal(kind):
            return lambda name, value, about: self._decimal(value, about, kind.scale)
        if pa.types.is_string(kind):
            return lambda name, value, about: value if isinstance(value, str) else json.dumps(value, default=float)
        if pa.types.is_binary(kind):
            return lambda name, value, about: base64.b64decode(value, validate=True)
        if pa.types.is_date(kind):
            return lambda name, value, about: value if _is_number(value) else dt.date.fromisoformat(value)
        if pa.types.is_timestamp(kind):
            return self._moment
        return self._nested(kind)

    def _nested(self, kind: pa.DataType) -> Callable[[str, Any, About], Any]:
        if pa.types.is_list(kind):
            return lambda name, value, about: [
                self._made(name, kind.value_type, item, (about or {}).get("items")) for item in _parsed(value, list)
            ]
        if pa.types.is_map(kind):
            return lambda name, value, about: [
                (key, self._made(name, kind.item_type, item, (about or {}).get("values")))
                for key, item in _parsed(value, dict).items()
            ]

        def struct(name: str, value: Any, about: About) -> dict[str, Any]:
            inside = {part["field"]: part for part in (about or {}).get("fields") or ()}
            found = _parsed(value, dict)
            return {
                part.name: self._made(name, part.type, found.get(part.name), inside.get(part.name)) for part in kind
            }

        return struct

    def _decimal(self, value: Any, about: About, scale: int) -> Decimal:
        if isinstance(value, dict):
            return _unscaled(value["value"], int(value["scale"]))
        if isinstance(value, str):
            in_text = self.decimals == "text" if about is None else about.get("type") == "string"
            if in_text:
                return Decimal(value)
            parameters = (about or {}).get("parameters") or {}
            return _unscaled(value, int(parameters.get("scale", scale)))
        return Decimal(_number(value))

    def _moment(self, name: str, value: Any, about: About) -> Any:
        if isinstance(value, str):
            found = dt.datetime.fromisoformat(value)
            return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found
        unit = _NAMED.get(str((about or {}).get("name")))
        if unit is None:
            chosen = self.units.get(name) if isinstance(self.units, Mapping) else self.units
            if chosen is None:
                raise Unreadable(f"column '{name}': in which unit {value} is a time is not told; say it under `units`")
            unit = _UNITS[chosen]
        return _whole(value) * unit[0] // unit[1]


def _parsed(value: Any, kind: type) -> Any:
    """A nested value, which may also come as a JSON text."""
    found = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
    if not isinstance(found, kind):
        raise ValueError(value)
    return found


def _unscaled(text: str, scale: int) -> Decimal:
    try:
        number = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    except binascii.Error:
        raise Unreadable(
            f"'{text[:40]}' is no decimal in base64; if decimals come as text, say `decimals: text`"
        ) from None
    return Decimal(number).scaleb(-scale, _EXACT)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> int | Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if _number(value) != int(value):
        raise ValueError(value)
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _word(kind: pa.DataType) -> str:
    """A type as people write it."""
    words = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "bool": "boolean",
             "date32[day]": "date", "binary": "binary", "string": "string", "double": "double",
             "float": "float"}  # fmt: skip
    text = str(kind)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return "timestamp" if pa.types.is_timestamp(kind) else words.get(text, text)
