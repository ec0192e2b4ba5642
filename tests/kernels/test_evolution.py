"""State that goes on under a changed kernel: what is new in it takes rows from before for ones without a value.

So a kernel that was changed on the way must give what the new one gives that has seen all rows, if in those from before
the columns that only new values read are null.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.driving import CASES, Driver, Row

from penstock.kernels.aggregate import Aggregate
from penstock.kernels.aggregates import FUNCTIONS
from penstock.kernels.base import TIME, Kernel
from penstock.kernels.changelog_join import ChangelogJoin
from penstock.kernels.latest import Latest
from penstock.kernels.rolling import Rolling
from penstock.kernels.session import Session
from penstock.kernels.window import Window

SECOND = 1_000_000
OLD, NEW = "_value_old", "_value_new"
COLUMNS = pa.schema(
    [(TIME, pa.int64()), ("id", pa.int64()), ("key", pa.string()), (OLD, pa.int64()), (NEW, pa.int64())]
)
OPTIONS = {"percentile": 0.5, "top_k": 2.0}
ROLLED = ("count", "sum", "avg", "min", "max", "count_distinct", "first", "last")
seeds = st.integers(0, 1 << 48).map(random.Random)


def aggregate(name: str, function: str, column: str) -> Aggregate:
    return Aggregate(name, function, column, OPTIONS.get(function))


def batches(draw: random.Random, count: int) -> list[list[Row]]:
    """Rows of ever later times, a few of them out of order."""
    found, id, now = [], 0, 0
    for _ in range(count):
        rows = []
        for _ in range(draw.randint(0, 8)):
            now += draw.randint(0, 4)
            id += 1
            time = max(now - draw.randint(0, 3), 0) * SECOND
            values = [None if draw.random() < 0.2 else draw.randint(0, 4) for _ in range(2)]
            rows.append({TIME: time, "id": id, "key": draw.choice("ab"), OLD: values[0], NEW: values[1]})
        found.append(rows)
    return found


def without(rows: Sequence[Row], column: str) -> list[Row]:
    return [{**row, column: None} for row in rows]


def only(schema: pa.Schema, *left_out: str) -> pa.Schema:
    return pa.schema([item for item in schema if item.name not in left_out])


def compare(draw: random.Random, before: Kernel, after: Kernel, schemas: tuple[pa.Schema, pa.Schema], far: int) -> None:
    """A kernel that changes on the way against the new one that was there from the start."""
    rows = batches(draw, draw.randint(2, 8))
    cut = draw.randint(1, len(rows) - 1)
    seed = draw.randint(0, 1 << 30)
    keys = [("key",)]
    changing = Driver(before, [schemas[0]], keys, 3 * SECOND, seed=seed)
    lasting = Driver(after, [schemas[1]], keys, 3 * SECOND, seed=seed)
    assert after.unfit(before.layout()) is None
    assert after.unfit(after.layout()) is None
    for number, batch in enumerate(rows):
        if number == cut:
            changing.kernel, changing.schemas = after, [schemas[1]]
        changing.batch(batch if number >= cut else [{n: row[n] for n in schemas[0].names} for row in batch])
        lasting.batch(batch if number >= cut else without(batch, NEW))
    changing.finish(far)
    lasting.finish(far)
    for ours, theirs in zip(changing.by_batch[cut:], lasting.by_batch[cut:], strict=True):
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def windows(draw: random.Random, kind: str) -> Callable[[Sequence[Aggregate], pa.Schema], Kernel]:
    size = draw.randint(1, 12) * SECOND
    slide = None if draw.random() < 0.5 else max(size // 2 // SECOND, 1) * SECOND
    keys = draw.choice([(), ("key",)])

    def made(aggregates: Sequence[Aggregate], schema: pa.Schema) -> Kernel:
        if kind == "session":
            return Session(schema, keys, tuple(aggregates), size)
        return Window(schema, keys, tuple(aggregates), size, slide)

    return made


@settings(max_examples=CASES // 10, deadline=None)
@given(seeds, st.sampled_from(["window", "session"]))
def test_windows_take_new_values_and_leave_old_ones(draw: random.Random, kind: str) -> None:
    made = windows(draw, kind)
    kept, gone, fresh = (draw.choice(FUNCTIONS) for _ in range(3))
    old = [aggregate("kept", kept, OLD), aggregate("gone", gone, OLD)]
    new = [aggregate("fresh", fresh, NEW), aggregate("renamed", kept, OLD)]
    without_id = only(COLUMNS, "id")
    compare(draw, made(old, only(without_id, NEW)), made(new, without_id), (only(without_id, NEW), without_id), 10**12)


@settings(max_examples=CASES // 15, deadline=None)
@given(seeds)
def test_rows_that_are_counted_from_now_on_begin_with_none(draw: random.Random) -> None:
    """`count(*)` of a window that was not counted before: like a value that rows from before do not have."""
    made = windows(draw, "window")
    schema, rows = only(COLUMNS, "id", NEW), batches(draw, 4)
    changing = Driver(made([aggregate("n", "sum", OLD)], schema), [schema], [("key",)], 0)
    lasting = Driver(made([Aggregate("n", "count", OLD)], schema), [schema], [("key",)], 0)
    for number, batch in enumerate(rows):
        if number == 2:
            changing.kernel = made([Aggregate("n", "count")], schema)
        ones = [{**row, OLD: 1 if number >= 2 else None} for row in batch]
        changing.batch(batch)
        lasting.batch(ones)
    changing.finish(10**12)
    lasting.finish(10**12)
    assert [sorted(map(repr, out)) for out in changing.by_batch[2:]] == [
        sorted(map(repr, out)) for out in lasting.by_batch[2:]
    ]


@settings(max_examples=CASES // 10, deadline=None)
@given(seeds)
def test_rolling_values_take_new_ones(draw: random.Random) -> None:
    over, emit = draw.randint(1, 12) * SECOND, draw.random() < 0.3
    kept = draw.choice([name for name in ROLLED if name not in ("count", "count_distinct")])
    again, fresh = draw.choice(ROLLED), draw.choice(ROLLED)

    def made(aggregates: Sequence[Aggregate], schema: pa.Schema) -> Kernel:
        return Rolling(schema, ("key",), tuple(aggregates), over, ("id",), emit)

    old = made([aggregate("kept", kept, OLD)], only(COLUMNS, NEW))
    new = made([aggregate("fresh", fresh, NEW), aggregate("again", again, OLD), Aggregate("rows", "count")], COLUMNS)
    compare(draw, old, new, (only(COLUMNS, NEW), COLUMNS), 10**12)


@settings(max_examples=CASES // 10, deadline=None)
@given(seeds, st.sampled_from([None, 5 * SECOND]))
def test_last_rows_get_further_columns(draw: random.Random, forget: int | None) -> None:
    old = Latest(only(COLUMNS, NEW), ("key",), ("key", "id", OLD), ("id",), forget)
    new = Latest(COLUMNS, ("key",), ("key", NEW, "id"), ("id",), forget)
    compare(draw, old, new, (only(COLUMNS, NEW), COLUMNS), 10**12)


CHANGES = pa.schema(
    [
        (TIME, pa.int64()),
        ("key", pa.string()),
        ("version", pa.int64()),
        ("gone", pa.bool_()),
        (OLD, pa.int64()),
        (NEW, pa.int64()),
    ]
)


@settings(max_examples=CASES // 12, deadline=None)
@given(seeds)
def test_joined_tables_get_further_columns(draw: random.Random) -> None:
    def made(left: pa.Schema, right: pa.Schema) -> ChangelogJoin:
        named = {"l": [n for n in left.names if n in shown], "r": [n for n in right.names if n in shown]}
        outs = [tuple((name, f"{side}_{name}") for name in names) for side, names in named.items()]
        return ChangelogJoin(
            left, right, ("key",), ("key",), (("key", "key"),), draw_how, outs[0], outs[1], ("version", "version"),
            ("gone", "gone"), slots=2, recent_rows=2,
        )  # fmt: skip

    draw_how, shown = draw.choice(["inner", "left"]), ("key", OLD, NEW)
    grown = draw.choice([0, 1])
    before = [only(CHANGES, NEW) if side == grown else CHANGES for side in (0, 1)]
    seed = draw.randint(0, 1 << 30)
    changing = Driver(made(*before), before, [("key",), ("key",)], seed=seed)
    lasting = Driver(made(CHANGES, CHANGES), [CHANGES, CHANGES], [("key",), ("key",)], seed=seed)
    for number in range(6):
        sides: list[list[Row]] = []
        for _ in range(2):
            sides.append([
                {TIME: number * SECOND, "key": draw.choice("abcd"), "version": number * 10 + place,
                 "gone": draw.random() < 0.2, OLD: draw.randint(0, 2), NEW: draw.randint(0, 2)}
                for place in range(draw.randint(0, 4))
            ])  # fmt: skip
        if number == 3:
            changing.kernel, changing.schemas = made(CHANGES, CHANGES), [CHANGES, CHANGES]
        early = number < 3
        lasting.batch(*(without(rows, NEW) if early and side == grown else rows for side, rows in enumerate(sides)))
        changing.batch(*([{n: row[n] for n in changing.schemas[side].names} for row in rows] for side, rows in
                         enumerate(sides)))  # fmt: skip
    assert [sorted(map(repr, out)) for out in changing.by_batch[3:]] == [
        sorted(map(repr, out)) for out in lasting.by_batch[3:]
    ]


def window(**changes: Any) -> Window:
    fields: dict[str, Any] = {
        "input": COLUMNS,
        "keys": ("key",),
        "aggregates": (Aggregate("n", "sum", OLD),),
        "size": 60,
    }
    return Window(**(fields | changes))


def rolling(*aggregates: Aggregate, **changes: Any) -> Rolling:
    fields: dict[str, Any] = {
        "input": COLUMNS,
        "keys": ("key",),
        "aggregates": aggregates,
        "over": 60,
        "passed": ("id",),
    }
    return Rolling(**(fields | changes))


TEXTS = pa.schema([*only(COLUMNS, OLD), (OLD, pa.string())])


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (window(), window(size=61), "size"),
        (window(), window(slide=30), "slide"),
        (window(), window(keys=("id",)), "keys"),
        (window(), window(emit="update"), "windows that are open"),
        (window(), window(input=pa.schema([*only(COLUMNS, OLD), (OLD, pa.float64())])), "type"),
        (rolling(Aggregate("n", "count", OLD)), rolling(Aggregate("n", "sum", OLD)), "only counted"),
        (rolling(Aggregate("n", "count_distinct", OLD)), rolling(Aggregate("n", "count")), "last row"),
        (rolling(Aggregate("n", "count")), rolling(Aggregate("n", "count"), over=61), "over"),
        (rolling(Aggregate("n", "count")), rolling(Aggregate("n", "count"), at_once=True), "at once"),
        (rolling(Aggregate("n", "count")), rolling(Aggregate("n", "count"), input=TEXTS), "type"),
        (window(), rolling(Aggregate("n", "count")), "another way"),
        (Latest(COLUMNS, ("key",), ("id",)), Latest(COLUMNS, ("key",), ("id",), ("id",)), "order"),
    ],
)
def test_what_cannot_go_on_says_why(before: Kernel, after: Kernel, reason: str) -> None:
    assert reason in str(after.unfit(before.layout()))


def test_windows_that_were_given_as_they_changed_can_wait_until_they_close() -> None:
    assert window().unfit(window(emit="update").layout()) is None
