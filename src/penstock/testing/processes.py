"""Starts `penstock` as a process of its own, looks at its children, and ends what a test has started.

Processes are found below `/proc`, so this works on Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

PATIENCE = 150.0
"""Seconds until a test gives up waiting; long, as Spark starts slowly on a busy machine."""
LIGHT = ("--master", "local[2]", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
"""Options that halve what a short run costs: the JVM compiles lightly."""


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE, every: float = 0.01) -> None:
    """Polls until the condition holds; fails with `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for: {what}")
        time.sleep(every)


def at_work_below(folder: Path) -> list[psutil.Process]:
    """The processes that work in a folder below this one, or have been told of one; not this one itself."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [process.cwd(), *process.cmdline()]
            dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if process.pid != os.getpid() and not dead and any(Path(text).is_relative_to(folder) for text in told if text):
            found.append(process)
    return found


def end_below(folder: Path) -> None:
    """Kills what works below a folder, also what has not reported yet, and waits until it is gone."""
    while found := at_work_below(folder):
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(PATIENCE)


class Process:
    """One `penstock` command. Leaving the context kills it and its children if they still live."""

    def __init__(
        self,
        arguments: Sequence[object],
        log: Path,
        env: Mapping[str, str] | None = None,
        *,
        module: str = "penstock.cli.main",
    ) -> None:
        self.log = log
        self.command = [sys.executable, "-m", module, *(str(argument) for argument in arguments)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )
        self.pid = self.process.pid

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = PATIENCE) -> int:
        """Waits for its end; the exit code, or less the number of the signal that killed it."""
        return self.process.wait(seconds)

    def wait_until(self, condition: Callable[[], object], what: str, every: float = 0.01) -> None:
        """Polls while the process lives; its early end is a failure that shows what it printed."""
        met = False

        def look() -> bool:
            # What is looked for may be there for a moment only.
            nonlocal met
            met = bool(condition())
            return met or not self.alive

        try:
            until(look, what, every=every)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None
        assert met or condition(), f"ended with {self.process.returncode} before: {what}\n{self.text}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def jvm(self) -> int:
        """The process id of its JVM, which must be running."""
        found = [pid for pid in children(self.pid) if _name(pid) == "java"]
        assert len(found) == 1, f"{len(found)} JVMs below {self.pid}"
        return found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = [self.pid, *descendants(self.pid)] if self.alive else []
        for pid in started:
            kill(pid)
        self.process.wait(30)


def penstock(*arguments: object, log: Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs a command to its end: exit code and all it printed."""
    with Process(arguments, log, env) as process:
        return process.wait(), process.text


def kill(pid: int) -> None:
    with _gone_is_fine():
        os.kill(pid, signal.SIGKILL)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except (ProcessLookupError, FileNotFoundError):
        return


def _stat(pid: int) -> tuple[str, str, int] | None:
    """Name, state and parent of a process, from the kernel."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return name, rest[0], int(rest[1])


def _name(pid: int) -> str:
    found = _stat(pid)
    return found[0] if found else ""


def is_running(pid: int) -> bool:
    """Whether the process still runs; one that is dead and not yet collected by its parent does not."""
    found = _stat(pid)
    return found is not None and found[1] not in ("Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether it stands still after a SIGSTOP."""
    found = _stat(pid)
    return found is not None and found[1] == "T"


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def children(pid: int) -> list[int]:
    return [other for other in _all() if (found := _stat(other)) is not None and found[2] == pid]


def descendants(pid: int) -> list[int]:
    return [below for child in children(pid) for below in (child, *descendants(child))]


def with_variable(name: str, value: str) -> list[int]:
    """Running processes that have this in their environment: what a process has started inherits it."""
    wanted = f"{name}={value}".encode()
    return [pid for pid in _all() if wanted in _environment(pid).split(b"\0") and is_running(pid)]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
