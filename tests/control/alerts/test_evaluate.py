from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.alerts.evaluate import CALM, OK, AlertState, Transition, step

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Looks = list[tuple[int, bool]]
"""Seconds since the start, and whether the condition holds."""


def at(seconds: int) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def firing_after_each(looks: Looks, hold_for: int, calm: int) -> list[bool]:
    """By the definition, looking back at all that was seen, without any state.

    An alert fires if at some look the condition had held for long enough without a break, and since then there was no
    look at which it had not held for long enough without a break.
    """

    def unbroken(last: int, wanted: bool, seconds: int) -> bool:
        first = last
        while first >= 0 and looks[first][1] is wanted:
            first -= 1
        return first < last and looks[last][0] - looks[first + 1][0] >= seconds

    def fires(now: int) -> bool:
        for look in range(now, -1, -1):
            if unbroken(look, True, hold_for):
                return True
            if unbroken(look, False, calm):
                return False
        return False

    return [fires(now) for now in range(len(looks))]


gaps = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=40)
times = st.sampled_from([0, 1, 15, 30, 60, 120])


@given(gaps, times, times)
def test_alerts_fire_and_end_as_the_definition_says(looked: Looks, hold_for: int, calm: int) -> None:
    looks: Looks = []
    for gap, holds in looked:
        looks.append(((looks[-1][0] if looks else 0) + gap, holds))
    state, fired, transitions = OK, [], []
    for second, holds in looks:
        before = state.phase == "firing"
        state, transition = step(state, holds, at(second), dt.timedelta(seconds=hold_for), dt.timedelta(seconds=calm))
        fired.append(state.phase == "firing")
        expected = None if before == fired[-1] else Transition.FIRING if fired[-1] else Transition.RESOLVED
        assert transition == expected
        transitions += [transition] if transition else []
        assert (state.since is None) == (state.phase == "ok")
    assert fired == firing_after_each(looks, hold_for, calm)
    assert all(first != second for first, second in pairwise(transitions))


@pytest.mark.parametrize("hold_for", [0, 60])
def test_a_condition_that_comes_and_goes_fires_once(hold_for: int) -> None:
    state: AlertState = OK
    told = []
    for second in range(0, 3600, 20):
        state, transition = step(state, second < 100 or second % 40 == 0, at(second), dt.timedelta(seconds=hold_for))
        told.append(transition)
    assert [transition for transition in told if transition] == [Transition.FIRING]


def test_a_clock_that_goes_back_fires_nothing_and_ends_nothing() -> None:
    pending = AlertState("pending", at(100))
    assert step(pending, True, at(0), dt.timedelta(seconds=10)) == (pending, None)
    calm = AlertState("firing", at(0), at(100))
    assert step(calm, False, at(50), dt.timedelta(0), CALM) == (calm, None)
