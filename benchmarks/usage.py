"""CPU seconds and memory of a process with everything it has started, read from /proc."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ATTEMPTS = 20
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


class Stat(NamedTuple):
    """One process, as the kernel counts it."""

    parent: int
    ticks: int
    """Of its own."""
    ended_ticks: int
    """Of its children that ended and were waited for, with theirs."""
    pages: int


@dataclass(frozen=True)
class Usage:
    cpu_seconds: float
    """Of all that run, and of those that ended and were waited for."""
    memory_bytes: int
    """Resident memory; pages that processes share count once for each."""


def usage(root: int) -> Usage:
    found = _in_tree(root, _processes())
    return Usage(_cpu_seconds(found), sum(stat.pages for stat in found.values()) * _PAGE)


def cpu_seconds(root: int) -> float:
    """CPU seconds of a tree whose processes come and go: `usage` could miss one that ends while others are read, or
    count it twice, so this reads until no process has ended between two readings."""
    before = _in_tree(root, _processes())
    for _ in range(_ATTEMPTS):
        found = _in_tree(root, _processes())
        if before.keys() <= found.keys() and all(found[pid].ended_ticks == before[pid].ended_ticks for pid in before):
            break
        before = found
    return _cpu_seconds(found)


def machine_cpu_seconds() -> float:
    """Of all processes of the machine, since it started."""
    line = Path("/proc/stat").read_text("utf-8").splitlines()[0].split()
    user, nice, system, _, _, interrupts, soft_interrupts = (int(ticks) for ticks in line[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / _TICK


def proportional_memory(pids: Iterable[int]) -> int:
    """PSS in bytes: of a page that several processes share, each counts its part. Ended processes count nothing."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):
            match = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
            kilobytes += int(match[1]) if match else 0
    return kilobytes * 1024


def tree(root: int, processes: dict[int, Stat] | None = None) -> list[int]:
    """A process and its descendants."""
    processes = _processes() if processes is None else processes
    children: dict[int, list[int]] = {}
    for pid, stat in processes.items():
        children.setdefault(stat.parent, []).append(pid)
    found, waiting = [], [root] if root in processes else []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _in_tree(root: int, processes: dict[int, Stat]) -> dict[int, Stat]:
    return {pid: processes[pid] for pid in tree(root, processes)}


def _cpu_seconds(found: dict[int, Stat]) -> float:
    return sum(stat.ticks + stat.ended_ticks for stat in found.values()) / _TICK


def _processes() -> dict[int, Stat]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace").rsplit(")", 1)[1].split()
        except OSError:
            continue
        user, system, ended_user, ended_system = (int(ticks) for ticks in fields[11:15])
        found[int(entry)] = Stat(int(fields[1]), user + system, ended_user + ended_system, int(fields[21]))
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
