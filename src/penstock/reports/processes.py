"""Tells a process from a later one that happens to have the same number, whatever has been done to the clock."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import psutil

_STARTED = 19
"""Which of the fields after the name says when a process started, in ticks since the machine did."""


def birth(pid: int) -> str | None:
    """When a process began, as a text that no other process of this number has; None if it does not run."""
    return _birth_on_linux(pid) if sys.platform.startswith("linux") else _birth_elsewhere(pid)


def _birth_on_linux(pid: int) -> str | None:
    # Times of day would differ after the clock has been set; the kernel counts from the start of the machine.
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else f"{boot()}-{fields[_STARTED]}"


@cache
def boot() -> str:
    """What tells this start of the machine from any other."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    except OSError:
        return "boot"


def _birth_elsewhere(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def works_in(pid: int, folder: Path) -> bool:
    """Whether a process was started for this folder, which ends its command line."""
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return bool(command) and command[-1] == str(folder)


def is_alive(pid: int, started: str) -> bool:
    """Whether this very process runs; one that has ended and was not collected yet does not."""
    return birth(pid) == started
