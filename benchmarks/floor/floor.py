"""The benchmark `floor`: every case by every contender, one after another, each alone on the machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.contender import Failed
from benchmarks.environments import Unavailable
from benchmarks.floor.cases import CASES, CURVES, START_UP, Case
from benchmarks.floor.contenders import CONTENDERS
from benchmarks.floor.measurement import Cost, measure
from benchmarks.floor.results import PENSTOCK, Failure, Results
from benchmarks.floor.start_up import COMMANDS, start
from benchmarks.floor.tables import cost_table, curve_table, limit_table, start_table

_START_RUNS = 3
_BUSY = 0.2
"""Cores of other work above which the figures are not worth much."""


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    warm_up: float = 45
    seconds: float = 60
    cases: Sequence[str] = ()
    """All if there are none."""
    contenders: Sequence[str] = ()
    """All if there are none."""
    curves: bool = False
    start_runs: int = _START_RUNS

    def takes(self, case: str) -> bool:
        return not self.cases or case in self.cases

    def takes_contender(self, name: str) -> bool:
        return not self.contenders or name in self.contenders


class Floor:
    """Contenders do not run side by side: they would take each other's cores."""

    turns = 1

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.results = Results()
        self.curves: dict[str, dict[int, Cost]] = {}
        self._measured = 0
        self._unavailable: set[str] = set()

    def play(self, turns: int) -> Iterator[str]:
        """There is one turn; `--measure` gives it more time."""
        # By contender, so that what belongs together is measured close together.
        for name in CONTENDERS:
            for case in CASES:
                if name in case.contenders and self.plan.takes(case.name) and self._takes_part(name):
                    yield f"floor: {case.name}, {name}"
                    self._case(case, name)
        if self.plan.takes(START_UP):
            yield from self._starts()
        if self.plan.curves:
            yield from self._curves()

    def _case(self, case: Case, name: str) -> None:
        cost = self._cost(case, name)
        if cost is not None:
            self.results.costs.setdefault(case.name, {})[name] = cost

    def _starts(self) -> Iterator[str]:
        for command in COMMANDS:
            for run in range(self.plan.start_runs if self._takes_part(command.contender) else 0):
                yield f"floor: {START_UP}, {command.name}, {run + 1} of {self.plan.start_runs}"
                try:
                    self.results.starts.setdefault(command.name, []).append(start(command, self._new_folder()))
                except (Failed, Unavailable, TimeoutError) as error:
                    self._failed(Failure(f"{START_UP}, {command.name}", command.contender, str(error)), error)
                    break
        self.results.starts = {name: found for name, found in self.results.starts.items() if found}

    def _curves(self) -> Iterator[str]:
        for curve, points in CURVES.items():
            for value, case in points:
                yield f"floor: {case.title}"
                cost = self._cost(case, PENSTOCK)
                if cost is not None:
                    self.curves.setdefault(curve, {})[value] = cost

    def _cost(self, case: Case, name: str) -> Cost | None:
        folder = self._new_folder()
        try:
            return measure(CONTENDERS[name](case, folder), warm_up=self.plan.warm_up, seconds=self.plan.seconds)
        except (Failed, Unavailable, TimeoutError) as error:
            self._failed(Failure(case.name, name, str(error)), error)
            return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _takes_part(self, name: str) -> bool:
        return self.plan.takes_contender(name) and name.split()[0] not in self._unavailable

    def _failed(self, failure: Failure, error: Exception) -> None:
        self.results.failures.append(failure)
        if isinstance(error, Unavailable):
            # An environment that cannot be had is not tried again for each case.
            self._unavailable.add(failure.contender.split()[0])

    def _new_folder(self) -> Path:
        self._measured += 1
        return self.folder / f"floor-{self._measured}"

    @property
    def right(self) -> bool:
        return self.results.right

    def figures(self) -> dict[str, Any]:
        return {
            "workload": "floor",
            "right": self.right,
            "warm_up_seconds": self.plan.warm_up,
            "measured_seconds": self.plan.seconds,
            **self.results.figures(),
            "curves": {
                curve: {str(value): cost.figures() for value, cost in points.items()}
                for curve, points in self.curves.items()
            },
        }

    def show(self, console: Console) -> None:
        results = self.results
        if results.costs:
            console.print(cost_table(results))
        if results.starts:
            console.print(start_table(results))
        for curve, points in self.curves.items():
            console.print(curve_table(curve, points))
        if results.checks():
            console.print(limit_table(results.checks()))
        if any(cost.programs_a_second is None for found in results.costs.values() for cost in found.values()):
            console.print("programs/s were not counted: the kernel reports them to root only. forks/s are those of the")
            console.print("whole machine.")
        others = max((cost.others_cores for found in results.costs.values() for cost in found.values()), default=0.0)
        if others > _BUSY:
            console.print(
                f"The machine was busy with other work, up to {others:.1f} cores: measure again when it is idle."
            )
        for failure in results.failures:
            console.print(f"{failure.case}, {failure.contender}: not measured: {failure.reason}", markup=False)
