"""Changes as Debezium records them: a table that is followed equals the table that was changed."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.components.changes import START_MS, Changed, record, unscaled
from tests.components.looking import problems_of
from tests.engine.running import run, table
from tests.faults.victim import committed_rows

from penstock.components.base import RAW
from penstock.components.shared.debezium import KEPT, DebeziumDecoder, version
from penstock.components.shared.message_rows import decoded, why
from penstock.components.sources.cdc import Cdc
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

UTC = dt.UTC
MOMENT = dt.datetime(2024, 1, 1, 12, 30, 0, 123_000, tzinfo=UTC)
PARTS: dict[str, Any] = {"op": "op", "deleted": "deleted", "ts": "ts", "version": "version"}
ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])


def read(*values: Any, schema: pa.Schema = ROW, key: Any = None, **options: Any) -> list[dict[str, Any]]:
    decoder = DebeziumDecoder(schema, PARTS, **options)
    kind = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    messages = [
        {"key": None if key is None else json.dumps(key).encode(), "value": as_bytes(value)} for value in values
    ]
    return list(decoded(pa.array(messages, kind), decoder).to_pylist())


def as_bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def reason(value: Any, schema: pa.Schema = ROW, **options: Any) -> str | None:
    return why({"key": None, "value": as_bytes(value)}, DebeziumDecoder(schema, PARTS, **options))


def change(after: Any, op: str = "c", before: Any = None, **source: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": 2, "source": {"ts_ms": START_MS, "lsn": 7, **source}}


# --- records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_schema", [True, False])
def test_a_change_is_a_row_with_what_it_was(with_schema: bool) -> None:
    row = {"id": 1, "name": "a"}
    payloads = [change(row), change(row, "u", row), change(row, "r"), change(None, "d", row)]
    found = read(*({"schema": {"fields": []}, "payload": each} if with_schema else each for each in payloads))
    at = dt.datetime.fromtimestamp(START_MS / 1000, UTC)
    common = {**row, "ts": at, "version": "00000000000000000007", KEPT: True, RAW: None}
    assert found == [{**common, "op": op, "deleted": op == "d"} for op in "curd"]


def test_a_record_need_not_tell_where_it_comes_from() -> None:
    bare = {"op": "c", "after": {"id": 1}, "source": "x", "ts_us": 9}
    (row,) = read({"schema": [], "payload": bare})
    assert (row["id"], row["ts"], row["version"]) == (1, dt.datetime(1970, 1, 1, 0, 0, 0, 9, UTC), f"{9:020d}{0:010d}")


def test_of_a_deletion_the_key_may_be_all_that_is_told() -> None:
    gone = change(None, "d")
    for key in ({"id": 7}, {"schema": {}, "payload": {"id": 7}}):
        (row,) = read(gone, key=key)
        assert (row["id"], row["name"], row["deleted"], row[RAW]) == (7, None, True, None)
    (untold,) = read(gone)
    assert (untold["id"], untold[RAW]) == (None, json.dumps(gone))
    assert reason(gone) == "the row that was deleted is not told"


def test_what_says_nothing_of_rows_is_left_out() -> None:
    silent: list[Any] = [
        None, b"", b"  ", {"schema": {}, "payload": None}, {"ts_ms": 1}, {"schema": {}, "payload": {"ts_ms": 1}},
        {"status": "BEGIN", "id": "1:2", "ts_ms": 5}, {"source": {}, "ddl": "ALTER TABLE t", "ts_ms": 1},
        {"op": "m", "message": {"prefix": "x"}, "source": {}},
    ]  # fmt: skip
    assert [(row[KEPT], row[RAW]) for row in read(*silent)] == [(None, None)] * len(silent)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"not json", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        ({"id": 1}, "it is no change of a row"),
        ({}, "it is no change of a row"),
        (
            {"schema": {"fields": [1]}, "payload": change({"id": 1})},
            "it cannot be read: 'int' object has no attribute 'get'",
        ),
        ({"schema": {}, "payload": 5}, "its payload is not a JSON object"),
        (change({"id": 1}, "x"), "'x' is no operation that is known"),
        (change(None, "u"), "the row after the change is missing"),
        (change(None, "t"), "the table was emptied by TRUNCATE, which cannot be followed row by row"),
        (change({"id": "one"}), "column 'id': cannot read 'one' as bigint"),
        (change({"id": 1.5}), "column 'id': cannot read '1.5' as bigint"),
        (change({"id": 2**70}), "column 'id': a value is outside its type"),
        (
            change({"id": 1, "name": "__debezium_unavailable_value"}),
            "column 'name' was not sent; set REPLICA IDENTITY FULL on the table",
        ),
    ],
)
def test_what_cannot_be_read_has_a_reason(value: Any, expected: str) -> None:
    assert reason(value) == expected
    good, bad, last = read(change({"id": 1}), value, change({"id": 2}))
    assert (good["id"], last["id"]) == (1, 2)
    assert bad == {**dict.fromkeys(good), RAW: as_bytes(value).decode()}  # type: ignore[union-attr]
    assert read(b"\xff\xfe")[0][RAW] == "base64://4="


VERSIONS: list[list[dict[str, Any]]] = [
    [{"lsn": 9}, {"lsn": 10}, {"lsn": 2**62}],
    [
        {"file": "bin.000009", "pos": 999, "row": 3},
        {"file": "bin.000010", "pos": 4, "row": 0},
        {"file": "bin.000010", "pos": 4, "row": 11},
        {"file": "bin.000010", "pos": 120, "row": 2},
        {"file": "bin.1000000", "pos": 4, "row": 0},
    ],
    [
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": None},
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1},
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 2},
        {"commit_lsn": "00000027:0000075A:0001", "change_lsn": "00000027:00000759:0001"},
    ],
    [{"scn": "99"}, {"scn": "100"}],
    [{"ord": 1}, {"ord": 2}],
]


@pytest.mark.parametrize("sources", VERSIONS)
def test_versions_sort_as_changes_were_made(sources: list[dict[str, Any]]) -> None:
    found = [version(source, 5) for source in sources]
    assert found == sorted(set(found))
    assert version({}, 9) < version({}, 10)


# --- values ----------------------------------------------------------------------------------------------------

DECIMAL = pa.decimal128(10, 2)
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIME = pa.timestamp("us", "UTC")
MICROS = 1_704_112_200_123_000


def about(kind: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    return {"field": "x", "type": kind, "name": name, "parameters": parameters}


@pytest.mark.parametrize(
    ("kind", "written", "described", "expected"),
    [
        (pa.bool_(), 1, about("int16"), True),
        (pa.int8(), True, about("boolean"), 1),
        (pa.float64(), 1.5, about("double"), 1.5),
        (pa.float64(), 2, about("double"), 2.0),
        (DECIMAL, unscaled(-1234), about("bytes", CONNECT_DECIMAL, scale="2"), Decimal("-12.34")),
        (DECIMAL, unscaled(5), about("bytes", CONNECT_DECIMAL, scale="1"), Decimal("0.50")),
        (DECIMAL, "1234", about("string"), Decimal(1234)),
        (DECIMAL, 12.34, about("double"), Decimal("12.34")),
        (DECIMAL, {"scale": 3, "value": unscaled(12_340)}, about("struct"), Decimal("12.34")),
        (pa.binary(), "AP8=", about("bytes"), b"\x00\xff"),
        (pa.string(), {"k": [1, 1.5]}, about("string"), '{"k": [1, 1.5]}'),
        (pa.date32(), -1, about("int32", "io.debezium.time.Date"), dt.date(1969, 12, 31)),
        (pa.date32(), "2024-02-29", about("string"), dt.date(2024, 2, 29)),
        (TIME, MICROS // 1000, about("int64", "io.debezium.time.Timestamp"), MOMENT),
        (TIME, MICROS // 1000, about("int64", "org.apache.kafka.connect.data.Timestamp"), MOMENT),
        (TIME, MICROS, about("int64", "io.debezium.time.MicroTimestamp"), MOMENT),
        (TIME, MICROS * 1000 + 999, about("int64", "io.debezium.time.NanoTimestamp"), MOMENT),
        (TIME, "2024-01-01T14:30:00.123+02:00", about("string", "io.debezium.time.ZonedTimestamp"), MOMENT),
        (TIME, 1, about("int32", "io.debezium.time.Date"), dt.datetime(1970, 1, 2, tzinfo=UTC)),
        (pa.list_(pa.int32()), [1, None], {**about("array"), "items": about("int32")}, [1, None]),
        (pa.map_(pa.string(), pa.int32()), {"a": 1}, about("map"), [("a", 1)]),
        (pa.map_(pa.string(), pa.string()), '{"a": "b"}', about("string", "io.debezium.data.Json"), [("a", "b")]),
        (pa.struct([("a", pa.int32()), ("b", pa.date32())]), {"a": 1, "b": 0}, about("struct"),
         {"a": 1, "b": dt.date(1970, 1, 1)}),
    ],
)  # fmt: skip
def test_a_value_is_what_the_column_and_the_schema_say(kind: Any, written: Any, described: Any, expected: Any) -> None:
    schema = {"fields": [{"field": "after", "fields": [described]}]}
    (row,) = read({"schema": schema, "payload": change({"x": written})}, schema=pa.schema([("x", kind)]))
    assert (row["x"], row[RAW]) == (expected, None)


def test_without_a_schema_settings_say_what_numbers_and_texts_mean() -> None:
    times = pa.schema([("a", TIME), ("b", TIME)])
    value = change({"a": MICROS, "b": MICROS // 1000})
    (row,) = read(value, schema=times, units={"a": "micros", "b": "millis"})
    assert (row["a"], row["b"]) == (MOMENT, MOMENT)
    (alike,) = read(change({"a": MICROS * 1000}), schema=times, units="nanos")
    assert alike["a"] == MOMENT
    assert "in which unit" in str(reason(value, times))
    amounts = pa.schema([("x", DECIMAL)])
    for text, options, expected in (("12.34", {"decimals": "text"}, "12.34"), (unscaled(1234), {}, "12.34")):
        (found,) = read(change({"x": text}), schema=amounts, **options)
        assert found["x"] == Decimal(expected)
    assert "say `decimals: text`" in str(reason(change({"x": "12.34"}), amounts))


# --- settings --------------------------------------------------------------------------------------------------


def problems(folder: Path, **options: Any) -> list[tuple[str, tuple[Any, ...]]]:
    source = Cdc.model_validate({"schema": {"id": "bigint"}, **options})
    return [(problem.code, problem.at) for problem in problems_of(source, "rows", folder)]


def test_bad_settings_are_told_at_their_place(tmp_path: Path) -> None:
    here = {"files": {"path": str(tmp_path)}}
    assert problems(tmp_path, **here) == []
    assert problems(tmp_path) == [("SPEC_MISSING_KEY", ())]
    assert problems(tmp_path, **here, kafka={"bootstrap": "h:1", "topic": "t"}) == [("SPEC_MISSING_KEY", ())]
    assert problems(tmp_path, files={"path": "nowhere"}) == [("PATH_NOT_FOUND", ("files",))]
    assert problems(tmp_path, kafka={"bootstrap": "here", "topic": "t"}) == [("SPEC_BAD_VALUE", ("kafka", "bootstrap"))]
    assert problems(tmp_path, **here, schema={"op": "string"}) == [("COLUMN_REPEATED", ("columns",))]
    assert problems(tmp_path, **here, schema={"x": "variant"}) == [("SPEC_BAD_VALUE", ("schema",))]
    assert problems(tmp_path, **here, units={"ix": "micros"}) == [("SPEC_BAD_VALUE", ("units",))]


# --- in pipelines ----------------------------------------------------------------------------------------------

BODY = """
    sources:
      changes:
        cdc:
          %s
          schema: {id: bigint, name: string, amount: "decimal(10,2)", born: date, seen: timestamp}
          units: micros
    steps:
      table: {from: changes, latest: {by: [id], order: [version], deleted: deleted}}
    sinks:
      out: {from: table, sqlite: {path: out.db, table: rows, key: [id], version: version, delete: deleted}}
    state: {partitions: 2}
"""


def followed(project: Project) -> list[tuple[Any, ...]]:
    return table(project.folder / "out.db", "SELECT id, name, amount FROM rows ORDER BY id")


@pytest.mark.spark
def test_a_table_is_followed_from_files(project: Project) -> None:
    changed = Changed(seed=1, database="postgres", with_schema=False)
    changed.change(120)
    for number, part in enumerate(changed.batches(4)):
        lines = [value for _, value in part if value is not None] + [b"", b"no change"]
        project.put(f"in/{number}.json", b"\n".join(lines) + b"\n")
    graph = project.build(BODY % "files: {path: in, maxFilesPerBatch: 2}")
    run(graph, project.folder / "state", die_at="batch.after_sinks@0")
    outcome = run(graph, project.folder / "state")
    assert followed(project) == changed.expected
    dead = committed_rows(outcome.state / "dead")
    assert [(letter["raw"], letter["error"]) for letter in dead] == [("no change", "not a JSON object")] * 4
    assert {Path(letter["place"]).parent.name for letter in dead} == {"in"}


@pytest.mark.spark
def test_a_table_is_followed_from_kafka(project: Project, kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=3)
    changed = Changed(seed=2, database="mysql", with_schema=True)
    changed.change(150)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, part in enumerate(changed.batches(3)):
        for key, value in part:
            producer.produce(topic, value, key, partition=number)
    # The row is told by its key alone.
    first = min(changed.rows)
    name = f"binlog.{9_999_999:06d}"
    gone = record("d", None, None, {"file": name, "pos": 4}, with_schema=True)
    producer.produce(topic, gone, json.dumps({"payload": {"id": first}, "schema": {}}).encode())
    producer.produce(topic, b"\xff")
    assert producer.flush(10) == 0
    del changed.rows[first]
    place = f'kafka: {{bootstrap: "{kafka.bootstrap}", topic: {topic}, startingOffsets: earliest, maxRowsPerBatch: 90}}'
    outcome = run(project.build(BODY % place), project.folder / "state")
    assert followed(project) == changed.expected
    seen = table(project.folder / "out.db", "SELECT id, born, seen, op, ts FROM rows ORDER BY id")
    for (id, born, moment, op, ts), row in zip(
        seen, sorted(changed.rows.values(), key=lambda row: row["id"]), strict=True
    ):
        assert (id, op in "cur", ts) == (row["id"], True, "2024-01-01 00:00:00")
        assert born == str(dt.date(1970, 1, 1) + dt.timedelta(days=row["born"]))
        assert moment == str(dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=row["seen"])).rstrip("0")  # noqa: DTZ001
    (letter,) = committed_rows(outcome.state / "dead")
    assert (letter["raw"], letter["place"].startswith(topic)) == ("base64:/w==", True)


@pytest.mark.long
@pytest.mark.spark
def test_two_tables_are_joined_as_they_change(project: Project) -> None:
    people, limits = (Changed(seed=seed, database="mysql", with_schema=True) for seed in (3, 4))
    for changed, folder in ((people, "people"), (limits, "limits")):
        changed.change(60)
        for number, part in enumerate(changed.batches(2)):
            project.put(f"{folder}/{number}.json", b"\n".join(value for _, value in part if value is not None))
    run(
        project.build("""
            sources:
              people: {cdc: {files: {path: people, maxFilesPerBatch: 1}, schema: {id: bigint, name: string}}}
              limits:
                cdc: {files: {path: limits, maxFilesPerBatch: 1}, schema: {id: bigint, amount: "decimal(10,2)"}}
            steps:
              a: {from: people, select: [id, name, version, deleted]}
              b: {from: limits, select: [id, amount, version, deleted]}
              joined:
                from: a
                changelog_join: {with: b, on: [id], version: version, deleted: deleted, prefix: l_}
            sinks:
              out: {from: joined, sqlite: {path: out.db, table: rows, key: [id], delete: deleted}}
            state: {partitions: 2}
        """),
        project.folder / "state",
    )
    both = sorted(people.rows.keys() & limits.rows.keys())
    expected = [(id, people.rows[id]["name"], f"{limits.rows[id]['amount'] / 100:.2f}") for id in both]
    assert table(project.folder / "out.db", "SELECT id, name, l_amount FROM rows ORDER BY id") == expected
    assert len(both) > 2


def test_a_format_beside_it_is_refused(project: Project) -> None:
    with pytest.raises(PenstockError, match="FORMAT_NOT_USED"):
        project.load("""
            sources:
              rows: {cdc: {files: {path: .}, schema: {id: int}}, format: {text: {}}}
            sinks:
              out: {from: rows, memory: {}}
        """)
