"""Apache Kafka, one KRaft node, from jars of Maven Central. Data and ports survive a restart."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.servers.base import HOST, PASSWORD, USER, Server, Unavailable, answers, free_port, server_cache

from penstock.engine.ivy import SPARK_JARS
from penstock.engine.jars import locked_jars, read_lock, write_lock
from penstock.engine.jvm import find_java
from penstock.errors import PenstockError
from penstock.testing.processes import until

LOCK = Path(__file__).with_name("kafka.lock")
ROOTS = {"kafka": ("org.apache.kafka:kafka_2.13:4.3.1",)}
_SECONDS = 30.0
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{plain},SASL_PLAINTEXT://{host}:{sasl},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SASL_PLAINTEXT://{host}:{sasl}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={login} user_{user}="{password}";
log.dirs={data}
num.partitions=1
num.network.threads=2
num.io.threads=2
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.dedupe.buffer.size=4194304
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=0
"""


class Kafka(Server):
    """A broker with one listener for everyone and one that asks for a name and password (SASL/PLAIN)."""

    title: ClassVar[str] = "Kafka"

    def __init__(self) -> None:
        super().__init__()
        self.port, self.sasl_port, self._controller_port = free_port(), free_port(), free_port()
        self.bootstrap = f"{HOST}:{self.port}"
        self.sasl_bootstrap = f"{HOST}:{self.sasl_port}"
        self.username, self.password = USER, PASSWORD
        self._numbers = itertools.count(1)
        self._admin: AdminClient | None = None

    def start(self) -> None:
        properties = self.folder / "server.properties"
        if not properties.exists():
            properties.write_text(self._properties(), "utf-8")
            cluster = str(uuid.uuid4())
            self.run(
                *self._java("kafka.tools.StorageTool"), "format", "-t", cluster, "-c", str(properties), "--standalone"
            )
        self.launch([*self._java("kafka.Kafka"), str(properties)], self._ready)

    def restart(self) -> None:
        """Ends it in order and starts it again with the same ports and data."""
        self.end()
        self.start()

    def _ready(self) -> bool:
        if not answers(self.port):
            return False
        with contextlib.suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=2).brokers)
        return False

    def _properties(self) -> str:
        return _PROPERTIES.format(
            host=HOST,
            plain=self.port,
            sasl=self.sasl_port,
            controller=self._controller_port,
            login=_LOGIN,
            user=self.username,
            password=self.password,
            data=self.folder / "data",
        )

    def _java(self, main: str) -> list[str]:
        options = ["-Xmx320m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
        return [find_java(), "-cp", ":".join(map(str, _jars())), *options, main]

    # --- what tests do with it ---------------------------------------------------------------------------

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(
        self, name: str | None = None, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """The name of a new topic; one of its own if none is given."""
        name = name or f"topic-{next(self._numbers)}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        _settle(self.admin.create_topics([new]))
        # The controller has it; the broker tells others of it a moment later.
        until(lambda: name in self.admin.list_topics(timeout=_SECONDS).topics, f"the broker knows {name}", _SECONDS)
        return name

    def delete_topic(self, name: str) -> None:
        """Brokers answer before all of them know; this returns when the topic is gone."""
        _settle(self.admin.delete_topics([name]))
        until(lambda: name not in self.admin.list_topics(timeout=10).topics, f"topic {name} is gone")

    def add_partitions(self, name: str, total: int) -> None:
        _settle(self.admin.create_partitions([NewPartitions(name, total)]))

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        """Takes away the oldest rows of a partition, as retention would."""
        _settle(self.admin.delete_records([TopicPartition(name, partition, before)]))

    def send(self, topic: str, values: Iterable[str | bytes], key: str | None = None, partition: int = -1) -> None:
        """Writes rows and waits until they are stored."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(
                topic, value=value, key=key, partition=partition, on_delivery=lambda error, _: failed.append(error)
            )
        assert producer.flush(_SECONDS) == 0, f"rows for {topic} were not stored in time"
        assert not any(failed), failed

    def values(self, topic: str, *, committed: bool = True) -> list[bytes]:
        """All values of a topic, partition by partition; those of open transactions only if not `committed`."""
        isolation = "read_committed" if committed else "read_uncommitted"
        conf: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer({**conf, "isolation.level": isolation, "enable.partition.eof": True})
        try:
            numbers = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
            return [value for number in sorted(numbers) for value in _values(consumer, topic, number)]
        finally:
            consumer.close()


def _values(consumer: Consumer, topic: str, partition: int) -> list[bytes]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[bytes] = []
    while (message := consumer.poll(_SECONDS)) is not None and message.error() is None:
        value = message.value()
        found.append(value if isinstance(value, bytes) else b"")
    assert message is not None, f"no answer about {topic}[{partition}]"
    return found


def _settle(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(_SECONDS)


def _jars() -> list[Path]:
    """The broker's jars, with Spark's newer bridge for its log."""
    try:
        jars = locked_jars("kafka", read_lock(LOCK)["kafka"], server_cache())
    except PenstockError as error:
        raise Unavailable(error.problems[0].message) from error
    log = [jar for pattern in ("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar") for jar in SPARK_JARS.glob(pattern)]
    return [*log, *jars]


def write_kafka_lock() -> None:
    """Resolves the broker's jars anew. For maintainers, after a new version of Kafka."""
    write_lock(LOCK, ROOTS, provided=None, excluded=())
