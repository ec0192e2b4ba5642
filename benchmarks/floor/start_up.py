"""How long it takes from a command to its first result, also with a standby process waiting for it."""

from __future__ import annotations

import datetime as dt
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import Failed
from benchmarks.environments import python_of
from benchmarks.floor.contenders import OUTPUT
from benchmarks.floor.measurement import launched, until
from benchmarks.floor.pipeline_files import start_up_file
from benchmarks.floor.rows import write_rows

_LIMIT_SECONDS = 180
_STANDBY_SECONDS = 180
_ROWS = 100


@dataclass(frozen=True)
class Command:
    """What is started, and how to tell that it has given a result."""

    name: str
    contender: str
    arguments: tuple[str, ...]
    """Of Penstock; none for the peers, which have a program each."""
    results: str | None = None
    """What is there in `out` once its first rows are; None if it gives none."""
    standby: bool = False
    limit: float | None = None
    """Seconds that it may take: to the first result, or else to its end."""


_RUN, _VALIDATE = ("run", "--once"), ("validate",)
_MANIFEST = "_penstock/batches/[!.]*"
COMMANDS = (
    Command("penstock run --once", "penstock", _RUN, _MANIFEST, limit=4.0),
    Command("penstock run --once, standby", "penstock", _RUN, _MANIFEST, standby=True, limit=1.5),
    Command("penstock validate", "penstock", _VALIDATE),
    Command("penstock validate, standby", "penstock", _VALIDATE, standby=True, limit=2.0),
    Command("spark", "spark", (), "_spark_metadata/0"),
    Command("flink", "flink hashmap", (), "[!._]*"),
)


@dataclass(frozen=True)
class Start:
    seconds: float
    """To the end of the command."""
    first_result_seconds: float | None
    """None if it gives none."""


@dataclass(frozen=True)
class Medians:
    seconds: float
    first_result_seconds: float | None

    @classmethod
    def of(cls, starts: list[Start]) -> Medians:
        firsts = [found.first_result_seconds for found in starts if found.first_result_seconds is not None]
        seconds = statistics.median(found.seconds for found in starts)
        return cls(seconds, statistics.median(firsts) if firsts else None)


def figures(starts: list[Start]) -> dict[str, Any]:
    return {**asdict(Medians.of(starts)), "runs": [asdict(found) for found in starts]}


def start(command: Command, folder: Path) -> Start:
    """Runs one command over a small file; raises Failed if it fails or gives no result."""
    folder.mkdir(parents=True)
    now = dt.datetime.now(dt.UTC)
    write_rows(folder / "in", "first.json", [now] * _ROWS, keys=10, seed=0)
    (folder / "pipeline.yaml").write_text(start_up_file(), "utf-8")
    found = arguments(command, folder)
    environment = {"PENSTOCK_STANDBY": "on" if command.standby else "off", "XDG_RUNTIME_DIR": str(folder)}
    with (
        _standby(folder, environment) if command.standby else nullcontext(),
        launched(found, folder / OUTPUT, _LIMIT_SECONDS, environment) as process,
    ):
        return _timed(command, folder, process)


def arguments(command: Command, folder: Path) -> list[str]:
    """Raises Unavailable if it needs an environment that cannot be had."""
    if command.arguments:
        file = str(folder / "pipeline.yaml")
        return [sys.executable, "-P", "-m", "penstock.cli.entry", *command.arguments, file]
    flink = command.contender != "spark"
    python, peer = (python_of("flink"), "floor_flink") if flink else (sys.executable, "floor_spark")
    return [python, "-m", f"benchmarks.peers.{peer}", "start-up", str(folder)]


def _timed(command: Command, folder: Path, process: subprocess.Popen[bytes]) -> Start:
    began = time.perf_counter()
    first, running, seconds = None, True, 0.0
    # It looks once more after the end.
    while running:
        running = process.poll() is None
        seconds = time.perf_counter() - began
        if first is None and command.results and any((folder / "out").glob(command.results)):
            first = seconds
        # Not Popen's own wait, which looks ever less often.
        time.sleep(0.01)
    if process.returncode != 0 or (first is None and command.results):
        last = (folder / OUTPUT).read_text("utf-8", "replace").strip().splitlines()[-8:]
        raise Failed("\n  ".join([f"it ended with code {process.returncode}, first result: {first}", *last]))
    return Start(seconds, first)


@contextmanager
def _standby(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A standby process that waits for a command with this environment."""
    command = [sys.executable, "-P", "-m", "penstock.cli.standby.server"]
    limit = _STANDBY_SECONDS + _LIMIT_SECONDS
    with launched(command, folder / "standby.txt", limit, environment):
        sockets = folder / "penstock" / "standby"
        until(lambda: any(sockets.glob("*.sock")), seconds=_STANDBY_SECONDS)
        (waiting,) = sockets.glob("*.sock")
        yield
        if waiting.exists():
            raise Failed("the standby process was not used")
