"""Contenders take turns at a workload; each turn is a new process, measured cold and then warm."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.answers import Answer, answer
from benchmarks.contender import Contender, Failed, Run
from benchmarks.environments import Unavailable, cache
from benchmarks.show import show
from benchmarks.views import Views
from benchmarks.workloads import Entry, Target, Workload

_LONG_RUN = 60.0
"""A contender whose cold run takes longer than this gets one warm round."""
_WARM_ROUNDS = 4
_NAMES = ("seconds", "cpu_seconds", "memory_bytes")


@dataclass
class Record:
    """What was measured of one contender."""

    entry: Entry
    whole: list[Run] = field(default_factory=list)
    """New process, from its start to the end of the large set."""
    small: list[Run] = field(default_factory=list)
    large: list[Run] = field(default_factory=list)
    right: bool | None = None
    """Whether all its answers were those of the reference; None before the first."""
    not_done: float | None = None
    """After how many seconds it was given up."""
    failure: str | None = None

    @property
    def out(self) -> bool:
        return self.not_done is not None or self.failure is not None or self.right is False

    def rate(self, kind: str) -> float | None:
        """Rows per second of a `whole` run or when `steady`, or per second of `cpu`; None if it was not measured."""
        if kind == "whole":
            return self.entry.large / _medians(self.whole)["seconds"] if self.whole else None
        if not (self.small and self.large):
            return None
        unit = "cpu_seconds" if kind == "cpu" else "seconds"
        seconds = _medians(self.large)[unit] - _medians(self.small)[unit]
        return (self.entry.large - self.entry.small) / seconds if seconds > 0 else None

    @property
    def highest_rate(self) -> float | None:
        """For one that was given up: it is slower than this."""
        return self.entry.large / self.not_done if self.not_done else None

    def figures(self) -> dict[str, Any]:
        runs = {"whole": self.whole, "small": self.small, "large": self.large}
        return {
            "rows": {"small": self.entry.small, "large": self.entry.large},
            "note": self.entry.note,
            "right": self.right,
            "not_done_in_seconds": self.not_done,
            "failure": self.failure,
            "rows_per_second": {kind: self.rate(kind) for kind in ("whole", "steady", "cpu")},
            "medians": {kind: _medians(found) for kind, found in runs.items() if found},
            "runs": {kind: [asdict(run) for run in found] for kind, found in runs.items()},
        }


def _medians(runs: list[Run]) -> dict[str, float]:
    return {name: statistics.median(getattr(run, name) for run in runs) for name in _NAMES}


class Match:
    """All turns of a workload; a run that takes longer than `seconds` is given up."""

    turns = 3

    def __init__(self, workload: Workload, folder: Path, *, seconds: float) -> None:
        self.workload, self.folder, self.seconds = workload, folder, seconds
        self.records = [Record(entry) for entry in workload.entries]
        self.reference: dict[tuple[Views, int], Answer] = {}
        self._runs = 0

    def play(self, turns: int) -> Iterator[str]:
        """Plays all turns; says before each step what comes."""
        yield f"{self.workload.name}: the answers, by duckdb"
        self._find_reference()
        for turn in range(turns):
            shift = turn % len(self.records)
            for record in self.records[shift:] + self.records[:shift]:
                if not record.out:
                    yield f"{self.workload.name}: turn {turn + 1} of {turns}, {record.entry.name}"
                    self._turn(record)

    def _find_reference(self) -> None:
        (entry,) = (entry for entry in self.workload.entries if entry.name == "duckdb")
        with self._contender(entry) as contender:
            for other in self.workload.entries:
                for rows in (other.small, other.large):
                    if (other.views, rows) not in self.reference:
                        found = self._run(replace(entry, views=other.views), contender, rows)[1]
                        self.reference[other.views, rows] = found

    def _contender(self, entry: Entry) -> Contender:
        log = self.folder / f"{entry.name.replace(' ', '-')}.log"
        return Contender(entry.name, entry.command(), log, self.seconds)

    def _turn(self, record: Record) -> None:
        try:
            with self._contender(record.entry) as contender:
                cold = self._checked(record, contender, record.entry.large)
                record.whole.append(Run(self._ended - contender.started, cold.cpu_seconds, cold.memory_bytes))
                # Only the last warm round counts: before it, compilers are still at work.
                for last in (True,) if cold.seconds > _LONG_RUN else (*(False,) * (_WARM_ROUNDS - 1), True):
                    small = self._checked(record, contender, record.entry.small)
                    large = self._checked(record, contender, record.entry.large)
                    if last:
                        record.small.append(small)
                        record.large.append(large)
        except TimeoutError:
            record.not_done = self.seconds
        except (Failed, Unavailable) as error:
            record.failure = str(error)
            print(error, file=sys.stderr)

    def _checked(self, record: Record, contender: Contender, rows: int) -> Run:
        run, found = self._run(record.entry, contender, rows)
        wanted = self.reference[record.entry.views, rows]
        if found != wanted:
            print(f"{record.entry.name}, {rows:,} rows: {found}, not {wanted}", file=sys.stderr)
        record.right = record.right is not False and found == wanted
        return run

    def _run(self, entry: Entry, contender: Contender, rows: int) -> tuple[Run, Answer]:
        data = (entry.views.dealt if entry.dealt else entry.views.first)(cache(), rows)
        self._runs += 1
        place = self.folder / f"run-{self._runs}"
        try:
            run = contender.run(data, place, self.seconds)
            self._ended = time.perf_counter()
            return run, answer(place / "out", self.workload.kind)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def ratio(self, target: Target) -> tuple[float, bool] | None:
        """One rate over the other, and whether it is only a lower bound; None if it could not be had."""
        records = {record.entry.name: record for record in self.records}
        own, other = records.get(target.own), records.get(target.other)
        if (
            own is None
            or other is None
            or not (own.right and own.rate(target.rate))
            or other.failure
            or other.right is False
        ):
            return None
        rate = other.rate(target.rate)
        known = rate or other.highest_rate
        return (own.rate(target.rate) / known, rate is None) if known else None  # type: ignore[operator]

    @property
    def right(self) -> bool:
        return not any(record.right is False for record in self.records)

    def show(self, console: Console) -> None:
        show(self, console)

    def figures(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "answers": [
                {"spread": views.spread, "of_rows": rows, **found} for (views, rows), found in self.reference.items()
            ],
            "contenders": {record.entry.name: record.figures() for record in self.records},
            "targets": [
                {**asdict(target), "reached": found and found[0], "lower_bound": found and found[1],
                 "passed": bool(found and found[0] >= target.ratio)}
                for target in self.workload.targets for found in [self.ratio(target)]
            ],
        }  # fmt: skip
