"""A contender runs in a process of its own, stays warm, and runs its job each time it is asked.

The parent writes a folder per line on its input; it answers with a line of JSON: seconds and CPU seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


def serve(prepare: Callable[[], Callable[[Path], None]]) -> None:
    """In the child: prepares once, then runs the job for each folder named on the input."""
    run = prepare()
    _answer({"ready": True})
    for line in sys.stdin:
        folder = Path(line.strip())
        folder.mkdir(parents=True)
        start, before = time.perf_counter(), _cpu_seconds()
        run(folder)
        _answer({"seconds": time.perf_counter() - start, "cpu": _cpu_seconds() - before})


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    """CPU of this process and of its children that are alive (the JVM) or have ended."""
    total = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in (0, -1))
    for child in _children(os.getpid()):
        fields = Path(f"/proc/{child}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text("utf-8").split()] if listed.exists() else []


class Contender:
    """In the parent: one contender's process."""

    def __init__(self, name: str, module: str, arguments: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, name, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
        self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self.name} ended with code {self.process.wait()}")

    def run(self, folder: Path) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        return self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
