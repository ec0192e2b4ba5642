"""How much state a batch writes: rolling values over seven days, for rows of two weeks."""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.answers import Answer, answer
from benchmarks.contender import Contender, Run
from benchmarks.environments import cache, python_of
from benchmarks.views import Views

WEEKS = Views(rows=1_000_000, files=20, seconds=14 * 86_400)
_JOB = "rolling-week"


class StateBytes:
    """Penstock alone, once: bytes do not depend on how busy the machine is."""

    turns = 1

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.answers: dict[str, Answer] = {}
        self.logged: dict[int, int] = {}
        """Bytes in the logs of changes, by batch."""
        self.kept = 0
        """Bytes of the whole state, as its last snapshot and the logs since then keep it."""
        self.run: Run | None = None

    def play(self, turns: int) -> Iterator[str]:
        yield "state: the answers, by duckdb"
        self._play("duckdb", [python_of("duckdb"), "-m", "benchmarks.peers.duckdb_batch", _JOB])
        yield "state: penstock"
        self.run = self._play("penstock", [sys.executable, "-m", "benchmarks.pipelines", _JOB, "1"])

    def _play(self, name: str, command: list[str]) -> Run:
        place = self.folder / name
        with Contender(name, command, self.folder / f"{name}.log") as contender:
            run = contender.run(WEEKS.first(cache(), self.rows), place)
        self.answers[name] = answer(place / "out", "rows")
        if name == "penstock":
            self._measure(place / "state")
        shutil.rmtree(place)
        return run

    def _measure(self, state: Path) -> None:
        logged: Counter[int] = Counter()
        for file in state.rglob("*.changelog"):
            version = re.match(r"\d+", file.name)
            assert version is not None
            logged[int(version[0]) - 1] += file.stat().st_size
        self.logged = dict(sorted(logged.items()))
        self.kept = sum(file.stat().st_size for file in state.rglob("*.sst"))

    @property
    def right(self) -> bool:
        return self.answers["duckdb"] == self.answers["penstock"]

    def figures(self) -> dict[str, Any]:
        rows_per_batch = WEEKS.rows // WEEKS.files
        batches = self.rows // rows_per_batch
        # The first half fills the window; after that rows come and go. The last ones are of batches without rows.
        steady = [self.logged.get(batch, 0) for batch in range(batches // 2, batches)]
        return {
            "workload": "state",
            "rows": self.rows,
            "equal": self.right,
            "rows_per_batch": rows_per_batch,
            "bytes_by_batch": self.logged,
            "bytes_per_batch": statistics.median(steady),
            "bytes_per_row": statistics.median(steady) / rows_per_batch,
            "snapshot_bytes": self.kept,
            "seconds": self.run and self.run.seconds,
            "memory_bytes": self.run and self.run.memory_bytes,
        }

    def show(self, console: Console) -> None:
        figures = self.figures()
        table = Table(title=f"state: rolling values over 7 days · {self.rows:,} rows · answers equal: {self.right}")
        for column in ("rows a batch", "bytes logged a batch", "a row", "bytes of snapshots at the end", "seconds"):
            table.add_column(column, justify="right")
        table.add_row(
            f"{figures['rows_per_batch']:,}",
            f"{figures['bytes_per_batch']:,.0f}",
            f"{figures['bytes_per_row']:,.1f}",
            f"{figures['snapshot_bytes']:,}",
            f"{figures['seconds']:,.1f}",
        )
        console.print(table)
