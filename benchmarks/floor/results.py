"""What was measured, as figures: costs by case and contender, ratios, and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.floor.cases import CASES, CHUNKS, Case
from benchmarks.floor.measurement import Cost
from benchmarks.floor.start_up import COMMANDS, Medians, Start
from benchmarks.floor.start_up import figures as start_figures

PENSTOCK = "penstock"
OWN = (PENSTOCK, CHUNKS)
"""Penstock in the ways it is measured."""
Ratio = tuple[float, float]
"""Cores and memory of Penstock over those of another."""


@dataclass(frozen=True)
class Check:
    """One limit: what was measured, at most how much it should be, and how much it was."""

    case: str
    what: str
    limit: float
    reached: float | None
    """None if there was nothing to measure, such as no batch."""

    @property
    def passed(self) -> bool:
        return self.reached is not None and self.reached <= self.limit


@dataclass(frozen=True)
class Failure:
    """A contender that could not be measured at a case, and why."""

    case: str
    contender: str
    reason: str


@dataclass
class Results:
    """What one run of the benchmark has found."""

    costs: dict[str, dict[str, Cost]] = field(default_factory=dict)
    """By name of the case and contender."""
    failures: list[Failure] = field(default_factory=list)
    starts: dict[str, list[Start]] = field(default_factory=dict)
    """By command."""

    @property
    def right(self) -> bool:
        """Penstock has done all it was to do."""
        failed = any(failure.contender in OWN for failure in self.failures)
        starved = any(
            cost.rows == 0
            for case, found in self.costs.items()
            for name, cost in found.items()
            if name in OWN and case != "idle"
        )
        return not (failed or starved)

    def checks(self) -> list[Check]:
        found = [
            check
            for case in CASES
            for name in OWN
            for check in _checks(case, self.costs.get(case.name, {}).get(name), "" if name == PENSTOCK else ", chunks")
        ]
        for command in COMMANDS:
            if command.limit is not None and command.name in self.starts:
                medians = Medians.of(self.starts[command.name])
                reached = medians.first_result_seconds if command.results else medians.seconds
                words = "s to the first result" if command.results else "s"
                found.append(Check(command.name, words, command.limit, reached))
        return found

    def figures(self) -> dict[str, Any]:
        return {
            "costs": {
                case: {name: cost.figures() for name, cost in found.items()} for case, found in self.costs.items()
            },
            "penstock_over": {
                case: {name: {"cores": cores, "memory": memory} for name, (cores, memory) in ratios(found).items()}
                for case, found in self.costs.items()
            },
            "start_up": {name: start_figures(found) for name, found in self.starts.items()},
            "failures": [asdict(failure) for failure in self.failures],
            "limits": [
                {"case": check.case, "what": check.what, "limit": check.limit, "reached": check.reached,
                 "passed": check.passed}
                for check in self.checks()
            ],
        }  # fmt: skip


def ratios(costs: Mapping[str, Cost]) -> dict[str, Ratio]:
    """Penstock over each other contender of a case; without those that used nothing that could be measured."""
    own = costs.get(PENSTOCK)
    if own is None:
        return {}
    return {
        name: (own.cores / cost.cores, own.memory_bytes / cost.memory_bytes)
        for name, cost in costs.items()
        if name != PENSTOCK and cost.cores and cost.memory_bytes
    }


def _checks(case: Case, cost: Cost | None, way: str) -> Iterator[Check]:
    if cost is None:
        return
    for what, limit, reached in (
        ("cores", case.limits.cores, cost.cores),
        ("MB", case.limits.megabytes, cost.memory_bytes / 1e6),
        ("ms a batch", case.limits.batch_ms, cost.batch_quantile(50)),
    ):
        if limit is not None:
            yield Check(f"{case.name}{way}", what, limit, reached)
