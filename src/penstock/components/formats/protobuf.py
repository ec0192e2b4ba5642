"""Protocol Buffers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.components.base import Format, LookContext, ReadContext, resolve_path
from penstock.errors import PenstockError, Problem
from penstock.spec.fields import Change, Holds, field

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.components.shared.protobuf_messages import ProtobufDecoder


class Protobuf(Format):
    """Protocol Buffers messages of one type.

    A message that cannot be read is malformed: it goes to the dead letters in base64, with the reason. Fields that the
    type does not have are ignored, so a message of another type may be read as one without fields.

    A field that is not set is null where messages can tell, else it has its default. Messages become structs, enums
    texts; a `Timestamp` is a timestamp, a `Duration` microseconds, a wrapper such as `StringValue` its value, a message
    without fields true. `Struct`, `Value` and messages that contain themselves come as JSON texts.
    """

    name: ClassVar[str] = "protobuf"
    files: ClassVar[bool] = False
    messages: ClassVar[bool] = True
    in_python: ClassVar[bool] = True
    example: ClassVar[str] = """\
kafka: {bootstrap: "localhost:9092", topic: views}
format: {protobuf: {descriptors: ./views.desc, message: shop.View}}
"""

    descriptors: str = field(
        holds=Holds.PATH,
        doc="Descriptor file, relative to the pipeline file, made by `protoc --include_imports --descriptor_set_out`.",
        change=Change.BOOTSTRAP, min_length=1,
    )  # fmt: skip
    message: str = field(
        holds=Holds.NAME,
        doc="The message type, with its package.",
        change=Change.BOOTSTRAP,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$",
    )
    framing: Literal["none", "confluent"] = field(
        "none",
        doc="What comes before each message: `confluent` for the header of a schema registry, whose number is not "
        "looked up.",
    )

    def look(self, context: LookContext) -> Iterator[Problem]:
        from penstock.components.shared.protobuf_messages import BadDescriptors, message_type

        path = Path(resolve_path(context.folder, self.descriptors))
        where = f"`protobuf.descriptors` of '{context.node}'"
        if not path.is_file():
            yield Problem("PATH_NOT_FOUND", {"where": where, "path": path}, at=("descriptors",))
            return
        try:
            message_type(path.read_bytes(), self.message)
        except (BadDescriptors, OSError) as error:
            yield Problem("SPEC_BAD_VALUE", {"where": where, "reason": error}, at=("descriptors",))

    def _decoder(self, context: ReadContext) -> ProtobufDecoder:
        from penstock.components.shared.protobuf_messages import BadDescriptors, ProtobufDecoder, message_type

        try:
            content = Path(resolve_path(context.folder, self.descriptors)).read_bytes()
            message_type(content, self.message)
        except (BadDescriptors, OSError) as error:
            where = f"`protobuf.descriptors` of '{context.node}'"
            raise PenstockError.of("SPEC_BAD_VALUE", where=where, reason=error) from None
        return ProtobufDecoder(content, self.message, self.framing)

    def row_names(self, context: ReadContext) -> list[str]:
        return list(self._decoder(context).schema.names)

    def decode(self, value: Column, context: ReadContext) -> Column:
        from penstock.components.shared.message_rows import row_column

        return row_column(value, self._decoder(context))

    def explain_malformed(self, raw: Column, context: ReadContext) -> Column:
        from penstock.components.shared.message_rows import reason_column

        return reason_column(raw, self._decoder(context))
