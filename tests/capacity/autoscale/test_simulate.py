"""Days of load with Penstock's decisions, beside a fixed size, Flink's rules and a controller that knows everything."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capacity.autoscale.decide import Action
from penstock.capacity.autoscale.evaluate import Rules
from penstock.capacity.autoscale.flink_rules import FlinkRules
from penstock.capacity.autoscale.simulate import Autoscaler, Machine, Outcome, fixed_size, ideal, simulate
from penstock.capacity.load import Profile, hourly, steady

HOUR = 3600.0
EACH = 1450.0
MACHINE = Machine(fixed=0.5, core_row=1 / EACH)
IDEAL = Machine(fixed=0.5, core_row=1 / EACH, restart=0.0)
RULES = Rules(1, 16, restart=40)
TRIPLE = Profile((0.0, 8 * HOUR, 14 * HOUR), (3000.0, 9000.0, 3000.0))
DIURNAL = Profile(
    tuple(600.0 * part for part in range(144)),
    tuple(4000 - 3000 * math.cos(part / 144 * 2 * math.pi) for part in range(144)),
)
SPIKES = Profile(
    tuple(300.0 * part for part in range(288)),
    tuple(12_000.0 if part in (40, 41, 100, 101, 102, 200) else 2000.0 for part in range(288)),
)
RECORDED = hourly(
    [600, 400, 300, 300, 400, 1000, 2800, 5200, 6200, 4800, 4000, 4400,
     6800, 5800, 4200, 3600, 3600, 4400, 5400, 7600, 8800, 7200, 3800, 1600]
)  # fmt: skip
"""The day of the guide on capacity, with fewer rows."""
OUTAGE = ((10 * HOUR, 12 * HOUR),)


def penstock(rules: Rules = RULES) -> Autoscaler:
    return Autoscaler(rules, MACHINE.fixed, MACHINE.batch_limit)


def cores_for(load: float) -> int:
    return max(1, math.ceil(load / EACH / RULES.busy))


def day(profile: Profile, outages: tuple[tuple[float, float], ...] = ()) -> Mapping[str, Outcome]:
    start = cores_for(profile.rates[0])
    return {
        "penstock": simulate(profile, MACHINE, penstock(), cores=start, outages=outages),
        "flink": simulate(profile, MACHINE, FlinkRules(1, 16), cores=start, outages=outages),
        "fixed": simulate(profile, MACHINE, fixed_size(cores_for(profile.peak)), cores=cores_for(profile.peak),
                          outages=outages),
        "ideal": simulate(profile, IDEAL, ideal(profile, IDEAL), cores=start, outages=outages),
    }  # fmt: skip


def test_a_load_that_triples_and_falls_again_takes_four_changes_at_most() -> None:
    found = day(TRIPLE)

    assert found["penstock"].changes <= 4
    # Rows never wait longer than five minutes, which is one stabilisation.
    assert found["penstock"].longest_over <= RULES.stabilisation
    assert found["penstock"].core_hours < 0.65 * found["fixed"].core_hours
    assert found["penstock"].core_hours < found["flink"].core_hours
    assert found["penstock"].core_hours < 1.5 * found["ideal"].core_hours


@pytest.mark.parametrize(
    ("profile", "outages", "share_of_fixed"),
    [(DIURNAL, (), 0.75), (SPIKES, (), 0.6), (RECORDED, (), 0.6), (DIURNAL, OUTAGE, 0.95)],
    ids=["diurnal", "spikes", "recorded", "outage"],
)
def test_a_day_costs_less_than_a_fixed_size_and_rows_wait_no_longer_than_by_flinks_rules(
    profile: Profile, outages: tuple[tuple[float, float], ...], share_of_fixed: float
) -> None:
    found = day(profile, outages)

    assert found["penstock"].core_hours < share_of_fixed * found["fixed"].core_hours
    assert found["penstock"].over <= found["flink"].over
    assert found["penstock"].changes <= RULES.most_per_day
    assert found["penstock"].down_while_behind == 0
    assert found["penstock"].left < 2 * MACHINE.trigger * profile.rates[-1]


def test_an_outage_is_worked_off_in_an_hour() -> None:
    found = day(DIURNAL, OUTAGE)

    assert found["penstock"].over <= 3600
    assert found["fixed"].over > 3 * 3600


def test_an_even_load_changes_nothing() -> None:
    found = simulate(steady(4000.0), MACHINE, penstock(), cores=4)

    assert found.changes == 0
    assert found.core_hours == pytest.approx(96, rel=0.001)


def test_cores_that_do_not_help_are_given_once_and_not_again_and_again() -> None:
    limited = Machine(fixed=0.5, core_row=1 / EACH, useful_cores=4)
    policy = penstock()
    found = simulate(steady(7000.0), limited, policy, cores=4)

    assert found.changes <= 4
    assert any(decision.ineffective for decision in policy.decisions)
    assert any(decision.why.startswith("more cores did not help") for decision in policy.decisions)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(100, 12_000), min_size=24, max_size=24), st.integers(0, 1000))
def test_on_no_day_cores_are_taken_away_while_rows_wait(hours: list[float], seed: int) -> None:
    found = simulate(hourly(hours), MACHINE, penstock(), cores=cores_for(hours[0]), seed=seed)

    assert found.down_while_behind == 0
    assert found.changes <= RULES.most_per_day


def test_every_decision_that_changes_something_has_its_formula() -> None:
    policy = penstock()
    simulate(TRIPLE, MACHINE, policy, cores=3)

    changed = [decision for decision in policy.decisions if decision.action in (Action.UP, Action.DOWN)]
    assert len(changed) == 3
    assert all("÷ 0.7" in decision.in_words and "→" in decision.in_words for decision in changed)


def test_rows_are_neither_lost_nor_made_up() -> None:
    """What came is what was processed and what is left."""
    policy = penstock()
    taken = 0.0

    class Counting:
        def __call__(self, seen: object) -> int:
            nonlocal taken
            batches = seen.batches  # type: ignore[attr-defined]
            taken = max(taken, sum(batch.rows for batch in batches))
            return policy(seen)  # type: ignore[arg-type]

    simulate(steady(1000.0), MACHINE, Counting(), cores=4)

    # An hour of batches is kept.
    assert taken == pytest.approx(3_600_000, rel=0.01)
