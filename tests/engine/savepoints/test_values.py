"""Savepoints as values: what is written is what is read, and damage of the manifest is noticed."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.savepoints.diff import compare
from penstock.engine.savepoints.names import age_of_last, new_name, superfluous
from penstock.engine.savepoints.verify import Content, judge
from penstock.errors import PenstockError
from penstock.reports.savepoints import (
    FORMAT,
    SavedFile,
    SavedOperator,
    SavedSink,
    Savepoint,
    Totals,
    format_of,
    from_json,
    refuse_bad_name,
    to_json,
)

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
NAMES = st.text("abcxyz_", min_size=1, max_size=5)
COUNTS = st.dictionaries(NAMES, st.integers(0, 10**12), max_size=3)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MAPPINGS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
TIMES = st.integers(0, 10**6).map(lambda seconds: START + dt.timedelta(seconds=seconds))
FILES = st.builds(SavedFile, NAMES, st.integers(0, 10**6), st.text("0123456789abcdef", min_size=4, max_size=4),
                  st.integers(0, 2**60))  # fmt: skip
SAVEPOINTS = st.builds(
    Savepoint,
    name=NAMES, created_at=TIMES, pipeline=NAMES, lineage=NAMES,
    epoch=st.integers(0, 2**40), batch=st.integers(0, 2**40),
    fingerprint=NAMES, document=MAPPINGS, penstock=NAMES, spark=NAMES, note=st.text(max_size=10),
    automatic=st.booleans(), query_id=st.none() | NAMES, unfinished=st.booleans(), watermark=st.integers(0, 2**50),
    offsets=MAPPINGS, partitions=st.none() | st.integers(1, 100), buckets=st.none() | st.integers(1, 100),
    operators=st.lists(st.builds(SavedOperator, st.integers(0, 9), NAMES, st.none() | NAMES, st.integers(0, 10**9)),
                       max_size=3).map(tuple),
    sinks=st.lists(st.builds(SavedSink, NAMES, NAMES, MAPPINGS), max_size=3).map(tuple),
    totals=st.builds(Totals, COUNTS, COUNTS, COUNTS),
    files=st.lists(FILES, max_size=4, unique_by=lambda file: file.path).map(tuple),
)  # fmt: skip


@given(SAVEPOINTS)
def test_what_is_written_is_read(savepoint: Savepoint) -> None:
    assert from_json(to_json(savepoint)) == savepoint


@given(SAVEPOINTS, st.data())
def test_a_text_that_was_cut_short_or_changed_is_not_read(savepoint: Savepoint, data: st.DataObject) -> None:
    text = to_json(savepoint)
    place = data.draw(st.integers(0, len(text) - 3))
    with pytest.raises(ValueError):
        from_json(text[:place])
    changed = json.loads(text)
    changed["batch"] += 1
    with pytest.raises(ValueError, match="checksum"):
        from_json(json.dumps(changed))


def test_the_format_is_told_whatever_else_a_newer_one_holds() -> None:
    assert format_of(json.dumps({"format": FORMAT + 7, "unheard": []})) == FORMAT + 7
    assert [format_of(text) for text in ("[]", "{}", "{", '{"format": true}')] == [None] * 4


# --- differences -------------------------------------------------------------------------------------------------


@given(SAVEPOINTS)
def test_a_savepoint_does_not_differ_from_itself(savepoint: Savepoint) -> None:
    found = compare(savepoint, savepoint)

    assert found.same_lineage
    assert not found.batch.differs
    assert not found.watermark.differs
    assert (found.offsets, found.state_bytes, found.totals, found.versions, found.spec) == ({}, {}, {}, {}, [])


@given(SAVEPOINTS, SAVEPOINTS)
def test_the_other_way_round_before_and_after_change_places(one: Savepoint, other: Savepoint) -> None:
    there, back = compare(one, other), compare(other, one)

    assert {name: (pair.after, pair.before) for name, pair in there.state_bytes.items()} == {
        name: (pair.before, pair.after) for name, pair in back.state_bytes.items()
    }
    # A stream that has given nothing is like one that is not there.
    told = {**one.offsets, **{name: pair.after for name, pair in there.offsets.items() if name in other.offsets}}
    wanted = {**one.offsets, **other.offsets}
    assert {name: told.get(name) for name in wanted} == wanted


@given(SAVEPOINTS)
def test_state_of_a_step_is_that_of_all_its_operators(savepoint: Savepoint) -> None:
    assert sum(savepoint.state_of().values()) == savepoint.state_bytes


# --- verdicts ----------------------------------------------------------------------------------------------------


@given(st.lists(FILES, max_size=6, unique_by=lambda file: file.path), st.data())
def test_exactly_what_is_missing_or_differs_is_named(files: list[SavedFile], data: st.DataObject) -> None:
    found, wrong = {"unexpected": Content(1, "x")}, set()
    for file in files:
        damage = data.draw(st.sampled_from(["none", "none", "missing", "cut", "changed"]))
        if damage != "none":
            wrong.add(file.path)
        if damage == "cut":
            found[file.path] = Content(file.bytes + 1)
        elif damage == "changed":
            found[file.path] = Content(file.bytes, file.sha256[::-1] + "0")
        elif damage == "none":
            found[file.path] = Content(file.bytes, file.sha256)

    damages = judge(files, found)

    assert [damage.file for damage in damages] == sorted(wrong)


# --- names and retention -----------------------------------------------------------------------------------------


@given(TIMES, st.sets(NAMES), st.booleans(), st.integers(0, 5))
def test_a_new_name_is_a_good_one_that_no_other_has(
    now: dt.datetime, known: set[str], automatic: bool, again: int
) -> None:
    for _ in range(again + 1):
        name = new_name(now, known, automatic=automatic)
        assert name not in known
        refuse_bad_name(name)
        assert name.startswith("auto-") == automatic
        known = {*known, name}


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "-x", "x" * 101, "requests", "pins"])
def test_a_name_that_is_no_plain_folder_is_refused(name: str) -> None:
    with pytest.raises(PenstockError) as raised:
        refuse_bad_name(name)
    assert raised.value.code == "SAVEPOINT_NAME"


@given(st.lists(SAVEPOINTS, max_size=8, unique_by=lambda one: one.name), st.integers(1, 4))
def test_of_its_own_the_newest_are_kept_and_no_other_is_removed(taken: list[Savepoint], keep: int) -> None:
    gone = set(superfluous(taken, keep))

    own = [one for one in taken if one.automatic]
    left = [one for one in own if one.name not in gone]
    assert gone <= {one.name for one in own}
    assert len(left) == min(keep, len(own))
    oldest_left = min((one.created_at for one in left), default=START)
    assert all(one.created_at <= oldest_left for one in own if one.name in gone)


@given(st.lists(SAVEPOINTS, max_size=4), st.integers(0, 10**6), st.integers(-7200, 10**6))
def test_the_last_one_is_as_old_as_the_time_since_and_never_younger_than_nothing(
    taken: list[Savepoint], began: int, passed: int
) -> None:
    since = START + dt.timedelta(seconds=began)
    last = max((one.created_at for one in taken if one.automatic), default=since)

    now = last + dt.timedelta(seconds=passed)

    assert age_of_last(taken, since, now) == dt.timedelta(seconds=max(passed, 0))
    asked_for = [replace(one, automatic=False) for one in taken]
    assert age_of_last(asked_for, since, since) == dt.timedelta()
