"""Keys as they are written, rows that have them, and rows as files and texts. Without Spark."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.inspection.keys import parsed_key, rows_of_key
from penstock.engine.inspection.writing import limited, plain, to_text, written_to
from penstock.errors import PenstockError

UTC = pa.timestamp("us", "UTC")
NAIVE = dt.datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a time without a zone is meant


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "ann", "ann"), (pa.string(), "null", None), (pa.string(), '"null"', "null"),
        (pa.string(), '"', '"'), (pa.string(), "", ""), (pa.int32(), "-7", -7), (pa.bool_(), "TRUE", True),
        (pa.float64(), "-0.0", 0.0), (pa.decimal128(10, 2), "1.50", Decimal("1.50")),
        (pa.date32(), "2024-01-02", dt.date(2024, 1, 2)), (pa.binary(), "AP8=", b"\x00\xff"),
        (UTC, "2024-01-02T03:04:05+01:00", dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=dt.UTC)),
        (pa.timestamp("us"), "2024-01-02T03:04:05", NAIVE),
    ],
)  # fmt: skip
def test_a_key_is_read_by_its_type(kind: pa.DataType, text: str, value: Any) -> None:
    found = parsed_key("step", pa.schema([("k", kind)]), [text]).column("k")[0].as_py()
    assert found == value
    assert not isinstance(found, float) or math.copysign(1, found) == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "300"), (pa.int64(), "ann"), (pa.int64(), "1.5"), (pa.bool_(), "yes"), (UTC, "2024-01-02T03:04:05"),
        (pa.timestamp("us"), "2024-01-02T03:04:05Z"), (pa.date32(), "tomorrow"), (pa.binary(), "?"),
        (pa.decimal128(4, 2), "12345.5"), (pa.list_(pa.int64()), "[1]"),
    ],
)  # fmt: skip
def test_what_is_of_another_type_is_told(kind: pa.DataType, text: str) -> None:
    with pytest.raises(PenstockError) as error:
        parsed_key("step", pa.schema([("k", kind)]), [text])
    assert error.value.code == "STATE_KEY"
    assert error.value.problems[0].message.endswith(f"'{text}' is no {kind}, which 'k' is")


def test_a_step_without_a_key_has_none_to_be_asked_for() -> None:
    with pytest.raises(PenstockError, match="its key has 0 columns, and 1 were given"):
        parsed_key("step", pa.schema([]), ["x"])


@given(
    st.lists(st.tuples(st.sampled_from([None, 0.0, -0.0, 1.5, math.nan]), st.sampled_from([None, "a", "b"]))),
    st.sampled_from([None, 0.0, 1.5, math.nan]),
    st.sampled_from([None, "a"]),
)
def test_rows_of_a_key_are_those_that_equal_it(rows: list[Any], number: float | None, word: str | None) -> None:
    schema = pa.schema([("n", pa.float64()), ("w", pa.string())])
    table = pa.Table.from_pylist([{"n": n, "w": w} for n, w in rows], schema)
    key = pa.Table.from_pylist([{"n": number, "w": word}], schema)

    def same(one: Any, other: Any) -> bool:
        return one == other or (isinstance(one, float) and isinstance(other, float) and one != one and other != other)

    wanted = [row for row in rows if same(row[0], number) and same(row[1], word)]
    assert rows_of_key(table, key).num_rows == len(wanted)


ROWS = pa.table(
    {
        "text": pa.array(["a,b", 'say "x"', "", None]),
        "price": pa.array([Decimal("1.50"), None, Decimal("2.00"), None], pa.decimal128(10, 2)),
        "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None, None, None], UTC),
        "list": pa.array([[1, 2], None, [], None], pa.list_(pa.int64())),
        "x": pa.array([1.5, math.nan, math.inf, None]),
    }
)


def test_texts_tell_null_from_nothing() -> None:
    text = io.StringIO()
    to_text(text, "csv", ROWS.schema).write(ROWS)
    assert text.getvalue().splitlines() == [
        "text,price,at,list,x",
        '"a,b",1.50,2024-01-01T00:00:00Z,"[1, 2]",1.5',
        '"say ""x""",,,,nan',
        '"",2.00,,[],inf',
        ",,,,",
    ]
    text = io.StringIO()
    to_text(text, "json", ROWS.schema).write(ROWS)
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    assert lines[0] == {"text": "a,b", "price": "1.50", "at": "2024-01-01T00:00:00Z", "list": [1, 2], "x": 1.5}
    assert lines[3] == dict.fromkeys(ROWS.schema.names)
    assert plain({"b": b"\x00", "d": dt.date(2024, 1, 1), "n": NAIVE}) == {
        "b": "AA==", "d": "2024-01-01", "n": "2024-01-02T03:04:05",
    }  # fmt: skip


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    with written_to(file, "parquet", ROWS.schema) as writer:
        for part in limited([ROWS, ROWS], 6):
            writer.write(part)
    found = pa.parquet.read_table(file)
    assert found.schema.equals(ROWS.schema)
    assert found.column("text").to_pylist() == ["a,b", 'say "x"', "", None, "a,b", 'say "x"']

    def dying() -> None:
        with written_to(tmp_path / "rows.csv", "csv", ROWS.schema) as writer:
            writer.write(ROWS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        dying()
    assert [item.name for item in tmp_path.iterdir()] == ["rows.parquet"]


def test_reading_ends_when_there_are_enough_rows() -> None:
    asked = []

    def tables() -> Any:
        for number in range(5):
            asked.append(number)
            yield ROWS

    assert sum(table.num_rows for table in limited(tables(), 5)) == 5
    assert asked == [0, 1]
