"""The formula of scaling, term by term."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity.autoscale.evaluate import Rules, evaluate, too_little, too_much
from penstock.capacity.autoscale.observe import Observed
from penstock.capacity.forecast import BatchCost

RULES = Rules(least=1, most=16, restart=40)


def observed(
    load: float, lag: float = 0.0, capacity: float = 2900.0, cores: int = 2, batch_limit: int | None = None
) -> Observed:
    return Observed(0.0, cores, load, lag, BatchCost(0.0, 1 / capacity), batch_limit)


def test_the_formula_is_said_with_each_of_its_terms() -> None:
    found = evaluate(observed(3200, 1.2e6), RULES)

    assert found.in_words == (
        "load 3,200/s ÷ 0.7 + lag 1.2 M ÷ 30 min + restart 40 s → 5,300/s; 2 cores give 2,900/s → 4 cores"
    )
    assert [found.by_load, found.by_lag, found.by_restart] == pytest.approx([4571.43, 666.67, 71.11], abs=0.01)
    assert found.wanted == pytest.approx(5309.2, abs=0.1)
    assert found.capacity_then == pytest.approx(5800)


def test_what_the_limits_cut_off_is_said() -> None:
    found = evaluate(observed(30_000), RULES)

    assert (found.needed, found.unbounded) == (16, 31)
    assert found.in_words.endswith("→ 16 cores, within the limits; without them 31 cores")


def test_no_number_of_cores_makes_limited_batches_carry_more() -> None:
    limited = Observed(0.0, 2, 3000.0, 0.0, BatchCost(1.0, 1e-4), batch_limit=1000)
    found = evaluate(limited, RULES)

    assert (found.needed, found.unbounded) == (16, None)
    assert found.in_words.endswith("and no number of cores is enough")


@given(st.floats(0, 1e6), st.floats(0, 1e9), st.floats(1, 1e6), st.integers(1, 64))
def test_the_fewest_cores_that_give_what_is_needed_are_chosen(
    load: float, lag: float, capacity: float, cores: int
) -> None:
    rules = Rules(1, 1 << 20, restart=40)
    found = evaluate(observed(load, lag, capacity, cores), rules)

    each = capacity / cores
    assert found.unbounded is None or found.unbounded * each >= found.wanted * (1 - 1e-9)
    assert found.unbounded is None or (found.unbounded - 1) * each < found.wanted * (1 + 1e-9) or found.unbounded == 1


@given(st.floats(0, 1e5), st.floats(0, 1e8), st.floats(1.0, 3.0))
def test_more_load_never_needs_fewer_cores(load: float, lag: float, more: float) -> None:
    less = evaluate(observed(load, lag), RULES)

    assert evaluate(observed(load * more, lag), RULES).needed >= less.needed
    assert evaluate(observed(load, lag * more), RULES).needed >= less.needed


@given(st.floats(0, 1e5), st.floats(0, 1e8), st.floats(1.0, 1e5))
def test_cores_are_never_too_few_and_too_many_at_once(load: float, lag: float, capacity: float) -> None:
    found = evaluate(observed(load, lag, capacity), RULES)

    assert not (too_little(found, RULES) and too_much(found, RULES))


def test_cores_that_brought_half_of_what_they_promised_are_counted_as_half() -> None:
    # 5,309 of 2,900: 2,409 more, at 725 instead of 1,450 for each core.
    assert evaluate(observed(3200, 1.2e6), RULES, scaling=0.5).needed == 6


@pytest.mark.parametrize(("load", "little", "much"), [(2700, True, False), (2000, False, False), (1300, False, True)])
def test_within_the_band_nothing_is_too_little_or_too_much(load: float, little: bool, much: bool) -> None:
    found = evaluate(observed(load), RULES)

    assert (too_little(found, RULES), too_much(found, RULES)) == (little, much)
