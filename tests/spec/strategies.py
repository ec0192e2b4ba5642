"""Random parts of pipelines."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.spec.conditions import HEALTH, MEASURES, Condition, Quantity
from penstock.spec.schema import Schema, quote
from penstock.spec.units import Duration

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
words = st.text(
    st.characters(
        codec="utf-8", categories=("L", "N", "P", "S", "Zs"), include_characters="\n\t", exclude_characters="$"
    ),
    min_size=1,
    max_size=20,
)
durations = st.integers(min_value=0, max_value=10**12).map(Duration)
times = st.integers(min_value=1, max_value=10**12).map(Duration)
"""Durations but none of no length at all."""
column_names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=8)

_simple = st.sampled_from(["string", "int", "bigint", "double", "timestamp", "boolean", "decimal(12,3)", "date"])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(column_names, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    structs = members.map(lambda pairs: "struct<" + ",".join(f"{quote(name)}:{kind}" for name, kind in pairs) + ">")
    return st.one_of(inner.map("array<{}>".format), inner.map("map<string,{}>".format), structs)


types = st.recursive(_simple, _nested, max_leaves=4)


def schemas() -> st.SearchStrategy[Schema]:
    columns = st.lists(st.tuples(column_names, types), min_size=1, max_size=4, unique_by=lambda pair: pair[0].lower())
    return columns.map(lambda pairs: Schema.parse(dict(pairs)))


_scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), words
)
rows = st.lists(st.dictionaries(names, st.one_of(_scalars, st.lists(_scalars, max_size=2)), max_size=3), max_size=2)

_thresholds: dict[Quantity, st.SearchStrategy[Any]] = {
    Quantity.DURATION: st.integers(0, 10**12).map(lambda millis: millis / 1000),
    Quantity.SIZE: st.integers(0, 2**50).map(float),
    Quantity.COUNT: st.integers(0, 10**12).map(float) | st.floats(0, 10**6),
    Quantity.SHARE: st.floats(0, 1),
    Quantity.HEALTH: st.sampled_from(HEALTH),
}


@st.composite
def conditions(draw: st.DrawFn, sources: st.SearchStrategy[str] = names) -> Condition:
    """Conditions on the whole pipeline, or on one of these sources."""
    measure = draw(st.sampled_from(sorted(MEASURES.values(), key=lambda measure: measure.name)))
    signs = ["==", "!="] if measure.quantity is Quantity.HEALTH else [">", ">=", "<", "<=", "==", "!="]
    node = draw(st.none() | sources) if measure.of == "source" else None
    return Condition(measure.name, draw(st.sampled_from(signs)), draw(_thresholds[measure.quantity]), node)
