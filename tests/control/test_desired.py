"""Plans: what apply would do, and that doing it twice does it once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.files import PYTHON, sent, yaml

from penstock.control.auth.roles import Grant, Role
from penstock.control.config import ServerConfig
from penstock.control.desired import Absent, Action, Plan, Wish, carry_out, look, plan
from penstock.control.policy import Policy
from penstock.control.store import access, history, pipelines
from penstock.control.store.database import Store
from penstock.control.submitted import Submitted, check_all
from penstock.errors import PenstockError
from penstock.spec.fields import Change

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
AS_IS = Wish()
ANN = Grant("ann", Role.CODER)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.in_folder(tmp_path)
    store.migrate()
    yield store
    store.close()


def planned(store: Store, files: list[Submitted], wish: Wish = AS_IS, grant: Grant = ANN) -> Plan:
    checked = check_all(files, Policy.of(ServerConfig(), Path("/srv")), grant.role)
    with store.reading() as connection:
        return plan(look(connection), checked, wish, grant)


def applied(store: Store, files: list[Submitted], wish: Wish = AS_IS, grant: Grant = ANN) -> list[tuple[str, str]]:
    decided = planned(store, files, wish, grant)
    with store.writing() as connection:
        carry_out(connection, decided, grant, T0)
    return [(str(step.action), step.name) for step in decided.steps]


def known(store: Store, name: str) -> pipelines.Pipeline:
    with store.reading() as connection:
        return pipelines.get(connection, name)


def test_the_same_folder_twice_changes_nothing(store: Store) -> None:
    files = [sent("a"), sent("b")]
    assert applied(store, files) == [("create", "a"), ("create", "b")]
    before = known(store, "a")
    assert applied(store, files) == [("unchanged", "a"), ("unchanged", "b")]
    assert known(store, "a") == before
    assert not planned(store, files).changes


def test_comments_and_spaces_make_no_new_version(store: Store) -> None:
    applied(store, [sent("a")])
    assert applied(store, [Submitted("a.yaml", "# a comment\n" + yaml("a") + "\n\n")]) == [("unchanged", "a")]


def test_a_change_becomes_a_version_with_its_cost(store: Store) -> None:
    applied(store, [sent("a")])
    (step,) = planned(store, [sent("a", table="other")]).steps
    assert (step.action, step.cost, step.revision) == (Action.UPGRADE, Change.RESTART, 1)
    assert [(each.path, each.before, each.after) for each in step.differences] == [
        ("sinks.out.sqlite.table", "t", "other")
    ]
    applied(store, [sent("a", table="other")])
    assert (known(store, "a").version, known(store, "a").generation) == (2, 2)


def test_a_stopped_pipeline_stays_stopped_when_it_is_upgraded(store: Store) -> None:
    applied(store, [sent("a")], Wish(start=False))
    assert known(store, "a").desired == "stopped"
    applied(store, [sent("a", table="other")])
    assert known(store, "a").desired == "stopped"
    assert applied(store, [sent("a", table="other")], Wish(start=True)) == [("start", "a")]
    assert (known(store, "a").desired, known(store, "a").version) == ("running", 2)


def test_another_target_is_a_change_without_a_version(store: Store) -> None:
    applied(store, [sent("a")])
    assert applied(store, [sent("a")], Wish(target="far")) == [("start", "a")]
    assert (known(store, "a").target, known(store, "a").version, known(store, "a").generation) == ("far", 1, 2)
    assert applied(store, [sent("a")], Wish(target="far")) == [("unchanged", "a")]


def test_what_was_not_sent_is_kept_stopped_or_deleted(store: Store) -> None:
    applied(store, [sent("a"), sent("b")])
    assert applied(store, [sent("a")]) == [("unchanged", "a")]
    assert applied(store, [sent("a")], Wish(absent=Absent.STOP)) == [("unchanged", "a"), ("stop", "b")]
    assert applied(store, [sent("a")], Wish(absent=Absent.STOP)) == [("unchanged", "a")]
    assert applied(store, [sent("a")], Wish(absent=Absent.DELETE)) == [("unchanged", "a"), ("delete", "b")]
    assert applied(store, [sent("a")], Wish(absent=Absent.DELETE)) == [("unchanged", "a")]
    assert known(store, "b").deleting_at == T0


def test_a_pipeline_about_to_be_deleted_can_be_sent_again(store: Store) -> None:
    applied(store, [sent("a")])
    applied(store, [], Wish(absent=Absent.DELETE))
    assert applied(store, [sent("a")]) == [("start", "a")]
    assert (known(store, "a").desired, known(store, "a").deleting_at) == ("running", None)


def test_pruning_looks_only_at_what_was_selected_and_may_be_seen(store: Store) -> None:
    applied(store, [sent("a", labels="{team: news}"), sent("b", labels="{team: ads}"), sent("c")])
    chosen = planned(store, [], Wish(absent=Absent.DELETE, selector={"team": "news"}))
    assert [step.name for step in chosen.steps] == ["a"]
    limited = planned(store, [], Wish(absent=Absent.DELETE), Grant("x", Role.AUTHOR, {"team": "ads"}))
    assert [step.name for step in limited.steps] == ["b"]


@pytest.mark.parametrize("labels", ["{}", "{team: ads}"])
def test_a_limited_token_makes_only_pipelines_of_its_own(store: Store, labels: str) -> None:
    with pytest.raises(PenstockError) as raised:
        planned(store, [sent("a", labels=labels)], grant=Grant("x", Role.AUTHOR, {"team": "news"}))
    assert raised.value.code == "FORBIDDEN"


def test_a_limited_token_cannot_take_over_the_pipeline_of_others(store: Store) -> None:
    applied(store, [sent("a", labels="{team: ads}")])
    with pytest.raises(PenstockError) as raised:
        planned(store, [sent("a", labels="{team: news}")], grant=Grant("x", Role.AUTHOR, {"team": "news"}))
    assert raised.value.code == "FORBIDDEN"


def test_of_two_applies_at_once_the_second_does_nothing_at_all(store: Store) -> None:
    applied(store, [sent("a")])
    slow = planned(store, [sent("a", table="slow"), sent("new")])
    applied(store, [sent("a", table="fast")])
    with pytest.raises(PenstockError) as raised, store.writing() as connection:
        carry_out(connection, slow, ANN, T0)
    assert raised.value.code == "STALE_REVISION"
    with store.reading() as connection:
        assert pipelines.find(connection, "new") is None
        assert "fast" in pipelines.version(connection, "a", 2).text


def test_a_plan_is_known_by_what_it_would_do(store: Store) -> None:
    one = planned(store, [sent("a")])
    assert one.checksum == planned(store, [sent("a")]).checksum
    assert one.checksum != planned(store, [sent("a", table="x")]).checksum
    applied(store, [sent("a")])
    assert one.checksum != planned(store, [sent("a")]).checksum


def test_every_change_is_in_the_audit_log_and_among_the_events(store: Store) -> None:
    applied(store, [sent("a")])
    applied(store, [sent("a")])
    applied(store, [sent("a", table="x")])
    with store.reading() as connection:
        entries = access.listed_audit(connection).items
        events = history.listed_events(connection, pipeline="a").items
    assert [(entry.who, entry.role, entry.action, entry.object) for entry in entries] == [
        ("ann", "coder", "pipeline.upgrade", "a"),
        ("ann", "coder", "pipeline.create", "a"),
    ]
    assert entries[0].detail["fields"] == ["sinks.out.sqlite.table"]
    assert [event.kind for event in events] == ["pipeline.upgrade", "pipeline.create"]


def test_python_files_are_compared_word_by_word(store: Store) -> None:
    files = [Submitted("p.py", PYTHON)]
    applied(store, files)
    assert applied(store, files) == [("unchanged", "coded")]
    (step,) = planned(store, [Submitted("p.py", PYTHON + "\nX = 1\n")]).steps
    assert (step.action, step.cost, step.differences) == (Action.UPGRADE, Change.RESTART, ())


folders = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["t", "u", "v"]), max_size=4)
wishes = st.builds(
    Wish,
    absent=st.sampled_from(Absent),
    start=st.sampled_from([None, True, False]),
    target=st.sampled_from([None, "far"]),
)


@settings(max_examples=20)
@given(st.lists(st.tuples(folders, wishes), min_size=1, max_size=4))
def test_whatever_was_applied_applying_it_again_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, str], Wish]]
) -> None:
    store = Store.in_folder(tmp_path_factory.mktemp("store"))
    store.migrate()
    for folder, wish in steps:
        files = [sent(name, table=table) for name, table in folder.items()]
        applied(store, files, wish)
        again = planned(store, files, wish)
        assert not again.changes, again
        with store.reading() as connection:
            there = look(connection)
        for name, table in folder.items():
            assert f"table: {table}" in there[name].version.text
            assert there[name].pipeline.deleting_at is None
            if wish.start is not None:
                assert there[name].pipeline.desired == ("running" if wish.start else "stopped")
    store.close()
