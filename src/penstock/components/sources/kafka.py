"""Messages of Kafka topics."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from penstock.components.base import PLACE, RAW, Backlog, CheckContext, LookContext, ReadContext, Source
from penstock.components.shared.kafka import (
    NUMBER,
    WORD,
    Security,
    address_problems,
    option_problems,
    reachable,
    topics_at,
)
from penstock.components.shared.spark_sql import expression
from penstock.errors import PenstockError, Problem, did_you_mean
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.kafka_stream import Settings

_TOPIC = re.compile(r"[A-Za-z0-9._\-]{1,249}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")
_OPTIONS = {
    "client.id": WORD,
    "client.rack": WORD,
    "fetch.max.bytes": NUMBER,
    "fetch.min.bytes": NUMBER,
    "fetch.wait.max.ms": NUMBER,
    "max.partition.fetch.bytes": NUMBER,
    "queued.max.messages.kbytes": NUMBER,
    "receive.message.max.bytes": NUMBER,
    "socket.receive.buffer.bytes": NUMBER,
}
_COLUMNS = {
    "key": "CAST(key AS string)",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "headers": "map_from_entries(transform(array_distinct(transform(headers, h -> h.key)), k -> struct(k AS key, "
    "CAST(element_at(filter(headers, h -> h.key = k), -1).value AS string) AS value)))",
}
"""What can be had of a message beside its value, as Spark expressions. Of several headers with one name the last."""
Part = Literal["key", "topic", "partition", "offset", "timestamp", "headers"]


class Kafka(Source):
    """Reads messages of one or several topics, each once, in order within a partition.

    The position is kept in the checkpoint, not with the broker. New partitions, and new topics that match
    `topicPattern`, are read from their beginning. Only committed messages of transactions are read. A message that
    cannot be read goes to the dead letters with its topic, partition and offset; one that is not text is kept there
    in base64.
    """

    name: ClassVar[str] = "kafka"
    reads_ranges: ClassVar[bool] = True
    takes_format: ClassVar[bool] = True
    takes_messages: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True
    batch_limit = "max_rows_per_batch"
    example: ClassVar[str] = """\
kafka: {bootstrap: "localhost:9092", topic: views, startingOffsets: earliest, columns: {user: key}}
format: {json: {schema: {id: string, ts: timestamp}}}
eventTime: {column: ts, maxDelay: 10 seconds}
"""

    bootstrap: str = field(
        holds=Holds.ADDRESS, doc="Addresses of brokers, as `host:port`, separated by commas.", min_length=1
    )
    topic: str | tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="The topic, or a list of topics.", change=Change.BOOTSTRAP
    )
    topic_pattern: str | None = field(
        None,
        holds=Holds.NAME,
        doc="Instead of `topic`: a regular expression for the names of topics.",
        change=Change.BOOTSTRAP,
        max_length=1000,
    )
    starting_offsets: str = field(
        "latest",
        holds=Holds.TEXT,
        doc="Where the first run starts: `earliest`, `latest`, a time such as `2024-01-01T00:00:00Z`, or offsets as "
        'JSON, `{"views": {"0": 17}}`.',
        change=Change.BOOTSTRAP,
    )
    max_rows_per_batch: int | None = field(500_000, ge=1, doc="The most messages one batch reads.")
    columns: dict[str, Part] = field(
        default={},
        holds=Holds.NAME,
        doc="Further columns, by what they hold of the message: key, topic, partition, offset, timestamp or headers.",
        change=Change.BOOTSTRAP,
    )
    on_data_loss: Literal["stop", "skip"] = field(
        "stop",
        doc="What to do when messages that were not read yet are gone, because the broker kept them too short a time "
        "or the topic was made anew: stop, or go on with what there is.",
    )
    security: Security = field(Security(), doc="Encryption and login.")
    options: dict[str, str] = field(default={}, holds=Holds.TEXT, doc=f"Options of the client: {', '.join(_OPTIONS)}.")

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,) if isinstance(self.topic, str) else self.topic

    # --- before a run ------------------------------------------------------------------------------------

    def check(self, context: CheckContext) -> Iterator[Problem]:
        yield from address_problems(self.bootstrap)
        yield from self._topic_problems(context.node)
        yield from self._offset_problems(context.node)
        yield from self.security.problems()
        yield from option_problems(self.options, _OPTIONS)

    def look(self, context: LookContext) -> Iterator[Problem]:
        missing = list(self.security.missing_files(context.folder))
        yield from missing or self._missing_topics(context)

    def _topic_problems(self, node: str) -> Iterator[Problem]:
        where = f"kafka of '{node}'"
        if bool(self.topics) == (self.topic_pattern is not None):
            advice = "Name a `topic`, or give a `topicPattern`."
            yield Problem("SPEC_MISSING_KEY", {"key": "topic", "where": where, "advice": advice})
        for topic in self.topics:
            if not _TOPIC.fullmatch(topic):
                yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": f"'{topic}' is no name of a topic"},
                              at=("topic",))  # fmt: skip
        if self.topic_pattern is not None:
            try:
                re.compile(self.topic_pattern)
            except (re.error, OverflowError, RecursionError) as error:
                yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": f"topicPattern: {error}"},
                              at=("topicPattern",))  # fmt: skip

    def _offset_problems(self, node: str) -> Iterator[Problem]:
        try:
            self._start()
        except ValueError as error:
            yield Problem("SPEC_BAD_VALUE", {"where": f"kafka of '{node}'", "reason": f"startingOffsets: {error}"},
                          at=("startingOffsets",))  # fmt: skip

    def _missing_topics(self, context: LookContext) -> Iterator[Problem]:
        found = topics_at(self.bootstrap, self.security, context.folder, context.node)
        if self.topic_pattern is not None:
            if not any(re.fullmatch(self.topic_pattern, name) for name in found):
                params = {"node": context.node, "topic": self.topic_pattern, "bootstrap": self.bootstrap}
                yield Problem("KAFKA_TOPIC_MISSING", {**params, "suggestion": "No topic matches yet."},
                              at=("topicPattern",))  # fmt: skip
            return
        for topic in self.topics:
            if topic not in found:
                visible = [name for name in found if not name.startswith("__")]
                params = {"node": context.node, "topic": topic, "bootstrap": self.bootstrap}
                yield Problem("KAFKA_TOPIC_MISSING", {**params, "suggestion": did_you_mean(topic, visible)},
                              at=("topic",))  # fmt: skip

    # --- reading -----------------------------------------------------------------------------------------

    def read(self, context: ReadContext) -> DataFrame:
        from penstock.components.shared.kafka_stream import FORMAT, SETTINGS, KafkaTopics

        context.spark.dataSource.register(KafkaTopics)
        reader = context.spark.readStream.name(context.stream).format(FORMAT)
        return self._rows(reader.option(SETTINGS, self._settings(context).to_json()).load(), context)

    def read_all(self, context: ReadContext) -> DataFrame:
        """The messages from where it starts up to those that are there now."""
        from penstock.components.shared.kafka_stream import FORMAT, SETTINGS, KafkaTopics

        context.spark.dataSource.register(KafkaTopics)
        reader = context.spark.read.format(FORMAT)
        return self._rows(reader.option(SETTINGS, self._settings(context).to_json()).load(), context)

    def written_since(self, time: dt.datetime | None) -> Self:
        start = "earliest" if time is None else time.astimezone(dt.UTC).isoformat()
        return self.model_copy(update={"starting_offsets": start})

    def _rows(self, messages: DataFrame, context: ReadContext) -> DataFrame:
        from pyspark.sql import functions as F

        if context.format is None:
            raise PenstockError.of("FORMAT_MISSING", name=context.node, component=self.name)
        names = context.format.row_names(context)
        taken = [name for name in self.columns if name in names]
        if taken:
            raise PenstockError.of("COLUMN_REPEATED", node=context.node, column=taken[0])
        row = context.format.decode(F.col("value"), context)
        place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
        further = [expression(_COLUMNS[part]).alias(name) for name, part in self.columns.items()]
        decoded = messages.select(row.alias("_row"), place.alias(PLACE), *further)
        return decoded.select(*(F.col("_row")[name].alias(name) for name in (*names, RAW)), *self.columns, PLACE)

    def _settings(self, context: ReadContext) -> Settings:
        from penstock.components.shared.kafka_stream import Settings

        wanted = {"value", "topic", "partition", "offset", *self.columns.values()}
        client = {"bootstrap.servers": reachable(self.bootstrap), **self.options, **self.security.for_c(context.folder)}
        return Settings(
            # After a restart of all brokers the client would otherwise forget them.
            {**client, "log_level": 0, "metadata.recovery.strategy": "none"},
            self.topics,
            self.topic_pattern,
            self._start(),
            self.max_rows_per_batch,
            self.on_data_loss == "skip",
            tuple(sorted(wanted)),
        )

    def _start(self) -> str:
        """The first position as the reader takes it; raises ValueError for what is none."""
        text = self.starting_offsets.strip()
        if text in ("earliest", "latest"):
            return text
        if _TIME.fullmatch(text):
            return str(int(dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000))
        if text.startswith("{"):
            return json.dumps(_by_partition(text))
        raise ValueError(f"'{text}' is neither earliest, latest, a time with its zone, nor JSON")

    def explain_malformed(self, context: ReadContext) -> Column | None:
        from pyspark.sql import functions as F

        return None if context.format is None else context.format.explain_malformed(F.col(RAW), context)

    def backlog(self, context: ReadContext, progress: Mapping[str, object]) -> Backlog | None:
        """Messages between the end of the last batch and the end of the topics."""
        return _behind(progress)


def _by_partition(text: str) -> dict[str, dict[str, int]]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not all(
            number.isdigit() and isinstance(offset, int) and offset >= -2 for number, offset in partitions.items()
        ):
            raise ValueError(f"offsets of '{topic}' must be numbers by partition")
    return dict(found)


def _behind(progress: Mapping[str, object]) -> Backlog | None:
    """How many messages lie between the end of the batch and the end of the topics."""
    latest, end = progress.get("latestOffset"), progress.get("endOffset")
    if not isinstance(latest, Mapping) or not isinstance(end, Mapping):
        return None
    waiting = sum(
        int(offset) - int(end["at"].get(topic, {}).get(number, 0))
        for topic, partitions in latest["at"].items()
        for number, offset in partitions.items()
    )
    return Backlog(max(waiting, 0), "messages")
