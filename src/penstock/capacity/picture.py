"""One machine's traffic as arrows: what comes in on the left, what goes out on the right."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from penstock.capacity.estimate import Estimate
from penstock.capacity.figures import byte_rate, byte_size, row_rate, share
from penstock.capacity.scenario import Scenario
from penstock.capacity.traffic import Kind

NAMES = {
    Kind.SOURCE: "source",
    Kind.SHUFFLE: "shuffle",
    Kind.EMIT: "results",
    Kind.STORED: "stored rows",
    Kind.STATE: "state access",
    Kind.SHUFFLE_FILES: "shuffle files",
    Kind.CHECKPOINT: "checkpoints",
}
"""What flows are called for people."""
_BAR = 20


@dataclass(frozen=True)
class Arrow:
    """All flows of one kind through the card, in one direction."""

    kind: Kind
    name: str
    bytes: float


@dataclass(frozen=True)
class Picture:
    """What is drawn, wherever it is drawn."""

    title: str
    into: tuple[Arrow, ...]
    out: tuple[Arrow, ...]
    inside: tuple[str, ...]
    card: str
    """The card's speed as it was given."""
    limit: float
    total_in: float
    total_out: float


def name_of(kind: Kind, scenario: Scenario) -> str:
    """What a flow is called: rows that leave are a window's if windows give them out."""
    if kind is Kind.EMIT and any(step.closes is not None for step in scenario.steps.values()):
        return "window emit"
    return NAMES[kind]


def picture_of(found: Estimate) -> Picture:
    kinds = [kind for kind in Kind if any(flow.kind is kind and flow.network for flow in found.traffic.flows)]
    arrows = [(kind, name_of(kind, found.scenario), found.traffic.of(kind)) for kind in kinds]
    return Picture(
        title="the only machine" if found.machines == 1 else f"one of {found.machines:,} machines",
        into=tuple(Arrow(kind, name, into) for kind, name, (into, _) in arrows if into),
        out=tuple(Arrow(kind, name, out) for kind, name, (_, out) in arrows if out),
        inside=_inside(found),
        card=str(found.scenario.machines.network),
        limit=found.scenario.machines.network.bytes,
        total_in=found.traffic.network_in,
        total_out=found.traffic.network_out,
    )


def _inside(found: Estimate) -> tuple[str, ...]:
    """What the machine does, and what it keeps."""
    lines = [f"{row_rate(found.profile.peak / found.machines)}"]
    lines.extend(found.scenario.steps)
    if found.scenario.steps:
        lines.append(f"{byte_size(found.traffic.state_bytes)} of state")
    disks = found.scenario.disks
    if disks is not None and found.scenario.steps:
        lines.append("disks over the network" if disks.attached == "network" else "local disks")
        if disks.attached == "local":
            lines.append(f"disk read {byte_rate(found.traffic.disk_read)}")
            lines.append(f"disk write {byte_rate(found.traffic.disk_write)}")
    return tuple(lines)


def as_lines(picture: Picture) -> list[str]:
    """The picture in characters: 80 columns wide unless figures or names are long."""
    arrows = (*picture.into, *picture.out)
    names = max((len(arrow.name) for arrow in arrows), default=3)
    rates = max(len(byte_rate(value)) for value in (picture.total_in, picture.total_out, *(a.bytes for a in arrows)))
    left = [f" {arrow.name:>{names}} {byte_rate(arrow.bytes):>{rates}} ━▶│" for arrow in picture.into]
    right = [f"├━▶ {arrow.name:<{names}} {byte_rate(arrow.bytes):>{rates}}" for arrow in picture.out]
    width = max(24, *(len(line) + 2 for line in picture.inside), len(picture.title) + 4)
    height = max(len(left), len(right), len(picture.inside))
    middle = [""] * ((height - len(picture.inside)) // 2) + list(picture.inside)
    indent = " " * (names + rates + 5)
    lines = [f"{indent}┌{f' {picture.title} '.center(width, '─')}┐"]
    for before, text, after in zip_longest(left, middle, right, fillvalue=None):
        lines.append(f"{before or f'{indent}│'}{(text or '').center(width)}{after or '│'}")
    lines.append(f"{indent}└{'─' * width}┘")
    for name, used in (("in", picture.total_in), ("out", picture.total_out)):
        lines.append(
            f" {name:>{names}} {byte_rate(used):>{rates}}    {_bar(used / picture.limit)} {_of(used, picture)}"
        )
    return [line.rstrip() for line in lines]


def _bar(part: float) -> str:
    full = min(round(part * _BAR), _BAR)
    return "█" * full + "░" * (_BAR - full)


def _of(used: float, picture: Picture) -> str:
    return f"{share(used / picture.limit)} of {byte_rate(picture.limit)} ({picture.card})"
