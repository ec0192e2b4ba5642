"""Messages to a real broker: each once for readers of committed messages, whatever dies, and older runs are refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from tests.components.looking import problems_of
from tests.engine.running import Outcome, json_lines, run

from penstock.components.base import Batch, Noted, SinkContext
from penstock.components.shared import kafka_writer
from penstock.components.sinks.kafka import Kafka as KafkaSink
from penstock.errors import PenstockError
from penstock.testing import shared_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import Project
    from tests.servers.kafka import Kafka

pytestmark = pytest.mark.spark

POINTS = ("sink.before_write", "sink.in_transaction", "sink.after_commit", "batch.after_sinks", "batch.after_ledger")


def body(kafka: Kafka, topic: str, options: str = "") -> str:
    return f"""
        sources:
          rows:
            files: {{path: ./in, maxFilesPerBatch: 1}}
            format: {{json: {{schema: {{id: bigint, name: string, gone: boolean}}}}}}
        sinks:
          out: {{from: rows, kafka: {{bootstrap: "{kafka.bootstrap}", topic: {topic}{options}}}}}
    """


def go(project: Project, text: str, die_at: str | None = None) -> Outcome:
    return run(project.build(text), project.folder / "state", die_at=die_at)


def ids(kafka: Kafka, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for value in kafka.values(topic))


def messages(kafka: Kafka, topic: str) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "look", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(message)
        return found
    finally:
        consumer.close()


def test_rows_are_sent_once_whatever_point_a_run_dies_at(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    text = body(kafka, kafka_topic)
    for number, point in enumerate(POINTS):
        project.put(f"in/{number}.json", json_lines([{"id": 2 * number}, {"id": 2 * number + 1}]))
        go(project, text, die_at=f"{point}@{number}")
        assert ids(kafka, kafka_topic)[: 2 * number] == list(range(2 * number))
    outcome = go(project, text)
    assert ids(kafka, kafka_topic) == list(range(2 * len(POINTS)))
    assert sum(entry.rows_out["out"] for entry in outcome.ledger) == 2 * len(POINTS)


def test_keys_headers_times_topics_and_deletions(project: Project, kafka: Kafka, kafka_topic: str) -> None:
    options = ", key: [id], headers: {who: name}, delete: gone"
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": "ann", "gone": False},
        {"id": 2, "name": None, "gone": True},
        {"id": None, "name": "x"},
    ]
    project.put("in/0.json", json_lines(rows))
    go(project, body(kafka, kafka_topic, options))
    found = {message.key(): message for message in messages(kafka, kafka_topic)}
    assert json.loads(found[b"1"].value() or b"") == {"id": 1}
    assert found[b"1"].headers() == [("who", b"ann")]
    assert (found[b"2"].value(), found[b"2"].headers()) == (None, None)
    assert json.loads(found[None].value() or b"") == {"id": None}


def test_several_columns_make_a_key_and_a_column_names_the_topic(
    project: Project, kafka: Kafka, kafka_topic: str
) -> None:
    other = kafka.create_topic()
    project.put("in/0.json", json_lines([{"id": 1, "name": other}, {"id": 2}]))
    go(project, body(kafka, kafka_topic, ", key: [id, name], topicColumn: name"))
    assert [message.key() for message in messages(kafka, other)] == [f'{{"id":1,"name":"{other}"}}'.encode()]
    assert [message.key() for message in messages(kafka, kafka_topic)] == [b'{"id":2,"name":null}']


def writer(kafka: Kafka, topic: str, folder: Path, epoch: int, lineage: str = "l", key: bool = False) -> Any:
    sink = KafkaSink.model_validate({"bootstrap": kafka.bootstrap, "topic": topic, "key": ["id"] if key else []})
    return sink.open(SinkContext(shared_session(), "out", folder, f"p-{topic}", lineage, epoch, {"id": "bigint"}))


def test_an_older_run_is_refused_and_its_batch_is_not_seen(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    rows = spark.range(3)
    old = writer(kafka, kafka_topic, tmp_path, 1)
    assert old.write(Batch("p", "l", 1, 0), rows)
    new = writer(kafka, kafka_topic, tmp_path, 2)
    with pytest.raises(PenstockError, match="SINK_FENCED"):
        old.write(Batch("p", "l", 1, 1), rows)
    assert new.write(Batch("p", "l", 2, 0), rows) is False
    assert new.write(Batch("p", "l", 2, 1), rows)
    assert ids(kafka, kafka_topic) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(PenstockError, match="SINK_OF_ANOTHER_RUN"):
        writer(kafka, kafka_topic, tmp_path, 1, lineage="other")
    assert writer(kafka, kafka_topic, tmp_path, 1, lineage="other", key=True).write(Batch("p", "other", 1, 0), rows)


def test_a_fatal_error_that_the_client_tells_beside_its_result_is_told_as_others_are() -> None:
    from confluent_kafka import KafkaError, KafkaException

    fenced = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))

    def call(cause: Exception | None) -> int:
        raise SystemError("a result with an exception set") from cause

    with pytest.raises(KafkaException) as told:
        kafka_writer._told(lambda: call(fenced))
    assert told.value is fenced
    with pytest.raises(SystemError):
        kafka_writer._told(lambda: call(None))
    assert kafka_writer._told(lambda: 3) == 3


def test_messages_are_not_taken_back_but_their_number_can_be(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    old = writer(kafka, kafka_topic, tmp_path, 1)
    before = old.position()
    for number in range(2):
        assert old.write(Batch("p", "l", 1, number), spark.range(number, number + 1))
    position = old.position()
    assert (before, position) == ({"batch": -1}, {"batch": 1})
    old.rewind(1, position)
    assert old.write(Batch("p", "l", 1, 2), spark.range(2, 3))
    new = writer(kafka, kafka_topic, tmp_path, 2)
    for batch, held in ((1, position), (-1, before)):
        with pytest.raises(PenstockError, match="SINK_CANNOT_REWIND"):
            new.rewind(batch, held)
    with pytest.raises(PenstockError, match="SINK_FENCED"):
        old.forget(0)
    for _ in range(2):
        new.forget(1)
    new.rewind(1, position)
    assert new.write(Batch("p", "l", 2, 1), spark.range(1)) is False
    assert new.write(Batch("p", "l", 2, 2), spark.range(2, 4))
    assert ids(kafka, kafka_topic) == [0, 1, 2, 2, 3]


def test_a_broker_that_has_forgotten_the_number_does_not_pass_for_one_that_got_nothing(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    with pytest.raises(PenstockError, match="forgotten"):
        writer(kafka, kafka_topic, tmp_path, 1).rewind(3, {"batch": 3})


def test_a_restarted_broker_is_waited_for(tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str) -> None:
    chance = random.Random(7)
    sink = writer(kafka, kafka_topic, tmp_path, 1)
    for number in range(4):
        if chance.random() < 0.6:
            kafka.restart()
        assert sink.write(Batch("p", "l", 1, number), spark.range(number * 5, number * 5 + 5))
    assert ids(kafka, kafka_topic) == list(range(20))


def test_a_message_that_is_too_large_fails_the_batch_and_none_of_it_is_seen(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    sink = writer(kafka, kafka_topic, tmp_path, 1)
    rows = spark.range(2).selectExpr("id", "repeat('x', cast(id * 3000000 as int)) AS text")
    with pytest.raises(PenstockError, match="SINK_FAILED") as failed:
        sink.write(Batch("p", "l", 1, 0), rows)
    assert "`message.max.bytes`" in str(failed.value.problems[0].hint)
    assert kafka.values(kafka_topic) == []
    assert sink.write(Batch("p", "l", 1, 0), spark.range(1))
    assert ids(kafka, kafka_topic) == [0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"delete": "gone"}, "SPEC_MISSING_KEY"),
        ({"options": {"ssl.key.password": "x"}}, "SPEC_BAD_VALUE"),
        ({"topic": "not-there"}, "KAFKA_TOPIC_MISSING"),
    ],
)
def test_bad_settings_are_found_beforehand(
    tmp_path: Path, kafka: Kafka, kafka_topic: str, options: dict[str, Any], code: str
) -> None:
    sink = KafkaSink.model_validate({"bootstrap": kafka.bootstrap, "topic": kafka_topic, **options})
    assert [problem.code for problem in problems_of(sink, "out", tmp_path)] == [code]


def test_columns_that_are_missing_or_of_the_wrong_type_are_found_beforehand() -> None:
    sink = KafkaSink.model_validate(
        {"bootstrap": "h:1", "topic": "t", "key": ["k"], "delete": "gone", "timestamp": "at", "headers": {"h": "x"}}
    )
    found = [(problem.code, problem.params["column"]) for problem in sink.check_columns("out", {"gone": "string"})]
    assert found == [
        ("SINK_COLUMN_UNKNOWN", "k"),
        ("SINK_COLUMN_UNKNOWN", "x"),
        ("SINK_COLUMN_UNKNOWN", "at"),
        ("SINK_TYPE_UNSUPPORTED", "gone"),
    ]


def test_an_overtaken_run_cannot_take_the_name_from_the_newer_one(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    old = writer(kafka, kafka_topic, tmp_path, 1)
    assert old.write(Batch("p", "l", 1, 0), spark.range(1))
    new = writer(kafka, kafka_topic, tmp_path, 2)
    names = old.producer
    # As after messages that were not taken in time: the older run has given its producer up.
    old.producer = None
    with pytest.raises(PenstockError, match="SINK_FENCED"):
        old._reconnect()
    with pytest.raises(PenstockError, match="SINK_FENCED"):
        old._persist(1, lambda: (), lambda: False)
    assert (names is not None, old.producer) == (True, None)
    newer = new.producer
    assert new.write(Batch("p", "l", 2, 1), spark.range(1, 2))
    assert new.producer is newer


def test_a_run_that_was_overtaken_by_its_lease_takes_no_name(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    def overtaken() -> None:
        raise PenstockError.of("FENCED", path=tmp_path, newer=2, epoch=1)

    sink = writer(kafka, kafka_topic, tmp_path, 1)
    sink.context = replace(sink.context, refuse_overtaken=overtaken)
    sink.producer = None
    with pytest.raises(PenstockError, match="FENCED"):
        sink._persist(0, lambda: (), lambda: False)
    assert sink.producer is None


def test_the_newest_run_takes_its_name_back_from_one_that_took_it_in_between(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    old = writer(kafka, kafka_topic, tmp_path, 1)
    new = writer(kafka, kafka_topic, tmp_path, 2)
    assert new.write(Batch("p", "l", 2, 0), spark.range(1))
    # The older run had looked before the newer one began, and takes the name after it.
    old._connect()
    with pytest.raises(PenstockError, match="SINK_FENCED"):
        old.write(Batch("p", "l", 1, 1), spark.range(5))
    assert new.write(Batch("p", "l", 2, 1), spark.range(1, 3))
    assert ids(kafka, kafka_topic) == [0, 1, 2]


def test_a_topic_that_has_lost_its_end_is_refused(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    sink = writer(kafka, kafka_topic, tmp_path, 1)
    assert sink.write(Batch("p", "l", 1, 0), spark.range(3))
    noted = Noted(0, "", dict(sink.ends))
    (last,) = noted.ends.values()
    writer(kafka, kafka_topic, tmp_path, 2).expect(noted)
    for ends in ({"0": last + 100}, {"7": 0}):
        with pytest.raises(PenstockError, match="SINK_BEHIND"):
            writer(kafka, kafka_topic, tmp_path, 3).expect(Noted(0, "", ends))
    with pytest.raises(PenstockError, match="SINK_BEHIND"):
        writer(kafka, kafka_topic, tmp_path, 4).expect(Noted(1))


def test_a_batch_larger_than_what_the_driver_may_collect_is_sent_in_order(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, kafka_topic: str
) -> None:
    sink = writer(kafka, kafka_topic, tmp_path, 1)
    limited = spark.newSession()
    rows = limited.range(0, 20_000, 1, 2).selectExpr("id", "repeat(cast(id as string), 100) AS text")
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        with pytest.raises(Exception, match="maxResultSize"):
            sink.sink.messages(rows, tmp_path).toArrow()
        assert sink.write(Batch("p", "l", 1, 0), rows)
    finally:
        conf.set("spark.driver.maxResultSize", before)
    assert [json.loads(value)["id"] for value in kafka.values(kafka_topic)] == list(range(20_000))
