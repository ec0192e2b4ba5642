"""How long it takes from a command to its first result."""

from __future__ import annotations

import datetime as dt
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import Failed
from benchmarks.environments import python_of
from benchmarks.floor.contenders import OUTPUT
from benchmarks.floor.measurement import launched
from benchmarks.floor.pipeline_files import start_up_file
from benchmarks.floor.rows import write_rows

_LIMIT_SECONDS = 180
_ROWS = 100
RUN, VALIDATE, SPARK, FLINK = "penstock run --once", "penstock validate", "spark", "flink"
FIRST_RESULT, END = "first_result_seconds", "seconds"
LIMITS = {RUN: (FIRST_RESULT, 4.0), VALIDATE: (END, 2.0)}
"""What is to be reached at most, and by when."""
_RESULTS = {RUN: "_penstock/batches/*", SPARK: "_spark_metadata/0", FLINK: "[!._]*"}
"""What is there in `out` once its first rows are."""


@dataclass(frozen=True)
class Start:
    seconds: float
    """To the end of the command."""
    first_result_seconds: float | None
    """None if it gives none."""


def command(name: str, folder: Path) -> list[str]:
    """Raises Unavailable if it needs an environment that cannot be had."""
    own, file = [sys.executable, "-m", "penstock.cli.main"], str(folder / "pipeline.yaml")
    if name == RUN:
        return [*own, "run", "--once", "--master", "local[2]", file]
    if name == VALIDATE:
        return [*own, "validate", file]
    python, peer = (python_of("flink"), "floor_flink") if name == FLINK else (sys.executable, "floor_spark")
    return [python, "-m", f"benchmarks.peers.{peer}", "start-up", str(folder)]


def start(name: str, folder: Path) -> Start:
    """Runs one command over a small file; raises Failed if it fails or gives no result."""
    folder.mkdir(parents=True)
    now = dt.datetime.now(dt.UTC)
    write_rows(folder / "in", "first.json", [now] * _ROWS, keys=10, seed=0)
    (folder / "pipeline.yaml").write_text(start_up_file(), "utf-8")
    found = command(name, folder)
    began = time.perf_counter()
    first, running = None, True
    with launched(found, folder / OUTPUT, _LIMIT_SECONDS) as process:
        # It looks once more after the end.
        while running:
            running = process.poll() is None
            seconds = time.perf_counter() - began
            if first is None and name in _RESULTS and any((folder / "out").glob(_RESULTS[name])):
                first = seconds
            # Not Popen's own wait, which looks ever less often.
            time.sleep(0.01)
    if process.returncode != 0 or (first is None and name in _RESULTS):
        last = (folder / OUTPUT).read_text("utf-8", "replace").strip().splitlines()[-8:]
        raise Failed("\n  ".join([f"{name} ended with code {process.returncode}, first result: {first}", *last]))
    return Start(seconds, first)


def figures(starts: list[Start]) -> dict[str, Any]:
    firsts = [found.first_result_seconds for found in starts if found.first_result_seconds is not None]
    return {
        END: statistics.median(found.seconds for found in starts),
        FIRST_RESULT: statistics.median(firsts) if firsts else None,
        "runs": [asdict(found) for found in starts],
    }
