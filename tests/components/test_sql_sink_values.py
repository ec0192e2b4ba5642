"""Every value of Spark comes back from a database as it was, or the row is set aside; none is changed."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.components.sql_stores import Store, batch, frame, opened, stored

from penstock.components.shared.sql_text import lines

if TYPE_CHECKING:
    pass

spark_needed = pytest.mark.spark


TYPES = {
    "b": "boolean", "i1": "tinyint", "i2": "smallint", "i4": "int", "i8": "bigint", "f4": "float", "f8": "double",
    "d": "decimal(38,10)", "s": "string", "bin": "binary", "day": "date", "at": "timestamp", "local": "timestamp_ntz",
    "tags": "array<string>", "m": "map<string,int>", "st": "struct<a:int,b:string>", "odd name\"`%s": "string",
}  # fmt: skip
HARD = "tab\t newline\n return\r back\\slash \\N \\. 'quote' \"double\" , ; é 漢 😀 NULL"
UTC = dt.UTC
AT = dt.datetime(2024, 1, 2, 3, 4, 5, 600001, UTC)
FULL = (True, -128, -32768, -(2**31), -(2**63), 0.1, 1e-300, Decimal("-1234567890123456789012345678.0123456789"), HARD,
        bytearray(range(256)), dt.date(1969, 12, 31), AT, AT.replace(tzinfo=None), ["x", HARD, None, ""], {HARD: 1},
        (1, HARD), HARD)  # fmt: skip
EMPTY: tuple[Any, ...] = (False, 0, 0, 0, 0, 0.0, -0.0, Decimal("0E-10"), "", bytearray(), dt.date(1970, 1, 1),
         dt.datetime(1970, 1, 1, tzinfo=UTC), AT.replace(1970, tzinfo=None), [], {}, (None, None), "")  # fmt: skip
NOTHING = (None,) * len(TYPES)
OLD = (None,) * 10 + (dt.date(1000, 1, 1), dt.datetime(1000, 1, 1, tzinfo=UTC), AT.replace(9999, tzinfo=None), None,
       None, None, "x")  # fmt: skip


def typed(spark: SparkSession, *rows: tuple[Any, ...]) -> Any:
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in TYPES.items())
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def plain(store: Store, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a database gives back, in the types of the others."""
    values = []
    for kind, value in zip(TYPES.values(), row, strict=True):
        if value is not None and kind.startswith(("array", "map", "struct")):
            value = json.loads(value) if isinstance(value, str) else value
        if value is not None and store.name == "sqlite":
            readers: dict[str, Any] = {"decimal(38,10)": Decimal, "date": dt.date.fromisoformat}
            value = readers.get(kind, dt.datetime.fromisoformat if "timestamp" in kind else lambda same: same)(value)
        if kind == "timestamp" and value is not None:
            value = value.replace(tzinfo=None)
        values.append(bool(value) if kind == "boolean" and value is not None else value)
    return tuple(values)


def expected(row: tuple[Any, ...]) -> tuple[Any, ...]:
    found = dict(zip(TYPES, row, strict=True))
    if found["st"] is not None:
        found["st"] = {key: value for key, value in zip("ab", found["st"], strict=True) if value is not None}
    if found["bin"] is not None:
        found["bin"] = bytes(found["bin"])
    if found["at"] is not None:
        found["at"] = found["at"].replace(tzinfo=None)
    return tuple(found.values())


def close(left: Any, right: Any) -> bool:
    return math.isclose(left, right, rel_tol=1e-6) if isinstance(left, float) else bool(left == right)


@spark_needed
@pytest.mark.parametrize("bulk", [1, 50_000])
def test_every_type_comes_back_as_it_was(store: Store, spark: SparkSession, bulk: int) -> None:
    config: dict[str, Any] = {} if store.name == "sqlite" else {"bulk_rows": bulk}
    rows = [FULL, EMPTY, NOTHING, OLD]
    writer = opened(store, spark, columns=TYPES, **config)
    writer.write(batch(0), typed(spark, *rows))
    assert [item.error for item in writer.refused(batch(0))] == []
    quote = '"' if store.name != "mysql" else "`"
    names = ", ".join(f"{quote}{name.replace(quote, quote * 2)}{quote}" for name in TYPES)
    found = [plain(store, row) for row in store.query(f"SELECT {names} FROM t")]
    assert len(found) == len(rows)
    for row in map(expected, rows):
        assert any(all(map(close, row, other)) for other in found), row


@spark_needed
def test_not_a_number_is_stored_where_there_is_such_a_thing(store: Store, spark: SparkSession) -> None:
    writer = opened(store, spark, columns={"id": "string", "x": "double"}, on_violation="dead")
    rows = frame(spark, ("a", math.nan), ("b", math.inf), ("c", -math.inf), ("d", 1.5), schema="id string, x double")
    writer.write(batch(0), rows)
    found = stored(store, "id, x")
    if store.name == "mysql":
        assert found == [("d", 1.5)]
        assert [json.loads(item.row) for item in writer.refused(batch(0))] == [
            {"id": "a", "x": "nan"}, {"id": "b", "x": "inf"}, {"id": "c", "x": "-inf"},
        ]  # fmt: skip
    else:
        assert str(found[0][1]) == ("nan" if store.name == "postgres" else "None")
        assert found[1:] == [("b", math.inf), ("c", -math.inf), ("d", 1.5)]


def test_lines_keep_nulls_and_signs_apart() -> None:
    rows = pa.table({"s": ["", None, "\\N", "a\tb\nc\rd\\"], "n": [1, None, 3, 4], "seq": [0, 1, 2, 3]})
    assert b"".join(lines(rows)) == (b"\t1\t0\n\\N\t\\N\t1\n\\\\N\t3\t2\na\\tb\\nc\\rd\\\\\t4\t3\n")
    assert b"".join(lines(rows.slice(1, 1))) == b"\\N\t\\N\t1\n"
    assert list(lines(rows.slice(0, 0))) == []


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_written_as_arrow_writes_them(zone: str | None) -> None:
    rng = random.Random(7)
    edges = [-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0, 1, 951_782_400_000_000, 4_107_542_399_999_999]
    micros = [*edges, None, *(rng.randrange(edges[0], edges[1]) for _ in range(2000))]
    times = pa.array(micros, pa.timestamp("us", zone))
    expected = "".join(f"{text or chr(92) + 'N'}\n" for text in pc.cast(times, pa.string()).to_pylist())
    assert b"".join(lines(pa.table({"at": times}))).decode() == expected
