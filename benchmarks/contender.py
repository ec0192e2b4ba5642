"""A contender runs in a process of its own, stays warm, and runs its job each time it is asked.

The parent writes a line of JSON on its input: where the rows are, and a folder for the result. It answers with a line
of JSON: the seconds it took.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.usage import PeakMemory, tree, usage


def serve(prepare: Callable[[], Callable[[Path, Path], None]]) -> None:
    """In the child: prepares once, then runs the job for each line of the input."""
    run = prepare()
    _answer({"ready": True})
    for line in sys.stdin:
        task = json.loads(line)
        folder = Path(task["folder"])
        folder.mkdir(parents=True)
        start = time.perf_counter()
        run(Path(task["data"]), folder)
        _answer({"seconds": time.perf_counter() - start})


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu_seconds: float
    memory_bytes: int


class Failed(Exception):
    """The contender's process ended."""


class Contender:
    """In the parent: one contender's process. `started` is when it was started, on the clock of `perf_counter`."""

    def __init__(self, name: str, command: Sequence[str], log: Path, seconds: float = 600) -> None:
        self.name, self.log, self.started = name, log, time.perf_counter()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True, env={**os.environ, "PYSPARK_PYTHON": command[0], "PYTHONPATH": os.getcwd()},
            )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._next(seconds)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            raise TimeoutError(f"{self.name} was not done in {seconds:.0f} s") from None
        if answer is None:
            code = self.process.wait()
            last = self.log.read_text("utf-8", "replace").strip().splitlines()[-8:]
            raise Failed("\n  ".join([f"{self.name} ended with code {code}", *last]))
        return answer

    def run(self, data: Path, folder: Path, seconds: float = 600) -> Run:
        """Runs the job once; after `seconds` the process is killed and TimeoutError raised."""
        assert self.process.stdin is not None
        before = usage(self.process.pid).cpu_seconds
        with PeakMemory(self.process.pid) as memory:
            self.process.stdin.write(json.dumps({"data": str(data), "folder": str(folder)}) + "\n")
            self.process.stdin.flush()
            answer = self._next(seconds)
        return Run(answer["seconds"], usage(self.process.pid).cpu_seconds - before, memory.bytes)

    def kill(self) -> None:
        """Ends the process with everything it has started."""
        for pid in tree(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if kind is not None:
            self.kill()
            return
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
