"""Overhead: JSON files are read, filtered and written as Parquet, by Penstock and by a hand-written script."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
from rich.console import Console
from rich.table import Table

from benchmarks.contender import Contender, Run
from benchmarks.environments import cache
from benchmarks.workloads import VIEWS

FILES_PER_BATCH = 10
_TARGET = 1.05
_WARM_UP = 3
_MODULES = {"by hand": "benchmarks.peers.spark", "penstock": "benchmarks.pipelines"}


class Passthrough:
    """Both contenders stay warm side by side and take turns: the difference looked for is a few percent."""

    turns = 9

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.runs: dict[str, list[Run]] = {name: [] for name in _MODULES}
        self.answers: dict[str, tuple[int, int]] = {}

    def play(self, turns: int) -> Iterator[str]:
        data = VIEWS.first(cache(), self.rows)
        with ExitStack() as stack:
            contenders = [
                stack.enter_context(Contender(name, _command(name), self.folder / "errors.log")) for name in _MODULES
            ]
            for turn in range(_WARM_UP + turns):
                yield f"passthrough: turn {turn + 1} of {_WARM_UP + turns}"
                for contender in contenders if turn % 2 else reversed(contenders):
                    place = self.folder / f"{contender.name.replace(' ', '-')}-{turn}"
                    run = contender.run(data, place)
                    if turn >= _WARM_UP:
                        self.runs[contender.name].append(run)
                    self.answers[contender.name] = checksum(place / "out")
                    shutil.rmtree(place)

    @property
    def right(self) -> bool:
        return self.answers["by hand"] == self.answers["penstock"]

    def figures(self) -> dict[str, Any]:
        seconds = self._medians(lambda run: run.seconds)
        return {
            "workload": "passthrough",
            "rows": self.rows,
            "equal": self.right,
            "answer": self.answers["penstock"],
            "seconds": seconds,
            "cpu_seconds": self._medians(lambda run: run.cpu_seconds),
            "memory_bytes": self._medians(lambda run: run.memory_bytes),
            "rows_per_second": {name: self.rows / seconds[name] for name in _MODULES},
            "ratio": seconds["penstock"] / seconds["by hand"],
            "target": _TARGET,
        }

    def _medians(self, value: Callable[[Run], float]) -> dict[str, float]:
        return {name: statistics.median(map(value, runs)) for name, runs in self.runs.items()}

    def show(self, console: Console) -> None:
        figures = self.figures()
        table = Table(title=f"passthrough · {self.rows:,} rows · answers equal: {self.right}")
        for column in ("", "median s", "CPU s", "peak MB", "rows/s"):
            table.add_column(column, justify="right" if column else "left")
        for name, seconds in figures["seconds"].items():
            cpu, memory, rate = (figures[key][name] for key in ("cpu_seconds", "memory_bytes", "rows_per_second"))
            table.add_row(name, f"{seconds:.2f}", f"{cpu:.2f}", f"{memory / 1e6:,.0f}", f"{rate:,.0f}")
        console.print(table)
        passed = "pass" if figures["ratio"] <= _TARGET else "fail"
        ratio = figures["ratio"]
        console.print(f"penstock takes {ratio:.3f} times as long as the script by hand (target ≤ {_TARGET}: {passed})")


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", _MODULES[name], "passthrough", str(FILES_PER_BATCH)]


def checksum(output: Path) -> tuple[int, int]:
    """Rows and the sum of a column over everything written."""
    files = [str(file) for file in output.rglob("*.parquet")]
    table = pyarrow.dataset.dataset(files, format="parquet").to_table(columns=["ms"])
    return table.num_rows, sum(chunk.to_numpy().sum().item() for chunk in table["ms"].chunks)
