"""LATEST against an oracle, whatever the order, the cuts and the watermark; its state stays small."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row
from tests.kernels.small_oracles import Clock, LatestOracle, multiset

from penstock.kernels import slots
from penstock.kernels.base import BUCKET, TIME
from penstock.kernels.latest import Latest

SCHEMA = pa.schema(
    [
        (TIME, pa.int64()),
        ("user", pa.string()),
        ("shard", pa.int64()),
        ("version", pa.float64()),
        ("gone", pa.bool_()),
        ("value", pa.string()),
        ("unused", pa.int64()),
    ]
)
MS = 1000


def row(time: int, user: str | None = "a", **others: Any) -> Row:
    empty: Row = dict.fromkeys(SCHEMA.names)
    return {**empty, TIME: time, "user": user, **others}


ROWS = st.builds(
    row,
    time=st.one_of(
        st.integers(-9, 9).map(lambda n: n * MS), st.integers(-9 * MS, 9 * MS), st.sampled_from([MS, MS + 1])
    ),
    user=st.sampled_from(["a", "a", "a", "b", "c", None]),
    shard=st.sampled_from([1, 1, 2, None]),
    version=st.sampled_from([1.0, 2.0, 2.0, 3.0, -1.5, None]),
    gone=st.sampled_from([True, False, False, None]),
    value=st.sampled_from(["x", "y", "z", None]),
    unused=st.integers(0, 3),
)
BATCHES = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=5)


def kept_rows(driver: Driver) -> int:
    return sum(
        table.num_rows for chunks in driver.state.values() for number, table in chunks.tables().items() if number >= 0
    )


@given(
    batches=BATCHES,
    keys=st.sampled_from([("user",), ("user", "shard"), ("shard",)]),
    order=st.sampled_from([None, None, ("version",), (TIME, "version"), ("version", "value")]),
    forget=st.sampled_from([None, 0, 3 * MS, 10 * MS + 1, 16 * MS]),
    deleted=st.sampled_from([None, "gone"]),
    passed=st.sampled_from([("user", "shard", "value"), ("value", TIME), ("shard", "gone", "user", "version")]),
    step=st.sampled_from([0, 3 * MS, 3 * MS, 8 * MS]),
    delay=st.sampled_from([0, 2 * MS, 50 * MS]),
    buckets=st.integers(1, 2),
    slots=st.sampled_from([1, 4]),
    seed=st.integers(0, 99),
)
@settings(max_examples=CASES, deadline=None)
def test_gives_what_the_oracle_gives(
    batches: list[list[Row]],
    keys: tuple[str, ...],
    order: tuple[str, ...] | None,
    forget: int | None,
    deleted: str | None,
    passed: tuple[str, ...],
    step: int,
    delay: int,
    buckets: int,
    slots: int,
    seed: int,
) -> None:
    kernel = Latest(SCHEMA, keys, passed, order=order, forget=forget, deleted=deleted, slots=slots)
    driver = Driver(kernel, [SCHEMA], [keys], max_delay=delay, buckets=buckets, seed=seed)
    given_columns = kernel.output.names
    kept = list(dict.fromkeys([*keys, TIME, *(order or ()), *given_columns]))
    oracle = LatestOracle(Clock(delay), keys, order or (TIME,), kept, given_columns, forget)
    for number, rows in enumerate(batches):
        batch = [{**one, TIME: one[TIME] + number * step} for one in rows]
        driver.batch(batch)
        assert multiset(driver.by_batch[-1]) == multiset(oracle.batch(batch))
        slack = (forget or 0) // 8
        assert len(oracle.rows) <= kept_rows(driver) <= len(oracle.rows_not_cleared(slack))
    assert multiset([late for _, late, _ in driver.missed]) == multiset(oracle.late)
    driver.finish(1 << 50)
    driver.batch([])
    assert forget is None or driver.chunk_count() == 0


def run(kernel: Latest, *batches: list[Row], **how: Any) -> Driver:
    driver = Driver(kernel, [SCHEMA], [kernel.keys], **how)
    for batch in batches:
        driver.batch(batch)
    return driver


def test_gives_only_what_changed() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"))
    driver = run(
        kernel,
        [row(5 * MS, value="new"), row(1 * MS, value="old"), row(1 * MS, "b", value="b")],
        [row(2 * MS, value="older"), row(5 * MS, value="new")],
        [row(6 * MS, value="newest")],
    )
    assert multiset(driver.by_batch[0]) == multiset([{"user": "a", "value": "new"}, {"user": "b", "value": "b"}])
    assert driver.by_batch[1] == []
    assert driver.by_batch[2] == [{"user": "a", "value": "newest"}]
    assert driver.written[1] == 0


def test_a_tombstone_is_given_and_remembered() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"), deleted="gone")
    driver = run(
        kernel,
        [row(5 * MS, value="x", gone=False)],
        [row(8 * MS, gone=True)],
        [row(7 * MS, value="too old")],
        [row(9 * MS, value="back")],
    )
    assert driver.by_batch[1] == [{"user": "a", "value": None, "gone": True}]
    assert driver.by_batch[2] == []
    assert driver.by_batch[3] == [{"user": "a", "value": "back", "gone": None}]


def test_nan_is_newest_and_null_oldest() -> None:
    kernel = Latest(SCHEMA, ("user",), ("value",), order=("version",))
    rows = [
        row(1, version=float("nan"), value="nan"),
        row(2, version=float("inf"), value="inf"),
        row(3, version=None, value="null"),
    ]
    assert run(kernel, rows).main == [{"value": "nan"}]
    assert run(kernel, rows[1:]).main == [{"value": "inf"}]


def test_a_forgotten_key_does_not_come_back_by_an_old_row() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"), forget=10 * MS)
    driver = run(
        kernel,
        [row(1 * MS, value="first"), row(100 * MS, "b")],
        [row(1 * MS, value="before it moved")],
        [row(1 * MS + 500, value="late")],
    )
    assert [late["value"] for _, late, _ in driver.missed] == ["late"]
    assert driver.by_batch[1] == []
    assert driver.by_batch[2] == []


def test_keys_are_forgotten_to_the_point_though_cleared_out_later() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"), order=("version",), forget=80 * MS)
    rows = [row(1 * MS, version=9.0, value="high"), row(9 * MS, version=1.0, value="low")]
    for moment, seen in ((81 * MS, []), (81 * MS + 1000, ["low"])):
        driver = run(kernel, rows[:1], [row(moment, "b")], [], rows[1:], buckets=2)
        assert [one["value"] for one in driver.by_batch[3]] == seen


def test_asks_to_be_woken_for_its_oldest_row() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user",), forget=80 * MS)
    driver = run(kernel, [row(1 * MS, "a"), row(7 * MS, "b"), row(5 * MS, "c")], buckets=1)
    clear = (1 + 80 + 10) * MS
    assert driver.wakes[0] == clear + 1
    driver.finish(clear)
    assert kept_rows(driver) == 3
    driver.finish(clear + 1)
    assert kept_rows(driver) == 2, "the others are in other slots"


def test_only_slots_with_new_rows_are_written() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"))
    many = [row(1 * MS, f"user {number}", value="x") for number in range(500)]
    driver = run(kernel, many, buckets=1)
    before = dict(driver.state[0])
    assert len(before) == kernel.slots
    driver.batch([row(2 * MS, "user 7", value="y")])
    assert sum(before[number] != data for number, data in driver.state[0].items()) == 1


def test_only_slots_with_new_rows_are_read() -> None:
    class Watched(dict[int, pa.Table]):
        asked: set[int] = set()

        def __getitem__(self, number: int) -> pa.Table:
            self.asked.add(number)
            return super().__getitem__(number)

    kernel = Latest(SCHEMA, ("user",), ("user", "value"), forget=1000 * MS)
    driver = run(kernel, [row(1 * MS, f"user {number}") for number in range(500)], buckets=1)
    state = Watched(driver.state[0].tables())
    table = pa.Table.from_pylist([row(2 * MS, "user 7")], schema=SCHEMA)
    prepared = kernel.prepare(0, table.append_column(BUCKET, pa.array([0], pa.int32())))
    result = kernel.advance(state, [[prepared.drop_columns([BUCKET])]], 2 * MS, 1 * MS)
    assert len(state.asked) == 2, "the slot and the directory"
    assert len(result.put) == 1


def test_clearing_out_is_rare() -> None:
    kernel = Latest(SCHEMA, ("user",), ("user", "value"), forget=80 * MS, slots=1)
    driver = Driver(kernel, [SCHEMA], [("user",)], buckets=1)
    for number in range(300):
        driver.batch([row(number * MS, f"user {number}")] if number < 200 else [row(number * MS, "other")])
        rows = sum(table.num_rows for n, table in driver.state[0].tables().items() if n >= 0)
        assert rows <= 80 + 80 // 8 + 3
    driver.finish(1 << 50)
    assert driver.chunk_count() == 0


def test_any_type_can_be_a_key_or_an_order() -> None:
    schema = pa.schema(
        [
            (TIME, pa.int64()),
            ("day", pa.date32()),
            ("price", pa.decimal128(20, 4)),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
        ]
    )
    keys = ("day", "price", "tags", "place", "flag", "bytes")
    rows: list[Row] = [
        {TIME: 1, "day": day, "price": price, "tags": tags, "place": place, "flag": flag, "bytes": data}
        for day in (date(2026, 1, 1), None)
        for price in (Decimal("1.5000"), None)
        for tags in (["a"], None)
        for place in ({"x": 1, "y": None}, None)
        for flag in (True, None)
        for data in (b"\0", None)
    ]
    kernel = Latest(schema, keys, (TIME, *keys))
    driver = Driver(kernel, [schema], [keys])
    driver.batch(rows)
    driver.batch([{**one, TIME: 2} for one in rows])
    assert multiset(driver.by_batch[0]) == multiset(rows)
    assert multiset(driver.by_batch[1]) == multiset([{**one, TIME: 2} for one in rows])
    assert sum(t.num_rows for chunks in driver.state.values() for t in chunks.tables().values()) == len(rows)
    for name in keys:
        ordered = Latest(schema, (), (name,), order=(name,))
        single = Driver(ordered, [schema], [()])
        single.batch(rows)
        assert single.main[0][name] is not None


KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, -1, None, 1 << 62, -(1 << 63)]),
    (pa.int8(), [0, 1, -1, None]),
    (pa.uint64(), [0, 1, (1 << 64) - 1, None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), None]),
    (pa.float32(), [0.0, 1.5, -1.5, None]),
    (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("-1.50"), Decimal("1" * 30 + ".00"), None]),
    (pa.decimal256(60, 2), [Decimal("1.50"), Decimal("-1.50"), Decimal("1" * 30 + ".00"), None]),
    (pa.string(), ["", "a", "b", "ab", "12345678", "123456789", "x" * 300, "x" * 299 + "y", None]),
    (pa.large_string(), ["", "a", "b", "ab", None]),
    (pa.string_view(), ["", "a", "b", "a longer one that is not inlined", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"a", None]),
    (pa.binary(3), [b"abc", b"abd", None]),
    (pa.date32(), [date(1970, 1, 1), date(2026, 2, 3), date(1900, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [0, 1, -1, None]),
    (pa.timestamp("ms"), [0, 1, -1, None]),
    (pa.time64("us"), [0, 1, None]),
    (pa.duration("us"), [0, 1, -1, None]),
    (pa.null(), [None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "", None]),
    (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": "a"}, {"x": None, "y": None}, None]),
    (pa.list_(pa.int32()), [[], [1], [1, None], None]),
    (pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], None]),
    (pa.month_day_nano_interval(), [(1, 2, 3), (0, 0, 0), None]),
]


def names_of(column: pa.Array | pa.ChunkedArray) -> list[str]:
    return [repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=str)
def test_keys_of_every_type_are_told_apart(kind: pa.DataType, values: list[Any]) -> None:
    twice = pa.chunked_array([pa.array(values, kind), pa.array(values[::-1], kind)])
    table = pa.table({"key": twice, "same": pa.array([1] * len(twice))})
    for columns in (["key"], ["key", "same"], ["same", "key", "key"]):
        codes = slots.key_codes(table, columns)
        pairs = set(zip(names_of(twice), codes.tolist(), strict=True))
        assert len(pairs) == len({name for name, _ in pairs}) == len({code for _, code in pairs}) == len(values)
        asked = table.slice(0, len(values) - 1)
        found = slots.matched(table, asked, columns)
        assert found.tolist() == [*range(len(values) - 1), -1, -1, *reversed(range(len(values) - 1))]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=str)
def test_values_of_every_type_are_ordered(kind: pa.DataType, values: list[Any]) -> None:
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        pytest.skip("ordered somehow")
    column = pa.chunked_array([pa.array(values, kind)])
    plain = column.cast(pa.string()) if str(kind).startswith(("dict", "string_view")) else column
    for descending in (False, True):
        order = np.lexsort(slots.sort_keys(column, descending)[::-1])
        if pa.types.is_null(kind):
            continue
        nan = [name for name in names_of(plain.drop_null()) if name == "nan"]
        direction = "descending" if descending else "ascending"
        expected = names_of(plain.take(pc.array_sort_indices(plain, order=direction)).drop_null())
        expected = [name for name in expected if name != "nan"]
        expected = [*nan, *expected] if descending else [*expected, *nan]
        found = names_of(plain.take(pa.array(order)))
        assert found == [*expected, "None"]


def test_slots_never_change() -> None:
    """State is kept by them."""
    table = pa.table(
        {
            "number": pa.array([0, 1, -1, None, 1 << 40]),
            "text": pa.array(["", "a", None, "a text of some length", "x" * 1000]),
            "price": pa.array([Decimal("1.50"), None, Decimal("-1.50"), Decimal(0), Decimal(7)], pa.decimal128(20, 2)),
            "share": pa.array([0.0, 1.5, None, float("nan"), -2.0]),
        }
    )
    assert slots.slot_of(table, ["number"], 1000).tolist() == [883, 566, 893, 176, 124]
    assert slots.slot_of(table, ["text"], 1000).tolist() == [883, 948, 176, 564, 386]
    assert slots.slot_of(table, ["price"], 1000).tolist() == [650, 176, 367, 342, 111]
    assert slots.slot_of(table, ["share"], 1000).tolist() == [883, 839, 176, 777, 482]
    assert slots.slot_of(table, ["number", "text"], 1000).tolist() == [219, 942, 931, 473, 223]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=str)
def test_slots_do_not_depend_on_how_values_are_laid_out(kind: pa.DataType, values: list[Any]) -> None:
    def slot(column: pa.Array | pa.ChunkedArray) -> list[int]:
        return list(map(int, slots.slot_of(pa.table({"key": column}), ["key"], 1 << 20)))

    whole = pa.array(values, kind)
    expected = slot(whole)
    assert slot(pa.chunked_array([whole[:1], whole[1:]], kind)) == expected
    assert slot(pa.concat_arrays([whole, whole])[len(values) :]) == expected
    assert [slot(whole[number : number + 1])[0] for number in range(len(values))] == expected
    assert len(set(expected)) == len(values)
    if kind in (pa.string(), pa.large_string(), pa.int64(), pa.date32()):
        assert slot(whole.dictionary_encode()) == expected
    for other in (pa.large_string(), pa.string_view(), pa.binary()) if kind == pa.string() else ():
        assert slot(whole.cast(other)) == expected
    for other in (pa.int16(), pa.int64()) if kind == pa.int8() else ():
        assert slot(whole.cast(other)) == expected


def test_slots_are_equally_full() -> None:
    numbers = pa.array(range(100_000))
    table = pa.table({"number": numbers, "even": pc.multiply(numbers, 1 << 32), "text": numbers.cast(pa.string())})
    for column in table.column_names:
        counts = np.bincount(slots.slot_of(table, [column], 32), minlength=32)
        assert counts.min() > 2_700
        assert counts.max() < 3_600


def test_numbers_too_big_to_be_joined_are_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    table = pa.table({name: pa.array(random.integers(0, 9, 400)) for name in "abc"})
    asked = table.group_by(["a", "b", "c"]).aggregate([]).slice(0, 150)
    keys = [table.column(name).to_numpy() for name in "bca"]
    plain = (slots.matched(table, asked, ["a", "b", "c"]), slots.best_rows(table, keys[0], keys[1:], ["b"], 2)[0])
    monkeypatch.setattr(slots, "_ROOM", 20)
    tight = (slots.matched(table, asked, ["a", "b", "c"]), slots.best_rows(table, keys[0], keys[1:], ["b"], 2)[0])
    for one, other in zip(plain, tight, strict=True):
        assert one.tolist() == other.tolist()
    codes = slots.key_codes(table, ["a", "b", "c"]).tolist()
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert len(set(zip(rows, codes, strict=True))) == len(set(rows)) == len(set(codes))
