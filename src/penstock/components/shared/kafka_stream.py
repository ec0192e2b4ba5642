"""Kafka topics as a Spark data source: which messages there are, and who reads which of them.

On the client that librdkafka is, not on Spark's connector: it needs no jars, and reads as fast. Apart from the
component, because Spark's workers import these classes by name and the component must not import Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa  # noqa: TID253 - imported by the source only when it is read
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import admin as _admin
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition  # noqa: TID253
from pyspark.sql.pandas.types import from_arrow_schema  # noqa: TID253
from pyspark.sql.streaming.datasource import (  # noqa: TID253
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType  # noqa: TID253

_SPEC: Any = vars(_admin)["OffsetSpec"]
"""Which offset of a partition is asked for; it has no types."""
FORMAT = "penstock_kafka"
SETTINGS = "secret_settings"
"""The option with everything a reader needs. By its name Spark keeps its value out of plans and logs."""
LOST = "KAFKA_DATA_LOST"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": _HEADERS,
}
_AT_ONCE = 10_000
_PATIENCE = 60.0
"""Seconds without an answer after which a read is given up."""

Offsets = dict[str, dict[str, int]]
"""By topic and partition; as Spark's checkpoint keeps it, where keys are texts."""


@dataclass(frozen=True)
class Settings:
    """What is read and how, as it goes to the workers in one option."""

    client: Mapping[str, Any]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "latest"
    """`earliest`, `latest`, milliseconds since 1970, or offsets as JSON."""
    max_rows_per_batch: int | None = None
    skip_lost: bool = False
    columns: tuple[str, ...] = ("value",)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        values = json.loads(text)
        return cls(**{**values, "topics": tuple(values["topics"]), "columns": tuple(values["columns"])})

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, _FIELDS[name]) for name in self.columns])


@dataclass(frozen=True)
class Stretch(InputPartition):
    """The messages of one partition from `first` up to, not including, `stop`."""

    topic: str
    partition: int
    first: int
    stop: int


class DataLost(Exception):
    """Messages that were not read yet are no longer there."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"[{LOST}] {reason}")


def share(start: Offsets, available: Offsets, most: int | None) -> Offsets:
    """Where a batch of at most so many messages ends: partitions give in proportion to what they have."""
    waiting = {
        (topic, number): stop - start.get(topic, {}).get(number, 0)
        for topic, numbers in available.items()
        for number, stop in numbers.items()
    }
    total = sum(waiting.values())
    if most is None or total <= most:
        return available
    # Rounded down, so that there are never more; what is left over goes to the fullest ones.
    given = {place: most * count // total for place, count in waiting.items()}
    for place in sorted(waiting, key=lambda place: -waiting[place])[: most - sum(given.values())]:
        given[place] += 1
    return {
        topic: {number: start.get(topic, {}).get(number, 0) + given[topic, number] for number in numbers}
        for topic, numbers in available.items()
    }


@dataclass
class _Position:
    """A place in all topics. `first` is where the first run began: a first batch that is run again begins there."""

    at: Offsets
    first: Offsets = field(default_factory=dict)
    fresh: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> _Position:
        return cls(dict(stored["at"]), dict(stored.get("first", {})), bool(stored.get("fresh", False)))


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the length of a query; copies of it read stretches in the workers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None
        self._bounded = False
        self._until: Offsets | None = None
        self._latest: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_admin": None}

    # --- in the driver -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        found = self._first()
        return asdict(_Position(found, found, fresh=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._settings.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._bounded = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = _Position.of(start)
        available = self._available(position.at)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return asdict(_Position(share(position.at, available, most), position.first))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else asdict(_Position(self._latest))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Stretch]:
        begin, stop = _Position.of(start), _Position.of(end)
        # A first batch that is run again gets a new idea of where to begin; the end remembers the first one.
        first = stop.first if begin.fresh else begin.at
        found = [
            Stretch(topic, int(number), first.get(topic, {}).get(number, 0), offset)
            for topic, numbers in stop.at.items()
            for number, offset in numbers.items()
        ]
        return [stretch for stretch in found if stretch.stop > stretch.first]

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(dict(self._settings.client))
        return self._admin

    def _available(self, start: Offsets) -> Offsets:
        """Up to where there are messages, never before the start."""
        if self._until is not None:
            return self._until
        places = self._places()
        latest, earliest = self._offsets(places, _SPEC.latest()), self._offsets(places, _SPEC.earliest())
        self._latest = latest
        found: Offsets = {}
        for topic, numbers in latest.items():
            for number, stop in numbers.items():
                begin = start.get(topic, {}).get(number, 0)
                found.setdefault(topic, {})[number] = self._judged(topic, number, begin, earliest[topic][number], stop)
        for topic, numbers in start.items():
            for number in numbers:
                if number not in latest.get(topic, {}):
                    self._refuse(f"partition {number} of topic {topic} is gone")
        if self._bounded:
            self._until = found
        return found

    def _judged(self, topic: str, number: str, begin: int, earliest: int, latest: int) -> int:
        if latest < begin:
            self._refuse(f"topic {topic}, partition {number} ends at {latest}, before {begin}: it was made anew")
            return begin
        if earliest > begin and begin > 0:
            self._refuse(f"topic {topic}, partition {number}: messages {begin} to {earliest - 1} are gone")
        return latest

    def _refuse(self, reason: str) -> None:
        if not self._settings.skip_lost:
            raise DataLost(reason)

    def _places(self) -> list[TopicPartition]:
        """All partitions of the topics that are read."""
        import re

        known = self.admin.list_topics(timeout=_PATIENCE).topics
        names = [name for name in known if self._settings.pattern and re.fullmatch(self._settings.pattern, name)]
        return [
            TopicPartition(name, number)
            for name in (*self._settings.topics, *names)
            if name in known
            for number in known[name].partitions
        ]

    def _offsets(self, places: list[TopicPartition], wanted: Any) -> Offsets:
        if not places:
            return {}
        futures = self.admin.list_offsets(
            {TopicPartition(place.topic, place.partition): wanted for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_PATIENCE,
        )
        found: Offsets = {}
        for place, future in futures.items():
            found.setdefault(place.topic, {})[str(place.partition)] = int(future.result(_PATIENCE).offset)
        return found

    def _first(self) -> Offsets:
        """Where the first run begins."""
        places, start = self._places(), self._settings.start
        if start in ("earliest", "latest"):
            return self._offsets(places, _SPEC.earliest() if start == "earliest" else _SPEC.latest())
        latest = self._offsets(places, _SPEC.latest())
        if start.startswith("{"):
            return self._chosen(json.loads(start), places, latest)
        by_time = self._offsets(places, _SPEC.for_timestamp(int(start)))
        # A partition without messages after that time has nothing to give yet.
        return {
            topic: {number: offset if offset >= 0 else latest[topic][number] for number, offset in numbers.items()}
            for topic, numbers in by_time.items()
        }

    def _chosen(self, wanted: Offsets, places: list[TopicPartition], latest: Offsets) -> Offsets:
        """Offsets as they were written; −2 is the earliest and −1 the latest, others begin with the earliest."""
        earliest = self._offsets(places, _SPEC.earliest())
        found = {topic: dict(numbers) for topic, numbers in earliest.items()}
        for topic, numbers in wanted.items():
            for number, offset in numbers.items():
                named = {-2: earliest, -1: latest}.get(offset)
                found.setdefault(topic, {})[number] = offset if named is None else named[topic][number]
        return found

    # --- in a worker -------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Stretch):
            return  # Where there are none, Spark asks for one that is nothing.
        for messages in _messages(self._settings, partition):
            yield _batch(messages, self._settings)


def _messages(settings: Settings, wanted: Stretch) -> Iterator[list[Message]]:
    """The messages of a stretch, some at a time. Markers of transactions take up offsets and are never seen."""
    consumer = Consumer(
        {
            "queued.max.messages.kbytes": 65_536,
            **settings.client,
            "group.id": "penstock",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest" if settings.skip_lost or wanted.first == 0 else "error",
        }
    )
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.first)])
        heard = time.monotonic()
        while True:
            came = consumer.consume(_AT_ONCE, 1.0)
            heard = time.monotonic() if came else heard
            if time.monotonic() - heard > _PATIENCE:
                raise TimeoutError(f"Kafka gave nothing of topic {wanted.topic} for {_PATIENCE:.0f} s")
            good = [message for message in came if message.error() is None and _offset(message) < wanted.stop]
            if good:
                yield good
            if any(_ends(message, wanted) for message in came) or (good and _offset(good[-1]) == wanted.stop - 1):
                return
    finally:
        consumer.close()


def _offset(message: Message) -> int:
    found = message.offset()
    assert found is not None
    return found


def _ends(message: Message, wanted: Stretch) -> bool:
    """Whether nothing of the stretch can follow; raises what went wrong."""
    error = message.error()
    if error is None:
        return _offset(message) >= wanted.stop
    if error.code() == KafkaError._PARTITION_EOF:
        if _offset(message) < wanted.stop:
            raise DataLost(f"topic {wanted.topic}, partition {wanted.partition} ends at {message.offset()}")
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise DataLost(f"topic {wanted.topic}, partition {wanted.partition}: messages from {wanted.first} are gone")
    if error.retriable():
        return False
    raise KafkaException(error)


def _batch(messages: list[Message], settings: Settings) -> pa.RecordBatch:
    makers: dict[str, Callable[[], list[Any]]] = {
        "key": lambda: [message.key() for message in messages],
        "value": lambda: [message.value() for message in messages],
        "topic": lambda: [message.topic() for message in messages],
        "partition": lambda: [message.partition() for message in messages],
        "offset": lambda: [message.offset() for message in messages],
        "timestamp": lambda: [_micros(message.timestamp()) for message in messages],
        "headers": lambda: [_headers(message) for message in messages],
    }
    columns = [pa.array(makers[name](), _FIELDS[name]) for name in settings.columns]
    return pa.RecordBatch.from_arrays(columns, schema=settings.schema)


def _micros(stamp: tuple[int, int]) -> int | None:
    kind, millis = stamp
    return None if kind == 0 else millis * 1000


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found = message.headers()
    return None if not found else [{"key": pair[0], "value": pair[1]} for pair in found]


class KafkaHistory(DataSourceReader):
    """The messages from the start up to those that are there when it is asked."""

    def __init__(self, settings: Settings) -> None:
        self._reader = KafkaReader(settings)

    def partitions(self) -> list[InputPartition]:
        first = self._reader.initialOffset()
        last = self._reader.latestOffset(first, ReadAllAvailable())
        return [*self._reader.partitions(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class KafkaTopics(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self._settings().schema)

    def reader(self, schema: StructType) -> KafkaHistory:
        return KafkaHistory(self._settings())

    def streamReader(self, schema: StructType) -> KafkaReader:
        return KafkaReader(self._settings())

    def _settings(self) -> Settings:
        return Settings.from_json(self.options[SETTINGS])
