"""Protocol Buffers: what the library writes is read back, whatever the type, and what is no message harms no other."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.components.looking import problems_of
from tests.engine.running import run, table
from tests.faults.victim import committed_rows

from penstock.components.base import RAW
from penstock.components.formats.protobuf import Protobuf
from penstock.components.shared.message_rows import decoded, why
from penstock.components.shared.protobuf_messages import BadDescriptors, ProtobufDecoder, message_type
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
SCALARS = {
    "double": (Field.TYPE_DOUBLE, st.floats(allow_nan=False)),
    "float": (Field.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    "int64": (Field.TYPE_INT64, st.integers(-(2**63), 2**63 - 1)),
    "sint64": (Field.TYPE_SINT64, st.integers(-(2**63), 2**63 - 1)),
    "uint64": (Field.TYPE_UINT64, st.integers(0, 2**64 - 1)),
    "int32": (Field.TYPE_INT32, st.integers(-(2**31), 2**31 - 1)),
    "uint32": (Field.TYPE_UINT32, st.integers(0, 2**32 - 1)),
    "fixed32": (Field.TYPE_FIXED32, st.integers(0, 2**32 - 1)),
    "sfixed64": (Field.TYPE_SFIXED64, st.integers(-(2**63), 2**63 - 1)),
    "bool": (Field.TYPE_BOOL, st.booleans()),
    "string": (Field.TYPE_STRING, st.text(max_size=9)),
    "bytes": (Field.TYPE_BYTES, st.binary(max_size=9)),
    "enum": (Field.TYPE_ENUM, st.sampled_from([0, 1, 7])),
}
ZERO: dict[str, Any] = {"string": "", "bytes": b"", "bool": False}
NAMES = {0: "RED", 1: "BLUE", 7: "7"}


def file_of(*messages: descriptor_pb2.DescriptorProto, imports: bool = True, syntax: str = "proto3") -> bytes:
    """A descriptor file with these messages."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax, message_type=messages)
    file.enum_type.add(name="Colour", value=[{"name": "RED", "number": 0}, {"name": "BLUE", "number": 1}])
    modules = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, empty_pb2)
    found = descriptor_pb2.FileDescriptorSet()
    for module in modules:
        file.dependency.append(module.DESCRIPTOR.name)
        if imports:
            module.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    return found.SerializeToString()


def message(name: str, *fields: Field, **more: Any) -> descriptor_pb2.DescriptorProto:
    for number, field in enumerate(fields, 1):
        field.number = field.number or number
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **more)


def field(name: str, kind: Any, *, many: bool = False, **more: Any) -> Field:
    of_type = {"type_name": kind, "type": Field.TYPE_MESSAGE} if isinstance(kind, str) else {"type": kind}
    if kind == Field.TYPE_ENUM:
        of_type["type_name"] = ".shop.Colour"
    label = Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL
    return Field(**{"name": name, "label": label, **of_type, **more})


def made(descriptors: bytes, name: str) -> Any:
    """The library's own class of a message type, from a pool of its own."""
    pool: Any = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def read(messages: list[bytes | None], descriptors: bytes, name: str, framing: Any = "none") -> list[dict[str, Any]]:
    return list(decoded(pa.array(messages, pa.binary()), ProtobufDecoder(descriptors, name, framing)).to_pylist())


def text(found: bytes) -> str:
    return "base64:" + base64.b64encode(found).decode()


# --- any message -----------------------------------------------------------------------------------------------


def plain(kind: str, value: Any) -> Any:
    return NAMES[value] if kind == "enum" else Decimal(value) if kind == "uint64" else value


SHAPES = ("plain", "optional", "many", "map", "nested")
COLUMNS = st.lists(st.tuples(st.sampled_from(sorted(SCALARS)), st.sampled_from(SHAPES)), min_size=1, max_size=5)


@profile(max_examples=100)
@given(data=st.data(), columns=COLUMNS)
def test_what_is_written_is_read(data: st.DataObject, columns: list[tuple[str, str]]) -> None:
    inner = message("Inner", *(field(f"c{place}", SCALARS[kind][0]) for place, (kind, _) in enumerate(columns)))
    fields, entries = list[Field](), list[descriptor_pb2.DescriptorProto]()
    oneofs: list[descriptor_pb2.OneofDescriptorProto] = []
    for place, (kind, shape) in enumerate(columns):
        name = f"c{place}"
        if shape == "optional":
            fields.append(field(name, SCALARS[kind][0], proto3_optional=True, oneof_index=len(oneofs)))
            oneofs.append(descriptor_pb2.OneofDescriptorProto(name=f"_{name}"))
        elif shape == "map":
            entry = message(f"C{place}Entry", field("key", Field.TYPE_STRING), field("value", SCALARS[kind][0]))
            entry.options.map_entry = True
            entries.append(entry)
            fields.append(field(name, f".shop.Row.C{place}Entry", many=True))
        else:
            fields.append(field(name, ".shop.Inner" if shape == "nested" else SCALARS[kind][0], many=shape == "many"))
    descriptors = file_of(inner, message("Row", *fields, nested_type=entries, oneof_decl=oneofs))
    make = made(descriptors, "shop.Row")
    rows, expected = [], []
    for _ in range(2):
        values, wanted = dict[str, Any](), dict[str, Any]()
        for place, (kind, shape) in enumerate(columns):
            name, drawn = f"c{place}", SCALARS[kind][1]
            if shape == "many":
                values[name] = data.draw(st.lists(drawn, max_size=3))
                wanted[name] = [plain(kind, value) for value in values[name]]
            elif shape == "map":
                values[name] = data.draw(st.dictionaries(st.text(max_size=3), drawn, max_size=3))
                wanted[name] = sorted((key, plain(kind, value)) for key, value in values[name].items())
            elif shape == "nested":
                present = data.draw(st.booleans())
                value = data.draw(drawn)
                values |= {name: {name: value}} if present else {}
                zero = {f"c{at}": plain(other, ZERO.get(other, 0)) for at, (other, _) in enumerate(columns)}
                wanted[name] = {**zero, name: plain(kind, value)} if present else None
            elif shape == "optional" and data.draw(st.booleans()):
                wanted[name] = None
            else:
                values[name] = data.draw(drawn)
                wanted[name] = plain(kind, values[name])
        rows.append(make(**values).SerializeToString())
        expected.append({**wanted, RAW: None})
    found = read([*rows, b"\xff", None], descriptors, "shop.Row")
    for row in found[:2]:
        for place, (_, shape) in enumerate(columns):
            if shape == "map":
                row[f"c{place}"] = sorted(row[f"c{place}"])
    assert found[:2] == expected
    assert (found[2][RAW], found[3][RAW]) == (text(b"\xff"), None)


def test_types_that_google_defines_have_a_meaning() -> None:
    google = ".google.protobuf."
    node = message("Node", field("name", Field.TYPE_STRING), field("next", ".shop.Node"))
    row = message(
        "Row",
        field("at", f"{google}Timestamp"), field("took", f"{google}Duration"), field("note", f"{google}StringValue"),
        field("size", f"{google}UInt64Value"), field("more", f"{google}Struct"), field("any", f"{google}Value"),
        field("flag", f"{google}Empty"), field("chain", ".shop.Node"), field("times", f"{google}Timestamp", many=True),
        field("left", Field.TYPE_INT32, oneof_index=0), field("right", Field.TYPE_STRING, oneof_index=0),
        oneof_decl=[descriptor_pb2.OneofDescriptorProto(name="side")],
    )  # fmt: skip
    descriptors = file_of(node, row)
    make = made(descriptors, "shop.Row")
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 500_001, tzinfo=UTC)
    stamp = {"seconds": -1, "nanos": 500_001_999}
    full = make(
        at=stamp, took={"seconds": 2, "nanos": 3000}, note={"value": ""}, size={"value": 2**64 - 1}, flag={},
        more={"k": [1]}, any={"string_value": "v"},
        chain={"name": "a", "next": {"name": "b", "next": {"name": "c"}}}, times=[stamp], right="",
    )  # fmt: skip
    one, nothing = read([full.SerializeToString(), b""], descriptors, "shop.Row")
    assert one == {
        "at": moment, "took": 2_000_003, "note": "", "size": Decimal(2**64 - 1), "more": '{"k": [1.0]}', "any": '"v"',
        "flag": True, "chain": {"name": "a", "next": '{"name": "b", "next": {"name": "c"}}'}, "times": [moment],
        "left": None, "right": "", RAW: None,
    }  # fmt: skip
    assert nothing == {**dict.fromkeys(one), "times": []}
    huge = make(at={"seconds": 2**62}).SerializeToString()
    assert why(huge, ProtobufDecoder(descriptors, "shop.Row")) == "column 'at': a value is outside its type"
    assert [row[RAW] for row in read([b"", huge], descriptors, "shop.Row")] == [None, text(huge)]


def test_required_fields_must_be_there() -> None:
    row = message("Row", field("id", Field.TYPE_INT32, label=Field.LABEL_REQUIRED), field("n", Field.TYPE_INT32))
    descriptors = file_of(row, syntax="proto2")
    make = made(descriptors, "shop.Row")
    good, bad = read([make(id=1).SerializeToString(), make(n=1).SerializePartialToString()], descriptors, "shop.Row")
    assert (good["id"], good["n"], bad["n"], bad[RAW] is not None) == (1, None, None, True)
    reason = why(make(n=1).SerializePartialToString(), ProtobufDecoder(descriptors, "shop.Row"))
    assert reason is not None
    assert "id" in reason


@profile(max_examples=100)
@given(found=st.binary(max_size=40))
def test_bytes_of_any_kind_never_fail(found: bytes) -> None:
    (row,) = read([found], PURCHASES, "shop.Purchase")
    assert (row[RAW] == text(found)) == (why(found, ProtobufDecoder(PURCHASES, "shop.Purchase")) is not None)


PURCHASES = file_of(
    message("First", field("id", Field.TYPE_INT64)),
    message(
        "Purchase",
        field("id", Field.TYPE_INT64), field("at", ".google.protobuf.Timestamp"), field("colour", Field.TYPE_ENUM),
        field("line", ".shop.Purchase.Line"), field("tags", Field.TYPE_STRING, many=True),
        nested_type=[message("Line", field("sku", Field.TYPE_STRING))],
    ),
)  # fmt: skip


def test_the_header_of_a_registry_names_the_message() -> None:
    body = made(PURCHASES, "shop.First")(id=7).SerializeToString()
    assert [row["id"] for row in read([b"\0\0\0\0\1\0" + body], PURCHASES, "shop.First", "confluent")] == [7]
    assert [row["id"] for row in read([b"\0\0\0\0\1\2\0" + body], PURCHASES, "shop.First", "confluent")] == [7]
    assert [row["id"] for row in read([b"\0\0\0\0\1\2\2" + body], PURCHASES, "shop.Purchase", "confluent")] == [7]
    line = made(PURCHASES, "shop.Purchase.Line")(sku="a").SerializeToString()
    assert [row["sku"] for row in read([b"\0\0\0\0\1\4\2\0" + line], PURCHASES, "shop.Purchase.Line", "confluent")] == [
        "a"
    ]
    decoder = ProtobufDecoder(PURCHASES, "shop.First", "confluent")
    assert why(b"\0\0\0\0\1\2\2" + body, decoder) == "it is another message of the file"
    assert why(b"\0\0\0\0\1\x80", decoder) == "it ends too early"
    assert why(body, decoder) == "it does not begin with the header of a schema registry"
    # Made up to be slow: each byte would make the number longer.
    assert why(b"\0\0\0\0\1" + b"\xff" * 1_000_000, decoder) == "a number in its header is too long"


def test_descriptors_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    other = descriptor_pb2.FileDescriptorSet()
    other.file.add(name="a.proto", dependency=["b.proto"])
    twice = file_of(message("Row", field("id", Field.TYPE_INT32), field("ID", Field.TYPE_INT32)))
    for content, name, reason in (
        (b"\xff\xff", "shop.Row", "not a descriptor file"),
        (PURCHASES, "shop.Purchas", "no message shop.Purchas, only shop.First, shop.Purchase, shop.Purchase.Line"),
        (other.SerializeToString(), "a.Row", "b.proto is missing in it; write it with protoc --include_imports"),
        (file_of(message("Row")), "shop.Row", "has no fields"),
        (twice, "shop.Row", "differ only in upper and lower case"),
    ):
        with pytest.raises(BadDescriptors, match=reason):
            message_type(content, name)
        (tmp_path / "x.desc").write_bytes(content)
        format_ = Protobuf(descriptors="x.desc", message=name)
        (problem,) = problems_of(format_, "rows", tmp_path)
        assert (problem.code, reason in problem.message) == ("SPEC_BAD_VALUE", True)
    (tmp_path / "x.desc").unlink()
    assert [problem.code for problem in problems_of(format_, "rows", tmp_path)] == ["PATH_NOT_FOUND"]


def test_what_google_defines_may_be_left_out_of_the_file() -> None:
    descriptors = file_of(message("Row", field("at", ".google.protobuf.Timestamp")), imports=False)
    assert read([b""], descriptors, "shop.Row") == [{"at": None, RAW: None}]


def test_files_of_messages_are_refused(project: Project) -> None:
    with pytest.raises(PenstockError, match="FORMAT_NOT_FOR_FILES"):
        project.load("""
            sources:
              rows: {files: {path: .}, format: {protobuf: {descriptors: x.desc, message: a.B}}}
            sinks:
              out: {from: rows, memory: {}}
        """)


@pytest.mark.spark
def test_messages_of_kafka_are_read(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    make = made(PURCHASES, "shop.Purchase")
    good = [
        make(id=number, at={"seconds": 1_704_067_200 + number}, tags=["x"], line={"sku": "s"}, colour=1)
        for number in range(3)
    ]
    kafka.send(kafka_topic, [*(found.SerializeToString() for found in good), b"\x08"])
    (project.folder / "shop.desc").write_bytes(PURCHASES)
    body = f"""
        sources:
          rows:
            kafka: {{bootstrap: "{kafka.bootstrap}", topic: {kafka_topic}, startingOffsets: earliest}}
            format: {{protobuf: {{descriptors: shop.desc, message: shop.Purchase}}}}
            eventTime: {{column: at}}
        sinks:
          out: {{from: rows, sqlite: {{path: out.db, table: rows}}}}
    """
    outcome = run(project.build(body), project.folder / "state")
    stored = table(project.folder / "out.db", "SELECT id, at, tags, line, colour FROM rows ORDER BY id")
    expected = [(number, f"2024-01-01 00:00:0{number}", '["x"]', {"sku": "s"}, "BLUE") for number in range(3)]
    assert [(*row[:3], json.loads(row[3]), row[4]) for row in stored] == expected
    (letter,) = committed_rows(outcome.state / "dead")
    assert (letter["raw"], letter["error"].startswith("not a message shop.Purchase")) == (text(b"\x08"), True)
