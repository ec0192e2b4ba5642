"""History: batches kept once, thinned for weeks without losing a row, and found page by page."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.store.databases import T0, create

from penstock.control.store import history, pipelines
from penstock.control.store.database import Store
from penstock.control.store.history import BATCH, HOUR, MINUTE, BatchNumbers, StoredBatch
from penstock.control.store.thin import Keep, put_together, thin
from penstock.control.store.trend import trend
from penstock.control.supervisor.ports import Failure
from penstock.errors import Problem

RUN = "r00000000000a"
DAY = dt.timedelta(days=1)
FULL = Failure("a", RUN, T0, Problem("DISK_FULL", {"path": "/x"}).as_dict())


def batch(number: int, at: dt.datetime, **values: Any) -> BatchNumbers:
    return BatchNumbers("a", RUN, number, at, **{"duration_ms": 10, "rows_in": 3, "rows_out": 2, "dead": 1, **values})


def test_a_batch_told_twice_is_kept_once(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        assert history.add_batches(connection, [batch(1, T0), batch(2, T0)]) == 2
        assert history.add_batches(connection, [batch(2, T0, rows_in=99), batch(3, T0)]) == 1
        assert pipelines.get(connection, "a").rows_in == 9


def test_batches_are_found_by_time_and_run_page_by_page(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        history.add_batches(connection, [batch(number, T0 + dt.timedelta(seconds=number)) for number in range(10)])
        history.add_batches(connection, [BatchNumbers("a", "r00000000000b", 1, T0, 1, 1, 1)])
        first = history.batches_of(connection, "a", run=RUN, since=T0 + dt.timedelta(seconds=4), limit=4)
        assert first.next is not None
        rest = history.batches_of(
            connection, "a", run=RUN, since=T0 + dt.timedelta(seconds=4), limit=4, after=int(first.next)
        )
        earlier = history.batches_of(connection, "a", run=RUN, up_to=6, limit=2)
    assert [item.batch for item in (*first.items, *rest.items)] == [9, 8, 7, 6, 5, 4]
    assert rest.next is None
    assert [item.batch for item in earlier.items] == [6, 5]


def test_a_trend_adds_up_what_ended_within_the_same_seconds(store: Store) -> None:
    found = [batch(number, T0 + dt.timedelta(seconds=0.9 * number), watermark=number) for number in range(20)]
    until = T0 + dt.timedelta(seconds=20)
    with store.writing() as connection:
        create(connection, "a")
        history.add_batches(connection, found)
        points = trend(connection, "a", since=T0, until=until, points=4)
        assert trend(connection, "a", since=until, until=until + DAY, points=4) == ()
    ended = Counter(int(each.at.timestamp()) // 5 for each in found)
    assert [point.batches for point in points] == [ended[second] for second in sorted(ended)]
    assert [point.rows_in for point in points] == [3 * point.batches for point in points]
    assert points[-1].watermark == 19


def all_thinned(store: Store, keep: Keep, now: dt.datetime) -> None:
    for _ in range(1000):
        with store.writing() as connection:
            if thin(connection, keep, now) == 0:
                return
    pytest.fail("thinning does not come to an end")


def test_old_batches_become_minutes_then_hours_and_every_row_stays_counted(store: Store) -> None:
    ages = [3 * DAY * 10, 2 * DAY, dt.timedelta(hours=2)]  # a month, two days, two hours ago
    now = T0 + 40 * DAY
    with store.writing() as connection:
        create(connection, "a")
        for index, age in enumerate(ages):
            start = now - age
            history.add_batches(
                connection,
                [batch(index * 1000 + n, start + dt.timedelta(seconds=20 * n), balanced=n != 5) for n in range(300)],
            )
        before = pipelines.get(connection, "a")
    all_thinned(store, Keep(), now)
    with store.reading() as connection:
        after = pipelines.get(connection, "a")
        kept = history.batches_of(connection, "a", limit=1000).items
    assert after == before
    assert sum(item.rows_in for item in kept) == after.rows_in == 2700
    grains = Counter(item.grain for item in kept)
    assert grains[BATCH] == 300
    assert 100 <= grains[MINUTE] <= 101
    assert 2 <= grains[HOUR] <= 3
    assert [item.balanced for item in kept if item.grain == HOUR].count(False) == 1
    assert sum(item.span for item in kept) == 900


def test_thinning_again_changes_nothing(store: Store) -> None:
    now = T0 + 40 * DAY
    with store.writing() as connection:
        create(connection, "a")
        history.add_batches(connection, [batch(n, T0 + dt.timedelta(seconds=n)) for n in range(100)])
    all_thinned(store, Keep(), now)
    with store.reading() as connection:
        once = history.batches_of(connection, "a").items
    all_thinned(store, Keep(), now + dt.timedelta(seconds=30))
    with store.reading() as connection:
        assert history.batches_of(connection, "a").items == once


def test_what_is_older_than_all_is_gone(store: Store) -> None:
    now = T0 + 200 * DAY
    with store.writing() as connection:
        create(connection, "a")
        history.add_batches(connection, [batch(1, T0), batch(2, now)])
        history.add_event(connection, "old", "long ago", now=T0, pipeline="a")
        history.add_event(connection, "new", "just now", now=now, pipeline="a")
        history.add_exceptions(connection, [FULL])
    all_thinned(store, Keep(), now)
    with store.reading() as connection:
        assert [item.batch for item in history.batches_of(connection, "a").items] == [2]
        assert [event.kind for event in history.listed_events(connection).items] == ["new"]
        assert history.exceptions_of(connection).items == ()


numbers = st.integers(0, 1000)


@given(
    st.lists(st.tuples(st.integers(0, 7200), numbers, numbers, st.sampled_from([RUN, "r00000000000b"])), min_size=1),
    st.sampled_from([MINUTE, HOUR]),
)
def test_put_together_rows_lose_nothing(found: list[tuple[int, int, int, str]], grain: int) -> None:
    rows = [
        StoredBatch(
            "a", run, number, T0 + dt.timedelta(seconds=second), duration, rows_in=rows_in, rows_out=rows_in,
            details={"rows_in": {"views": rows_in}},
        )
        for number, (second, rows_in, duration, run) in enumerate(found)
    ]  # fmt: skip
    together = list(put_together(rows, grain))
    assert sum(row.rows_in for row in together) == sum(row.rows_in for row in rows)
    assert sum(row.span for row in together) == len(rows)
    assert sum((row.details or {})["rows_in"]["views"] for row in together) == sum(row.rows_in for row in rows)
    assert max(row.longest_ms or 0 for row in together) == max(row.duration_ms for row in rows)
    places = [(row.run, int(row.at.timestamp()) // grain) for row in together]
    assert len(set(places)) == len(places)
    assert set(places) == {(row.run, int(row.at.timestamp()) // grain) for row in rows}


def test_exceptions_keep_code_owner_and_hint(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a")
        history.add_exceptions(connection, [FULL, FULL])
        history.add_exceptions(connection, [FULL])
        (found,) = history.exceptions_of(connection, pipeline="a").items
    assert (found.code, found.owner, found.detail["params"]) == ("DISK_FULL", "operator", {"path": "/x"})
    assert "Free space" in found.hint


def test_events_are_followed_from_the_last_one_seen(store: Store) -> None:
    with store.writing() as connection:
        create(connection, "a", team="news")
        create(connection, "b")
        history.add_event(connection, "x", "one", now=T0, pipeline="a")
        seen = history.last_event(connection)
        history.add_event(connection, "x", "two", now=T0, pipeline="b")
        history.add_event(connection, "y", "three", now=T0, pipeline="a", data={"n": 1})
        history.add_event(connection, "y", "of the server", now=T0)
        rest = history.listed_events(connection, after=seen, newest_first=False).items
        mine = history.listed_events(connection, after=seen, scopes=[{"team": "news"}], newest_first=False).items
    assert [event.text for event in rest] == ["two", "three", "of the server"]
    assert [(event.text, event.data) for event in mine] == [("three", {"n": 1})]
