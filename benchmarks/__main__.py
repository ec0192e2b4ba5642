"""`python -m benchmarks`: runs the benchmarks, all or those named, and prints rates, ratios and targets."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from benchmarks.api import Api
from benchmarks.contender import Failed
from benchmarks.environments import Unavailable
from benchmarks.floor.cases import CASE_NAMES
from benchmarks.floor.floor import Floor, Plan
from benchmarks.match import Match
from benchmarks.passthrough import Passthrough
from benchmarks.savepoint import FULL, QUICK, Saving
from benchmarks.sinks import Sinks
from benchmarks.state_bytes import WEEKS, StateBytes
from benchmarks.workloads import VIEWS, WORKLOADS

_NAMES = ("passthrough", *WORKLOADS, "state", "savepoint", "sinks", "api", "floor")


class Game(Protocol):
    """What all workloads have in common: they are played, shown, and give figures."""

    turns: int

    def play(self, turns: int) -> Iterator[str]: ...
    def show(self, console: Console) -> None: ...
    def figures(self) -> dict[str, Any]: ...
    @property
    def right(self) -> bool: ...


def main() -> int:
    options = _options()
    # Contenders end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = 120
    figures: list[dict[str, Any]] = []
    right = True
    for name in options.workloads or _NAMES:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, progress.status(name) as status:
            try:
                game = _game(name, Path(folder), options)
                for step in game.play(options.turns or (1 if options.quick else game.turns)):
                    status.update(step)
                    if not progress.is_terminal:
                        progress.print(step)
            except (Failed, Unavailable, TimeoutError) as error:
                console.print(f"{name}: {error}")
                right = False
                continue
        game.show(console)
        figures.append(game.figures())
        right = right and game.right
    if options.report:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        options.report.write_text(json.dumps({"machine": machine, "workloads": figures}, indent=2) + "\n", "utf-8")
    return 0 if right else 1


def _game(name: str, folder: Path, options: argparse.Namespace) -> Game:
    if name == "passthrough":
        return Passthrough(folder, 100_000 if options.quick else VIEWS.rows)
    if name == "sinks":
        return Sinks(folder, 100_000 if options.quick else VIEWS.rows)
    if name == "api":
        few = {"pipelines": 20, "batches": 4_000, "seconds": 5}
        return Api(folder, **(few if options.quick else {"pipelines": 200, "batches": 360_000, "seconds": 60}))
    if name == "floor":
        short = {"warm_up": 15, "seconds": 10, "start_runs": 1} if options.quick else {}
        given = {"warm_up": options.warm_up, "seconds": options.measure}
        times = short | {key: value for key, value in given.items() if value is not None}
        return Floor(folder, Plan(cases=options.cases, contenders=options.only or (), curves=options.curves, **times))
    if name == "savepoint":
        return Saving(folder, *((QUICK, 16, 2_000) if options.quick else (FULL, 60, 20_000)))
    if name == "state":
        return StateBytes(folder, 200_000 if options.quick else WEEKS.rows)
    workload = WORKLOADS[name].quick() if options.quick else WORKLOADS[name]
    return Match(workload.only(options.only) if options.only else workload, folder, seconds=options.timeout)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[[], *_NAMES], metavar="WORKLOAD", help=", ".join(_NAMES))
    parser.add_argument("--quick", action="store_true", help="few rows, one turn: whether everything works")
    parser.add_argument("--turns", type=int, help="how many turns each contender has")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a run is given up")
    parser.add_argument("--only", nargs="+", metavar="CONTENDER", help="leave out all others but duckdb")
    parser.add_argument("--cases", nargs="+", choices=CASE_NAMES, default=(), help="which cases of floor; default all")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="of each case of floor; default 45")
    parser.add_argument("--measure", type=float, metavar="SECONDS", help="of each case of floor; default 60")
    parser.add_argument("--curves", action="store_true", help="floor: also cost by steps, keys, state and rows a batch")
    parser.add_argument("--report", type=Path, help="also write the figures to this file as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
