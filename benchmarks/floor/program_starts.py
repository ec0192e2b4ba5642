"""Counts the programs (exec), processes and threads that a process tree starts, as the kernel reports them.

The kernel's process connector costs the measured processes nothing, unlike tracing them. It takes root; without it the
forks of the whole machine are counted, of all that runs there.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.usage import tree

_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC = 11, 1, 1
_LISTEN = 1
_NLMSG_DONE = 3
_FORK, _EXEC = 0x1, 0x2
_HEADERS = 16 + 20
"""Of netlink and of the connector; the event follows."""
_EVENT = struct.Struct("=IIQ")
_BUFFER = 4_000_000
_LAST_SECONDS = 1.0


@dataclass
class Starts:
    """Since the counting began."""

    programs: int = 0
    processes: int = 0
    threads: int = 0


class ProgramStarts:
    """Counts what the tree below a process starts, while inside `with`; `starts` is None where that is not allowed."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.starts: Starts | None = None
        self.lost = False
        """Whether the kernel had more to report than could be read in time."""
        self._machine = machine_forks()
        self._pids: set[int] = set()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._end = threading.Event()

    @property
    def forks(self) -> int:
        """New processes and threads: of the tree, or of the whole machine if those of the tree cannot be counted."""
        return self.starts.processes + self.starts.threads if self.starts else machine_forks() - self._machine

    def __enter__(self) -> Self:
        try:
            self._socket = _connect()
        except OSError:
            return self
        # Whatever starts from now on is reported; what runs already is in the tree.
        self.starts = Starts()
        self._pids = set(tree(self.root))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._socket is not None:
            self._thread.join()
            self._socket.close()

    def _listen(self) -> None:
        assert self._socket is not None
        deadline = None
        # What has been reported by the end is read, unless it goes on and on.
        while deadline is None or time.monotonic() < deadline:
            if deadline is None and self._end.is_set():
                deadline = time.monotonic() + _LAST_SECONDS
            try:
                message = self._socket.recv(4096)
            except TimeoutError:
                if deadline is not None:
                    return
                continue
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            self.note(message)

    def note(self, message: bytes) -> None:
        """Takes one message of the kernel."""
        what, _, _ = _EVENT.unpack_from(message, _HEADERS)
        numbers = _HEADERS + _EVENT.size
        assert self.starts is not None
        if what == _FORK:
            _, parent, thread, process = struct.unpack_from("=IIII", message, numbers)
            if thread != process:
                self.starts.threads += process in self._pids
            elif parent in self._pids:
                self._pids.add(process)
                self.starts.processes += 1
        elif what == _EXEC:
            self.starts.programs += struct.unpack_from("=II", message, numbers)[1] in self._pids


def _connect() -> socket.socket:
    connected = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
    try:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        connected.settimeout(0.2)
        connected.bind((0, _CN_IDX_PROC))
        content = struct.pack("=IIIIHHI", _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, 4, 0, _LISTEN)
        connected.send(struct.pack("=IHHII", 16 + len(content), _NLMSG_DONE, 0, 0, os.getpid()) + content)
    except OSError:
        connected.close()
        raise
    return connected


def machine_forks() -> int:
    """Processes and threads that the whole machine has started since it did."""
    match = re.search(r"^processes (\d+)$", Path("/proc/stat").read_text("utf-8"), re.MULTILINE)
    return int(match[1]) if match else 0
