"""What goes through one machine in a second, and through all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.capacity.scenario import SOURCE, Scenario, StatefulStep
from penstock.capacity.units import ByteSize


class Kind(StrEnum):
    """What a flow is made of, in the order in which they are added up."""

    SOURCE = "source"
    SHUFFLE = "shuffle"
    EMIT = "emit"
    STORED = "stored"
    STATE = "state"
    SHUFFLE_FILES = "shuffle files"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Flow:
    """Bytes in a second, into one machine and out of it. Reading from a disk is in, writing is out."""

    kind: Kind
    step: str | None
    into: float
    out: float
    network: bool = True
    disk: bool = False


@dataclass(frozen=True)
class MachineTraffic:
    """All flows of one machine."""

    flows: tuple[Flow, ...]
    state_bytes: float

    @property
    def network_in(self) -> float:
        return sum(flow.into for flow in self.flows if flow.network)

    @property
    def network_out(self) -> float:
        return sum(flow.out for flow in self.flows if flow.network)

    @property
    def disk_read(self) -> float:
        return sum(flow.into for flow in self.flows if flow.disk)

    @property
    def disk_write(self) -> float:
        return sum(flow.out for flow in self.flows if flow.disk)

    def of(self, *kinds: Kind) -> tuple[float, float]:
        """The bytes of some kinds of flows, in and out."""
        chosen = [flow for flow in self.flows if flow.kind in kinds]
        return sum(flow.into for flow in chosen), sum(flow.out for flow in chosen)


STAGES: Mapping[str, tuple[Kind, ...]] = {
    "rows": (Kind.SOURCE, Kind.SHUFFLE, Kind.EMIT, Kind.STORED),
    "with state": (Kind.STATE, Kind.SHUFFLE_FILES),
    "with checkpoints": (Kind.CHECKPOINT,),
}
"""How flows are added up: each stage with what it adds to the one before."""


def stage(traffic: MachineTraffic, name: str) -> tuple[float, float]:
    """What goes through the card up to a stage, in and out."""
    names = list(STAGES)
    kinds = [kind for each in names[: names.index(name) + 1] for kind in STAGES[each]]
    flows = [flow for flow in traffic.flows if flow.kind in kinds and flow.network]
    return sum(flow.into for flow in flows), sum(flow.out for flow in flows)


@dataclass(frozen=True)
class OverallTraffic:
    """Bytes in a second at the network cards of all: what leaves one card and reaches another counts at both."""

    machines: float
    sources_and_sinks: float
    disks: float
    """At the servers of disks that are attached over the network."""
    checkpoint_store: float
    """At the store of the checkpoints, for each of its copies. Not part of the total: the store stands apart."""

    @property
    def total(self) -> float:
        return self.machines + self.sources_and_sinks + self.disks

    @property
    def gigabits(self) -> float:
        return self.total * 8 / 1e9


@dataclass(frozen=True)
class StepInput:
    """What reaches a step in a second, over all machines."""

    rows: float
    bytes: float


def step_inputs(scenario: Scenario, rate: float) -> Mapping[str, StepInput]:
    """What each step gets, if the source gives `rate` rows in a second."""
    found: dict[str, StepInput] = {}

    def into(name: str) -> StepInput:
        if name not in found:
            step = scenario.steps[name]
            rows = size = 0.0
            for given in step.inputs:
                count, each = (rate, scenario.source.record_size) if given == SOURCE else out_of(given)
                count *= step.rows.value * step.fan_out
                rows += count
                size += count * (each if step.row_size is None else step.row_size).bytes
            found[name] = StepInput(rows, size)
        return found[name]

    def out_of(name: str) -> tuple[float, ByteSize]:
        step = scenario.steps[name]
        return emitted(scenario, step, into(name).rows), step.emit

    for name in scenario.steps:
        into(name)
    return found


def emitted(scenario: Scenario, step: StatefulStep, rows_in: float) -> float:
    """Rows in a second that a step gives out, on average."""
    if step.closes is not None:
        return step.keys.value / step.closes.every.seconds
    if step.windows is None:
        return rows_in
    changed = rows_in * step.overlap
    # A row that changes several times in a batch leaves once.
    return changed if scenario.checkpoints is None else min(changed, step.entries / scenario.checkpoints.every.seconds)


def state_bytes(scenario: Scenario) -> float:
    """State of all machines together."""
    return float(sum(step.entries * step.state.bytes for step in scenario.steps.values()))


def machine_traffic(scenario: Scenario, rate: float, machines: int, *, rounded: bool = True) -> MachineTraffic:
    """One of `machines` alike, if the source gives `rate` rows in a second in all."""
    step = scenario.round_to.bytes if rounded and scenario.round_to is not None else 0
    flows = tuple(
        Flow(flow.kind, flow.step, _to(flow.into, step), _to(flow.out, step), flow.network, flow.disk)
        for flow in _flows(scenario, rate, machines)
    )
    return MachineTraffic(flows, state_bytes(scenario) / machines)


def _flows(scenario: Scenario, rate: float, machines: int) -> Iterator[Flow]:
    own = rate / machines
    disks = scenario.disks
    on_network = disks is not None and disks.attached == "network"
    yield Flow(Kind.SOURCE, None, own * scenario.source.record_size.bytes, 0.0)
    inputs = step_inputs(scenario, rate)
    for name, step in scenario.steps.items():
        rows, shuffled = inputs[name].rows / machines, inputs[name].bytes / machines
        # Keys are spread evenly, so one machine's share of what is shuffled stays where it is.
        sent = shuffled / machines * (machines - 1)
        yield Flow(Kind.SHUFFLE, name, sent, sent)
        if disks is not None and disks.shuffle:
            yield Flow(Kind.SHUFFLE_FILES, name, shuffled, shuffled, on_network, disk=True)
        given = emitted(scenario, step, inputs[name].rows) / machines * step.emit.bytes * step.sinks
        yield Flow(Kind.EMIT, name, 0.0, given)
        accessed = rows * step.overlap * step.state.bytes
        yield Flow(Kind.STATE, name, accessed, accessed, on_network, disk=True)
        if scenario.checkpoints is not None:
            yield Flow(Kind.CHECKPOINT, name, 0.0, _checkpointed(scenario, step, accessed, machines))
    stored = scenario.stored
    if stored is not None:
        yield Flow(Kind.STORED, None, 0.0, own * stored.rows.value * stored.row_size.bytes * stored.sinks)


def _checkpointed(scenario: Scenario, step: StatefulStep, accessed: float, machines: int) -> float:
    """Bytes in a second that one machine writes of a step's state, on average."""
    assert scenario.checkpoints is not None
    held = step.entries * step.state.bytes / machines
    everything = held / scenario.checkpoints.every.seconds
    # An entry that changes several times between two checkpoints is written once.
    return everything if scenario.checkpoints.mode == "full" else min(accessed, everything)


def overall_traffic(scenario: Scenario, machine: MachineTraffic, machines: int) -> OverallTraffic:
    read, _ = machine.of(Kind.SOURCE)
    _, written = machine.of(Kind.EMIT, Kind.STORED)
    disks = sum(flow.into + flow.out for flow in machine.flows if flow.network and flow.disk)
    copies = 0 if scenario.checkpoints is None else scenario.checkpoints.replication
    return OverallTraffic(
        machines=(machine.network_in + machine.network_out) * machines,
        sources_and_sinks=(read + written) * machines,
        disks=disks * machines,
        checkpoint_store=machine.of(Kind.CHECKPOINT)[1] * machines * copies,
    )


def _to(value: float, step: int) -> float:
    return float(math.floor(value / step + 0.5) * step) if step else value
