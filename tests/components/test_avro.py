"""Avro records: what fastavro writes is read back, whatever the schema, and what is no record harms no other."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.components.looking import problems_of
from tests.engine.running import run, table
from tests.faults.victim import committed_rows

from penstock.components.base import RAW
from penstock.components.formats.avro import Avro
from penstock.components.shared.avro_records import AvroDecoder, BadSchema, Framing, record_of
from penstock.components.shared.message_rows import decoded, why
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
Pair = tuple[Any, Any]
"""What is written, and what it is in Python once read."""


def encoded(schema: Any, value: Any) -> bytes:
    found = io.BytesIO()
    fastavro.schemaless_writer(found, fastavro.parse_schema(schema), value)
    return found.getvalue()


def read(messages: list[bytes | None], schema: Any, framing: Any = "none") -> list[dict[str, Any]]:
    return list(decoded(pa.array(messages, pa.binary()), AvroDecoder(json.dumps(schema), framing)).to_pylist())


# --- any schema ------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2300, 1, 1))  # noqa: DTZ001
WHOLE_MILLIS = MOMENTS.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))


def aware(time: dt.datetime) -> dt.datetime:
    return time.replace(tzinfo=UTC)


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return values.map(lambda value: (value, value))


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


TYPES: list[tuple[Any, st.SearchStrategy[Pair]]] = [
    ("boolean", same(st.booleans())),
    ("int", same(st.integers(-(2**31), 2**31 - 1))),
    ("long", same(st.integers(-(2**63), 2**63 - 1))),
    ("float", same(st.floats(width=32, allow_nan=False))),
    ("double", same(st.floats(allow_nan=False))),
    ("bytes", same(st.binary(max_size=9))),
    ("string", same(st.text(max_size=9))),
    ({"type": "int", "logicalType": "date"}, same(st.dates())),
    (long("timestamp-millis"), WHOLE_MILLIS.map(aware).map(lambda time: (time, time))),
    (long("timestamp-micros"), MOMENTS.map(aware).map(lambda time: (time, time))),
    (long("local-timestamp-millis"), same(WHOLE_MILLIS)),
    (long("local-timestamp-micros"), same(MOMENTS)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(lambda value: (value, str(value)))),
    (
        {"type": "int", "logicalType": "time-millis"},
        st.integers(0, 86_399_999).map(lambda ms: ((EPOCH + dt.timedelta(milliseconds=ms)).time(), ms * 1000)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        same(st.integers(-(10**20) + 1, 10**20 - 1).map(lambda value: Decimal(value).scaleb(-3))),
    ),
    ({"type": "enum", "name": "NAME", "symbols": ["A", "B"]}, same(st.sampled_from("AB"))),
    ({"type": "fixed", "name": "NAME", "size": 3}, same(st.binary(min_size=3, max_size=3))),
]


def array_of(inner: tuple[Any, st.SearchStrategy[Pair]]) -> tuple[Any, st.SearchStrategy[Pair]]:
    lists = st.lists(inner[1], max_size=3)
    return {"type": "array", "items": inner[0]}, lists.map(lambda items: ([a for a, _ in items], [b for _, b in items]))


def map_of(inner: tuple[Any, st.SearchStrategy[Pair]]) -> tuple[Any, st.SearchStrategy[Pair]]:
    maps = st.dictionaries(st.text(max_size=3), inner[1], max_size=3)
    return {"type": "map", "values": inner[0]}, maps.map(
        lambda items: ({key: pair[0] for key, pair in items.items()}, [(key, pair[1]) for key, pair in items.items()])
    )


def maybe(inner: tuple[Any, st.SearchStrategy[Pair]]) -> tuple[Any, st.SearchStrategy[Pair]]:
    if isinstance(inner[0], list):
        return inner
    return ["null", inner[0]], st.one_of(st.just((None, None)), inner[1])


def record_around(inner: tuple[Any, st.SearchStrategy[Pair]]) -> tuple[Any, st.SearchStrategy[Pair]]:
    fields = [{"name": "a", "type": inner[0]}, {"name": "b", "type": "int"}]
    return {"type": "record", "name": "NAME", "fields": fields}, st.tuples(inner[1], st.integers(0, 9)).map(
        lambda pair: ({"a": pair[0][0], "b": pair[1]}, {"a": pair[0][1], "b": pair[1]})
    )


@st.composite
def kinds(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Pair]]:
    found = draw(st.sampled_from(TYPES))
    for wrap in draw(st.lists(st.sampled_from([array_of, map_of, maybe, record_around]), max_size=3)):
        found = wrap(found)
    return found[0], found[1]


def named(schema: Any, names: Any) -> Any:
    """The schema with a name of its own for each type that needs one."""
    if isinstance(schema, dict):
        return {key: f"N{next(names)}" if value == "NAME" else named(value, names) for key, value in schema.items()}
    return [named(item, names) for item in schema] if isinstance(schema, list) else schema


@profile(max_examples=150)
@given(data=st.data(), columns=st.lists(kinds(), min_size=1, max_size=4))
def test_what_is_written_is_read(data: st.DataObject, columns: list[Any]) -> None:
    names = iter(range(100))
    fields = [{"name": f"c{place}", "type": named(schema, names)} for place, (schema, _) in enumerate(columns)]
    schema = {"type": "record", "name": "Row", "fields": fields}
    pairs = [[data.draw(values) for _, values in columns] for _ in range(3)]
    messages = [encoded(schema, {f"c{place}": pair[0] for place, pair in enumerate(row)}) for row in pairs]
    expected = [{**{f"c{place}": pair[1] for place, pair in enumerate(row)}, RAW: None} for row in pairs]
    assert read(list(messages), schema) == expected
    # A part of a message, or more than one, is no message; it does not harm the others.
    cut = data.draw(st.integers(0, len(messages[1]))) if messages[1] else 0
    broken = messages[1][:cut] if cut < len(messages[1]) else messages[1] + b"\0"
    first, bad, last = read([messages[0], broken, messages[2]], schema)
    assert (first, last) == (expected[0], expected[2])
    assert bad == {**dict.fromkeys(f"c{place}" for place in range(len(columns))), RAW: text(broken)}


def text(message: bytes) -> str:
    return "base64:" + base64.b64encode(message).decode()


@profile(max_examples=150)
@given(message=st.binary(max_size=40), column=kinds())
def test_bytes_of_any_kind_never_fail(message: bytes, column: Any) -> None:
    fields = [{"name": "a", "type": named(column[0], iter(range(100)))}, {"name": "b", "type": "string"}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    (row,) = read([message], schema)
    reason = why(message, AvroDecoder(json.dumps(schema)))
    assert (row[RAW] == text(message)) == (reason is not None)


# --- unions, framing, schemas ----------------------------------------------------------------------------------


def test_unions_of_several_types_have_a_member_for_each() -> None:
    branches = ["null", "string", "int", "long", {"type": "array", "items": "int"},
                {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]},
                {"type": "enum", "name": "E", "symbols": ["A"]}]  # fmt: skip
    schema = {"type": "record", "name": "Row", "fields": [{"name": "u", "type": branches}]}
    values: list[Any] = ["a", 7, 2**40, [1], ("P", {"x": 3}), ("E", "A"), None]
    rows = read([encoded(schema, {"u": value}) for value in values], schema)
    found = [row["u"] and {key: value for key, value in row["u"].items() if value is not None} for row in rows]
    assert found == [{"member0": "a"}, {"member1": 7}, {"member1": 2**40}, {"member2": [1]}, {"member3": {"x": 3}},
                     {"member4": "A"}, None]  # fmt: skip


SIMPLE = {"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"}]}


def test_headers_are_checked_and_left_out() -> None:
    body = encoded(SIMPLE, {"id": 7})
    print_ = bytes.fromhex(record_of(json.dumps(SIMPLE)).print)
    cases: list[tuple[Framing, bytes, list[bytes]]] = [
        ("confluent", b"\0\0\0\0\x05" + body, [body, b"\1\0\0\0\0" + body, b"\0\0"]),
        ("single_object", b"\xc3\x01" + print_ + body, [body, b"\xc3\x01" + bytes(8) + body, b"\xc3\x01"]),
    ]
    for framing, good, bad in cases:
        decoder = AvroDecoder(json.dumps(SIMPLE), framing, frozenset({5}))
        rows = decoded(pa.array([good, *bad], pa.binary()), decoder).to_pylist()
        assert [row["id"] for row in rows] == [7] + [None] * 3, framing
        assert [row[RAW] for row in rows] == [None, *map(text, bad)]
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(SIMPLE), {"id": 1})
    assert why(b"\xc3\x01" + bytes(8), AvroDecoder(json.dumps(SIMPLE), "single_object")) == (
        "it was written with another schema"
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not JSON"),
        ('"string"', "not the schema of a record"),
        ('{"type": "record", "name": "R", "fields": []}', "not the schema of a record"),
        (("a", "nothing"), "not an Avro schema"),
        (("a", ["null", "R"]), "contains itself"),
        (("a", {"type": "bytes", "logicalType": "decimal", "precision": 39}), "39 digits"),
        (("a", {"type": "array", "items": "null"}), "array of nulls"),
        (("a", [{"type": "int", "logicalType": "date"}, "long"]), "cannot be told apart"),
        (("a", {"type": "record", "name": "E", "fields": []}), "has no fields"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told(schema: Any, reason: str, tmp_path: Path) -> None:
    if isinstance(schema, tuple):
        schema = {"type": "record", "name": "R", "fields": [{"name": schema[0], "type": schema[1]}]}
    with pytest.raises(BadSchema, match=reason):
        record_of(schema if isinstance(schema, str) else json.dumps(schema))
    (problem,) = problems_of(Avro.model_validate({"schema": schema}), "rows", tmp_path)
    assert (problem.code, problem.at, reason in problem.message) == ("SPEC_BAD_VALUE", ("schema",), True)


def test_a_schema_may_lie_in_a_file_but_not_be_given_twice(tmp_path: Path) -> None:
    named_file = Avro.model_validate({"schemaFile": "v.avsc"})
    assert [problem.code for problem in problems_of(named_file, "rows", tmp_path)] == ["PATH_NOT_FOUND"]
    (tmp_path / "v.avsc").write_text(json.dumps(SIMPLE), "utf-8")
    assert problems_of(named_file, "rows", tmp_path) == []
    twice = Avro.model_validate({"schema": SIMPLE, "schemaFile": "v.avsc"})
    assert [problem.code for problem in problems_of(twice, "rows", tmp_path)] == ["SPEC_BAD_VALUE"]


# --- in pipelines ----------------------------------------------------------------------------------------------

BODY = """
    sources:
      rows:
        %s
        format: {avro: {%s}}
    sinks:
      out: {from: rows, sqlite: {path: out.db, table: rows}}
"""
VIEW = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def view(number: int) -> dict[str, Any]:
    return {"id": number, "ts": dt.datetime(2024, 1, 1, 0, 0, number, tzinfo=UTC), "tags": [f"t{number}"]}


@pytest.mark.spark
def test_messages_of_kafka_are_read(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    good = [b"\0\0\0\0\x01" + encoded(VIEW, view(number)) for number in range(3)]
    kafka.send(kafka_topic, [*good, good[0][:-1], b"{}"])
    (project.folder / "view.avsc").write_text(json.dumps(VIEW), "utf-8")
    source = f'kafka: {{bootstrap: "{kafka.bootstrap}", topic: {kafka_topic}, startingOffsets: earliest}}'
    outcome = run(
        project.build(BODY % (source, "schemaFile: view.avsc, framing: confluent, schemaIds: [1]")),
        project.folder / "state",
    )
    stored = table(project.folder / "out.db", "SELECT id, ts, tags FROM rows ORDER BY id")
    assert stored == [(number, f"2024-01-01 00:00:0{number}", f'["t{number}"]') for number in range(3)]
    dead = sorted(committed_rows(outcome.state / "dead"), key=lambda letter: str(letter["place"]))
    assert [(letter["raw"], letter["error"]) for letter in dead] == [
        (text(good[0][:-1]), "it ends too early"),
        (text(b"{}"), "it does not begin with the header of a schema registry"),
    ]


def container(schema: Any, *rows: dict[str, Any]) -> bytes:
    found = io.BytesIO()
    fastavro.writer(found, fastavro.parse_schema(schema), rows, codec="deflate")
    return found.getvalue()


@pytest.mark.spark
def test_files_are_read_in_the_columns_of_the_schema(project: Project) -> None:
    newer = {**VIEW, "fields": [*VIEW["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    project.put("in/a.avro", container(VIEW, view(1), view(2)))
    project.put("in/b.avro", container(newer, {**view(3), "note": "x"}))
    (project.folder / "view.avsc").write_text(json.dumps(newer), "utf-8")
    run(project.build(BODY % ("files: {path: in}", "schemaFile: view.avsc")), project.folder / "state")
    query = "SELECT id, ts, tags, note FROM rows ORDER BY id"
    expected = [(1, "2024-01-01 00:00:01", '["t1"]', None), (2, "2024-01-01 00:00:02", '["t2"]', None),
                (3, "2024-01-01 00:00:03", '["t3"]', "x")]  # fmt: skip
    assert table(project.folder / "out.db", query) == expected
    project.put("in/c.avro", container(VIEW, view(4))[:-3])
    with pytest.raises(PenstockError) as stopped:
        run(project.build(BODY % ("files: {path: in}", "schemaFile: view.avsc")), project.folder / "state")
    assert stopped.value.code == "SOURCE_FILE_CORRUPT"
    assert "in/c.avro" in stopped.value.problems[0].message
    assert table(project.folder / "out.db", query) == expected


@pytest.mark.spark
def test_files_without_a_schema_have_their_own(project: Project) -> None:
    ids = {
        "type": "record",
        "name": "U",
        "fields": [{"name": "key", "type": {"type": "string", "logicalType": "uuid"}}],
    }
    key = uuid.UUID(int=7)
    project.put("in/a.avro", container(ids, {"key": key}))
    run(project.build(BODY % ("files: {path: in}", "")), project.folder / "state")
    assert table(project.folder / "out.db", "SELECT key FROM rows") == [(str(key),)]
