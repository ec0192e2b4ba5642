"""Messages that name the schema they were written with: read with that one, or not at all."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.components.looking import problems_of
from tests.components.test_avro import BODY, encoded
from tests.engine.running import run, table
from tests.faults.victim import committed_rows
from tests.servers.registry import SchemaRegistry

from penstock.components.base import RAW
from penstock.components.formats.avro import Avro
from penstock.components.shared.avro_records import AvroDecoder, reading
from penstock.components.shared.message_rows import decoded, why
from penstock.components.shared.registry_field import Registry
from penstock.components.shared.schema_registry import Client, client
from penstock.components.shared.source_errors import SourceError, problem_in
from penstock.errors import PenstockError
from penstock.spec.units import Duration

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

UTC = dt.UTC


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry().serving() as found:
        yield found


def asking(registry: SchemaRegistry, timeout: float = 5.0) -> Client:
    return client(Registry(url=registry.url, timeout=Duration(int(timeout * 1000))))


def record(*fields: tuple[str, Any], name: str = "Row", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields], **more}


def framed(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + encoded(schema, value)


def rows_of(messages: list[bytes], decoder: AvroDecoder) -> list[dict[str, Any]]:
    return list(decoded(pa.array(messages, pa.binary()), decoder).to_pylist())


def read_with(registry: SchemaRegistry, reader: Any, *messages: bytes) -> list[dict[str, Any]]:
    return rows_of([*messages], AvroDecoder(json.dumps(reader), "confluent", frozenset(), asking(registry)))


# --- the writer's schema ---------------------------------------------------------------------------------------


def test_fields_that_a_producer_has_swapped_keep_their_values(registry: SchemaRegistry) -> None:
    ours, swapped = record(("name", "string"), ("mail", "string")), record(("mail", "string"), ("name", "string"))
    registry.add(1, ours)
    registry.add(2, swapped)
    row = {"name": "Ada", "mail": "ada@example.org"}
    rows = read_with(registry, ours, framed(1, ours, row), framed(2, swapped, row))
    assert rows == [{**row, RAW: None}] * 2


def test_without_a_registry_only_the_numbers_of_the_schema_are_read() -> None:
    ours, swapped = record(("name", "string"), ("mail", "string")), record(("mail", "string"), ("name", "string"))
    row = {"name": "Ada", "mail": "ada@example.org"}
    decoder = AvroDecoder(json.dumps(ours), "confluent", frozenset({1}))
    other = framed(2, swapped, row)
    found = rows_of([framed(1, ours, row), other], decoder)
    assert [item["name"] for item in found] == ["Ada", None]
    assert found[1][RAW] is not None
    assert why(other, decoder) == "it was written with schema 2, which is not among `schemaIds`"


def test_a_new_field_gets_its_default_and_a_dropped_one_is_passed_over(registry: SchemaRegistry) -> None:
    writer = record(("gone", {"type": "array", "items": "long"}), ("id", "int"))
    reader = record(("id", "double"))
    defaults: list[tuple[str, Any, Any]] = [
        ("note", ["null", "string"], None), ("raw", "bytes", "\xff\x00"),
        ("tags", {"type": "array", "items": "bytes"}, ["\xfe"]),
        ("place", record(("x", "int"), name="P"), {"x": 3}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "\x01\x00"),
    ]  # fmt: skip
    reader["fields"] += [{"name": name, "type": kind, "default": default} for name, kind, default in defaults]
    registry.add(7, writer)
    (row,) = read_with(registry, reader, framed(7, writer, {"gone": [1, 2], "id": 5}))
    expected = {
        "id": 5.0,
        "note": None,
        "raw": b"\xff\x00",
        "tags": [b"\xfe"],
        "place": {"x": 3},
        "price": pa.scalar(256),
    }
    assert {**row, "price": int(row["price"] * 100)} == {**expected, "price": 256, RAW: None}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
STAMP = int(TIME.timestamp())


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (MILLIS, MICROS, TIME, TIME),
        (MICROS, MILLIS, TIME, TIME),
        (MILLIS, "long", TIME, STAMP * 1000),
        (MICROS, ["null", "long"], TIME, STAMP * 1_000_000),
        ("long", MILLIS, STAMP * 1000, TIME),
        (["null", MILLIS], ["null", MICROS], TIME, TIME),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, "12.5", "12.500",
        ),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"},
         dt.time(0, 0, 1), 1_000_000),
        ({"type": "string", "logicalType": "uuid"}, "string", "0" * 8, "0" * 8),
    ],
)  # fmt: skip
def test_a_value_keeps_its_meaning_where_logical_types_differ(
    registry: SchemaRegistry, writer: Any, reader: Any, value: Any, expected: Any
) -> None:
    from decimal import Decimal

    if isinstance(expected, str) and "." in expected:
        value, expected = Decimal(value), Decimal(expected)
    registry.add(1, record(("v", writer)))
    plain = record(("v", "string")) if reader == "string" else record(("v", writer))
    (row,) = read_with(registry, record(("v", reader)), framed(1, plain, {"v": value}))
    assert row == {"v": expected, RAW: None}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (MILLIS, {"type": "long", "logicalType": "local-timestamp-millis"}, TIME),
        ({"type": "int", "logicalType": "date"}, MILLIS, dt.date(2024, 1, 1)),
        ({"type": "int", "logicalType": "time-millis"}, MILLIS, dt.time(1)),
        ({"type": "long", "logicalType": "timestamp-nanos"}, MICROS, 5),
        ("string", "long", "x"),
        ("long", "int", 2**40),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ],
)
def test_what_cannot_be_brought_into_the_schema_is_unreadable(
    registry: SchemaRegistry, writer: Any, reader: Any, value: Any
) -> None:
    registry.add(1, record(("v", writer)))
    (row,) = read_with(registry, record(("v", reader)), framed(1, record(("v", writer)), {"v": value}))
    assert (row["v"], row[RAW] is None) == (None, False)


def test_schemas_may_refer_to_others(registry: SchemaRegistry) -> None:
    inner = record(("at", MILLIS), name="shop.Inner")
    middle = record(("inner", "shop.Inner"), name="shop.Middle")
    outer = record(("second", "long"), ("middle", "shop.Middle"), ("again", "shop.Inner"), name="shop.Outer")
    low = registry.add_version("inner value", 3, inner)
    high = registry.add_version("middle", 1, middle, [low])
    registry.add(9, outer, [high, low])
    whole = record(
        ("second", "long"), ("middle", record(("inner", inner), name="shop.Middle")), ("again", "shop.Inner"),
        name="shop.Outer",
    )  # fmt: skip
    value = {"second": 2, "middle": {"inner": {"at": TIME}}, "again": {"at": TIME}}
    reader = record(
        ("again", inner), ("middle", record(("inner", "shop.Inner"), name="shop.Middle")), name="shop.Outer"
    )
    (row,) = read_with(registry, reader, framed(9, whole, value))
    assert row == {"again": {"at": TIME}, "middle": {"inner": {"at": TIME}}, RAW: None}


# --- any schema ------------------------------------------------------------------------------------------------

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1), "long": st.integers(-(2**63), 2**63 - 1), "string": st.text(max_size=5),
    "double": st.floats(allow_nan=False), "boolean": st.booleans(), "bytes": st.binary(max_size=4),
}  # fmt: skip
WIDER = {"int": ["long", "double"], "long": ["double"]}


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A writer's schema, a reader's that can read it, and a record."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    kinds = {name: draw(st.sampled_from([*PLAIN])) for name in names}
    optional = {name for name in names if draw(st.booleans())}
    writer = record(*((name, ["null", kinds[name]] if name in optional else kinds[name]) for name in names))
    value = {name: None if name in optional and draw(st.booleans()) else draw(PLAIN[kinds[name]]) for name in names}
    fields: list[dict[str, Any]] = []
    for name in draw(st.permutations(names)):
        if fields and draw(st.integers(0, 4)) == 0:
            continue
        kind = draw(st.sampled_from([kinds[name], *WIDER.get(kinds[name], [])]))
        nullable = name in optional or draw(st.booleans())
        fields.append({"name": name, "type": ["null", kind] if nullable else kind})
    for name in draw(st.lists(st.sampled_from("uvwxyz"), max_size=3, unique=True)):
        fields.insert(draw(st.integers(0, len(fields))), {"name": name, "type": "long", "default": draw(PLAIN["int"])})
    return writer, {"type": "record", "name": "Row", "fields": fields}, value


@given(evolutions())
def test_any_evolution_is_read_as_the_rules_say(found: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    writer, reader, value = found
    message = encoded(writer, value)
    by_rules = fastavro.schemaless_reader(
        io.BytesIO(message), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )

    class Known(Client):
        def schema(self, number: int) -> Any:
            return WRITTEN(json.dumps(writer))

    from penstock.components.shared.schema_registry import Written as WRITTEN

    decoder = AvroDecoder(json.dumps(reader), "confluent", frozenset(), Known("http://127.0.0.1:1"))
    (row,) = rows_of([b"\0\0\0\0\1" + message], decoder)
    assert row == {**by_rules, RAW: None}  # type: ignore[dict-item]


def test_schemas_that_differ_in_words_only_are_read_as_they_are() -> None:
    ours = record(("id", "long"))
    theirs = {**record(("id", "long")), "doc": "x"}
    assert reading(json.dumps(ours), json.dumps(theirs), ()).reader is None


# --- what a registry may do -------------------------------------------------------------------------------------

OURS = record(("id", "long"))


def test_a_number_is_asked_for_once(registry: SchemaRegistry) -> None:
    registry.add(3, OURS)
    rows = read_with(registry, OURS, *[framed(3, OURS, {"id": number}) for number in range(50)])
    assert [row["id"] for row in rows] == [*range(50)]
    assert registry.requests == ["/schemas/ids/3"]


def test_messages_with_a_number_nobody_knows_are_unreadable_and_it_is_not_asked_for_each(
    registry: SchemaRegistry,
) -> None:
    decoder = AvroDecoder(json.dumps(OURS), "confluent", frozenset(), asking(registry))
    message = framed(404, OURS, {"id": 1})
    assert [row["id"] for row in rows_of([message] * 20, decoder)] == [None] * 20
    assert why(message, decoder) == "the registry has no schema 404"
    assert len(registry.requests) == 1


def test_a_schema_of_another_kind_is_unreadable(registry: SchemaRegistry) -> None:
    registry.add(5, {"x": 1}, kind="JSON")
    decoder = AvroDecoder(json.dumps(OURS), "confluent", frozenset(), asking(registry))
    assert why(framed(5, OURS, {"id": 1}), decoder) == "schema 5 of the registry is JSON, not AVRO"


@pytest.mark.parametrize(
    "fault", [(500, b"", {}), (503, b"", {}), (429, b"", {}), (200, b"<html>", {}), (200, b"[]", {})]
)
def test_a_registry_that_stumbles_is_asked_again(registry: SchemaRegistry, fault: Any) -> None:
    registry.add(3, OURS)
    registry.faults = [fault, fault]
    (row,) = read_with(registry, OURS, framed(3, OURS, {"id": 8}))
    assert (row["id"], len(registry.requests)) == (8, 3)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ((500, b"", {}), "it answered 500"),
        ((401, b"", {}), "does not accept"),
        ((302, b"", {"Location": "http://127.0.0.1:1/"}), "not followed"),
        ((404, b"<html>no such page</html>", {}), "not as a schema registry does"),
        ((404, b'{"error_code": 404}', {}), "not as a schema registry does"),
        ((200, b"{}", {}), "not answer in the way"),
        ((200, b'{"schema": "{}", "references": [{}]}', {}), "not answer in the way"),
        ((200, b" " * (5 << 20), {}), "more than 4 MiB"),
    ],
)
def test_a_registry_that_does_not_answer_ends_the_batch(registry: SchemaRegistry, fault: Any, reason: str) -> None:
    registry.faults = [fault] * 50
    decoder = AvroDecoder(json.dumps(OURS), "confluent", frozenset(), asking(registry, 0.5))
    with pytest.raises(SourceError) as stopped:
        rows_of([framed(3, OURS, {"id": 1})], decoder)
    problem = problem_in(str(stopped.value))
    assert problem is not None
    assert problem.code == "REGISTRY_FAILED"
    assert reason in str(problem.params["reason"])


def test_a_slow_registry_is_not_waited_for_without_end(registry: SchemaRegistry) -> None:
    import threading

    let_go = threading.Event()

    def slow() -> Any:
        let_go.wait(30)
        return 500, b"", {}

    registry.faults = [slow] * 5
    began = time.monotonic()
    with pytest.raises(SourceError):
        asking(registry, 0.5).schema(3)
    assert time.monotonic() - began < 5
    let_go.set()


def test_name_and_password_are_sent_and_never_shown(registry: SchemaRegistry) -> None:
    registry.login = ("me", "pass:word")
    registry.add(3, OURS)
    found = client(Registry(url=registry.url, user="me", password="pass:word"))
    assert json.loads(found.schema(3).text) == OURS
    assert "word" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "code", "at"),
    [
        ({"framing": "confluent"}, "SPEC_MISSING_KEY", ("framing",)),
        ({"framing": "confluent", "schemaIds": [1]}, None, None),
        ({"framing": "confluent", "registry": {"url": "http://localhost:8081"}}, None, None),
        ({"registry": {"url": "http://localhost:8081"}}, "SPEC_BAD_VALUE", ("registry",)),
        ({"schemaIds": [1]}, "SPEC_BAD_VALUE", ("schemaIds",)),
        ({"framing": "confluent", "schemaIds": [1, -1]}, "SPEC_BAD_VALUE", ("schemaIds",)),
        ({"framing": "confluent", "schemaIds": [1 << 32]}, "SPEC_BAD_VALUE", ("schemaIds",)),
        ({"framing": "confluent", "registry": {"url": "file:///etc"}}, "SPEC_BAD_VALUE", ("registry",)),
        ({"framing": "confluent", "registry": {"url": "http://a:b@host"}}, "SPEC_BAD_VALUE", ("registry",)),
        ({"framing": "confluent", "registry": {"url": "http://host", "user": "a"}}, "SPEC_BAD_VALUE", ("registry",)),
    ],
)
def test_validate_asks_how_writers_are_known(settings: Any, code: str | None, at: Any, tmp_path: Path) -> None:
    found = problems_of(Avro.model_validate({"schema": OURS, **settings}), "rows", tmp_path)
    assert [(problem.code, problem.at) for problem in found] == ([] if code is None else [(code, at)])


# --- in a pipeline ----------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_messages_of_kafka_are_read_with_the_schemas_of_their_writers(
    project: Project, kafka: Kafka, kafka_topic: str, registry: SchemaRegistry
) -> None:
    ours, swapped = record(("name", "string"), ("mail", "string")), record(("mail", "string"), ("name", "string"))
    registry.add(1, ours)
    registry.add(2, swapped)
    people = [{"name": f"n{number}", "mail": f"m{number}"} for number in range(4)]
    messages = [framed(1 + number % 2, [ours, swapped][number % 2], row) for number, row in enumerate(people)]
    unknown = framed(77, ours, people[0])
    kafka.send(kafka_topic, [*messages, unknown])
    source = f'kafka: {{bootstrap: "{kafka.bootstrap}", topic: {kafka_topic}, startingOffsets: earliest}}'
    config = f'schema: {json.dumps(ours)}, framing: confluent, registry: {{url: "{registry.url}", timeout: 1 second}}'
    registry.faults = [(503, b"", {})] * 500
    with pytest.raises(PenstockError) as stopped:
        run(project.build(BODY % (source, config)), project.folder / "state")
    assert stopped.value.code == "REGISTRY_FAILED"
    registry.faults.clear()
    outcome = run(project.build(BODY % (source, config)), project.folder / "state")
    stored = table(project.folder / "out.db", "SELECT name, mail FROM rows ORDER BY name")
    assert stored == [(row["name"], row["mail"]) for row in people]
    (letter,) = committed_rows(outcome.state / "dead")
    assert letter["error"] == "the registry has no schema 77"
