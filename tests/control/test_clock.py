"""The steady clock of the server: what happened when, whatever the time of day was set to since."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.clocks import HandClock

from penstock.control.clock import Clock, Moments
from penstock.control.supervisor.ports import Notice, Run
from penstock.reports import processes

START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
JUMPS = st.one_of(st.integers(-7200, -2), st.integers(2, 7200))


def seconds(length: dt.timedelta) -> float:
    return length.total_seconds()


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_what_happened_before_the_clock_was_set_is_as_long_ago_as_it_is(jump: int) -> None:
    clock = HandClock(START)
    clock.skip(600)
    label = clock.now()
    clock.skip(30)
    clock.set(jump)
    assert clock.steady() - clock.moment(label) == dt.timedelta(seconds=30)
    clock.skip(30)
    assert clock.steady() - clock.moment(label) == dt.timedelta(seconds=60)
    assert clock.now() - clock.corrected(label) == dt.timedelta(seconds=60)


@given(st.lists(st.tuples(st.integers(1, 4000), JUMPS), max_size=6), st.integers(0, 3000))
def test_what_was_seen_once_stays_where_it_is_however_often_the_clock_is_set(
    jumps: Sequence[tuple[int, int]], after: int
) -> None:
    clock = HandClock(START)
    moments = Moments(clock)
    label, moment = clock.both()
    run = moments.run(Run("r1", "a", 1, 1, "local", label))
    assert run.started_at == moment
    gone = after
    for pause, jump in jumps:
        clock.skip(pause)
        clock.set(jump)
        gone += pause
        assert clock.moment(label) <= clock.steady()
    clock.skip(after)
    assert moments.run(Run("r1", "a", 1, 1, "local", label)) == run
    assert seconds(clock.steady() - run.started_at) == gone


@given(st.lists(st.tuples(st.integers(1, 4000), JUMPS), max_size=6), st.integers(0, 3000), st.integers(1, 7200))
def test_no_time_of_day_within_a_while_is_earlier_than_the_earliest(
    jumps: Sequence[tuple[int, int]], after: int, last: int
) -> None:
    clock = HandClock(START)
    shown = [clock.both()]
    for pause, jump in jumps:
        clock.skip(pause)
        shown.append(clock.both())
        clock.set(jump)
        shown.append(clock.both())
    clock.skip(after)
    length = dt.timedelta(seconds=last)
    within = [wall for wall, moment in shown if moment >= clock.steady() - length]
    assert all(clock.earliest(length) <= wall for wall in within)
    if not jumps:
        assert clock.earliest(length) == clock.now() - length


def test_a_time_that_has_not_come_yet_is_now() -> None:
    clock = HandClock(START)
    assert clock.moment(START + HOUR) == clock.steady()


def test_a_clock_that_drifts_a_little_was_not_set() -> None:
    clock = HandClock(START)
    for _ in range(20):
        clock.skip(60)
        clock.set(0.01)
    assert len(clock._eras) == 1


def test_a_new_server_knows_how_the_clock_was_set_before_it(tmp_path: Path) -> None:
    wall, ticks, file = START, 1000.0, tmp_path / "clock.json"
    assert Clock(lambda: wall, lambda: ticks, file).now() == START
    ended, wall, ticks = START + HOUR / 2, START - HOUR / 2, 1000.0 + 3600
    again = Clock(lambda: wall, lambda: ticks, file)
    assert again.steady() - again.moment(ended) == HOUR / 2
    unknown = Clock(lambda: wall, lambda: ticks)
    assert unknown.moment(ended) == unknown.steady(), "at the least it is not in the future"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 1}', '{"boot": "BOOT", "eras": [[1]]}'])
def test_what_cannot_be_read_or_is_of_another_start_of_the_machine_is_left_out(tmp_path: Path, text: str) -> None:
    file = tmp_path / "clock.json"
    file.write_text(text.replace("BOOT", processes.boot()))
    clock = Clock(lambda: START, lambda: 7.0, file)
    assert clock.moment(START - HOUR) == clock.steady() - HOUR


def test_other_starts_of_the_machine_count_their_seconds_from_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clock.json"
    Clock(lambda: START, lambda: 9000.0, file)
    monkeypatch.setattr(processes, "boot", lambda: "later")
    clock = Clock(lambda: START + HOUR, lambda: 5.0, file)
    assert clock.steady() - clock.moment(START) == HOUR


def test_what_deletes_by_age_waits_a_day_before_it_believes_a_clock_that_was_set_forward() -> None:
    clock = HandClock(START)
    clock.skip(60)
    clock.set(400 * 86_400)
    assert clock.cautious() == START + dt.timedelta(seconds=60)
    clock.skip(86_401)
    assert clock.cautious() == clock.now()
    clock.set(-3600)
    assert clock.cautious() == clock.now(), "an earlier time is believed at once"


def test_a_deadline_is_as_far_away_as_when_it_was_first_heard() -> None:
    clock = HandClock(START)
    moments = Moments(clock)
    notice = Notice("spot", "file", START, START + dt.timedelta(seconds=90))
    deadline = moments.notice(notice).deadline
    assert deadline is not None
    assert deadline - clock.steady() == dt.timedelta(seconds=90)
    clock.set(3600)
    assert moments.notice(notice).deadline == deadline


def test_a_deadline_that_has_passed_when_it_is_first_heard_is_of_another_clock() -> None:
    clock = HandClock(START)
    found = Moments(clock).notice(Notice("spot", "file", START, START - HOUR)).deadline
    assert found is not None
    assert found > clock.steady() + 24 * HOUR
