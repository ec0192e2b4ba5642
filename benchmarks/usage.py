"""CPU seconds and memory of a process with everything it has started, read from /proc."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    """Of all that run, and of those that ended and were waited for."""
    memory_bytes: int
    """Resident memory; pages that processes share count once for each."""


def usage(root: int) -> Usage:
    processes = _processes()
    found = [processes[pid] for pid in tree(root, processes)]
    return Usage(sum(stat[1] for stat in found) / _TICK, sum(stat[2] for stat in found) * _PAGE)


def tree(root: int, processes: dict[int, tuple[int, int, int]] | None = None) -> list[int]:
    """A process and its descendants."""
    processes = _processes() if processes is None else processes
    children: dict[int, list[int]] = {}
    for pid, stat in processes.items():
        children.setdefault(stat[0], []).append(pid)
    found, waiting = [], [root] if root in processes else []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _processes() -> dict[int, tuple[int, int, int]]:
    """By process id: parent, clock ticks, resident pages."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[int(entry)] = (int(fields[1]), sum(int(ticks) for ticks in fields[11:15]), int(fields[21]))
    return found


class PeakMemory:
    """Looks at a process tree every half second, while inside `with`."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._end.wait(0.5):
            self._look()

    def _look(self) -> None:
        self.bytes = max(self.bytes, usage(self.root).memory_bytes)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()
