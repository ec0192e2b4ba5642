"""What joins have in common: which input is which, the columns that must be equal, and names of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def on_pairs(on: tuple[str, ...] | Mapping[str, str]) -> dict[str, str]:
    """The columns that must be equal, those of the first by those of the second."""
    return dict(on) if isinstance(on, Mapping) else {name: name for name in on}


def two_sides(inputs: Mapping[str, DataFrame], other: str, node: str) -> tuple[str, str]:
    """The names of the first and the second input."""
    firsts = [name for name in inputs if name != other]
    if not firsts:
        reason, advice = "it joins rows with themselves", "Add a step that passes the rows on, and name that."
        raise PenstockError.of("OPERATORS_UNSUPPORTED", node=node, reason=reason, advice=advice)
    return firsts[0], other


def right_names(
    left: DataFrame, right: DataFrame, pairs: Mapping[str, str], prefix: str, node: str, left_out: str | None = None
) -> dict[str, str]:
    """The second's columns in the result; keys that have the same name in both are there already."""
    same = {there for here, there in pairs.items() if here == there}
    names = {name: prefix + name for name in right.columns if name not in same and name != left_out}
    for new in names.values():
        if new in left.columns:
            raise PenstockError.of("JOIN_COLUMN_TAKEN", node=node, column=new)
    return names


def same_types(left: DataFrame, right: DataFrame, pairs: Mapping[str, str], node: str) -> None:
    """Raises if columns that must be equal cannot be compared as they are."""
    for here, there in pairs.items():
        one, other = (frame.schema[name].dataType.simpleString() for frame, name in ((left, here), (right, there)))
        if one != other:
            raise PenstockError.of(
                "JOIN_TYPES_DIFFER", node=node, left=here, left_type=one, right=there, right_type=other
            )
