"""Messages of a real broker: formats, columns, positions, new partitions, lost messages, and what goes wrong."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.components.looking import problems_of
from tests.engine.running import Outcome, run, table
from tests.faults.victim import committed_rows

from penstock.components.base import Format, ReadContext
from penstock.components.sources.kafka import Kafka as KafkaSource
from penstock.errors import PenstockError
from penstock.spec.pipeline import Source as SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.spark

JSON = "format: {json: {schema: {id: bigint, name: string}}}"


def body(kafka: Kafka, topic: str, options: str = "startingOffsets: earliest", format: str = JSON) -> str:
    return f"""
        sources:
          rows:
            kafka: {{bootstrap: "{kafka.bootstrap}", {topic}, {options}}}
            {format}
        sinks:
          out: {{from: rows, sqlite: {{path: out.db, table: rows}}}}
    """


def go(project: Project, text: str) -> Outcome:
    return run(project.build(text), project.folder / "state")


def stored(project: Project, columns: str = "id, name") -> list[tuple[Any, ...]]:
    return table(project.folder / "out.db", f"SELECT {columns} FROM rows ORDER BY 1")


def lines(*ids: int) -> list[str]:
    return [json.dumps({"id": id, "name": f"n{id}"}) for id in ids]


def test_each_message_is_read_once_over_restarts_and_new_partitions(project: Project, kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    text = body(kafka, f"topic: [{topic}]", "startingOffsets: earliest, maxRowsPerBatch: 3")
    kafka.send(topic, lines(1, 2, 3, 4), partition=0)
    kafka.send(topic, lines(5), partition=1)
    first = go(project, text)
    assert len(first.ledger) >= 2
    kafka.add_partitions(topic, 3)
    kafka.send(topic, lines(6), partition=2)
    kafka.send(topic, lines(7), partition=0)
    second = go(project, text)
    assert stored(project) == [(id, f"n{id}") for id in range(1, 8)]
    assert sum(entry.rows_in["rows"] for entry in second.ledger) == 7


def test_a_batch_that_is_run_again_reads_the_same_messages(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    text = body(kafka, f"topic: [{kafka_topic}]")
    kafka.send(kafka_topic, lines(1, 2))
    run(project.build(text), project.folder / "state", die_at="batch.after_sinks@0")
    kafka.send(kafka_topic, lines(3))
    outcome = go(project, text)
    assert stored(project, "id") == [(1,), (2,), (3,)]
    assert [entry.rows_in["rows"] for entry in outcome.ledger] == [2, 1]


def test_what_cannot_be_read_is_kept_with_its_place(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    kafka.send(kafka_topic, [b'{"id": 1, "name": "a"}', b'{"id": "x"}', b"\xff\xfe", b"not json"])
    outcome = go(project, body(kafka, f"topic: [{kafka_topic}]"))
    assert stored(project) == [(1, "a")]
    dead = sorted(committed_rows(outcome.state / "dead"), key=lambda letter: str(letter["place"]))
    assert [(letter["place"], letter["raw"]) for letter in dead] == [
        (f"{kafka_topic}/0/1", '{"id": "x"}'),
        (f"{kafka_topic}/0/2", "base64://4="),
        (f"{kafka_topic}/0/3", "not json"),
    ]
    assert "cannot read 'x' as bigint" in dead[0]["error"]
    assert {letter["stage"] for letter in dead} == {"parse"}


def test_key_headers_and_position_become_columns(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    producer.produce(kafka_topic, b'{"id": 1}', b"k", headers=headers, timestamp=1_700_000_000_123)
    producer.produce(kafka_topic, b'{"id": 2}')
    assert producer.flush(10) == 0
    columns = "columns: {k: key, h: headers, t: topic, p: partition, o: offset, at: timestamp}"
    go(project, body(kafka, f"topic: [{kafka_topic}]", f"startingOffsets: earliest, {columns}"))
    first, second = stored(project, "id, name, k, h, t, p, o, at")
    assert first == (1, None, "k", '{"a":"3","b":"2"}', kafka_topic, 0, 0, "2023-11-14 22:13:20.123")
    assert second[:7] == (2, None, None, None, kafka_topic, 0, 1)


def test_the_first_position_can_be_chosen(project: Project, kafka: Kafka) -> None:
    topics = [kafka.create_topic(f"pick-{number}-{time.time_ns()}") for number in range(2)]
    # Recent ones: the broker throws messages away by their own time.
    base = int(time.time()) * 1000 - 3_600_000
    for topic in topics:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(4):
            producer.produce(topic, lines(number)[0].encode(), timestamp=base + 1000 * number)
        assert producer.flush(10) == 0
    moment = dt.datetime.fromtimestamp(base / 1000 + 2, dt.UTC).isoformat().replace("+00:00", "Z")
    offsets = json.dumps({topics[0]: {"0": 3}}).replace('"', '\\"')
    pattern = topics[0].rsplit("-", 1)[0][:-1] + "[01]-" + topics[0].rsplit("-", 1)[1][:6] + ".*"
    for case, (choice, start, expected) in enumerate(
        [
            (f"topic: [{topics[0]}]", "earliest", [0, 1, 2, 3]),
            (f"topic: [{topics[0]}]", "latest", []),
            (f"topic: [{topics[0]}]", moment, [2, 3]),
            (f"topic: [{topics[0]}]", offsets, [3]),
            (f"topic: [{', '.join(topics)}]", "earliest", [0, 0, 1, 1, 2, 2, 3, 3]),
            (f'topicPattern: "{pattern}"', "earliest", [0, 0, 1, 1, 2, 2, 3, 3]),
        ]
    ):
        text = body(kafka, choice, f'startingOffsets: "{start}"').replace("out.db", f"out{case}.db")
        run(project.build(text), project.folder / f"state{case}")
        found = table(project.folder / f"out{case}.db", "SELECT id FROM rows ORDER BY 1")
        assert [id for (id,) in found] == expected, start


def test_messages_that_are_gone_stop_the_run_unless_they_may_be_skipped(
    project: Project, kafka: Kafka, kafka_topic: str
) -> None:
    text = body(kafka, f"topic: [{kafka_topic}]")
    kafka.send(kafka_topic, lines(1, 2))
    go(project, text)
    kafka.send(kafka_topic, lines(3, 4, 5))
    kafka.delete_records(kafka_topic, 4)
    with pytest.raises(PenstockError) as stopped:
        go(project, text)
    assert stopped.value.code == "SOURCE_DATA_LOST"
    assert "onDataLoss: skip" in stopped.value.problems[0].hint
    assert stored(project, "id") == [(1,), (2,)]
    go(project, body(kafka, f"topic: [{kafka_topic}]", "startingOffsets: earliest, onDataLoss: skip"))
    assert stored(project, "id") == [(1,), (2,), (5,)]


def test_only_committed_messages_are_read(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"t-{kafka_topic}"})
    producer.init_transactions(30)
    for commit, id in ((True, 1), (False, 2), (True, 3)):
        producer.begin_transaction()
        producer.produce(kafka_topic, lines(id)[0].encode())
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    go(project, body(kafka, f"topic: [{kafka_topic}]"))
    assert stored(project, "id") == [(1,), (3,)]


# --- what is refused beforehand --------------------------------------------------------------------------------


def problems(folder: Path, **options: Any) -> list[tuple[str, str]]:
    source = KafkaSource.model_validate({"topic": ["t"], **options})
    try:
        found = problems_of(source, "rows", folder)
    except PenstockError as error:
        found = list(error.problems)
    return [(problem.code, problem.message) for problem in found]


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        ({"bootstrap": "nowhere"}, "SPEC_BAD_VALUE", "'nowhere' is not host:port"),
        ({"bootstrap": "h:1", "topic": []}, "SPEC_MISSING_KEY", "topic"),
        ({"bootstrap": "h:1", "topicPattern": "x"}, "SPEC_MISSING_KEY", "topic"),
        ({"bootstrap": "h:1", "topic": ["a b"]}, "SPEC_BAD_VALUE", "'a b' is no name of a topic"),
        ({"bootstrap": "h:1", "startingOffsets": "soon"}, "SPEC_BAD_VALUE", "'soon' is neither"),
        ({"bootstrap": "h:1", "startingOffsets": '{"t": 3}'}, "SPEC_BAD_VALUE", "numbers by partition"),
        ({"bootstrap": "h:1", "options": {"sasl.jaas.config": "x"}}, "SPEC_BAD_VALUE", "'sasl.jaas.config' may not"),
        ({"bootstrap": "h:1", "options": {"fetch.max.bytes": "x;y"}}, "SPEC_BAD_VALUE", "cannot be 'x;y'"),
        ({"bootstrap": "h:1", "security": {"username": "u"}}, "SPEC_MISSING_KEY", "password"),
        ({"bootstrap": "h:1", "security": {"ca": "ca.pem"}}, "SPEC_BAD_VALUE", "tls: true"),
        ({"bootstrap": "h:1", "security": {"tls": True, "ca": "ca.pem"}}, "PATH_NOT_FOUND", "ca.pem"),
    ],
)
def test_bad_settings_are_found_without_a_broker(tmp_path: Path, options: dict[str, Any], code: str, part: str) -> None:
    found = problems(tmp_path, **options)
    assert found[0][0] == code
    assert part in found[0][1]


def test_a_format_of_whole_files_is_refused_at_its_place(project: Project) -> None:
    text = """
        sources:
          rows: {kafka: {bootstrap: "h:1", topic: t}, format: {parquet: {}}}
        sinks:
          out: {from: rows, memory: {}}
    """
    with pytest.raises(PenstockError, match="FORMAT_NOT_FOR_MESSAGES"):
        project.load(text)


def test_a_broker_that_is_not_there_a_missing_topic_and_a_wrong_password_are_told(
    tmp_path: Path, kafka: Kafka, kafka_topic: str
) -> None:
    from tests.servers.base import free_port

    assert problems(tmp_path, bootstrap=f"127.0.0.1:{free_port()}")[0][0] == "KAFKA_UNREACHABLE"
    ((code, message),) = problems(tmp_path, bootstrap=kafka.bootstrap, topic=[f"{kafka_topic}x"])
    assert (code, f"'{kafka_topic}x'" in message) == ("KAFKA_TOPIC_MISSING", True)
    login = {"username": kafka.username, "password": "wr0ng-canary"}
    ((code, message),) = problems(tmp_path, bootstrap=kafka.sasl_bootstrap, topic=[kafka_topic], security=login)
    assert code == "KAFKA_LOGIN_FAILED"
    assert "wr0ng-canary" not in message
    right = {"username": kafka.username, "password": kafka.password}
    assert problems(tmp_path, bootstrap=kafka.sasl_bootstrap, topic=[kafka_topic], security=right) == []


def test_a_login_works_through_spark_too(
    project: Project, kafka: Kafka, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", kafka.password)
    kafka.send(kafka_topic, lines(1))
    security = f'security: {{username: {kafka.username}, password: "${{secret:env/KAFKA_PASSWORD}}"}}'
    text = body(kafka, f"topic: [{kafka_topic}]", f"startingOffsets: earliest, {security}")
    go(project, text.replace(kafka.bootstrap, kafka.sasl_bootstrap))
    assert stored(project, "id") == [(1,)]


def test_messages_can_be_read_again_from_a_time_on(
    project: Project, kafka: Kafka, kafka_topic: str, spark: SparkSession
) -> None:
    """Up to those that are there now, with what cannot be read among them."""
    base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(hours=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, text in enumerate([*lines(0, 1, 2, 3), "broken"]):
        producer.produce(kafka_topic, text.encode(), timestamp=int(base.timestamp() * 1000) + number * 1000)
    assert producer.flush(10) == 0
    node = next(iter(project.build(body(kafka, f"topic: [{kafka_topic}]", "columns: {o: offset}")).of_kind("source")))
    source, spec = node.component, node.spec
    assert isinstance(source, KafkaSource)
    assert isinstance(spec, SourceSpec)
    assert isinstance(spec.format, Format)
    context = ReadContext(spark, "rows", project.folder, project.folder, spec.format)

    def offsets(found: KafkaSource) -> list[tuple[int, int | None]]:
        return sorted((row.o, row.id) for row in found.read_all(context).collect())

    everything = [(0, 0), (1, 1), (2, 2), (3, 3), (4, None)]
    assert offsets(source) == [], "it starts at the end unless it is told otherwise"
    assert offsets(source.written_since(None)) == everything
    assert offsets(source.written_since(base + dt.timedelta(seconds=2))) == everything[2:]
    assert offsets(source.written_since(base + dt.timedelta(hours=2))) == []
