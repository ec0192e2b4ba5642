"""Apache Avro."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.components.base import PLACE, CheckContext, Format, LookContext, ReadContext, resolve_path
from penstock.components.shared.found_files import only_allowed
from penstock.components.shared.registry_field import Registry
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from penstock.components.shared.avro_records import AvroDecoder

_HEAD = 1 << 20
"""Bytes of a file in which its schema is looked for."""


class Avro(Format):
    """Avro records: messages, or object container files.

    A message that cannot be read with the schema is malformed: it goes to the dead letters in base64, with the reason.
    With `framing: confluent` each message names the schema it was written with. That one is fetched from the registry,
    once, and the record is brought into `schema` by Avro's rules of resolution: fields are matched by name, and those
    that are new get defaults. A number that the registry does not know makes a message malformed; a registry that does
    not answer ends the batch, which comes again.

    Files carry the schema they were written with; with a schema given here, their records are brought into it by Avro's
    rules of resolution. Without one, the columns are those of a file found at the start. A file is read whole by one
    task; one that is damaged stops the pipeline.

    Records become structs, enums and UUIDs texts, and times of day microseconds. A union of null and one other type is
    that type; one of several is a struct with `member0`, `member1` and so on, of which one is set. Numbers in a union
    share a member if one holds the other. A record that contains itself has no type in Spark.
    """

    name: ClassVar[str] = "avro"
    messages: ClassVar[bool] = True
    in_python: ClassVar[bool] = True
    example: ClassVar[str] = """\
kafka: {bootstrap: "localhost:9092", topic: views}
format:
  avro:
    schema: {type: record, name: View, fields: [{name: id, type: string}, {name: ms, type: ["null", long]}]}
    framing: confluent
    registry: {url: "http://localhost:8081"}
"""

    avro_schema: dict[str, Any] | str | None = field(
        None,
        alias="schema",
        holds=Holds.TEXT,
        doc="The Avro schema of a record, as it is or as JSON text.",
        change=Change.BOOTSTRAP,
    )
    schema_file: str | None = field(
        None,
        holds=Holds.PATH,
        doc="Instead of `schema`: a file with it, relative to the pipeline file.",
        change=Change.BOOTSTRAP,
    )
    framing: Literal["none", "confluent", "single_object"] = field(
        "none",
        doc="What comes before each message: `confluent` for the five bytes of a schema registry, with the number of "
        "its writer's schema, `single_object` for Avro's own header, which must name this schema.",
    )
    registry: Registry | None = field(
        None, doc="With `framing: confluent`: where schemas are looked up by their number. Speaks Confluent's REST API."
    )
    schema_ids: tuple[int, ...] = field(
        (),
        doc="With `framing: confluent`: numbers that the registry has given to this very schema. Any other is looked "
        "up in `registry`; without one its messages are malformed.",
    )

    def check(self, context: CheckContext) -> Iterator[Problem]:
        from penstock.components.shared.avro_records import BadSchema, record_of

        yield from self._framing_problems(context.node)
        text = self._written()
        if text is None:
            return
        if self.schema_file is not None:
            params = {"where": f"`avro.schemaFile` of '{context.node}'", "reason": "the schema is given twice"}
            yield Problem("SPEC_BAD_VALUE", params, at=("schemaFile",))
            return
        try:
            record_of(text)
        except BadSchema as error:
            where = f"`avro.schema` of '{context.node}'"
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": error}, at=("schema",))

    def _framing_problems(self, node: str) -> Iterator[Problem]:
        where = f"`avro` of '{node}'"
        given = self.registry is not None or bool(self.schema_ids)
        if self.framing == "confluent" and not given:
            advice = (
                "Write `registry: {url: ...}`, so that each message is read with the schema it was written with; or "
                "`schemaIds: [...]` with the numbers the registry has given to this schema."
            )
            yield Problem("SPEC_MISSING_KEY", {"key": "registry", "where": where, "advice": advice}, at=("framing",))
        if self.framing != "confluent" and given:
            key = "registry" if self.registry is not None else "schemaIds"
            params = {"where": where, "reason": f"`{key}` goes with `framing: confluent`"}
            yield Problem("SPEC_BAD_VALUE", params, at=(key,))
        if any(not 0 <= number < 1 << 32 for number in self.schema_ids):
            params = {"where": where, "reason": "the numbers of a registry are from 0 to 4294967295"}
            yield Problem("SPEC_BAD_VALUE", params, at=("schemaIds",))
        mistake = None if self.registry is None else self.registry.mistake()
        if mistake is not None:
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": mistake}, at=("registry",))

    def look(self, context: LookContext) -> Iterator[Problem]:
        from penstock.components.shared.avro_records import BadSchema, record_of

        if self.schema_file is None:
            return
        path = Path(resolve_path(context.folder, self.schema_file))
        where = f"`avro.schemaFile` of '{context.node}'"
        if not path.is_file():
            yield Problem("PATH_NOT_FOUND", {"where": where, "path": path}, at=("schemaFile",))
            return
        try:
            record_of(path.read_text("utf-8"))
        except (BadSchema, OSError, UnicodeDecodeError) as error:
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": error}, at=("schemaFile",))

    def _text(self, folder: Path) -> str | None:
        """The schema as JSON."""
        if self.schema_file is not None:
            return Path(resolve_path(folder, self.schema_file)).read_text("utf-8")
        return self._written()

    def _written(self) -> str | None:
        """The schema that stands in the pipeline file, as JSON."""
        return json.dumps(self.avro_schema) if isinstance(self.avro_schema, dict) else self.avro_schema

    # --- messages ----------------------------------------------------------------------------------------

    def _decoder(self, context: ReadContext) -> AvroDecoder:
        from penstock.components.shared.avro_records import AvroDecoder, BadSchema, record_of
        from penstock.components.shared.schema_registry import client

        text = self._text(context.folder)
        where = f"`avro` of '{context.node}'"
        if text is None:
            advice = "Messages do not carry their schema."
            raise PenstockError.of("SPEC_MISSING_KEY", key="schema", where=where, advice=advice)
        try:
            record_of(text)
        except BadSchema as error:
            raise PenstockError.of("SPEC_BAD_VALUE", where=where, reason=error) from None
        registry = None if self.registry is None else client(self.registry)
        return AvroDecoder(text, self.framing, frozenset(self.schema_ids), registry)

    def row_names(self, context: ReadContext) -> list[str]:
        return list(self._decoder(context).schema.names)

    def decode(self, value: Column, context: ReadContext) -> Column:
        from penstock.components.shared.message_rows import row_column

        return row_column(value, self._decoder(context))

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column:
        from penstock.components.shared.message_rows import reason_column

        return reason_column(raw, self._decoder(context))

    # --- files -------------------------------------------------------------------------------------------

    def reader_schema(self, context: ReadContext, path: str) -> str:
        return "path string, modificationTime timestamp, length bigint, content binary"

    def unpack(self, found: DataFrame, context: ReadContext, path: str) -> DataFrame:
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema

        from penstock.components.shared.arrow import in_arrow
        from penstock.components.shared.avro_records import BadSchema, batches_in, record_of

        try:
            text = self._text(context.folder) or self._found(context, path)
            schema = pa.schema([*record_of(text).schema, pa.field(PLACE, pa.string())])
        except BadSchema as error:
            raise PenstockError.of("SCHEMA_NOT_INFERRED", node=context.node, reason=error) from None

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for place, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield from batches_in(place, content, text, schema)

        return in_arrow(found.select("path", "content"), rows, from_arrow_schema(schema))

    def _found(self, context: ReadContext, path: str) -> str:
        """The schema of one of the files."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        from penstock.components.shared.avro_records import schema_in

        try:
            files = only_allowed(context.spark.read.format(self.spark_format).load(path), context.node)
            first = files.select(F.substring("content", 1, _HEAD)).head()
        except PySparkException as error:
            reason = str(error.getMessage()).split("\n")[0]
            raise PenstockError.of("SCHEMA_NOT_INFERRED", node=context.node, reason=reason) from None
        if first is None:
            raise PenstockError.of("SCHEMA_NOT_INFERRED", node=context.node, reason="there is no file yet")
        return schema_in(bytes(first[0]))
