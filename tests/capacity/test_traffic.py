"""What holds of the traffic of any scenario."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.capacity.scenarios import scenario, scenarios, step

from penstock.capacity.limits import MOST_MACHINES, fewest, machines_needed, sustained, tightest, uses
from penstock.capacity.scenario import Scenario
from penstock.capacity.traffic import STAGES, Kind, machine_traffic, overall_traffic, stage, step_inputs

MB = 1_000_000
rates = st.floats(0, 1e8)
counts = st.integers(1, 1000)


@given(scenarios(), rates, counts)
def test_twice_the_machines_read_half_as_much_each_and_hold_half_the_state(
    given_: Scenario, rate: float, machines: int
) -> None:
    some, twice = machine_traffic(given_, rate, machines), machine_traffic(given_, rate, 2 * machines)

    assert twice.of(Kind.SOURCE)[0] * 2 == pytest.approx(some.of(Kind.SOURCE)[0])
    assert twice.state_bytes * 2 == pytest.approx(some.state_bytes)


@given(scenarios(), rates, counts)
def test_totals_are_the_sums_of_their_parts(given_: Scenario, rate: float, machines: int) -> None:
    traffic = machine_traffic(given_, rate, machines)
    overall = overall_traffic(given_, traffic, machines)
    on_network = [flow for flow in traffic.flows if flow.network]

    assert set().union(*STAGES.values()) == set(Kind)
    assert stage(traffic, "with checkpoints") == pytest.approx((traffic.network_in, traffic.network_out))
    assert traffic.network_in == pytest.approx(sum(flow.into for flow in on_network))
    assert traffic.network_out == pytest.approx(sum(flow.out for flow in on_network))
    assert overall.total == pytest.approx(overall.machines + overall.sources_and_sinks + overall.disks)
    assert overall.machines == pytest.approx(machines * (traffic.network_in + traffic.network_out))


@given(scenarios(), counts)
def test_what_is_shuffled_out_of_machines_comes_into_machines(given_: Scenario, machines: int) -> None:
    into, out = machine_traffic(given_, 1000.0, machines).of(Kind.SHUFFLE)

    assert into == out
    assert (into == 0) == (machines == 1 or all(each.bytes == 0 for each in step_inputs(given_, 1000.0).values()))


@given(scenarios(), rates, rates, counts)
def test_a_higher_rate_never_takes_less(given_: Scenario, one: float, other: float, machines: int) -> None:
    low, high = sorted((one, other))
    fewer, more = uses(given_, low, machines), uses(given_, high, machines)

    assert all(small.used <= large.used * (1 + 1e-12) for small, large in zip(fewer, more, strict=True))


@given(scenarios(), st.floats(1, 1e7), st.floats(1, 1e7))
def test_a_higher_rate_never_needs_fewer_machines(given_: Scenario, one: float, other: float) -> None:
    low, high = sorted((one, other))
    fewer = machines_needed(given_, low)
    more = machines_needed(given_, high)

    assert more is None or (fewer is not None and fewer <= more)


@given(scenarios(), st.floats(1, 1e7))
def test_the_machines_needed_are_enough_and_one_less_is_not(given_: Scenario, rate: float) -> None:
    needed = machines_needed(given_, rate)
    if needed is None:
        assert tightest(uses(given_, rate, MOST_MACHINES)).exceeds(1.0)
        return

    assert not tightest(uses(given_, rate, needed)).exceeds(1.0)
    if needed > 1:
        assert tightest(uses(given_, rate, needed - 1)).exceeds(1.0)


@given(scenarios(), counts)
def test_the_sustained_rate_fills_the_first_limit(given_: Scenario, machines: int) -> None:
    most = sustained(given_, machines)
    if most.rate == 0:
        assert tightest(uses(given_, 0.0, machines)).share >= 1
        return
    full = tightest(uses(given_, most.rate, machines))

    assert full.share == pytest.approx(1)
    assert full.resource == most.resource


@given(st.integers(1, 5000))
def test_the_fewest_that_do_are_found(least: int) -> None:
    assert fewest(lambda machines: machines >= least) == least


def test_no_number_of_machines_may_do() -> None:
    assert fewest(lambda machines: False) is None


def test_one_machine_shuffles_nothing_and_local_disks_are_not_on_the_network() -> None:
    alone = machine_traffic(scenario(disks={"attached": "local"}), 1e6, 1)

    assert alone.of(Kind.SHUFFLE) == (0, 0)
    assert (alone.network_in, alone.disk_read) == (2000 * MB, 200 * MB)


def test_shuffled_rows_of_spark_pass_the_disk_with_those_that_stay() -> None:
    traffic = machine_traffic(scenario(disks={"attached": "local", "shuffle": True}), 1e6, 5)

    assert traffic.of(Kind.SHUFFLE_FILES) == (400 * MB, 400 * MB)
    assert (traffic.disk_read, traffic.disk_write) == (440 * MB, 440 * MB)


def test_checkpoints_of_changes_write_each_entry_once_at_most() -> None:
    frequent = scenario(checkpoints={"every": "1 minute", "mode": "changes"})
    assert machine_traffic(frequent, 1e6, 5).of(Kind.CHECKPOINT)[1] == 40 * MB
    few_keys = scenario(checkpoints={"every": "1 minute", "mode": "changes"}, steps={"users": step(keys=500)})
    assert machine_traffic(few_keys, 1e6, 5).of(Kind.CHECKPOINT)[1] == pytest.approx(100 * 5 * 40 / 60)


def test_a_step_gets_what_the_one_before_gives_out() -> None:
    two = scenario(
        steps={
            "users": step(sinks=0),
            "top": step(reads="users", keys=100, windows={"size": "1 minute"}),
            "both": step(reads=["source", "users"], rows=0.5, keys=10),
        }
    )
    inputs = step_inputs(two, 1e6)

    assert inputs["users"].rows == 1e6
    assert inputs["top"].rows == pytest.approx(500e6 / 60)
    assert inputs["top"].bytes == pytest.approx(500e6 / 60 * 40)
    assert inputs["both"].rows == pytest.approx((1e6 + 500e6 / 60) / 2)
    assert inputs["both"].bytes == pytest.approx((1e6 * 2000 + 500e6 / 60 * 40) / 2)
    written = {flow.step: flow.out for flow in machine_traffic(two, 1e6, 5).flows if flow.kind is Kind.EMIT}
    assert written["users"] == 0
    assert written["top"] == pytest.approx(20 / 60 * 40)


def test_windows_that_emit_updates_give_out_what_changed_since_the_last_batch() -> None:
    each_second = {"checkpoints": {"every": "1 second", "mode": "changes"}}
    many = scenario(steps={"users": step(emits="update")}, **each_second)
    assert machine_traffic(many, 1e6, 5).of(Kind.EMIT)[1] == 200_000 * 5 * 40
    few = scenario(steps={"users": step(emits="update", keys=50)}, **each_second)
    assert machine_traffic(few, 1e6, 5).of(Kind.EMIT)[1] == 10 * 5 * 40


def test_a_pipeline_without_state_stores_what_it_reads() -> None:
    route = scenario(steps={}, stored={"rowSize": "1 KB", "rows": "50%", "sinks": 3}, disks=None, checkpoints=None)
    traffic = machine_traffic(route, 1e6, 5)

    assert (traffic.network_in, traffic.network_out) == (400 * MB, 300 * MB)
    assert traffic.of(Kind.STORED) == (0, 300 * MB)


def test_copies_in_the_store_of_checkpoints_are_counted_there_and_not_on_the_machines() -> None:
    one = scenario()
    three = scenario(checkpoints={"every": "1 minute", "mode": "full", "replication": 3})
    overall = [overall_traffic(each, machine_traffic(each, 1e6, 5), 5) for each in (one, three)]

    assert overall[1].checkpoint_store == pytest.approx(3 * overall[0].checkpoint_store)
    assert overall[1].total == overall[0].total


def test_the_margin_is_left_free() -> None:
    assert machines_needed(scenario(), 1e6) == 3
    assert machines_needed(scenario(goals={"margin": "50%"}), 1e6) == 7
    assert tightest(uses(scenario(), 1e6, 7)).share < 0.5 < tightest(uses(scenario(), 1e6, 6)).share
