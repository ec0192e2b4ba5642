"""The answer to a scenario: traffic, limits, memory, the number of machines, and how a day and an outage go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.capacity.limits import (
    Sustained,
    Use,
    cores_needed,
    fewest,
    machines_needed,
    sustained,
    tightest,
    usable,
    uses,
)
from penstock.capacity.load import Burst, Course, Outage, Profile, course, load_of, worst_outage
from penstock.capacity.memory import SMALLEST_HEAP, ExecutorMemory, executor_memory
from penstock.capacity.scenario import SOURCE, Scenario
from penstock.capacity.traffic import (
    Kind,
    MachineTraffic,
    OverallTraffic,
    machine_traffic,
    overall_traffic,
    state_bytes,
)

_ROUNDING = 1 + 1e-9
"""So that a figure which is at a limit is not over it by its last digit."""


@dataclass(frozen=True)
class Need:
    """The fewest machines that do, and what the last one is needed for."""

    machines: int | None
    """None: no number does."""
    reason: str


@dataclass(frozen=True)
class Recovery:
    """How an outage is worked off, if it comes when it costs most."""

    outage: Outage
    course: Course | None


@dataclass(frozen=True)
class WindowEnd:
    """What a machine has to send at once when windows of a step end."""

    step: str
    every: float
    """Seconds."""
    bytes: float
    seconds: float | None
    """How long that takes with what else is free of its card; None if nothing is."""


@dataclass(frozen=True)
class Estimate:
    scenario: Scenario
    profile: Profile
    machines: int
    """As given, or as needed."""
    need: Need
    traffic: MachineTraffic
    """At the highest rate."""
    overall: OverallTraffic
    uses: tuple[Use, ...]
    sustained: Sustained
    """By these machines, without a margin."""
    state_bytes: float
    memory: ExecutorMemory | None
    cores: int | None
    """The fewest in all, if it is known what a core does."""
    day: Course | None
    """None: more comes than these machines can process."""
    recovery: Recovery | None
    window_ends: tuple[WindowEnd, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def enough(self) -> bool:
        """Whether the machines do what is asked."""
        return self.need.machines is not None and self.machines >= self.need.machines

    @property
    def fits(self) -> bool:
        """Whether the memory of an executor is enough for what is in it."""
        return not any(_memory_faults(self))


def estimate(scenario: Scenario, profile: Profile) -> Estimate:
    """The arithmetic for a scenario that is sound, with the rates of its day."""
    need = _need(scenario, profile)
    machines = scenario.machines.count or need.machines or 1
    traffic = machine_traffic(scenario, profile.peak, machines)
    found = uses(scenario, profile.peak, machines, traffic)
    capacity, bursts = _capacity(scenario, machines) * usable(scenario), _bursts(scenario)
    memory = None if scenario.executor is None else executor_memory(scenario.executor)
    result = Estimate(
        scenario=scenario,
        profile=profile,
        machines=machines,
        need=need,
        traffic=traffic,
        overall=overall_traffic(scenario, traffic, machines),
        uses=found,
        sustained=sustained(scenario, machines),
        state_bytes=state_bytes(scenario),
        memory=memory,
        cores=_cores(scenario, profile),
        day=course(profile, capacity, bursts, limit=_lag_limit(scenario)) if capacity else None,
        recovery=_recovery(scenario, profile, _capacity(scenario, machines), bursts),
        window_ends=tuple(_window_ends(scenario, traffic, machines)),
        warnings=(),
        assumptions=tuple(_assumptions(scenario)),
    )
    return Estimate(**{**vars(result), "warnings": tuple(_warnings(result))})


def _lag_limit(scenario: Scenario) -> float:
    return scenario.goals.lag.seconds if scenario.goals.lag is not None else float("inf")


def _knows_cores(scenario: Scenario) -> bool:
    return scenario.machines.cores is not None and scenario.machines.rows_per_core is not None


def _capacity(scenario: Scenario, machines: int) -> float:
    """Rows in a second that these machines process while there is enough to do, if they use all that they have."""
    by_network = sustained(scenario, machines, cores=False).rate
    if not _knows_cores(scenario):
        return by_network
    return min(by_network, _cpu_rate(scenario, machines * (scenario.machines.cores or 0)))


def _cpu_rate(scenario: Scenario, cores: int) -> float:
    assert scenario.machines.rows_per_core is not None
    return cores * float(scenario.machines.rows_per_core.per_second)


def _bursts(scenario: Scenario) -> tuple[Burst, ...]:
    """What windows give out when they end, as work of cores; of what the network carries they are part already."""
    machines = scenario.machines
    if not _knows_cores(scenario) or machines.emitted_rows_per_core is None or machines.rows_per_core is None:
        return ()
    cost = float(machines.rows_per_core.per_second / machines.emitted_rows_per_core.per_second)
    return tuple(
        Burst(step.closes.every.seconds, step.keys.value * cost)
        for step in scenario.steps.values()
        if step.closes is not None
    )


def _has_goals(scenario: Scenario) -> bool:
    """Whether what counts is how long rows wait, rather than the highest rate."""
    return scenario.goals.lag is not None or scenario.goals.catch_up is not None


def _need(scenario: Scenario, profile: Profile) -> Need:
    """By how long rows wait, if there is a limit to it; otherwise for the highest rate."""
    if not _has_goals(scenario):
        machines = machines_needed(scenario, profile.peak)
        before = uses(scenario, profile.peak, max((machines or 2) - 1, 1))
        return Need(machines, tightest(before).resource)
    machines = fewest(lambda count: _keeps_goals(scenario, profile, count) is None)
    return Need(machines, _keeps_goals(scenario, profile, max((machines or 2) - 1, 1)) or "lag")


def _keeps_goals(scenario: Scenario, profile: Profile, machines: int) -> str | None:
    """What these machines do not keep; None if they keep everything."""
    space = [use for use in uses(scenario, 0.0, machines) if use.resource == "disk space"]
    if any(use.exceeds(usable(scenario)) for use in space):
        return "disk space"
    capacity, bursts = _capacity(scenario, machines) * usable(scenario), _bursts(scenario)
    if load_of(profile, bursts) >= capacity:
        return sustained(scenario, machines).resource
    day = course(profile, capacity, bursts, limit=_lag_limit(scenario))
    if day is None or day.peak_lag > _lag_limit(scenario) * _ROUNDING:
        return "lag"
    return None if _catches_up(scenario, profile, _capacity(scenario, machines), bursts) else "catch-up"


def _recovery(scenario: Scenario, profile: Profile, capacity: float, bursts: Sequence[Burst]) -> Recovery | None:
    """With all of a capacity: the margin is there to catch up with."""
    if scenario.outage is None:
        return None
    if load_of(profile, bursts) >= capacity:
        return Recovery(Outage(0.0, scenario.outage.seconds), None)
    outage = worst_outage(profile, capacity, scenario.outage.seconds, bursts)
    return Recovery(outage, course(profile, capacity, bursts, limit=_lag_limit(scenario), outage=outage))


def _catches_up(scenario: Scenario, profile: Profile, capacity: float, bursts: Sequence[Burst]) -> bool:
    """Whether an outage is worked off in time, if there is a limit to that."""
    if scenario.goals.catch_up is None:
        return True
    recovery = _recovery(scenario, profile, capacity, bursts)
    if recovery is None:
        return True
    found = None if recovery.course is None else recovery.course.caught_up
    return found is not None and found <= scenario.goals.catch_up.seconds * _ROUNDING


def _cores(scenario: Scenario, profile: Profile) -> int | None:
    """The fewest cores in all that keep the goals, or, without any, up with the highest rate."""
    if not _knows_cores(scenario):
        return None
    if not _has_goals(scenario):
        return fewest(lambda count: cores_needed(scenario, profile.peak) <= count * usable(scenario) * _ROUNDING)
    bursts = _bursts(scenario)

    def keeps(count: int) -> bool:
        rate = _cpu_rate(scenario, count)
        day = course(profile, rate * usable(scenario), bursts, limit=_lag_limit(scenario))
        in_time = day is not None and day.peak_lag <= _lag_limit(scenario) * _ROUNDING
        return in_time and _catches_up(scenario, profile, rate, bursts)

    return fewest(keeps)


def _window_ends(scenario: Scenario, traffic: MachineTraffic, machines: int) -> Iterator[WindowEnd]:
    free = scenario.machines.network.bytes - traffic.network_out + traffic.of(Kind.EMIT)[1]
    for name, step in scenario.steps.items():
        size = step.keys.value / machines * step.emit.bytes * step.sinks
        if step.closes is not None and size:
            yield WindowEnd(name, step.closes.every.seconds, size, size / free if free > 0 else None)


def _warnings(found: Estimate) -> Iterator[str]:
    allowed = usable(found.scenario)
    for use in found.uses:
        if use.exceeds(1.0) and _has_goals(found.scenario) and found.enough:
            yield f"{use.resource} is full when most comes, as {use.share:.0%} would be needed: rows wait then"
        elif use.exceeds(1.0):
            yield f"{use.resource} is over its limit: {use.share:.0%} is needed of what a machine has"
        elif use.exceeds(allowed):
            yield f"{use.resource} is at {use.share:.0%}, which leaves less than the margin of {1 - allowed:.0%}"
    if found.day is None:
        yield "more comes in a day than these machines can process: the backlog grows for ever"
    elif found.day.peak_lag > _lag_limit(found.scenario) * _ROUNDING:
        yield "rows wait longer than the limit"
    for end in found.window_ends:
        if end.seconds is not None and end.seconds > end.every:
            yield f"results of '{end.step}' take longer to send than the next windows take to end"
    yield from _memory_faults(found)
    executor = found.scenario.executor
    if executor is not None and executor.rocksdb is None and found.scenario.steps:
        yield (
            "nothing bounds the memory of RocksDB: set spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage and "
            "maxMemoryUsageMB, and give `executor.rocksdb`"
        )


def _memory_faults(found: Estimate) -> Iterator[str]:
    executor, memory = found.scenario.executor, found.memory
    if executor is None or memory is None:
        return
    if memory.heap < SMALLEST_HEAP:
        yield "the heap is smaller than 450 MiB, and Spark does not start with that"
    if memory.overhead_left < 0:
        yield "the overhead is smaller than what RocksDB, Python and native memory take: the container will be killed"
    if memory.python_left < 0:
        yield "Python workers take more than spark.executor.pyspark.memory"
    machine = found.scenario.machines.memory
    if machine is not None and memory.container * executor.per_machine > machine.bytes:
        yield "the executors of a machine take more memory than it has"


def _assumptions(scenario: Scenario) -> Iterator[str]:
    """What was not given and is taken to be so."""
    goals = scenario.goals
    if goals.margin is None:
        yield "no margin: machines may use all of each limit, and nothing is left to catch up with"
    for name, step in scenario.steps.items():
        given = step.model_fields_set
        origin = " and ".join("the source" if each == SOURCE else f"'{each}'" for each in step.inputs)
        if "rows" not in given:
            yield f"'{name}' gets all rows of {origin}"
        if step.row_size is None:
            yield f"rows are shuffled to '{name}' as large as they come from {origin}"
        if "sinks" not in given:
            yield f"one sink stores what '{name}' gives out"
    stored = scenario.stored
    if stored is not None and "rows" not in stored.model_fields_set:
        who = "a sink stores" if stored.sinks == 1 else f"each of {stored.sinks} sinks stores"
        yield f"{who} all rows of the source"
    if scenario.steps:
        yield "keys are spread evenly over the machines"
    if scenario.checkpoints is not None and "replication" not in scenario.checkpoints.model_fields_set:
        yield "the store of the checkpoints keeps one copy"
    disks = scenario.disks
    if disks is not None and "shuffle" not in disks.model_fields_set:
        yield "shuffled rows do not pass a disk (with Spark they do: set `disks.shuffle`)"
    if disks is not None and (disks.read is None or disks.write is None):
        yield "the disks' speed is not given, and not checked"
    if disks is not None and disks.size is None:
        yield "the disks' space is not given, and not checked"
    executor = scenario.executor
    if executor is not None and not executor.pyspark.bytes and not executor.python_workers:
        yield "the memory of Python workers is not given, and not counted"
    if not _knows_cores(scenario):
        yield "it is not given what a core does, and cores are not checked"
