"""Asks a process of its own for an answer in JSON; it is confined as those of pipelines are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.control.launch.access import ProcessAccess
from penstock.control.launch.launcher import Launcher

_AT_ONCE = threading.BoundedSemaphore(3)
"""However many ask, the machine is for the pipelines."""
_TURN_SECONDS = 20.0
_LARGEST = 20_000_000


class NoAnswer(Exception):
    """Why there is none."""


class Busy(NoAnswer):
    """Others are asking; there may be an answer later."""


def ask(
    launcher: Launcher,
    module: str,
    arguments: Sequence[str],
    access: ProcessAccess,
    patience: float,
    question: str = "",
    own: Sequence[Path] = (),
) -> dict[str, Any]:
    """What a module of Penstock prints for these arguments and this input; raises NoAnswer.

    Beside `access` the process may change what is its `own`.
    """
    with _turn(), tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as asked, scratch_folder("ask") as place:
        asked.write(question.encode("utf-8"))
        asked.seek(0)
        launcher.give(place)
        process = launcher.start(
            (sys.executable, "-m", module, *arguments),
            access,
            folder=place,
            home=place,
            scratch=place,
            own=own,
            stdin=asked,
            stdout=answer,
        )
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"it was not done within {patience:.0f} seconds") from None
        finally:
            end(process)
        answer.seek(0)
        try:
            found = json.loads(answer.read(_LARGEST))
        except ValueError:
            found = None
    if code != 0 or not isinstance(found, dict):
        raise NoAnswer(f"its process ended with {code}")
    return found


@contextmanager
def _turn() -> Iterator[None]:
    if not _AT_ONCE.acquire(timeout=_TURN_SECONDS):
        raise Busy("too much is asked of the server at once")
    try:
        yield
    finally:
        _AT_ONCE.release()


def end(process: subprocess.Popen[bytes]) -> None:
    """Also what it has started, which may outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A folder of its own for a process, for as long as it lives."""
    with tempfile.TemporaryDirectory(prefix=f"penstock-{purpose}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
