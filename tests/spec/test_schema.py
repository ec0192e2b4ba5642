from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.strategies import schemas

from penstock.spec.schema import Column, Schema


def test_a_mapping_and_ddl_say_the_same() -> None:
    mapping = Schema.parse({"id": "string", "amount": "decimal(10, 2)", "tags": "array<text>", "at": {"x": "long"}})
    assert mapping == Schema.parse("id string, amount DECIMAL(10,2), tags array<string>, at struct<x: bigint>")
    assert mapping.columns == (
        Column("id", "string"),
        Column("amount", "decimal(10,2)"),
        Column("tags", "array<string>"),
        Column("at", "struct<`x`:bigint>"),
    )
    assert mapping.names == ("id", "amount", "tags", "at")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "at least one column"),
        ("", "at least one column"),
        ({"a": "strng"}, "Did you mean 'string'?"),
        ({"a": "int", "A": "int"}, "declared twice"),
        ({"a": 5}, "write a type name"),
        ({"a": "array<int"}, "ends too early"),
        ({"a": "decimal(40,2)"}, "precision up to 38"),
        ({"a": "int int"}, "unexpected 'int'"),
        ("a int; b int", "unexpected"),
        (["a"], "a schema is a mapping"),
    ],
)
def test_a_wrong_schema_says_why(value: object, reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        Schema.parse(value)
    assert reason in str(raised.value)


@given(schemas())
def test_a_schema_reads_back_from_its_ddl(schema: Schema) -> None:
    assert Schema.parse(schema.ddl) == schema


@given(schemas())
def test_a_schema_reads_back_from_its_mapping(schema: Schema) -> None:
    assert Schema.parse(schema.as_mapping()) == schema


@given(st.text(max_size=30))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        columns = len(Schema.parse(text).columns)
    except ValueError:
        columns = -1
    assert columns != 0
