"""Lists and structs written as bytes, equal if and only if they are, for functions that only ask what is equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.columns import canonical, plain


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def written(values: pa.Array) -> pa.Array:
    """Each value as bytes; null stays null."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [_member(part) for part in values.flatten()]
        result = pc.binary_join_element_wise(*parts, b"") if parts else _repeated(b"", len(values))
    elif is_nested(kind):
        as_lists = values.cast(pa.list_(kind.value_type))
        members = _member(as_lists.flatten())
        sizes = pc.list_value_length(as_lists).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
        result = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), members), b"")
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    else:
        return canonical(plain(values)).cast(pa.string()).cast(pa.binary())
    return pc.if_else(pc.is_valid(values), result, pa.scalar(None, pa.binary()))


def _member(values: pa.Array) -> pa.Array:
    """Bytes that say where they end: their length, a colon, themselves; null is a dash."""
    inside = written(plain(values))
    length = pc.binary_length(inside).cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(length, inside, b":")
    return pc.if_else(pc.is_valid(inside), joined, pa.scalar(b"-", pa.binary()))


def _repeated(value: bytes, times: int) -> pa.Array:
    return pa.array([value]).take(pa.array(np.zeros(times, np.int64)))
