"""Asks a process of its own for an answer in JSON, with nothing of the server's that may be secret."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_SECRET_ENVIRONMENT = re.compile(r"PENSTOCK_|.*(TOKEN|SECRET|PASSWORD|KEY)", re.IGNORECASE)
_AT_ONCE = threading.BoundedSemaphore(3)
"""However many ask, the machine is for the pipelines."""
_TURN_SECONDS = 20.0
_LARGEST = 20_000_000


class NoAnswer(Exception):
    """Why there is none."""


class Busy(NoAnswer):
    """Others are asking; there may be an answer later."""


def ask(module: str, arguments: Sequence[str], folder: Path, patience: float, question: str = "") -> dict[str, Any]:
    """What a module of Penstock prints for these arguments and this input; raises NoAnswer."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    with _turn(), tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as asked:
        asked.write(question.encode("utf-8"))
        asked.seek(0)
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=harmless(os.environ),
            stdin=asked,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
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


def harmless(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what may be secret: the process has no business with it."""
    kept = {key: value for key, value in environment.items() if not _SECRET_ENVIRONMENT.match(key)}
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in kept["PYTHONPATH"].split(os.pathsep))
    return kept
