"""Whole answers: how many machines and cores a day of load takes, what is warned of, and what was assumed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.capacity.scenarios import scenario, scenarios, step

from penstock.capacity.as_json import as_json
from penstock.capacity.estimate import Estimate, estimate
from penstock.capacity.load import Profile, hourly, steady
from penstock.capacity.scenario import Scenario
from penstock.spec.units import Duration

HOUR = 3600.0
CPU = {"network": "100 Gbit/s", "cores": 4, "rowsPerCore": "50,000/s", "emittedRowsPerCore": "500,000/s"}
DAY = hourly([100_000.0] * 9 + [900_000.0] + [100_000.0] * 14)


def found(profile: Profile = DAY, **parts: Any) -> Estimate:
    few = {"users": step(keys="1 million", windows={"size": "1 hour"})}
    return estimate(scenario(**{"steps": few, "machines": CPU, **parts}), profile)


def test_without_a_limit_to_lag_the_busiest_hour_is_what_counts() -> None:
    answer = found()

    # 900,000 / 50,000 cores, and the rows of windows: 1,000,000 in an hour at 500,000 a second.
    assert answer.cores == 19
    assert (answer.need.machines, answer.need.reason, answer.machines) == (5, "cores", 5)


def test_a_limit_to_lag_lets_the_busiest_hour_wait() -> None:
    patient = found(goals={"lag": "4 hours"})
    hasty = found(goals={"lag": "1 minute"})

    assert (patient.need.machines, hasty.need.machines) == (1, 5)
    assert (patient.cores, hasty.cores) == (4, 18)
    assert patient.day is not None
    assert patient.warnings == ("cores is full when most comes, as 450% would be needed: rows wait then",)
    assert 3 * HOUR < patient.day.peak_lag <= 4 * HOUR


def test_one_machine_less_than_needed_breaks_the_limit() -> None:
    limit = {"lag": "10 minutes"}
    assert found(goals=limit).need.machines == 4
    short = found(goals=limit, machines={**CPU, "count": 3})

    assert not short.enough
    assert short.day is not None
    assert short.day.peak_lag > 600
    assert short.day.over_limit > 0
    assert "rows wait longer than the limit" in short.warnings


def test_bursts_at_the_ends_of_windows_need_cores_of_their_own() -> None:
    quiet = found(steady(100_000.0), goals={"lag": "10 seconds"})
    loud = found(
        steady(100_000.0),
        goals={"lag": "10 seconds"},
        steps={"users": step(keys="20 million", windows={"size": "1 hour"})},
    )

    # 20 million rows at 500,000 a second and core are 40 seconds of one core: 4 cores give them out in 10 seconds.
    assert (quiet.cores, loud.cores) == (3, 4)
    assert loud.day is not None
    assert loud.day.peak_backlog == 2_000_000


def test_what_each_machine_sends_when_windows_end() -> None:
    (end,) = estimate(scenario(), steady(1e6)).window_ends

    # 4 GB from each machine every minute, as in the guide; 320 + 40 + 333 of 1,250 MB/s are taken by other flows.
    assert (end.step, end.every, end.bytes) == ("users", 60, 4e9)
    assert end.seconds == pytest.approx(4e9 / (1250e6 - 320e6 - 40e6 - 1e9 / 3))
    slow = estimate(scenario(machines={"count": 5, "network": "6 Gbit/s"}), steady(1e6))
    assert slow.window_ends[0].seconds == pytest.approx(4e9 / (750e6 - 320e6 - 40e6 - 1e9 / 3))
    assert "results of 'users' take longer to send than the next windows take to end" in slow.warnings
    full = estimate(scenario(machines={"count": 5, "network": "5 Gbit/s"}), steady(1e6))
    assert full.window_ends[0].seconds is None


def test_the_margin_is_what_an_outage_is_caught_up_with() -> None:
    answer = found(steady(100_000.0), goals={"margin": "50%"}, outage="2 hours")

    assert answer.machines == 2
    assert answer.recovery is not None
    assert answer.recovery.course is not None
    assert answer.recovery.course.caught_up == pytest.approx(2 * HOUR * 100_000 / (8 * 50_000 - 100_000), rel=0.01)


def test_a_limit_to_catching_up_takes_more_machines() -> None:
    slow = found(steady(150_000.0), outage="2 hours")
    quick = found(steady(150_000.0), outage="2 hours", goals={"catchUp": "30 minutes"})

    # 150,000 a second for two hours in half an hour, beside what comes: 750,000 a second, 15 cores.
    assert (slow.need.machines, quick.need.machines) == (1, 4)
    assert (slow.cores, quick.cores) == (4, 16)
    assert (quick.need.reason, slow.need.reason) == ("catch-up", "cores")
    assert quick.recovery is not None
    assert quick.recovery.course is not None
    assert quick.recovery.course.caught_up is not None
    assert quick.recovery.course.caught_up <= 1800


def test_machines_that_cannot_keep_up_are_said_to_be_too_few() -> None:
    answer = found(steady(1e6), machines={**CPU, "count": 2}, outage="1 hour")

    assert not answer.enough
    assert answer.day is None
    assert answer.recovery is not None
    assert answer.recovery.course is None
    assert answer.warnings[0] == "cores is over its limit: 250% is needed of what a machine has"
    assert "more comes in a day than these machines can process: the backlog grows for ever" in answer.warnings


def test_space_for_state_takes_machines_whatever_the_rate() -> None:
    space = {"attached": "local", "size": "10 GB"}
    answer = estimate(scenario(disks=space, machines={"network": "10 Gbit/s"}), steady(1000.0))
    lagging = estimate(scenario(disks=space, machines={"network": "10 Gbit/s"}, goals={"lag": "1 h"}), steady(1000.0))

    assert (answer.need.machines, answer.need.reason) == (10, "disk space")
    assert (lagging.need.machines, lagging.need.reason) == (10, "disk space")


def test_memory_that_does_not_fit_is_warned_of() -> None:
    tight = {"heap": "400 MiB", "rocksdb": "500 MB", "perMachine": 4}
    machines = {"count": 5, "network": "10 Gbit/s", "memory": "2 GiB"}
    answer = estimate(scenario(executor=tight, machines=machines), steady(1e6))

    assert not answer.fits
    assert [warning.split(":")[0].split(",")[0] for warning in answer.warnings] == [
        "the heap is smaller than 450 MiB",
        "the overhead is smaller than what RocksDB",
        "the executors of a machine take more memory than it has",
    ]


def test_unbounded_rocksdb_is_warned_of() -> None:
    unbounded = estimate(scenario(executor={"heap": "8 GiB"}), steady(1e6))
    bounded = estimate(scenario(executor={"heap": "8 GiB", "rocksdb": "500 MB"}), steady(1e6))

    assert [warning[:38] for warning in unbounded.warnings] == ["nothing bounds the memory of RocksDB: "]
    assert unbounded.fits
    assert bounded.warnings == ()


def test_what_was_not_given_is_said() -> None:
    little = estimate(scenario(), steady(1e6)).assumptions
    assert "one sink stores what 'users' gives out" in little
    assert "the disks' speed is not given, and not checked" in little
    route = {"steps": {}, "disks": None, "checkpoints": None, "machines": CPU}
    stored = estimate(scenario(stored={"rowSize": "1 KB", "sinks": 3}, **route), steady(1e4)).assumptions
    assert "each of 3 sinks stores all rows of the source" in stored
    everything = estimate(
        scenario(
            steps={"users": step(rows="100%", rowSize="2 KB", sinks=1)},
            checkpoints={"every": "1 minute", "mode": "full", "replication": 1},
            disks={"attached": "local", "shuffle": True, "read": "1 GB/s", "write": "1 GB/s", "size": "1 TB"},
            machines={**CPU, "count": 20},
            goals={"margin": "20%"},
        ),
        steady(1e6),
    ).assumptions
    assert everything == ("keys are spread evenly over the machines",)


@given(scenarios())
@settings(deadline=None)
def test_every_answer_can_be_written_as_json(given_: Scenario) -> None:
    answer = estimate(given_, steady(1000.0))
    told = json.loads(json.dumps(as_json(answer), allow_nan=False))

    assert told["machines"]["count"] == 5
    assert told["perMachine"]["network"]["in"] == answer.traffic.network_in
    assert told["overall"]["total"] == answer.overall.total
    assert [limit["resource"] for limit in told["limits"]] == [use.resource for use in answer.uses]


@given(st.lists(st.integers(0, 40), min_size=24, max_size=24).filter(any), st.sampled_from(["1 s", "5 m", "3 h"]))
@settings(deadline=None, max_examples=25)
def test_the_machines_needed_for_a_day_keep_its_lag_and_one_less_does_not(hours: list[int], lag: str) -> None:
    day = hourly([hour * 25_000.0 for hour in hours])
    needed = found(day, goals={"lag": lag}).need.machines
    assert needed is not None
    limit = Duration.parse(lag).seconds
    enough = found(day, goals={"lag": lag}, machines={**CPU, "count": needed})
    assert enough.enough
    assert enough.day is not None
    assert enough.day.peak_lag <= limit * (1 + 1e-9)
    if needed > 1:
        short = found(day, goals={"lag": lag}, machines={**CPU, "count": needed - 1})
        assert not short.enough
        assert short.day is None or short.day.peak_lag > limit
