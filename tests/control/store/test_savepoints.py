"""Savepoints as they are found, and operations, in both databases."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from tests.control.store.databases import T0, create

from penstock.control.store import history, operations, pipelines, savepoints
from penstock.control.store.database import Store
from penstock.control.store.pipelines import Draft
from penstock.control.supervisor.ports import FoundSavepoint, Steered
from penstock.errors import PenstockError

FIRST = FoundSavepoint("first", T0, 7, 2**40, 2**33, 1_700_000_000_000, 4, "before", False, {"v": 1})


def kinds(store: Store) -> list[tuple[str, str]]:
    with store.reading() as connection:
        found = history.listed_events(connection, pipeline="a", newest_first=False).items
    return [(event.kind, event.data["savepoint"]) for event in found]


def keep(store: Store, *found: FoundSavepoint) -> list[savepoints.Savepoint]:
    with store.writing() as connection:
        savepoints.keep_in_step(connection, {"a": found}, now=T0)
        return list(savepoints.listed(connection, "a").items)


@pytest.fixture
def filled(store: Store) -> Store:
    """A pipeline of two versions."""
    with store.writing() as connection:
        pipelines.create(connection, "a", Draft("yaml", "one", {}, {"v": 1}), now=T0, by="ann")
        pipelines.upgrade(connection, "a", Draft("yaml", "two", {}, {"v": 2}), revision=1, now=T0, by="ann")
    return store


def test_what_is_found_is_kept_with_the_version_it_is_of(filled: Store) -> None:
    later = replace(FIRST, name="auto-2", at=T0 + dt.timedelta(hours=1), document={"v": 2}, automatic=True)
    other = replace(FIRST, name="z", document={"v": 3})
    found = {item.name: item for item in keep(filled, later, FIRST, other)}
    assert {name: item.version for name, item in found.items()} == {"first": 1, "auto-2": 2, "z": None}
    first = found["first"]
    assert (first.batch, first.bytes, first.state_bytes, first.partitions) == (7, 2**40, 2**33, 4)
    assert (first.watermark, first.note, first.at) == (1_700_000_000_000, "before", T0)
    assert (found["auto-2"].automatic, first.automatic) == (True, False)


def test_what_came_and_went_is_told_once(filled: Store) -> None:
    keep(filled, FIRST)
    keep(filled, FIRST)
    again = replace(FIRST, at=T0 + dt.timedelta(hours=1))
    assert [item.at for item in keep(filled, again)] == [again.at]
    assert keep(filled) == []
    taken, gone = ("savepoint_taken", "first"), ("savepoint_gone", "first")
    assert kinds(filled) == [taken, gone, taken, gone]


def test_one_that_is_not_there_is_told_with_one_that_is(filled: Store) -> None:
    keep(filled, FIRST)
    with filled.reading() as connection:
        assert savepoints.get(connection, "a", "first").name == "first"
        with pytest.raises(PenstockError) as raised:
            savepoints.get(connection, "a", "frist")
    assert raised.value.code == "SAVEPOINT_UNKNOWN"
    assert "first" in raised.value.problems[0].hint


def test_operations_are_done_in_the_order_they_were_asked_for(filled: Store) -> None:
    with filled.writing() as connection:
        one = operations.ask(connection, "a", "savepoint", {"name": "x"}, now=T0, by="ann")
        two = operations.ask(connection, "a", "rescale", {"partitions": 8}, now=T0, by="ann", back_to=1)
        assert operations.open_ones(connection, "a") == [one, two]
        with pytest.raises(PenstockError) as raised:
            operations.ask(connection, "a", "upgrade", {}, now=T0, by="bob")
        assert raised.value.code == "OPERATION_OPEN"
        assert "ann" in raised.value.problems[0].message
        operations.put(connection, [replace(two, ended_at=T0, outcome="done", result={"after": 8})])
        assert operations.open_ones(connection) == [one]
        operations.ask(connection, "a", "upgrade", {}, now=T0, by="bob")
        newest = operations.listed(connection, "a", limit=2).items
        assert [item.kind for item in newest] == ["upgrade", "rescale"]
        assert operations.get(connection, "a", two.id).result == {"after": 8}
        with pytest.raises(PenstockError):
            operations.get(connection, "b", two.id)


def test_what_is_not_wanted_any_more_stays_so_whatever_is_noted_of_it(filled: Store) -> None:
    with filled.writing() as connection:
        asked = operations.ask(connection, "a", "rescale", {"partitions": 8}, now=T0, by="ann")
        operations.cancel(connection, operations.get(connection, "a", asked.id), "bob")
        # A tick that had looked before.
        operations.put(connection, [replace(asked, pid=5)])
        (found,) = operations.open_ones(connection, "a")
    assert (found.cancelled_by, found.pid) == ("bob", 5)


def test_a_savepoint_that_is_needed_is_not_deleted(filled: Store) -> None:
    with filled.writing() as connection:
        create(connection, "b")
        operations.ask(connection, "b", "fork", {"savepoint": "first", "of": "a"}, now=T0, by="ann")
        operations.refuse_use(connection, "b", "first")
        with pytest.raises(PenstockError) as raised:
            operations.refuse_use(connection, "a", "first")
    assert raised.value.code == "OPERATION_OPEN"


def test_what_the_supervisor_steers_is_a_change_that_others_notice(filled: Store) -> None:
    with filled.writing() as connection:
        before = pipelines.get(connection, "a")
        pipelines.steer_anew(connection, "a", Steered(version=1, desired="stopped"), now=T0)
        pipelines.steer_anew(connection, "gone", Steered(version=1), now=T0)
        after = pipelines.get(connection, "a")
    assert (after.version, after.desired) == (1, "stopped")
    assert (after.revision, after.generation) == (before.revision + 1, before.generation + 1)


def test_a_pipeline_goes_once_nothing_works_on_its_state(filled: Store) -> None:
    with filled.writing() as connection:
        asked = operations.ask(connection, "a", "rescale", {}, now=T0, by="ann")
        pipelines.mark_for_deletion(connection, "a", revision=2, now=T0)
        assert pipelines.ended_and_deleted(connection) == []
        operations.put(connection, [replace(asked, ended_at=T0, outcome="done")])
        assert pipelines.ended_and_deleted(connection) == ["a"]
