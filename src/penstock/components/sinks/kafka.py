"""Messages to a Kafka topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.components.base import (
    Batch,
    CheckContext,
    LookContext,
    Sink,
    SinkContext,
    SinkWriter,
    cannot_rewind,
    resolve_path,
)  # fmt: skip
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.kafka import (
    NUMBER,
    WORD,
    Security,
    address_problems,
    option_problems,
    silent,
    topics_at,
    unreachable,
)
from penstock.components.shared.retry import Patience, persist
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, field

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.message_values import Encoder

_NEEDED = {"avro": ("schema_file",), "protobuf": ("descriptors", "message")}
"""What a format of values cannot do without."""
_OPTIONS = {
    "batch.size": NUMBER,
    "client.id": WORD,
    "compression.type": WORD,
    "linger.ms": NUMBER,
    "message.max.bytes": NUMBER,
    "queue.buffering.max.kbytes": NUMBER,
    "request.timeout.ms": NUMBER,
    "transaction.timeout.ms": NUMBER,
}
_TRIES = 5
_SECONDS = 60.0
_MOVING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
"""What a broker says of a group while another one takes it over, or after it was started."""


class Kafka(Sink):
    """Sends each row as a message, exactly once for consumers that read committed messages only.

    All messages of a batch are one transaction, together with the number of the batch, which is kept as an offset
    of the group `penstock-PIPELINE-SINK`. A batch that comes again after a crash is not sent again, and an older run
    that wakes up late is refused by the broker. Consumers need `isolation.level=read_committed`; others also see
    messages of batches that failed. The number of a batch is forgotten with the group's offsets, which brokers keep
    for seven days by default (`offsets.retention.minutes`): a pipeline that crashed and stayed down for longer may
    send its last batch twice.

    A row is a JSON object of its columns, without those that only name the topic, a header or a deletion. With a key,
    messages with one key go to one partition, and on a compacted topic the last one stays; `delete` names a column that
    says which rows are deletions: they are sent without a value.

    What has been sent cannot be taken back: a pipeline can go back to a savepoint only if it has sent nothing since, or
    if readers may get messages again.
    """

    name: ClassVar[str] = "kafka"
    guarantee: ClassVar[str] = (
        "Exactly once for consumers with `isolation.level=read_committed`: messages and the number of the batch are "
        "one transaction. After a crash the last batch may be sent twice if the pipeline stays down for longer than "
        "the broker keeps the offsets of groups."
    )
    example: ClassVar[str] = """\
from: views
kafka: {bootstrap: "localhost:9092", topic: clean_views, key: [user], headers: {origin: country}}
"""

    bootstrap: str = field(doc="Addresses of brokers, as `host:port`, separated by commas.", min_length=1)
    topic: str = field(doc="The topic.", pattern=r"^[A-Za-z0-9._-]{1,249}$", change=Change.LOSES_STATE)
    topic_column: str | None = field(
        None, doc="Column that names the topic of each row; where it is null, the row goes to `topic`."
    )
    key: tuple[str, ...] = field(
        (), doc="Columns that make the message's key: of one its text, of several a JSON object."
    )
    delete: str | None = field(None, doc="Boolean column: rows where it is true are sent without a value.")
    headers: dict[str, str] = field(default={}, doc="Headers, by the column that holds their value.")
    timestamp: str | None = field(
        None, doc="Timestamp column that becomes the message's time. Default: when it is sent."
    )
    format: Literal["json", "text", "avro", "protobuf"] = field(
        "json", doc="How values are encoded. `text` takes the one column `value`."
    )
    schema_file: str | None = field(
        None, doc="With `avro`: a file with the schema of the record, relative to the pipeline file."
    )
    descriptors: str | None = field(
        None, doc="With `protobuf`: a descriptor file, made by `protoc --include_imports --descriptor_set_out`."
    )
    message: str | None = field(
        None, doc="With `protobuf`: the message type, with its package.", pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$"
    )
    security: Security = field(Security(), doc="Encryption and login.")
    options: dict[str, str] = field(default={}, doc=f"Options of the client: {', '.join(_OPTIONS)}.")

    @property
    def accepts_updates(self) -> bool:
        return bool(self.key)

    # --- before a run ------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from address_problems(self.bootstrap)
        where = f"kafka of '{context.node}'"
        if self.delete is not None and not self.key:
            yield Problem("SPEC_MISSING_KEY", {"key": "key", "where": where, "advice": "`delete` goes with a `key`."})
        for name in _NEEDED.get(self.format, ()):
            if getattr(self, name) is None:
                key = "schemaFile" if name == "schema_file" else name
                yield Problem("SPEC_MISSING_KEY", {"key": key, "where": where, "advice": f"`{self.format}` needs it."})
        yield from self.security.problems()
        yield from option_problems(self.options, _OPTIONS)

    def look(self, context: LookContext) -> Iterator[Problem]:
        missing = [*self._encoding_problems(context), *self.security.missing_files(context.folder)]
        yield from missing or self._missing_topic(context)

    def _missing_topic(self, context: LookContext) -> Iterator[Problem]:
        topics = topics_at(self.bootstrap, self.security, context.folder, context.node)
        if self.topic not in topics:
            visible = [name for name in topics if not name.startswith("__")]
            params = {"node": context.node, "topic": self.topic, "bootstrap": self.bootstrap}
            suggestion = did_you_mean(self.topic, visible) or "Create it first."
            yield Problem("KAFKA_TOPIC_MISSING", {**params, "suggestion": suggestion}, at=("topic",))

    def _encoding_problems(self, context: LookContext) -> Iterator[Problem]:
        if self.format not in _NEEDED:
            return
        try:
            self._encoder(context.folder)
        except (OSError, ValueError) as error:
            yield Problem("SPEC_BAD_VALUE", {"where": f"kafka of '{context.node}'", "reason": error}, at=("format",))

    def _encoder(self, folder: Path) -> Encoder:
        """How values are written; raises ValueError or OSError if its schema is no good."""
        from penstock.components.shared.message_values import AvroEncoder, ProtobufEncoder

        if self.format == "avro":
            from penstock.components.shared.avro_records import record_of

            text = Path(resolve_path(folder, self.schema_file or "")).read_text("utf-8")
            record_of(text)
            return AvroEncoder(text)
        from penstock.components.shared.protobuf_messages import message_type

        content = Path(resolve_path(folder, self.descriptors or "")).read_bytes()
        message_type(content, self.message or "")
        return ProtobufEncoder(content, self.message or "")

    def check_columns(self, node: str, columns: Mapping[str, str]) -> Iterator[Problem]:
        named = [*self.key, *self.headers.values()]
        named += [name for name in (self.topic_column, self.delete, self.timestamp) if name is not None]
        for column in dict.fromkeys(named):
            if column not in columns:
                hint = did_you_mean(column, columns)
                yield Problem("SINK_COLUMN_UNKNOWN", {"node": node, "column": column, "suggestion": hint})
        wanted = ((self.delete, "boolean"), (self.timestamp, "timestamp"), (self.topic_column, "string"))
        for name, kind in wanted:
            if name is not None and columns.get(name, kind) != kind:
                params = {"node": node, "component": self.name, "column": name, "type": columns[name]}
                yield Problem("SINK_TYPE_UNSUPPORTED", {**params, "advice": f"It must be a {kind}."})
        if self.format == "text" and columns.get("value") not in ("string", "binary"):
            params = {"node": node, "column": "value", "suggestion": "`format: text` sends the column `value`."}
            yield Problem("SINK_COLUMN_UNKNOWN", params)

    def open(self, context: SinkContext) -> SinkWriter:
        return _KafkaWriter(self, context)

    # --- what is sent ------------------------------------------------------------------------------------

    def messages(self, rows: DataFrame, folder: Path) -> DataFrame:
        """Topic, key, value, headers and time of each row."""
        from pyspark.sql import functions as F

        value = self._value(rows, folder)
        if self.delete is not None:
            value = F.when(~F.coalesce(_column(self.delete), F.lit(False)), value)
        headers = [_column(column).cast("string").cast("binary") for column in self.headers.values()]
        return rows.select(
            (_column(self.topic_column) if self.topic_column else F.lit(None).cast("string")).alias("topic"),
            self._key().alias("key"),
            value.alias("value"),
            (F.array(*headers) if headers else F.lit(None).cast("array<binary>")).alias("headers"),
            (F.unix_millis(_column(self.timestamp)) if self.timestamp else F.lit(None).cast("bigint")).alias("time"),
        )

    def _key(self) -> Column:
        from pyspark.sql import functions as F

        if not self.key:
            return F.lit(None).cast("binary")
        if len(self.key) == 1:
            return _column(self.key[0]).cast("string").cast("binary")
        return F.to_json(F.struct(*(_column(name) for name in self.key)), {"ignoreNullFields": "false"}).cast("binary")

    def _value(self, rows: DataFrame, folder: Path) -> Column:
        from pyspark.sql import functions as F

        apart = {self.delete, self.topic_column, *self.headers.values()} - {None} - set(self.key)
        names = [name for name in rows.columns if name not in apart]
        whole = F.struct(*(_column(name) for name in names))
        if self.format == "text":
            return F.col("value").cast("binary")
        if self.format in ("avro", "protobuf"):
            from penstock.components.shared.message_values import value_column

            return value_column(whole, self._encoder(folder))
        return F.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")


def _column(name: str | None) -> Column:
    from pyspark.sql import functions as F

    assert name is not None
    return F.col(f"`{name.replace('`', '``')}`")


@dataclass(frozen=True)
class _Position:
    """The last batch that was sent, and by which state."""

    lineage: str
    batch: int


def _told(call: Callable[[], int]) -> int:
    """What a call of the client answers; a fatal error that it meets comes as KafkaException, as all others do."""
    from confluent_kafka import KafkaException

    try:
        return call()
    except SystemError as error:
        # The client has set the exception and given a result all the same, which Python does not let pass.
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def _is_moving(error: Exception) -> bool:
    return getattr(error.args[0] if error.args else None, "name", lambda: "")() in _MOVING


class _KafkaWriter(SinkWriter):
    """A transactional producer, made anew when the broker has given it up."""

    def __init__(self, sink: Kafka, context: SinkContext) -> None:
        self.sink = sink
        self.folder = context.folder
        self.context = context
        self.group = f"penstock-{context.pipeline}-{context.node}"
        self.troubles: list[KafkaError] = []
        self.producer: Producer | None = None
        self._known_topics()
        self.consumer = self._consumer()
        self._connect()
        position = self._position()
        if position is not None and position.lineage != context.lineage and not sink.key:
            path = f"topic {sink.topic} (group {self.group})"
            raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=context.node, path=path)

    def _known_topics(self) -> None:
        """Raises if the broker cannot be reached or does not have the topic."""
        sink, node = self.sink, self.context.node
        found = topics_at(sink.bootstrap, sink.security, self.context.folder, node)
        if sink.topic not in found:
            advice = "Create it first."
            raise PenstockError.of(
                "KAFKA_TOPIC_MISSING", node=node, topic=sink.topic, bootstrap=sink.bootstrap, suggestion=advice
            )

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.sink.bootstrap,
            "error_cb": self.troubles.append,
            "logger": silent(),
            # After a restart of all brokers the client would otherwise forget them, and wait for itself.
            "metadata.recovery.strategy": "none",
            **self.sink.security.for_c(self.context.folder),
        }

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        return Consumer({**self._settings(), "group.id": self.group, "enable.auto.commit": False})

    def _connect(self) -> Producer:
        """A producer of this run; older ones of the same name are fenced out by the broker."""
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {
                **self._settings(),
                "transactional.id": self.group,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                **self.sink.options,
            }
        )
        try:
            producer.init_transactions(_SECONDS)
        except KafkaException as error:
            raise unreachable(self.context.node, self.sink.bootstrap, error, self.troubles) from None
        self.producer = producer
        return producer

    def _partition(self, batch: int = -1, lineage: str = "") -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.sink.topic, 0, batch + 1, metadata=json.dumps({"lineage": lineage}))

    def _position(self) -> _Position | None:
        from confluent_kafka import KafkaException

        def ask() -> Any:
            (found,) = self.consumer.committed([self._partition()], timeout=_SECONDS)
            return found

        try:
            found = persist(ask, _is_moving, Patience())
        except KafkaException as error:
            raise unreachable(self.context.node, self.sink.bootstrap, error, self.troubles) from None
        if found.error is not None:
            raise self._failed(None, found.error.str())
        if found.offset < 0:
            return None
        return _Position(str(json.loads(found.metadata or "{}").get("lineage")), found.offset - 1)

    def _applied(self, batch: Batch) -> bool:
        position = self._position()
        return position is not None and position.lineage == batch.lineage and position.batch >= batch.id

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        if self._applied(batch):
            return False
        messages = self.sink.messages(rows, self.folder).toArrow()
        self._persist(batch, messages.to_batches(), lambda: self._applied(batch))
        return True

    def _persist(self, batch: Batch, messages: Sequence[pa.RecordBatch], done: Callable[[], bool]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                return self._send(batch, messages)
            except _Again as again:
                if attempt == _TRIES:
                    raise self._failed(batch, str(again)) from None
                if again.anew:
                    self._connect()
                    if done():
                        return None
        raise AssertionError

    def _send(self, batch: Batch, messages: Sequence[pa.RecordBatch]) -> None:
        from confluent_kafka import KafkaException

        producer = self.producer or self._connect()
        undelivered: list[KafkaError] = []
        try:
            producer.begin_transaction()
            for part in messages:
                self._produce(producer, part, undelivered)
            if _told(lambda: producer.flush(_SECONDS)):
                # A client that has lost its way is given up: the next one fences it out.
                self.producer = None
                raise _Again("messages were not taken in time", anew=True)
            if undelivered:
                raise KafkaException(undelivered[0])
            producer.send_offsets_to_transaction(
                [self._partition(batch.id, batch.lineage)], self.consumer.consumer_group_metadata(), _SECONDS
            )
            reach("sink.in_transaction", batch.id)
            self._commit(producer)
        except KafkaException as error:
            raise self._reaction(producer, batch, error) from None
        except _Again:
            raise
        except BaseException:
            self._abort(producer)
            raise

    # --- going back ---------------------------------------------------------------------------------------

    def _last(self) -> int:
        position = self._position()
        return -1 if position is None or position.lineage != self.context.lineage else position.batch

    def position(self) -> dict[str, Any]:
        return {"batch": self._last()}

    def rewind(self, batch: int, position: Mapping[str, Any]) -> None:
        last, reason = self._last(), ""
        if last > batch:
            reason = f"the messages of batches up to {last} are sent, and cannot be taken back"
        elif last < 0 <= position.get("batch", -1):
            reason = "the broker has forgotten which messages were sent"
        if reason:
            advice = "Fork the savepoint, with another topic, or accept that readers get messages again."
            raise cannot_rewind(self.context.node, batch, reason, advice)

    def forget(self, batch: int) -> None:
        if self._last() > batch:
            reach("sink.rewinding", batch)
            note = Batch(self.context.pipeline, self.context.lineage, self.context.epoch, batch)
            self._persist(note, (), lambda: self._last() <= batch)

    # --- transactions -------------------------------------------------------------------------------------

    def _produce(self, producer: Producer, part: pa.RecordBatch, undelivered: list[KafkaError]) -> None:
        def delivered(error: KafkaError | None, message: object) -> None:
            if error is not None:
                undelivered.append(error)

        names = list(self.sink.headers)
        columns = [column.to_pylist() for column in part.columns]
        for topic, key, value, headers, time in zip(*columns, strict=True):
            more: dict[str, Any] = {} if time is None else {"timestamp": time}
            if headers is not None:
                more["headers"] = [pair for pair in zip(names, headers, strict=True) if pair[1] is not None]
            while True:
                try:
                    producer.produce(topic or self.sink.topic, value, key, on_delivery=delivered, **more)
                    break
                except BufferError:
                    _told(lambda: producer.poll(0.1))
        _told(lambda: producer.poll(0))

    def _commit(self, producer: Producer) -> None:
        """Commits; an answer that does not come is asked for again, which the client allows."""
        from confluent_kafka import KafkaException

        for attempt in range(1, _TRIES + 1):
            try:
                producer.commit_transaction(_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or attempt == _TRIES:
                    raise

    def _reaction(self, producer: Producer, batch: Batch, error: KafkaException) -> Exception:
        """What to do about a failed transaction: give up, or try again, if need be with a new producer."""
        from confluent_kafka import KafkaError

        cause: KafkaError = error.args[0]
        if cause.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
            return PenstockError.of("SINK_FENCED", node=self.context.node, newer="newer", epoch=batch.epoch)
        if cause.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC,
                            KafkaError.TOPIC_AUTHORIZATION_FAILED):  # fmt: skip
            self._abort(producer)
            return self._failed(batch, cause.str())
        if not cause.fatal() and self._abort(producer):
            return _Again(cause.str(), anew=False)
        return _Again(cause.str(), anew=True)

    def _abort(self, producer: Producer) -> bool:
        from confluent_kafka import KafkaException

        try:
            producer.purge()
            producer.abort_transaction(_SECONDS)
        except KafkaException:
            self.producer = None
            return False
        return True

    def _failed(self, batch: Batch | None, reason: str) -> PenstockError:
        advice = "See the broker's log; nothing of the batch can be seen by readers of committed messages."
        number = "?" if batch is None else batch.id
        return PenstockError.of("SINK_FAILED", node=self.context.node, batch=number, reason=reason, advice=advice)

    def close(self) -> None:
        self.consumer.close()


class _Again(Exception):
    """A transaction that failed and can be tried again."""

    def __init__(self, reason: str, *, anew: bool) -> None:
        super().__init__(reason)
        self.anew = anew
