"""Rows of messages that Spark cannot read itself: decoded in Python, handed to Spark as Arrow columns.

A message that cannot be read fails nothing: its columns are null, and its bytes are kept in `RAW`.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TID253 - imported by formats only when they read

from penstock.components.base import RAW
from penstock.components.shared.malformed import BASE64
from penstock.components.shared.source_errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import Column


class Unreadable(ValueError):
    """Why a message cannot be read."""


class Decoder(ABC):
    """How messages are read. Travels to Spark's tasks."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of a row."""

    @abstractmethod
    def row(self, message: Any) -> Sequence[Any]:
        """The values of a message, by column; raises Unreadable, or whatever else a message may bring about.

        SourceError says that it cannot be decoded now: the batch ends, and comes again.
        """

    def as_text(self, message: Any) -> str:
        """What is kept of a message that cannot be read."""
        return BASE64 + base64.b64encode(message).decode()

    def from_text(self, text: str) -> Any:
        """The message of which this was kept."""
        return base64.b64decode(text.removeprefix(BASE64))


def decoded(messages: pa.Array, decoder: Decoder) -> pa.StructArray:
    """The rows of messages, each with its columns and `RAW`; a null is a row of nulls."""
    schema, nothing = decoder.schema, [None] * len(decoder.schema)
    rows, raw = list[Sequence[Any]](), list[str | None]()
    for message in messages.to_pylist():
        try:
            rows.append(nothing if message is None else decoder.row(message))
            raw.append(None)
        except SourceError:
            # It is not the message that is wrong.
            raise
        except Exception:
            rows.append(nothing)
            raw.append(decoder.as_text(message))
    columns = [[row[place] for row in rows] for place in range(len(schema))]
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # A value is outside its type: found one by one, as it is rare.
        return _one_by_one(messages, decoder)
    return pa.StructArray.from_arrays([*arrays, pa.array(raw, pa.string())], names=[*schema.names, RAW])


def _one_by_one(messages: pa.Array, decoder: Decoder) -> pa.StructArray:
    wanted = pa.struct([*decoder.schema, pa.field(RAW, pa.string())])
    found = []
    for message in messages.to_pylist():
        reason = None if message is None else why(message, decoder)
        values = [None] * len(decoder.schema) if message is None or reason else decoder.row(message)
        found.append({**dict(zip(decoder.schema.names, values, strict=True)), RAW: reason and decoder.as_text(message)})
    return pa.array(found, wanted)


def why(message: Any, decoder: Decoder) -> str | None:
    """Why a message cannot be read; None if it can."""
    try:
        row = decoder.row(message)
    except SourceError:
        raise
    except Unreadable as error:
        return str(error)
    except Exception as error:
        return f"it cannot be read: {str(error) or type(error).__name__}"
    for value, field in zip(row, decoder.schema, strict=True):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return f"column '{field.name}': a value is outside its type"
    return None


# --- on Spark ---------------------------------------------------------------------------------------------


def row_column(message: Column, decoder: Decoder) -> Column:
    """The rows of a column of messages, as structs with `RAW`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def rows(messages: pa.Array) -> pa.Array:
        return decoded(messages, decoder)

    kind = from_arrow_schema(pa.schema([*decoder.schema, pa.field(RAW, pa.string())]))
    return applied(rows, kind, message)


def reason_column(raw: Column, decoder: Decoder) -> Column:
    """Why messages could not be read, from what was kept of them."""

    def reasons(texts: pa.Array) -> pa.Array:
        found = [None if text is None else why(decoder.from_text(text), decoder) for text in texts.to_pylist()]
        return pa.array(found, pa.string())

    return applied(reasons, "string", raw)


def applied(function: Callable[[pa.Array], pa.Array], kind: Any, column: Column) -> Column:
    """What a function over Arrow gives for a column."""
    from pyspark.sql.pandas.functions import arrow_udf

    # What kind of function it is Spark tells from its types, which the types of `arrow_udf` do not know.
    made: Any = arrow_udf
    found: Column = made(function, kind)(column)
    return found
