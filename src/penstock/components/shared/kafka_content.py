"""What a topic holds, as rows and checksums: all its committed messages are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.components.base import SinkContext
from penstock.components.shared.checksum import Content, NotSummed, python_sum
from penstock.components.shared.kafka import silent, unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from penstock.components.sinks.kafka import Kafka

_SECONDS = 60.0
_AT_ONCE = 10_000


def content_of(sink: Kafka, context: SinkContext, columns: Sequence[str]) -> Content:
    """Raises NotSummed where messages do not hold the columns, or not all messages are there any more."""
    from confluent_kafka import Consumer, KafkaException

    _refuse_silent(sink, columns)
    troubles: list[KafkaError] = []
    settings = {
        "bootstrap.servers": sink.bootstrap,
        "error_cb": troubles.append,
        "logger": silent(),
        "group.id": f"penstock-{context.pipeline}-{context.node}-audit",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        **sink.security.for_c(context.folder),
    }
    consumer = Consumer(settings)
    rows = checksum = 0
    try:
        _refuse_compacted(sink, context, settings)
        for message in _messages(consumer, sink.topic):
            rows += 1
            checksum += python_sum(*_values(sink, message.value(), columns))
    except KafkaException as error:
        raise unreachable(context.node, sink.bootstrap, error, troubles) from None
    finally:
        consumer.close()
    return Content(rows, checksum)


def _refuse_silent(sink: Kafka, columns: Sequence[str]) -> None:
    if sink.topic_column is not None:
        raise NotSummed("a column names the topic of each row, and only one topic can be read back")
    if sink.delete is not None:
        raise NotSummed("messages of deleted rows do not hold the columns of `ledger.checksum`")
    if sink.format not in ("json", "text"):
        raise NotSummed(f"messages in {sink.format} cannot be read back")
    apart = set(sink.headers.values()) - set(sink.key)
    if apart & set(columns):
        raise NotSummed(f"column {min(apart & set(columns))} is only in a header")


def _refuse_compacted(sink: Kafka, context: SinkContext, settings: dict[str, Any]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource

    names = ("bootstrap.servers", "error_cb", "logger")
    known = {name: settings[name] for name in names} | sink.security.for_c(context.folder)
    resource = ConfigResource(ConfigResource.Type.TOPIC, sink.topic)
    # Answers do not come once nothing holds the client any more.
    client = AdminClient(known)
    (asked,) = client.describe_configs([resource]).values()
    if "compact" in str(asked.result(_SECONDS)["cleanup.policy"].value):
        raise NotSummed("the topic is compacted, so that older messages of a key are gone")


def _messages(consumer: Consumer, topic: str) -> Iterator[Message]:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    for number in sorted(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions):
        first, _ = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_SECONDS)
        if first > 0:
            raise NotSummed("the broker has removed its oldest messages")
        consumer.assign([TopicPartition(topic, number, 0)])
        ended = False
        while not ended:
            found = consumer.consume(_AT_ONCE, timeout=1)
            for message in found:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended = True
                else:
                    raise KafkaException(error)


def _values(sink: Kafka, value: str | bytes | None, columns: Sequence[str]) -> list[Any]:
    if value is None:
        return [None for _ in columns]
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if sink.format == "text":
        return [text for _ in columns]
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    return [found.get(name) if isinstance(found, dict) else None for name in columns]
