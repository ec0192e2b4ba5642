"""The worked example of the operations guide, figure by figure."""

from __future__ import annotations

from tests.capacity.scenarios import GUIDE

from penstock.capacity.estimate import estimate
from penstock.capacity.traffic import Kind, stage
from penstock.frontends.scenario import read_scenario

MB = 1_000_000
GB = 1000 * MB


def test_every_figure_of_the_guide_comes_out_to_the_digit() -> None:
    read = read_scenario(GUIDE)
    found = estimate(read.scenario, read.profile)
    machine, overall = found.traffic, found.overall

    assert found.machines == 5
    assert [use.limit for use in found.uses] == [1250 * MB, 1250 * MB]
    assert machine.of(Kind.SOURCE) == (400 * MB, 0)
    assert machine.of(Kind.SHUFFLE) == (320 * MB, 320 * MB)
    assert machine.of(Kind.EMIT) == (0, 67 * MB)
    assert stage(machine, "rows") == (720 * MB, 387 * MB)
    assert machine.of(Kind.STATE) == (40 * MB, 40 * MB)
    assert stage(machine, "with state") == (760 * MB, 427 * MB)
    assert machine.state_bytes == 20 * GB
    assert machine.of(Kind.CHECKPOINT) == (0, 333 * MB)
    assert stage(machine, "with checkpoints") == (760 * MB, 760 * MB)
    assert (machine.network_in, machine.network_out) == (760 * MB, 760 * MB)
    # 2 * 760 * 5 at the machines, 400 at the disks, 400 * 5 + 67 * 5 at Kafka.
    assert (overall.machines, overall.disks, overall.sources_and_sinks) == (7600 * MB, 400 * MB, 2335 * MB)
    assert overall.total == 10_335 * MB
    assert overall.gigabits == 82.68
    # A container of 2000 MB, of which a quarter is kept free of the heap.
    assert found.memory is not None
    assert (found.memory.container, found.memory.heap, found.memory.overhead) == (2000 * MB, 1500 * MB, 500 * MB)
