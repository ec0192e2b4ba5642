"""How much of each limit is used, what it takes to stay below, and how much more would go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.capacity.scenario import Scenario
from penstock.capacity.traffic import MachineTraffic, emitted, machine_traffic, step_inputs

MOST_MACHINES = 100_000
_PRECISION = 1e-9


@dataclass(frozen=True)
class Use:
    """How much of something that a machine has is used."""

    resource: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        return self.used / self.limit

    @property
    def headroom(self) -> float:
        """The share that is left; negative if it is not enough."""
        return 1 - self.share

    def exceeds(self, allowed: float) -> bool:
        """Whether more is used than a share of the limit."""
        return self.share > allowed + _PRECISION


@dataclass(frozen=True)
class Sustained:
    """The most rows in a second that go through, and what they are stopped by."""

    rate: float
    resource: str


def uses(scenario: Scenario, rate: float, machines: int, traffic: MachineTraffic | None = None) -> tuple[Use, ...]:
    """All that a machine has a known limit of; what has none is left out."""
    traffic = traffic or machine_traffic(scenario, rate, machines, rounded=False)
    card = scenario.machines.network.bytes
    found = [Use("network in", traffic.network_in, card), Use("network out", traffic.network_out, card)]
    disks = scenario.disks
    if disks is not None:
        if disks.read is not None:
            found.append(Use("disk read", traffic.disk_read, disks.read.bytes))
        if disks.write is not None:
            found.append(Use("disk write", traffic.disk_write, disks.write.bytes))
        if disks.size is not None:
            found.append(Use("disk space", traffic.state_bytes, disks.size.bytes))
    cores = scenario.machines.cores
    if cores is not None and scenario.machines.rows_per_core is not None:
        found.append(Use("cores", cores_needed(scenario, rate) / machines, cores))
    return tuple(found)


def cores_needed(scenario: Scenario, rate: float) -> float:
    """Cores that are busy on average, in all."""
    assert scenario.machines.rows_per_core is not None
    busy = rate / float(scenario.machines.rows_per_core.per_second)
    emits = scenario.machines.emitted_rows_per_core
    if emits is not None:
        busy += windows_emitted(scenario, rate) / float(emits.per_second)
    return busy


def windows_emitted(scenario: Scenario, rate: float) -> float:
    """Rows of closed windows in a second, on average."""
    inputs = step_inputs(scenario, rate)
    closing = ((name, step) for name, step in scenario.steps.items() if step.closes is not None)
    return sum(emitted(scenario, step, inputs[name].rows) for name, step in closing)


def tightest(found: tuple[Use, ...]) -> Use:
    return max(found, key=lambda use: use.share)


def usable(scenario: Scenario) -> float:
    """The share of a limit that may be used."""
    margin = scenario.goals.margin
    return 1.0 if margin is None else 1 - margin.value


def machines_needed(scenario: Scenario, rate: float) -> int | None:
    """The fewest machines that stay within all limits and the margin; None if no number does."""
    allowed = usable(scenario)
    return fewest(lambda machines: not tightest(uses(scenario, rate, machines)).exceeds(allowed))


def fewest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number for which something holds. It may hold for 1 and not for 2, as one machine shuffles nothing;
    from 2 on it must stay true once it is."""
    if enough(1):
        return 1
    high = 2
    while not enough(high):
        if high >= MOST_MACHINES:
            return None
        high = min(high * 2, MOST_MACHINES)
    low = max(high // 2, 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def sustained(scenario: Scenario, machines: int, *, cores: bool = True) -> Sustained:
    """The rate at which the first limit is reached, without a margin; keys stay as many as they are.

    Space is no limit to a rate: state is as large however fast rows come.
    """
    ignored = {"disk space"} if cores else {"disk space", "cores"}

    def at(rate: float) -> Use:
        return tightest(tuple(use for use in uses(scenario, rate, machines) if use.resource not in ignored))

    idle = at(0.0)
    if idle.share >= 1:
        return Sustained(0.0, idle.resource)
    high = 1.0
    while at(high).share < 1:
        high *= 2
    low = 0.0
    while high - low > high * 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle).share >= 1 else (middle, high)
    return Sustained(low, at(high).resource)
