"""How fast the API of a server answers that supervises two hundred pipelines, and whether its memory stays flat."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.asking import Asked, ask
from benchmarks.contender import Failed
from benchmarks.usage import usage

RATE = 100
P99_MS = 50.0
GROWTH = 0.05
"""Of memory, server and fake runs together, from the end of the warm-up to the end; more is a leak."""
_FILL_SECONDS = 100
"""Until the server remembers of each run as much as it ever does: its last sixty batches."""
_WARM_SECONDS = 30
_SEED = 7
MIX = {
    "one pipeline": (60, "/api/v1/pipelines/{name}"),
    "all pipelines": (8, "/api/v1/pipelines?limit=200"),
    "batches": (8, "/api/v1/pipelines/{name}/batches?limit=50"),
    "description": (6, "/api/v1/pipelines/{name}/description"),
    "events": (6, "/api/v1/events?limit=50"),
    "runs": (6, "/api/v1/pipelines/{name}/runs"),
    "alerts": (5.8, "/api/v1/alerts"),
    "metrics": (0.2, "/metrics"),
}
"""What consoles, commands and Prometheus ask for, each in how many of a hundred requests."""


class Api:
    """Penstock alone, once."""

    turns = 1

    def __init__(self, folder: Path, *, pipelines: int, batches: int, seconds: int) -> None:
        self.folder, self.pipelines, self.batches, self.seconds = folder, pipelines, batches, seconds
        self.asked: list[Asked] = []
        self.cpu_seconds = 0.0
        self.memory: list[int] = []

    def play(self, turns: int) -> Iterator[str]:
        yield f"api: {self.pipelines} pipelines with {self.batches:,} batches"
        command = [sys.executable, "-m", "benchmarks.fleet", "serve", str(self.folder)]
        with subprocess.Popen(
            [*command, str(self.pipelines), str(self.batches)], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                line = server.stdout.readline()
                if not line:
                    raise Failed("the server ended")
                told = json.loads(line)
                yield f"api: {RATE} requests a second"
                self._measure(server.pid, told["port"], told["token"])
            finally:
                server.terminate()

    def _measure(self, pid: int, port: int, token: str) -> None:
        time.sleep(min(_FILL_SECONDS, 5 * self.seconds))
        ask(port, token, self._paths(_WARM_SECONDS), RATE)
        before = usage(pid)
        self.memory.append(before.memory_bytes)
        for _ in range(max(self.seconds // 15, 1)):
            self.asked += ask(port, token, self._paths(min(15, self.seconds)), RATE)
            self.memory.append(usage(pid).memory_bytes)
        self.cpu_seconds = usage(pid).cpu_seconds - before.cpu_seconds

    def _paths(self, seconds: int) -> list[str]:
        chance = random.Random(_SEED)
        kinds = chance.choices(
            [path for _, path in MIX.values()], [share for share, _ in MIX.values()], k=seconds * RATE
        )
        return [path.format(name=f"pipeline-{chance.randrange(self.pipelines):03d}") for path in kinds]

    @property
    def right(self) -> bool:
        """Every answer was one."""
        return bool(self.asked) and all(asked.status == 200 for asked in self.asked)

    def figures(self) -> dict[str, Any]:
        growth = self.memory[-1] / self.memory[0] - 1
        p99 = _quantile([asked.seconds for asked in self.asked], 99)
        return {
            "workload": "api",
            "equal": self.right,
            "pipelines": self.pipelines,
            "batches": self.batches,
            "rate": RATE,
            "requests": len(self.asked),
            "p50_ms": _quantile([asked.seconds for asked in self.asked], 50),
            "p99_ms": p99,
            "worst_ms": max(asked.seconds for asked in self.asked) * 1000,
            "by_kind_ms": {
                kind: [_quantile(found, part) for part in (50, 99)] for kind, found in self._by_kind().items()
            },
            "cpu_share": self.cpu_seconds / (len(self.asked) / RATE),
            "memory_bytes": self.memory,
            "memory_growth": growth,
            "targets": {"p99": p99 < P99_MS, "memory": growth < GROWTH},
        }

    def _by_kind(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for asked in self.asked:
            path = asked.path.split("?")[0].rsplit("/", 1)[-1]
            kind = next((name for name, (_, form) in MIX.items() if form.split("?")[0].endswith(f"/{path}")), "")
            found.setdefault(kind or "one pipeline", []).append(asked.seconds)
        return found

    def show(self, console: Console) -> None:
        figures = self.figures()
        table = Table(title=f"api: {self.pipelines} pipelines · {RATE} requests/s · all answered: {self.right}")
        for column in ("", "requests", "p50 ms", "p99 ms"):
            table.add_column(column, justify="right" if column else "left")
        for kind, found in self._by_kind().items():
            table.add_row(kind, f"{len(found):,}", *(f"{ms:.1f}" for ms in figures["by_kind_ms"][kind]))
        table.add_row("all", f"{len(self.asked):,}", f"{figures['p50_ms']:.1f}", f"{figures['p99_ms']:.1f}")
        console.print(table)
        for what, target, reached, passed in (
            ("p99", f"< {P99_MS:.0f} ms", f"{figures['p99_ms']:.1f} ms", figures["targets"]["p99"]),
            ("memory grows by", f"< {GROWTH:.0%}", f"{figures['memory_growth']:.1%}", figures["targets"]["memory"]),
        ):
            console.print(f"{what}: target {target}, reached {reached}: {'pass' if passed else 'fail'}")
        memory = ", ".join(f"{size / 1e6:.0f}" for size in self.memory)
        console.print(f"CPU of server and runs: {figures['cpu_share']:.2f} cores; memory in MB: {memory}")


def _quantile(seconds: Sequence[float], percent: int) -> float:
    """In milliseconds."""
    if len(seconds) < 2:
        return seconds[0] * 1000
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1000
