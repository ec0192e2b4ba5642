"""What a pipeline can take, compared with batches that are run one after the other."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.capacity.histories import TrueCosts, history

from penstock.capacity.fit import BATCH, ROW, Cost, CostModel, fit
from penstock.capacity.forecast import (
    BatchCost,
    Running,
    after_outage,
    at_load,
    batch_cost,
    cores_for,
    most_within,
    running,
    shares,
)


def model(fixed: float, row: float, largest: int = 10_000) -> CostModel:
    costs = (Cost(BATCH, fixed, 0.0), Cost(ROW, row, 0.0))
    nothing = ((0.0, 0.0), (0.0, 0.0))
    return CostModel(costs, nothing, (), 0.0, 1.0, 100, 0, 3600.0, 100, largest)


def now(rate: float, trigger: float, batch_limit: int | None = None, cores: int | None = None) -> Running:
    return Running(rate, trigger, 0.0, 0.0, 0.0, batch_limit, cores)


class Loop:
    """Batches one after the other, as a driver runs them."""

    def __init__(self, fixed: float, row: float, trigger: float, batch_limit: int | None = None) -> None:
        self.fixed, self.row, self.trigger, self.batch_limit = fixed, row, trigger, batch_limit
        self.at = self.waiting = self.worst = 0.0

    def run(self, rate: float, seconds: float) -> None:
        """Runs on until that much later; keeps the wait of the row that waited longest in the last batch."""
        end, read = self.at + seconds, self.at
        while self.at < end:
            self.waiting += rate * (self.at - read)
            oldest, read = self.waiting / rate if rate else 0.0, self.at
            rows = self.waiting if self.batch_limit is None else min(self.waiting, self.batch_limit)
            self.waiting -= rows
            took = self.fixed + self.row * rows
            self.worst = oldest + took
            self.at += max(took, self.trigger)
        self.waiting += rate * (self.at - read)


@settings(max_examples=150, deadline=None)
@given(
    st.floats(0.01, 2.0), st.floats(1e-6, 1e-3), st.floats(1.0, 20_000.0), st.floats(0.2, 10.0),
    st.sampled_from([None, 500, 5000]),
)  # fmt: skip
def test_freshness_is_that_of_batches_run_one_after_the_other(
    fixed: float, row: float, rate: float, trigger: float, limit: int | None
) -> None:
    found = at_load(model(fixed, row), now(rate, trigger, limit), rate)
    most = BatchCost(fixed, row).most(limit)
    assume(abs(rate / most - 1) > 0.05 and row * rate < 0.95)
    assume(limit is None or abs(rate * trigger / limit - 1) > 0.05)
    loop = Loop(fixed, row, trigger, limit)
    loop.run(rate, 2000 * max(trigger, fixed))
    before = loop.waiting
    loop.run(rate, 500 * max(trigger, fixed))

    if found.keeps_up and (limit is None or rate * found.every < limit):
        assert loop.worst == pytest.approx(found.freshness, rel=0.02)
    if not found.keeps_up:
        assert loop.waiting > before


def test_a_batch_that_fits_into_the_trigger_waits_for_it() -> None:
    found = at_load(model(0.5, 1e-4), now(2000, 2.0), 2000)

    assert (found.every, found.batch_rows) == (2.0, 4000)
    assert found.batch_seconds == pytest.approx(0.9)
    assert found.freshness == pytest.approx(2.9)
    assert found.busy == pytest.approx(0.45)
    assert found.extrapolated == pytest.approx(0.4)


def test_batches_that_take_longer_than_the_trigger_grow_until_they_keep_up() -> None:
    found = at_load(model(0.5, 1e-4), now(8000, 2.0), 8000)

    # 0.5 s + 0.8 s for each second: 2.5 s hold 20,000 rows, which take 2.5 s.
    assert found.every == pytest.approx(2.5)
    assert found.batch_seconds == pytest.approx(2.5)
    assert found.freshness == pytest.approx(5.0)
    assert (found.busy, found.keeps_up) == (1.0, True)


def test_more_than_cores_can_do_is_never_kept_up_with() -> None:
    found = at_load(model(0.5, 1e-4), now(10_000, 2.0), 10_000)

    assert not found.keeps_up
    assert math.isinf(found.freshness)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 2.0), st.floats(1e-6, 1e-3), st.floats(0.2, 10.0), st.floats(1.0, 120.0))
def test_the_highest_rate_within_a_freshness_is_just_fresh_enough(
    fixed: float, row: float, trigger: float, freshness: float
) -> None:
    rate = most_within(BatchCost(fixed, row), now(1, trigger), freshness)
    assume(rate > 0)

    below, above = (at_load(model(fixed, row), now(rate, trigger), rate * share) for share in (0.999, 1.001))
    assert below.freshness <= freshness
    assert above.freshness > freshness


def test_a_trigger_longer_than_the_freshness_is_never_fresh_enough() -> None:
    assert most_within(BatchCost(0.5, 1e-4), now(100, 60.0), 30.0) == 0


def test_an_outage_is_caught_up_with_what_is_left_of_the_capacity() -> None:
    found = after_outage(BatchCost(0.5, 1e-4), now(4000, 2.0), 7200.0)

    assert found is not None
    assert found.caught_up is not None
    # 28.8 M rows, at 6,000 rows/s more than come.
    assert found.caught_up == pytest.approx(4800, rel=1e-3)
    assert found.peak_backlog == pytest.approx(28_800_000)


def test_an_outage_is_caught_up_more_slowly_with_small_batches() -> None:
    limited = BatchCost(0.5, 1e-4)
    found = after_outage(limited, now(4000, 2.0, batch_limit=5000), 7200.0)

    # 5,000 rows a second leave 1,000 for the backlog.
    assert limited.most(5000) == pytest.approx(5000)
    assert found is not None
    assert found.caught_up == pytest.approx(28_800, rel=1e-3)


def test_an_outage_at_the_limit_is_never_caught_up() -> None:
    assert after_outage(BatchCost(0.5, 1e-4), now(10_000, 2.0), 7200.0) is None


def test_cores_share_the_rows_and_not_the_fixed_part() -> None:
    cost, at = BatchCost(0.5, 1e-4), now(8000, 2.0, cores=2)

    assert cost.with_cores(2, 4) == BatchCost(0.5, 5e-5)
    # 24,000 rows/s at 1e-4 × 2 ÷ cores: 4.8 busy cores, 70 % of 7.
    assert cores_for(cost, at, 24_000, freshness=60, busy=0.7).cores == 7
    assert cores_for(cost, at, 24_000, freshness=60, busy=1.0).cores == 5


def test_cores_are_needed_to_catch_up_in_time() -> None:
    cost, at = BatchCost(0.5, 1e-4), now(8000, 2.0, cores=2)

    # 57.6 M rows in an hour are 16,000/s, beside the 8,000/s that come: 24,000/s are 4.8 cores.
    assert cores_for(cost, at, 8000, freshness=60, busy=0.7, catch_up=(7200, 3600)).cores == 5
    assert cores_for(cost, at, 8000, freshness=60, busy=0.7).cores == 3


def test_no_number_of_cores_makes_the_fixed_part_shorter() -> None:
    cost, at = BatchCost(5.0, 1e-4), now(8000, 2.0, cores=2)
    found = cores_for(cost, at, 8000, freshness=6, busy=0.7)

    assert found.cores is None
    assert found.reason == "a trigger of 2 s and 5 s for each batch are more than 6 s"


def test_no_number_of_cores_makes_limited_batches_larger() -> None:
    found = cores_for(BatchCost(1.0, 1e-4), now(800, 2.0, 1000, cores=2), 800, freshness=60, busy=0.7)

    assert (found.cores, found.reason) == (None, "batches of at most 1,000 rows carry no more")


def test_a_fitted_history_predicts_other_loads() -> None:
    truth = TrueCosts(0.4, 20e-6)
    past = history(truth, seed=11)
    found = fit(past, "clicks")
    at = running(past, 2.0, None, 2)

    assert at.rate == pytest.approx(past[-1].rows / 2, rel=0.5)
    for factor in (0.5, 2.0, 3.0):
        rate = 8000 * factor
        exact = at_load(model(truth.batch, truth.row), at, rate)
        assert at_load(found, at, rate).batch_seconds == pytest.approx(exact.batch_seconds, rel=0.1)


def test_what_comes_with_each_row_is_counted_with_it() -> None:
    truth = TrueCosts(0.3, 20e-6, row_out=15e-6, checkpoint_byte=8e-9)
    past = history(
        truth, batches=1500, noise=0.03,
        out_ratio=lambda chance, batch: 1.5 if batch % 10 == 0 else 0.0,
        bytes_per_row=lambda chance: chance.uniform(20, 400),
    )  # fmt: skip
    found = fit(past, "clicks")
    at = running(past, 2.0, None, 2)

    assert at.rows_out_per_row == pytest.approx(0.15, rel=0.15)
    assert at.checkpoint_bytes_per_row == pytest.approx(210, rel=0.1)
    assert batch_cost(found, at).row == pytest.approx(20e-6 + 0.15 * 15e-6 + 210 * 8e-9, rel=0.1)


def test_the_shares_of_a_batch_add_up() -> None:
    found = shares(model(0.5, 1e-4), now(5000, 2.0), 5000)

    assert [each.what for each in found] == ["rows", "each batch"]
    assert [each.share for each in found] == pytest.approx([2 / 3, 1 / 3])
