"""A key as it is written on a command line, and in which bucket and partition its state is."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.inspection.described import Described
from penstock.engine.state.buckets import labels, spark_hash
from penstock.errors import PenstockError
from penstock.kernels.columns import canonical, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NULL = "null"


def parsed_key(step: str, columns: pa.Schema, texts: Sequence[str]) -> pa.Table:
    """The key as a table of one row; raises STATE_KEY if it has other columns or other types."""
    described = ", ".join(f"{item.name} ({item.type})" for item in columns)
    if len(texts) != len(columns):
        reason = f"its key has {len(columns)} column{'' if len(columns) == 1 else 's'}, and {len(texts)} were given"
        advice = f"Give --key once for each of: {described}." if len(columns) else "Leave --key out: it has one state."
        raise PenstockError.of("STATE_KEY", step=step, reason=reason, advice=advice)
    values = []
    for item, text in zip(columns, texts, strict=True):
        try:
            values.append(pa.array([_value(item.type, text)], item.type))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
            reason = f"'{text}' is no {item.type}, which '{item.name}' is"
            raise PenstockError.of("STATE_KEY", step=step, reason=reason, advice=_advice(item.type)) from None
    return pa.table(values, schema=columns)


def _value(kind: pa.DataType, text: str) -> Any:
    if text == NULL:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str(json.loads(text)) if len(text) > 1 and text[0] == text[-1] == '"' else text
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _none(text)
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return canonical(pa.array([float(text)], kind))[0].as_py()
    if pa.types.is_decimal(kind):
        return decimal.Decimal(text)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return _instant(kind, text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            return _none(text)
    return _none(text)


def _instant(kind: pa.DataType, text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if (found.tzinfo is None) != (kind.tz is None):
        _none(text)
    return found


def _none(text: str) -> Any:
    raise ValueError(f"{text!r} is none")


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "Write for example 2024-01-01T10:00:00" + ("Z." if kind.tz is not None else ".")
    if pa.types.is_date(kind):
        return "Write for example 2024-01-01."
    if pa.types.is_binary(kind):
        return "Write its bytes in base64."
    if pa.types.is_nested(kind):
        return "Such a key cannot be written; show all rows and choose among them."
    return 'Write null for a key that is null, and "null" in quotes for that word.'


def rows_of_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    """The rows that have the key in their columns of these names; null equals null, and NaN equals NaN."""
    found = np.ones(rows.num_rows, bool)
    for name in key.schema.names:
        column, value = canonical(plain(rows.column(name))), key.column(name)[0]
        if not value.is_valid:
            same = column.is_null()
        elif pa.types.is_floating(column.type) and value.as_py() != value.as_py():
            same = pc.is_nan(column)
        else:
            same = pc.equal(column, value)
        found &= np.asarray(pc.fill_null(same, False))
    return rows.filter(pa.array(found))


def partition_of(spark: SparkSession, step: str, described: Described, key: pa.Table, buckets: int, parts: int) -> int:
    """The partition in which the state of a key is, if it is anywhere."""
    return spark_hash(labels(buckets)[bucket_of(spark, step, described, key, buckets)]) % parts


def bucket_of(spark: SparkSession, step: str, described: Described, key: pa.Table, buckets: int) -> int:
    """The bucket in which the state of a key is, if it is anywhere."""
    inside = described.key_of_kernel(key)
    try:
        bucket = described.kernel.own_bucket(inside, buckets)
    except ValueError as error:
        raise PenstockError.of("STATE_KEY", step=step, reason=error, advice="") from None
    return _bucket_of_rows(spark, inside, buckets) if bucket is None else bucket


def _bucket_of_rows(spark: SparkSession, key: pa.Table, buckets: int) -> int:
    """Where rows with the key are sent; Spark itself is asked, as it sends them."""
    from pyspark.sql import functions as F

    if not key.num_columns:
        return 0
    frame = spark.createDataFrame(key)
    hashed = F.xxhash64(*(F.col(f"`{name}`") for name in key.schema.names))
    found = frame.select(F.pmod(hashed, F.lit(buckets)).alias("bucket")).first()
    assert found is not None
    return int(found["bucket"])
