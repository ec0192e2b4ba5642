"""Rows of two versions compared, against plain counting; and the stops at which a new version reads on."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.engine.cutover.comparing import Change, Compared, Row, Sample, columns_alike, compare, newest, text_of
from penstock.engine.cutover.following import APART, next_stop

COLUMNS = ("key", "value")
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["1", "2", "3", None])), max_size=12)


@given(ROWS, ROWS)
def test_every_row_counts_once_on_its_side(old: list[Row], new: list[Row]) -> None:
    found = compare(old, new, COLUMNS, ["key"], samples=100)
    assert found.equal == sum((Counter(old) & Counter(new)).values())
    assert found.equal + found.different + found.only_old == len(old)
    assert found.equal + found.different + found.only_new == len(new)
    keys = {row[0] for row in (*old, *new)}
    assert found.only_old == sum(max(_rest(old, new, key), 0) for key in keys)
    assert found.only_new == sum(max(_rest(new, old, key), 0) for key in keys)
    assert (found.verdict == "equal") == (Counter(old) == Counter(new))
    assert len(found.samples) == found.different + found.only_old + found.only_new
    assert all(sample.old != sample.new for sample in found.samples)


def _rest(rows: list[Row], others: list[Row], key: str | None) -> int:
    """How many more rows of a key there are."""
    return sum(row[0] == key for row in rows) - sum(row[0] == key for row in others)


@given(ROWS, ROWS)
def test_without_a_key_rows_are_the_same_or_missing(old: list[Row], new: list[Row]) -> None:
    found = compare(old, new, COLUMNS)
    assert found.different == 0
    assert found.only_old == sum((Counter(old) - Counter(new)).values())
    assert found.only_new == sum((Counter(new) - Counter(old)).values())


@given(ROWS, ROWS)
def test_the_sides_can_be_exchanged(old: list[Row], new: list[Row]) -> None:
    there, back = compare(old, new, COLUMNS, ["key"]), compare(new, old, COLUMNS, ["key"])
    assert (there.equal, there.different) == (back.equal, back.different)
    assert (there.only_old, there.only_new) == (back.only_new, back.only_old)


def test_samples_show_both_sides_of_a_row() -> None:
    found = compare([("a", "1"), ("b", "1")], [("a", "2"), ("c", "1")], COLUMNS, ["key"])
    assert found == Compared(
        0, 1, 1, 1,
        (
            Sample({"key": "a", "value": "1"}, {"key": "a", "value": "2"}),
            Sample({"key": "b", "value": "1"}, None),
            Sample(None, {"key": "c", "value": "1"}),
        ),
    )  # fmt: skip


CHANGES = st.lists(
    st.builds(
        Change,
        st.integers(0, 4),
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "3"])),
        st.none() | st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)


@given(CHANGES)
def test_of_each_key_the_newest_row_is_held(changes: list[Change]) -> None:
    wanted = {}
    for key in {change.row[0] for change in changes}:
        mine = [change for change in changes if change.row[0] == key]
        best = max(
            range(len(mine)),
            key=lambda place: (
                -1 if mine[place].version is None else mine[place].version, mine[place].batch, place,
            ),
        )  # fmt: skip
        if not mine[best].deletes:
            wanted[key] = mine[best].row
    assert sorted(newest(changes, [0])) == sorted(wanted.values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.50"), 1.5),
        (Decimal("100"), 100),
        (Decimal("100"), 100.0),
        (True, 1),
        (dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        (b"\x01", memoryview(b"\x01")),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ],
)
def test_values_that_stores_give_back_in_other_types_are_the_same(one: Any, other: Any) -> None:
    assert text_of(one) == text_of(other)


def test_null_is_no_text() -> None:
    assert text_of(None) is None
    assert text_of("None") == "None"
    assert text_of(float("nan")) == "nan"


def test_columns_that_one_side_has_are_told() -> None:
    assert columns_alike(["a", "b"], ["c", "b"]) == (["b"], ["a"], ["c"])


@given(st.integers(-1, 50), st.integers(-1, 50), st.booleans())
def test_it_reads_on_to_the_end_and_takes_the_last_batches_one_by_one(stands: int, committed: int, apart: bool) -> None:
    stops = []
    at = stands
    while (stop := next_stop(at, committed, apart=apart)) is not None:
        assert stop > at
        stops.append(stop)
        at = stop
    assert at == max(stands, committed)
    assert stops[-APART:] == list(range(max(stands + 1, committed - APART + 1), committed + 1))
    if apart:
        assert stops == list(range(stands + 1, committed + 1))
