"""Tries out pipelines that somebody is writing, in a process with a Spark of its own that is kept for a while.

A process that has run code, or that was given secrets, answers one question only; one that is kept answers only those
who may use the same files.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.control.asking import Busy, NoAnswer, end
from penstock.control.launch.access import ProcessAccess
from penstock.control.launch.launcher import Launcher

_MODULE = "penstock.testing.bench"
_TURN_SECONDS = 30.0
_IDLE_SECONDS = 180.0
_WAITING = 3
"""So many requests may wait at once; each holds a thread of the server."""
_QUESTIONS = 200
"""After so many a process is replaced by a fresh one."""
_LARGEST = 20_000_000


class Bench:
    """One question at a time. Whatever is asked for longer than the patience ends with its process."""

    def __init__(
        self,
        patience: float = 90.0,
        idle: float = _IDLE_SECONDS,
        module: str = _MODULE,
        launcher: Launcher | None = None,
    ) -> None:
        self._launcher = launcher or Launcher()
        self._patience = patience
        self._idle = idle
        self._module = module
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._kept: _Process | None = None
        self._timer: threading.Timer | None = None

    def ask(self, question: Mapping[str, Any], access: ProcessAccess, *, alone: bool = False) -> Any:
        """The answer, or what is wrong as `problems`; raises NoAnswer. `alone`: by a process that answers no other."""
        with self._taken():
            if alone:
                process = _Process(self._launcher, self._module, access)
                try:
                    return process.ask(question, self._patience)
                finally:
                    process.end()
            return self._ask_kept(question, access)

    def _ask_kept(self, question: Mapping[str, Any], access: ProcessAccess) -> Any:
        if self._kept is None or not self._kept.usable or self._kept.access != access:
            self._end_kept()
            self._kept = _Process(self._launcher, self._module, access)
        try:
            found = self._kept.ask(question, self._patience)
        except NoAnswer:
            self._end_kept()
            raise
        self._timer = threading.Timer(self._idle, self._rest)
        self._timer.daemon = True
        self._timer.start()
        return found

    @contextmanager
    def _taken(self) -> Iterator[None]:
        busy = "others are trying out pipelines; wait a moment"
        if not self._waiting.acquire(blocking=False):
            raise Busy(busy)
        try:
            if not self._turn.acquire(timeout=_TURN_SECONDS):
                raise Busy(busy)
            try:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                yield
            finally:
                self._turn.release()
        finally:
            self._waiting.release()

    def _rest(self) -> None:
        """Nobody has asked for a while, so the memory is for the pipelines."""
        if self._turn.acquire(blocking=False):
            try:
                if threading.current_thread() is self._timer:
                    self._end_kept()
            finally:
                self._turn.release()

    def _end_kept(self) -> None:
        if self._kept is not None:
            self._kept.end()
            self._kept = None

    def close(self) -> None:
        """Ends the process; a question that waits for it gets no answer."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_kept()


class _Process:
    def __init__(self, launcher: Launcher, module: str, access: ProcessAccess) -> None:
        self.access = access
        self._asked = 0
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True)
        place = Path(self._scratch.name)
        launcher.give(place)
        try:
            self._process = launcher.start(
                (sys.executable, "-m", module),
                access,
                folder=place,
                home=place,
                scratch=place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            self._scratch.cleanup()
            raise NoAnswer(f"its process could not be started: {error.strerror or error}") from None

    @property
    def usable(self) -> bool:
        return self._process.poll() is None and self._asked < _QUESTIONS

    def ask(self, question: Mapping[str, Any], patience: float) -> Any:
        assert self._process.stdin is not None
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            found = json.loads(self._line(time.monotonic() + patience))
        except (OSError, ValueError):
            raise NoAnswer("its process has ended") from None
        if not isinstance(found, dict):
            raise NoAnswer("there is no answer in it")
        return found

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        number, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            if not _readable(number, deadline - time.monotonic()):
                raise NoAnswer("it takes too long")
            part = os.read(number, 65_536)
            line += part
            if not part or len(line) > _LARGEST:
                raise NoAnswer("its process has ended")
        return line

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        end(self._process)
        self._scratch.cleanup()


def _readable(number: int, seconds: float) -> bool:
    return seconds > 0 and bool(select.select([number], [], [], seconds)[0])
