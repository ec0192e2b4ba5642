"""Messages to a Kafka topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import (
    CheckContext,
    LookContext,
    Sink,
    SinkContext,
    SinkWriter,
    resolve_path,
)  # fmt: skip
from penstock.components.shared.kafka import (
    LONGEST_TRANSACTION,
    NUMBER,
    SLOWEST_ROWS,
    TRANSACTION_TIMEOUT,
    WORD,
    Security,
    address_problems,
    option_problems,
    topics_at,
)
from penstock.errors import Problem, did_you_mean
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.checksum import Content
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
    TRANSACTION_TIMEOUT: NUMBER,
}


class Kafka(Sink):
    """Sends each row as a message, exactly once for consumers that read committed messages only.

    All messages of a batch are one transaction, together with the number of the batch and of the run, which are kept
    as an offset of the group `penstock-PIPELINE-SINK`. A batch that comes again after a crash is not sent again. An
    older run that wakes up late is refused: by the broker, and by the number of the newer run that it finds.
    Consumers need `isolation.level=read_committed`; others also see messages of batches that failed. The number of a
    batch is forgotten with the group's offsets, which brokers keep for seven days by default
    (`offsets.retention.minutes`): a pipeline that crashed and stayed down for longer may send its last batch twice.

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

    bootstrap: str = field(
        holds=Holds.ADDRESS, doc="Addresses of brokers, as `host:port`, separated by commas.", min_length=1
    )
    topic: str = field(
        holds=Holds.NAME, doc="The topic.", pattern=r"^[A-Za-z0-9._-]{1,249}$", change=Change.LOSES_STATE
    )
    topic_column: str | None = field(
        None,
        holds=Holds.NAME,
        doc="Column that names the topic of each row; where it is null, the row goes to `topic`.",
    )
    key: tuple[str, ...] = field(
        (), holds=Holds.NAME, doc="Columns that make the message's key: of one its text, of several a JSON object."
    )
    delete: str | None = field(
        None, holds=Holds.NAME, doc="Boolean column: rows where it is true are sent without a value."
    )
    headers: dict[str, str] = field(default={}, holds=Holds.NAME, doc="Headers, by the column that holds their value.")
    timestamp: str | None = field(
        None, holds=Holds.NAME, doc="Timestamp column that becomes the message's time. Default: when it is sent."
    )
    format: Literal["json", "text", "avro", "protobuf"] = field(
        "json", doc="How values are encoded. `text` takes the one column `value`."
    )
    schema_file: str | None = field(
        None, holds=Holds.PATH, doc="With `avro`: a file with the schema of the record, relative to the pipeline file."
    )
    descriptors: str | None = field(
        None,
        holds=Holds.PATH,
        doc="With `protobuf`: a descriptor file, made by `protoc --include_imports --descriptor_set_out`.",
    )
    message: str | None = field(
        None,
        holds=Holds.NAME,
        doc="With `protobuf`: the message type, with its package.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$",
    )
    security: Security = field(Security(), doc="Encryption and login.")
    options: dict[str, str] = field(default={}, holds=Holds.TEXT, doc=f"Options of the client: {', '.join(_OPTIONS)}.")

    @property
    def accepts_updates(self) -> bool:
        return bool(self.key)

    @property
    def largest_batch(self) -> int | None:
        """As many rows as are sent before a broker ends the transaction; who sets a longer one knows better."""
        return None if TRANSACTION_TIMEOUT in self.options else LONGEST_TRANSACTION * SLOWEST_ROWS

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
        from penstock.components.shared.kafka_writer import KafkaWriter

        return KafkaWriter(self, context)

    # --- looking what is there ----------------------------------------------------------------------------

    @property
    def replaces_rows(self) -> bool:
        """Only a broker that compacts the topic takes messages away."""
        return False

    def content(self, context: SinkContext, columns: Sequence[str]) -> Content:
        from penstock.components.shared.kafka_content import content_of

        return content_of(self, context, columns)

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
