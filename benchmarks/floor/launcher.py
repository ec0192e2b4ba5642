"""Runs a command so that everything it starts stays below one process, and ends with it.

usage: launcher.py SECONDS COMMAND…   Orphans become children of the launcher, which waits for them: so their CPU time
is counted, also after their end. SIGTERM, and the end of whoever started the launcher, ask the command to stop; after
SECONDS everything is killed. What the command leaves behind is killed too. Needs nothing but Python's own library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36


def launch(seconds: int, command: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: _send(process.pid, signal.SIGTERM))
    signal.signal(signal.SIGALRM, lambda *_: _kill_children())
    signal.alarm(seconds)
    code = None
    while code is None:
        pid, status = os.wait()
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
    with suppress(ChildProcessError):
        # As a process ends, its children become the launcher's, so this reaches all of them.
        while True:
            _kill_children()
            os.wait()
    return code if code >= 0 else 128 - code


def _kill_children() -> None:
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split():
        _send(int(pid), signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(launch(int(sys.argv[1]), sys.argv[2:]))
