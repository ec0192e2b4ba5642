"""How much a process of a pipeline may take from the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessLimits:
    """Limits that the kernel keeps for each process by itself; None leaves what the server has.

    Memory is not among the limits of runs: Java reserves far more addresses than it uses. Its heap is limited by
    `driverMemory`, and the memory of all processes together by a control group, if the server is started in one.
    """

    open_files: int | None = None
    file_bytes: int | None = None
    """The largest file that it may write."""
    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    """Addresses; not for processes that start Java."""
    processes: int | None = None
    """Processes and threads of the system user; of use only where that user is for one pipeline or project alone."""

    @property
    def rules(self) -> dict[str, int]:
        """By the names that `penstock.control.launch.confined` knows. No process leaves its memory on the disk."""
        named = {
            "files": self.open_files,
            "fileBytes": self.file_bytes,
            "cpuSeconds": self.cpu_seconds,
            "memoryBytes": self.memory_bytes,
            "processes": self.processes,
        }
        return {"core": 0, **{name: value for name, value in named.items() if value is not None}}


RUN = ProcessLimits()
"""A run lasts, and writes as much as there is to write."""
QUESTION = ProcessLimits(file_bytes=4 << 30)
"""Questions about state copy parts of it; how long they may take is seen to by whoever asks."""
TRIAL = ProcessLimits(file_bytes=1 << 30, cpu_seconds=900)
"""Trying out a pipeline: a sample of its rows, by a process that answers a limited number of questions."""
EXAMINATION = ProcessLimits(file_bytes=64 << 20, cpu_seconds=60, memory_bytes=4 << 30)
"""Reading a Python file starts no Java."""
