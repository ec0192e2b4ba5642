"""Sends batches to Kafka: each is one transaction, which also notes its number and the run that sent it.

The broker lets only the last producer that has taken the transactional name go on, whichever run that is. So a run
looks before it takes the name, and after it: which run is newest stands in the note of the last transaction, and in the
lock of the state folder. One that was overtaken stops there, and one from which such a run has taken the name takes it
back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.components.base import Batch, Noted, SinkContext, SinkWriter, cannot_rewind, is_behind
from penstock.components.shared.crashpoints import reach
from penstock.components.shared.kafka import (
    LONGEST_TRANSACTION,
    SLOWEST_ROWS,
    TRANSACTION_TIMEOUT,
    reachable,
    silent,
    topics_at,
    unreachable,
)
from penstock.components.shared.retry import Patience, persist
from penstock.components.shared.row_spool import spooled
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from pyspark.sql import DataFrame

    from penstock.components.sinks.kafka import Kafka

_TRIES = 5
_SECONDS = 60.0
_LARGER = (
    "A row makes a larger message than is allowed: set the option `message.max.bytes` here and that of the topic, or "
    "leave such rows out by a `filter`. The batch is sent once it fits."
)
_MOVING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
"""What a broker says of a group while another one takes it over, or after it was started."""


@dataclass(frozen=True)
class _Position:
    """The last batch that was sent, and by which state and run."""

    lineage: str
    batch: int
    epoch: int = 0


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


class KafkaWriter(SinkWriter):
    """A transactional producer, replaced when the broker has given it up."""

    def __init__(self, sink: Kafka, context: SinkContext) -> None:
        self.sink = sink
        self.folder = context.folder
        self.context = context
        self.node = context.node
        self.group = f"penstock-{context.pipeline}-{context.node}"
        self.troubles: list[KafkaError] = []
        self.producer: Producer | None = None
        self._timeout = int(_SECONDS)
        self._known_topics()
        self.consumer = self._consumer()
        try:
            self._take_over()
        except BaseException:
            self.close()
            raise

    # --- whose it is --------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Refuses to send what other state has sent, then fences out older runs of this state."""
        found = self._position()
        if found is not None and found.lineage != self.context.lineage:
            if found.batch >= 0 and not self.sink.key:
                path = f"topic {self.sink.topic} (group {self.group})"
                raise PenstockError.of("SINK_OF_ANOTHER_RUN", node=self.node, path=path)
            found = _Position(self.context.lineage, -1)
        self._refuse_newer(found)
        self._connect()
        if found is not None:
            self._note(found.batch, self._is_noted)

    def _is_noted(self) -> bool:
        found = self._position()
        self._refuse_newer(found)
        return found is not None and (found.lineage, found.epoch) == (self.context.lineage, self.context.epoch)

    def _refuse_newer(self, found: _Position | None) -> None:
        """Raises if a newer run has begun, as far as the state folder or the broker tells."""
        self.context.refuse_overtaken()
        if found is not None and found.lineage == self.context.lineage and found.epoch > self.context.epoch:
            raise self._fenced(found.epoch)

    def _fenced(self, newer: int | str) -> PenstockError:
        return PenstockError.of("SINK_FENCED", node=self.node, newer=newer, epoch=self.context.epoch)

    def _reconnect(self) -> None:
        """Takes the transactional name again; not from a newer run."""
        self._refuse_newer(self._position())
        self._connect()

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
            "bootstrap.servers": reachable(self.sink.bootstrap),
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
                TRANSACTION_TIMEOUT: self._timeout * 1000,
                "linger.ms": 20,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 65_536,
                **self.sink.options,
            }
        )
        try:
            producer.init_transactions(_SECONDS)
        except KafkaException as error:
            raise unreachable(self.context.node, self.sink.bootstrap, error, self.troubles) from None
        self.producer = producer
        return producer

    def _partition(self, batch: int = -1) -> Any:
        from confluent_kafka import TopicPartition

        whose = {"lineage": self.context.lineage, "epoch": self.context.epoch}
        return TopicPartition(self.sink.topic, 0, batch + 1, metadata=json.dumps(whose))

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
        whose = json.loads(found.metadata or "{}")
        return _Position(str(whose.get("lineage")), found.offset - 1, int(whose.get("epoch", 0)))

    # --- batches ------------------------------------------------------------------------------------------

    def last_batch(self) -> int | None:
        """None if the broker has forgotten it, as it does after some days without a batch."""
        found = self._position()
        return None if found is None or found.lineage != self.context.lineage else found.batch

    def expect(self, noted: Noted) -> None:
        for partition, last in noted.ends.items():
            end = self._end(int(partition))
            if end <= last:
                reason = f"partition {partition} of topic {self.sink.topic} ends at {end}, and message {last} was sent"
                raise is_behind(self.node, noted.batch, noted.batch, reason)
        self.ends = noted.ends
        super().expect(noted)

    def _end(self, partition: int) -> int:
        """Where a partition ends now; 0 if it is not there."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        def ask() -> int:
            _, end = self.consumer.get_watermark_offsets(TopicPartition(self.sink.topic, partition), timeout=_SECONDS)
            return int(end)

        try:
            return persist(ask, _is_moving, Patience())
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
                return 0
            raise unreachable(self.node, self.sink.bootstrap, error, self.troubles) from None

    def _applied(self, batch: Batch) -> bool:
        position = self._position()
        self._refuse_newer(position)
        if position is None or position.lineage != batch.lineage:
            return False
        if position.batch < batch.id:
            self.refuse_behind(position.batch)
            return False
        self.noted = position.batch
        return True

    def write(self, batch: Batch, rows: DataFrame) -> bool:
        if self._applied(batch):
            return False
        with spooled(self.sink.messages(rows, self.folder), self.context.spool) as spool:
            self._allow_time(spool.rows)
            self._persist(batch.id, spool.batches, lambda: self._applied(batch))
        self.noted = batch.id
        return True

    def as_table(self, rows: DataFrame) -> DataFrame:
        return self.sink.messages(rows, self.folder)

    def write_table(self, batch: Batch, rows: pa.Table) -> bool:
        if self._applied(batch):
            return False
        self._allow_time(rows.num_rows)
        self._persist(batch.id, rows.to_batches, lambda: self._applied(batch))
        self.noted = batch.id
        return True

    def _allow_time(self, rows: int) -> None:
        """Lets the broker wait for a large batch, unless the pipeline says how long it is to wait."""
        needed = min(int(_SECONDS) + rows // SLOWEST_ROWS, LONGEST_TRANSACTION)
        if needed > 2 * self._timeout and TRANSACTION_TIMEOUT not in self.sink.options:
            self._timeout = needed
            self._reconnect()

    def _note(self, batch: int, done: Callable[[], bool]) -> None:
        """Notes a batch as the last one, in a transaction without messages."""
        self._persist(batch, lambda: (), done, crash_point=None)

    def _persist(
        self,
        batch: int,
        messages: Callable[[], Iterable[pa.RecordBatch]],
        done: Callable[[], bool],
        crash_point: str | None = "sink.in_transaction",
    ) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                return self._send(batch, messages(), crash_point)
            except _Again as again:
                if attempt == _TRIES:
                    raise self._failed(batch, str(again)) from None
                if again.anew:
                    self._reconnect()
                    if done():
                        return None
        raise AssertionError

    def _send(self, batch: int, messages: Iterable[pa.RecordBatch], crash_point: str | None) -> None:
        from confluent_kafka import KafkaException

        if self.producer is None:
            self._reconnect()
        producer = self.producer
        assert producer is not None
        undelivered: list[KafkaError] = []
        ends: dict[int, int] = {}
        try:
            producer.begin_transaction()
            for part in messages:
                self._produce(producer, part, undelivered, ends)
            if _told(lambda: producer.flush(_SECONDS)):
                # A client that has lost its way is given up: the next one fences it out.
                self.producer = None
                raise _Again("messages were not taken in time", anew=True)
            if undelivered:
                raise KafkaException(undelivered[0])
            producer.send_offsets_to_transaction(
                [self._partition(batch)], self.consumer.consumer_group_metadata(), _SECONDS
            )
            if crash_point is not None:
                reach(crash_point, batch)
            self._commit(producer)
        except KafkaException as error:
            raise self._reaction(producer, batch, error) from None
        except _Again:
            raise
        except BaseException:
            self._abort(producer)
            raise
        self.ends = {**self.ends, **{str(partition): offset for partition, offset in ends.items()}}

    # --- going back ---------------------------------------------------------------------------------------

    def _last(self) -> int:
        position = self._position()
        self._refuse_newer(position)
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
            self._note(batch, lambda: self._last() <= batch)
        self.noted = None

    # --- transactions -------------------------------------------------------------------------------------

    def _produce(
        self, producer: Producer, part: pa.RecordBatch, undelivered: list[KafkaError], ends: dict[int, int]
    ) -> None:
        own, several = self.sink.topic, self.sink.topic_column is not None

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                undelivered.append(error)
            elif not several or message.topic() == own:
                ends[message.partition() or 0] = message.offset() or 0

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

    def _reaction(self, producer: Producer, batch: int, error: KafkaException) -> Exception:
        """What to do about a failed transaction: give up, or try again, if need be with a new producer."""
        from confluent_kafka import KafkaError

        cause: KafkaError = error.args[0]
        if cause.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
            # By a newer run; or by an older one that has not noticed that it was overtaken, or by the broker after a
            # transaction that took too long: then the name is this run's to take again.
            self.producer = None
            try:
                found = self._position()
                self._refuse_newer(found)
            except PenstockError as refusal:
                return refusal
            if found is not None and found.lineage != self.context.lineage:
                return self._fenced("of another state")
            return _Again(cause.str(), anew=True)
        if cause.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC,
                            KafkaError.TOPIC_AUTHORIZATION_FAILED):  # fmt: skip
            self._abort(producer)
            return self._failed(batch, cause.str(), _LARGER if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE else "")
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

    def _failed(self, batch: int | None, reason: str, what_to_do: str = "") -> PenstockError:
        advice = what_to_do or "See the broker's log."
        advice = f"{advice} Nothing of the batch can be seen by readers of committed messages."
        number = "?" if batch is None else batch
        return PenstockError.of("SINK_FAILED", node=self.context.node, batch=number, reason=reason, advice=advice)

    def close(self) -> None:
        self.consumer.close()


class _Again(Exception):
    """A transaction that failed and can be tried again."""

    def __init__(self, reason: str, *, anew: bool) -> None:
        super().__init__(reason)
        self.anew = anew
