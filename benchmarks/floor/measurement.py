"""Runs one contender at one case: warm-up, then an interval in which its whole process tree is measured."""

from __future__ import annotations

import datetime as dt
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import Failed
from benchmarks.floor.contenders import OUTPUT, BatchTime, Contender
from benchmarks.floor.program_starts import ProgramStarts
from benchmarks.floor.rows import Feeder, times_of_last_hour, write_rows
from benchmarks.usage import cpu_seconds, machine_cpu_seconds, proportional_memory, tree

_LAUNCHER = Path(__file__).with_name("launcher.py")
_READY_SECONDS, _STOP_SECONDS = 240, 60
_LOOK_SECONDS = 3.0
"""From one look at the memory to the next."""
_FIRST_ROWS = 100
"""In the file with which a case over files begins."""


@dataclass(frozen=True)
class Cost:
    """Of a process tree, in the measured interval."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int
    """Proportional (PSS), median of several looks."""
    peak_memory_bytes: int
    processes: int
    programs_a_second: float | None
    """Programs that the tree started; None where the kernel would not tell."""
    forks_a_second: float
    """Processes and threads that the tree started; the whole machine if the kernel would not tell of the tree."""
    batch_ms: tuple[float, ...] | None = None
    rows: int | None = None
    others_cpu_seconds: float = 0.0
    """Of everything else on the machine, which makes all figures less certain."""

    @property
    def cores(self) -> float:
        return self.cpu_seconds / self.seconds

    @property
    def others_cores(self) -> float:
        return self.others_cpu_seconds / self.seconds

    def batch_quantile(self, percent: int) -> float | None:
        """In milliseconds; None without batches."""
        if not self.batch_ms:
            return None
        if len(self.batch_ms) == 1:
            return self.batch_ms[0]
        return statistics.quantiles(self.batch_ms, n=100, method="inclusive")[percent - 1]

    def figures(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "cores": self.cores,
            "others_cores": self.others_cores,
            "memory_bytes": self.memory_bytes,
            "peak_memory_bytes": self.peak_memory_bytes,
            "processes": self.processes,
            "programs_a_second": self.programs_a_second,
            "forks_a_second": self.forks_a_second,
            "batches": None if self.batch_ms is None else len(self.batch_ms),
            "batch_ms": {"median": self.batch_quantile(50), "p99": self.batch_quantile(99)},
            "rows_a_second": None if self.rows is None else self.rows / self.seconds,
        }


@dataclass(frozen=True)
class Interval:
    """What the process tree used, between two moments."""

    began: dt.datetime
    ended: dt.datetime
    seconds: float
    cpu_seconds: float
    memory_bytes: tuple[int, ...]
    processes: tuple[int, ...]
    programs: int | None
    forks: int
    others_cpu_seconds: float = 0.0

    def cost(self, batches: Sequence[BatchTime] | None) -> Cost:
        """With the batches that began in the interval."""
        found = None if batches is None else [batch for batch in batches if self.began <= batch.at < self.ended]
        return Cost(
            self.seconds,
            self.cpu_seconds,
            int(statistics.median(self.memory_bytes)),
            max(self.memory_bytes),
            int(statistics.median(self.processes)),
            None if self.programs is None else self.programs / self.seconds,
            self.forks / self.seconds,
            None if found is None else tuple(batch.ms for batch in found),
            None if found is None else sum(batch.rows for batch in found),
            self.others_cpu_seconds,
        )


def measure(contender: Contender, *, warm_up: float, seconds: float) -> Cost:
    """Raises Failed if the contender ends by itself or gives no results, TimeoutError if it is not ready in time."""
    case, folder = contender.case, contender.folder
    folder.mkdir(parents=True)
    from_files = case.kind in ("idle", "history")
    if from_files:
        rows = max(case.history, _FIRST_ROWS)
        write_rows(
            folder / "in", "first.json", times_of_last_hour(rows, dt.datetime.now(dt.UTC)), keys=case.keys, seed=0
        )
    feeder = Feeder(folder / "in", case.rate, keys=case.keys) if from_files and case.rate else nullcontext()
    limit = warm_up + seconds + _READY_SECONDS + _STOP_SECONDS
    with feeder, launched(contender.command(), folder / OUTPUT, limit) as process:
        alive = _aliveness(process, folder / OUTPUT)
        until(contender.is_ready, alive, seconds=_READY_SECONDS)
        _wait(warm_up, alive)
        interval = observe(process.pid, seconds, alive)
        stop(process)
    if case.kind != "idle" and not contender.has_results():
        raise Failed("it gave no results")
    return interval.cost(contender.batches())


def observe(launcher: int, seconds: float, alive: Callable[[], None] = lambda: None) -> Interval:
    """Watches the processes below a launcher, which does not count itself."""
    memory, processes = [], []
    with ProgramStarts(launcher) as starts:
        began, clock = dt.datetime.now(dt.UTC), time.monotonic()
        machine, cpu = machine_cpu_seconds(), cpu_seconds(launcher)
        while (left := clock + seconds - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            alive()
            pids = [pid for pid in tree(launcher) if pid != launcher]
            memory.append(proportional_memory(pids))
            processes.append(len(pids))
        cpu, clock = cpu_seconds(launcher) - cpu, time.monotonic() - clock
        others = max(machine_cpu_seconds() - machine - cpu, 0.0)
        found, forks = starts.starts, starts.forks
    programs = None if found is None or starts.lost else found.programs
    ended = dt.datetime.now(dt.UTC)
    return Interval(began, ended, clock, cpu, tuple(memory), tuple(processes), programs, forks, others)


@contextmanager
def launched(
    command: list[str], log: Path, limit: float, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command below a launcher, ended with all it has started."""
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": command[0], **(environment or {})}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-I", str(_LAUNCHER), str(int(limit)), *command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=variables, cwd=os.getcwd(),
        )  # fmt: skip
    try:
        yield process
    finally:
        for pid in reversed(tree(process.pid)[1:]) if process.poll() is None else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks for a clean end; one that takes too long is left to be killed."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)


def _aliveness(process: subprocess.Popen[bytes], log: Path) -> Callable[[], None]:
    def alive() -> None:
        if process.poll() is not None:
            last = log.read_text("utf-8", "replace").strip().splitlines()[-8:]
            raise Failed("\n  ".join([f"it ended with code {process.returncode}", *last]))

    return alive


def until(ready: Callable[[], bool], alive: Callable[[], None] = lambda: None, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        alive()
        if time.monotonic() > deadline:
            raise TimeoutError(f"it was not ready in {seconds:.0f} s")
        time.sleep(0.2)


def _wait(seconds: float, alive: Callable[[], None]) -> None:
    time.sleep(seconds)
    alive()
