"""A day of load: lag, backlog and catching up, compared with a simulation in small steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capacity.load import (
    DAY,
    Burst,
    Course,
    Outage,
    Profile,
    course,
    hourly,
    load_of,
    steady,
    worst_outage,
)

HOUR = 3600.0


def known(found: Course | None) -> Course:
    assert found is not None
    return found


def test_nothing_waits_where_more_can_be_processed_than_comes() -> None:
    found = known(course(hourly([100.0] * 12 + [50.0] * 12), 101.0))

    assert (found.peak_backlog, found.peak_lag, found.longest_wait) == (0, 0, 0)


def test_a_busy_hour_is_worked_off_in_the_hours_after_it() -> None:
    found = known(course(hourly([100.0] * 9 + [300.0] + [100.0] * 14), 200.0, limit=600.0))

    # 100 rows a second too many for an hour, then as many too few for the next.
    assert found.peak_backlog == 360_000
    assert found.peak_lag == 1800
    assert found.peak_at == 10 * HOUR
    assert found.longest_wait == 2 * HOUR
    # From 1200 s after nine until the lag is down to 600 s again.
    assert found.over_limit == pytest.approx(2 * HOUR - 2400)


def test_a_busy_evening_is_worked_off_after_midnight() -> None:
    found = known(course(hourly([100.0] * 22 + [300.0] * 2), 200.0))

    assert found.peak_backlog == pytest.approx(720_000)
    assert found.peak_at == 0
    assert found.longest_wait == pytest.approx(4 * HOUR)


def test_more_than_can_be_processed_grows_for_ever() -> None:
    assert course(steady(100.0), 100.0) is None
    assert course(steady(100.0), 101.0, [Burst(3600.0, 3600.0)]) is None


def test_an_outage_is_caught_up_with_what_is_left_of_the_capacity() -> None:
    found = known(course(steady(1000.0), 1500.0, outage=Outage(0.0, 7200.0)))

    assert found.peak_backlog == 7_200_000
    assert found.peak_lag == 7200
    assert found.caught_up == 7_200_000 / 500
    assert found.longest_wait == 7200 + 14_400


def test_an_outage_is_tried_when_it_costs_most() -> None:
    profile = hourly([100.0] * 8 + [180.0] * 4 + [100.0] * 12)
    worst = worst_outage(profile, 200.0, 2 * HOUR)
    each_hour = [known(course(profile, 200.0, outage=Outage(hour * HOUR, 2 * HOUR))).caught_up for hour in range(24)]

    # In the busy hours: 1,296,000 rows, of which 20 a second are worked off for 2 hours, and then 100.
    assert each_hour[8] == pytest.approx(2 * HOUR + (2 * HOUR * 180 - 2 * HOUR * 20) / 100)
    assert each_hour[16] == pytest.approx(2 * HOUR)
    assert known(course(profile, 200.0, outage=worst)).caught_up == max(time for time in each_hour if time is not None)


def test_what_windows_give_out_comes_at_once() -> None:
    found = known(course(steady(100.0), 200.0, [Burst(3600.0, 60_000.0)]))

    assert found.peak_backlog == 60_000
    assert found.peak_lag == 300
    assert found.longest_wait == 600


def test_windows_longer_than_a_day_end_on_the_day_that_is_shown() -> None:
    week = Burst(7 * DAY, 600_000.0)
    found = known(course(steady(100.0), 200.0, [week]))

    assert (found.peak_backlog, found.longest_wait) == (600_000, 6000)
    after = known(course(steady(100.0), 200.0, [week], outage=Outage(0.0, 3600.0)))
    assert after.caught_up == pytest.approx((600_000 + 360_000) / 100)


def test_bursts_that_follow_each_other_closely_are_spread() -> None:
    found = known(course(steady(100.0), 200.0, [Burst(1.0, 50.0)]))

    assert found.peak_backlog == 0
    assert load_of(steady(100.0), [Burst(1.0, 50.0)]) == 150
    assert course(steady(100.0), 149.0, [Burst(1.0, 50.0)]) is None


rates = st.lists(st.integers(0, 300), min_size=24, max_size=24).filter(any)


@settings(max_examples=40, deadline=None)
@given(rates, st.integers(1, 100), st.integers(0, 40), st.sampled_from([HOUR, 2 * HOUR]))
def test_a_day_is_as_a_simulation_in_minutes_has_it(hours: list[int], spare: int, burst: int, every: float) -> None:
    profile = hourly([float(rate) for rate in hours])
    bursts = [Burst(every, burst * 100.0)]
    capacity = load_of(profile, bursts) + spare
    found = known(course(profile, capacity, bursts))

    step, backlog, peak = 60.0, 0.0, 0.0
    for minute in range(3 * 1440):
        if minute * step % every == 0:
            backlog += burst * 100.0
        peak = max(peak, backlog) if minute >= 1440 else peak
        backlog = max(backlog + (hours[minute // 60 % 24] - capacity) * step, 0.0)
        peak = max(peak, backlog) if minute >= 1440 else peak
    # What waits can only begin to wait within a minute where the rate changes, which are whole minutes.
    assert found.peak_backlog == pytest.approx(peak, abs=1e-3)
    assert found.peak_lag == pytest.approx(peak / capacity, abs=1e-6)


@given(st.floats(1, 1e6), st.floats(0.01, 10), st.floats(60, DAY))
@settings(deadline=None)
def test_catching_up_takes_as_long_as_the_backlog_over_what_is_spare(rate: float, spare: float, length: float) -> None:
    found = known(course(steady(rate), rate * (1 + spare), outage=Outage(0.0, length)))
    expected = length / spare

    if expected < 28 * DAY:
        assert found.caught_up == pytest.approx(expected, rel=1e-6)
    assert found.peak_backlog == pytest.approx(rate * length)


@given(rates, st.floats(1.01, 4), st.floats(1.01, 4))
@settings(deadline=None, max_examples=40)
def test_more_capacity_never_makes_rows_wait_longer(hours: list[int], one: float, other: float) -> None:
    profile = hourly([float(rate) for rate in hours])
    less, more = (known(course(profile, profile.mean * factor)) for factor in sorted((one, other)))

    assert more.peak_lag <= less.peak_lag + 1e-9
    assert more.longest_wait <= less.longest_wait + 1e-6


def test_a_profile_knows_its_peak_and_its_mean() -> None:
    profile = Profile((0.0, DAY / 4), (400.0, 200.0))

    assert (profile.peak, profile.mean) == (400, 250)
