"""Pipelines in the store: versions, revisions and generations."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from sqlalchemy import Connection
from tests.control.store.databases import T0, create, draft

from penstock.control.store import pipelines, runs
from penstock.control.store.database import Store
from penstock.control.supervisor.ports import Run, StateChange
from penstock.errors import PenstockError

LATER = T0 + dt.timedelta(hours=1)


def test_every_version_is_kept(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a", team="news")
        pipelines.upgrade(connection, "a", draft("two", team="ads"), revision=1, now=LATER, by="bob")
        pipeline = pipelines.get(connection, "a")
        kept = pipelines.versions_of(connection, "a").items
    assert (pipeline.version, pipeline.generation, pipeline.revision, pipeline.labels) == (2, 2, 2, {"team": "ads"})
    assert [(version.number, version.text, version.created_by) for version in kept] == [
        (2, "two", "bob"),
        (1, "one", "ann"),
    ]


def test_going_back_to_an_older_version_and_then_on_gives_a_new_number(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        pipelines.upgrade(connection, "a", draft("two"), revision=1, now=LATER, by="ann")
        pipelines.steer(connection, "a", revision=2, now=LATER, desired="running", version=1)
        third = pipelines.upgrade(connection, "a", draft("three"), revision=3, now=LATER, by="ann")
        texts = [version.text for version in pipelines.versions_of(connection, "a").items]
    assert third.version == 3
    assert texts == ["three", "two", "one"]


def test_of_two_who_change_it_at_once_the_second_is_told(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
    with store.writing() as connection:
        pipelines.steer(connection, "a", revision=1, now=LATER, desired="stopped")
    with pytest.raises(PenstockError) as raised, store.writing() as connection:
        pipelines.upgrade(connection, "a", draft("two"), revision=1, now=LATER, by="bob")
    assert raised.value.code == "STALE_REVISION"
    with store.reading() as connection:
        assert [version.number for version in pipelines.versions_of(connection, "a").items] == [1]


def test_of_many_at_the_same_moment_exactly_one_wins(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
    outcomes: list[str] = []
    together = threading.Barrier(6)

    def change(number: int) -> None:
        together.wait()
        try:
            with store.writing() as connection:
                pipelines.upgrade(connection, "a", draft(f"by {number}"), revision=1, now=LATER, by="x")
            outcomes.append("done")
        except PenstockError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["STALE_REVISION"] * 5 + ["done"]
    with store.reading() as connection:
        assert pipelines.get(connection, "a").revision == 2


def test_a_name_can_be_taken_once(store: Store) -> None:
    with pytest.raises(PenstockError) as raised, store.writing() as connection:  # noqa: PT012 - the whole is meant
        create(connection, "a")
        create(connection, "a")
    assert raised.value.code == "STALE_REVISION"


def observe(connection: Connection, generation: int, target: str, at: dt.datetime) -> None:
    change = StateChange("RUNNING", "offsets advance", at, generation, target)
    pipelines.observe(connection, {"a": change}, default_target="local")


def test_what_the_supervisor_sees_raises_neither_revision_nor_generation(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        observe(connection, 1, "local", LATER)
        first = pipelines.get(connection, "a")
        observe(connection, 1, "local", LATER + dt.timedelta(hours=1))
        second = pipelines.get(connection, "a")
    assert (first.revision, first.generation, first.observed_generation, first.target) == (1, 1, 1, None)
    assert first.state_since == second.state_since == LATER


def test_a_target_asked_for_meanwhile_stays(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        pipelines.steer(connection, "a", revision=1, now=LATER, desired="running", target="new")
        observe(connection, 1, "moved", LATER)
        assert pipelines.get(connection, "a").target == "new"
        observe(connection, 2, "moved", LATER)
        assert pipelines.get(connection, "a").target == "moved"


def test_deletion_waits_for_the_run_and_takes_all_of_it(store: Store) -> None:
    run = Run("r" + "0" * 12, "a", 1, 1, "local", T0)
    with store.writing() as connection:
        create(connection, "a")
        create(connection, "b")
        runs.put(connection, [run])
        pipelines.mark_for_deletion(connection, "a", revision=1, now=LATER)
        assert pipelines.get(connection, "a").desired == "stopped"
        assert pipelines.ended_and_deleted(connection) == []
        runs.put(connection, [Run(**{**vars(run), "ended_at": LATER, "outcome": "stopped"})])
        assert pipelines.ended_and_deleted(connection) == ["a"]
        pipelines.forget(connection, "a")
        assert [pipeline.name for pipeline in pipelines.every(connection)] == ["b"]
        assert runs.listed(connection).items == ()
        with pytest.raises(PenstockError):
            pipelines.version(connection, "a", 1)


def test_starting_again_takes_a_deletion_back(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        pipelines.mark_for_deletion(connection, "a", revision=1, now=LATER)
        pipelines.steer(connection, "a", revision=2, now=LATER, desired="running")
        assert pipelines.ended_and_deleted(connection) == []
        assert pipelines.get(connection, "a").deleting_at is None


def test_pages_hold_every_pipeline_once_in_order(store: Store) -> None:
    names = [f"p{number:02d}" for number in range(23)]
    with store.writing() as connection:
        for name in reversed(names):
            create(connection, name, team="news" if int(name[1:]) % 2 else "ads")
    found: list[str] = []
    with store.reading() as connection:
        after: str | None = None
        while True:
            page = pipelines.listed(connection, labels={"team": "news"}, limit=5, after=after)
            found += [pipeline.name for pipeline in page.items]
            after = page.next
            if after is None:
                break
    assert found == [name for name in names if int(name[1:]) % 2]


def test_labels_must_all_fit(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a", team="news", env="live")
        create(connection, "b", team="news")
        create(connection, "c")
        found = pipelines.listed(connection, labels={"team": "news", "env": "live"}).items
        nothing = pipelines.listed(connection, labels={"absent": "x"}).items
    assert [pipeline.name for pipeline in found] == ["a"]
    assert nothing == ()


def test_an_unknown_name_is_told(store: Store) -> None:
    with store.reading() as connection, pytest.raises(PenstockError) as raised:
        pipelines.get(connection, "nobody")
    assert raised.value.code == "PIPELINE_UNKNOWN"
    assert raised.value.exit_code == 3
