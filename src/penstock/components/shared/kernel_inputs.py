"""What steps with a kernel have in common: keys, event time, and Arrow schemas of their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.components.base import StepContext
from penstock.components.shared.event_time import micros_of
from penstock.errors import PenstockError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

REPLAYED = "_replayed"
"""Marks rows that were late once and are fed again."""


def only(inputs: Mapping[str, DataFrame]) -> DataFrame:
    (frame,) = inputs.values()
    return frame


def need_columns(frame: DataFrame, node: str, columns: Iterable[str], at: tuple[str, ...] = ()) -> None:
    """Raises if a column is not there; `at` is the key that names it."""
    for column in columns:
        if column not in frame.columns:
            suggestion = did_you_mean(column, frame.columns)
            raise PenstockError.of("COLUMN_UNKNOWN", at=at, node=node, column=column, suggestion=suggestion)


def time_column(frame: DataFrame, context: StepContext, name: str) -> Column:
    """The event time of an input for a kernel; raises if a step before has lost it."""
    from penstock.kernels.base import TIME

    column = context.times.get(name)
    if column is None:
        raise PenstockError.of("EVENT_TIME_LOST", node=context.node, input=name)
    return micros_of(frame, column).alias(TIME)


def key_column(frame: DataFrame, name: str) -> Column:
    """A key as it is compared: the two zeros of floating point are one."""
    from pyspark.sql import functions as F

    column = F.col(f"`{name}`")
    if is_floating(frame, name):
        return (column + F.lit(0.0)).cast(frame.schema[name].dataType).alias(name)
    return column.alias(name)


def is_floating(frame: DataFrame, name: str) -> bool:
    from pyspark.sql.types import DoubleType, FloatType

    return isinstance(frame.schema[name].dataType, FloatType | DoubleType)


def floating_keys(frame: DataFrame, by: tuple[str, ...]) -> tuple[tuple[str, ...], list[Column]]:
    """The names of key columns for a kernel that has all columns, and those it needs beside them."""
    changed = [name for name in by if is_floating(frame, name)]
    keys = tuple(f"_key_{name}" if name in changed else name for name in by)
    return keys, [key_column(frame, name).alias(f"_key_{name}") for name in changed]


def key_labels(by: Iterable[str], keys: Iterable[str]) -> dict[str, str | None]:
    """What key columns of a kernel are called by people."""
    return {key: name for name, key in zip(by, keys, strict=True) if name != key}


def refuse_floating(frame: DataFrame, node: str, columns: Iterable[str]) -> None:
    """Raises if a key is a floating-point number, which is not the same for all who compute it."""
    for column in columns:
        if is_floating(frame, column):
            found = frame.schema[column].dataType.simpleString()
            raise PenstockError.of("COLUMN_TYPE", node=node, column=column, found=found, wanted="a type with equality")


def need_type(frame: DataFrame, node: str, column: str, wanted: str) -> None:
    """Raises if a column is not of the type a step needs."""
    found = frame.schema[column].dataType.simpleString()
    if found != wanted:
        raise PenstockError.of("COLUMN_TYPE", node=node, column=column, found=found, wanted=wanted)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as Arrow hands them to kernels."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([pa.field(field.name, field.type) for field in found])
