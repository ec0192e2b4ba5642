"""Rows are written as messages that Avro's and Protobuf's own libraries read back as they were."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from penstock.components.shared.message_values import AvroEncoder, Misfit, ProtobufEncoder, encoded
from penstock.components.shared.protobuf_messages import message_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

SCHEMA = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "marks", "type": {"type": "map", "values": "int"}},
        {"name": "extra", "type": ["null", "double"], "default": None},
    ],
}
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("marks", pa.map_(pa.string(), pa.int32())),
        ("unknown", pa.int32()),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(1 << 63), (1 << 63) - 1),
            "name": st.none() | st.text(max_size=5),
            "at": st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
            "price": st.decimals(-(10**7), 10**7, places=2),
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "marks": st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3),
            "unknown": st.just(7),
        }
    ),
    max_size=4,
)


@given(ROWS)
def test_avro_reads_back_what_was_written(rows: list[dict[str, Any]]) -> None:
    table = pa.array([{**row, "marks": list(row["marks"].items())} for row in rows], KIND)
    messages = encoded(table, AvroEncoder(json.dumps(SCHEMA))).to_pylist()
    parsed = fastavro.parse_schema(SCHEMA)
    found = [fastavro.schemaless_reader(io.BytesIO(message), parsed, None) for message in messages]
    wanted = [{name: row[name] for name in row if name != "unknown"} | {"extra": None} for row in rows]
    assert found == wanted


def descriptors() -> bytes:
    files = FileDescriptorSet()
    file = files.file.add(name="view.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="View")
    kinds = {"id": FieldDescriptorProto.TYPE_INT64, "name": FieldDescriptorProto.TYPE_STRING,
             "raw": FieldDescriptorProto.TYPE_BYTES}  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    message.field.add(
        name="tags", number=4, type=FieldDescriptorProto.TYPE_STRING, label=FieldDescriptorProto.LABEL_REPEATED
    )
    return files.SerializeToString()


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.text(max_size=5),
            st.binary(max_size=5),
            st.lists(st.text(max_size=3)),
        )
    )
)
def test_protobuf_reads_back_what_was_written(rows: list[tuple[int, str, bytes, list[str]]]) -> None:
    kind = pa.struct([("id", pa.int64()), ("name", pa.string()), ("raw", pa.binary()), ("tags", pa.list_(pa.string()))])
    table = pa.array([dict(zip(("id", "name", "raw", "tags"), row, strict=True)) for row in rows], kind)
    make = message_type(descriptors(), "shop.View").make
    found = []
    for message in encoded(table, ProtobufEncoder(descriptors(), "shop.View")).to_pylist():
        read: Any = make.FromString(message)
        found.append((read.id, read.name, read.raw, list(read.tags)))
    assert found == rows


def test_a_row_that_does_not_fit_is_told() -> None:
    row = {"id": None, "name": "x", "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "price": Decimal("1.00")}
    with pytest.raises(Misfit, match="does not fit"):
        encoded(pa.array([row], KIND), AvroEncoder(json.dumps(SCHEMA)))


@pytest.mark.spark
def test_a_topic_of_avro_is_read_as_it_was_sent(
    project: Project, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    from tests.engine.running import json_lines, run

    schema = {**SCHEMA, "fields": SCHEMA["fields"][:2]}
    (project.folder / "view.avsc").write_text(json.dumps(schema), "utf-8")
    project.put("in/a.json", json_lines([{"id": 1, "name": "ann"}, {"id": 2, "name": None}]))
    body = f"""
        sources:
          rows:
            files: {{path: ./in}}
            format: {{json: {{schema: {{id: bigint, name: string}}}}}}
        sinks:
          out:
            from: rows
            kafka: {{bootstrap: "{kafka.bootstrap}", topic: {kafka_topic}, format: avro, schemaFile: view.avsc}}
    """
    run(project.build(body), project.folder / "state")
    parsed = fastavro.parse_schema(schema)
    found: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in kafka.values(kafka_topic)
    ]
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "name": "ann"}, {"id": 2, "name": None}]
