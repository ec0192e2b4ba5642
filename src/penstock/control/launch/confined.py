"""`python -P -m penstock.control.launch.confined NUMBER COMMAND…`: limits this process, then becomes the command.

The limits stand in the open file of that number. They hold before the first line of the command, and for all that it
starts. Python modules run in this very process, so that nothing starts twice.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from penstock.control.launch import landlock

_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "files": resource.RLIMIT_NOFILE,
    "fileBytes": resource.RLIMIT_FSIZE,
    "cpuSeconds": resource.RLIMIT_CPU,
    "memoryBytes": resource.RLIMIT_AS,
    "processes": getattr(resource, "RLIMIT_NPROC", -1),
}
_NO_NEW_PRIVILEGES = 38
_DROP_FROM_BOUND = 24
_KEPT = 1 << 1
"""An administrator may still open files of other users, as far as the list of files lets it."""
_CAPABILITIES_V3 = 0x20080522


def confine(rules: Mapping[str, Any]) -> None:
    """Limits this process as the rules say; raises OSError if the kernel does not do it."""
    for name, value in rules["limits"].items():
        limit(_LIMITS[name], value)
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if os.geteuid() == 0:
            _drop_capabilities(libc)
    if rules["files"] is not None:
        files = rules["files"]
        landlock.restrict(files["read"], files["write"], files["devices"])


def limit(kind: int, value: int) -> None:
    """Sets a limit, or a lower one that is set already."""
    if kind < 0:
        return
    _, hard = resource.getrlimit(kind)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Takes from an administrator what goes beyond files: mounts, devices, the network's rules, other processes."""
    for number in range(64):
        if not _KEPT >> number & 1:
            libc.prctl(_DROP_FROM_BOUND, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)(_KEPT, _KEPT, 0, 0, 0, 0)
    if libc.capset(header, sets) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become(command: Sequence[str]) -> NoReturn:
    """Runs a command: a module of this Python here, anything else in the place of this process."""
    if len(command) > 2 and command[0] == sys.executable and command[1] == "-m":
        sys.argv = list(command[2:])
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
        sys.exit(0)
    os.execvp(command[0], list(command))


def main() -> NoReturn:
    number, command = int(sys.argv[1]), sys.argv[2:]
    with os.fdopen(number, "rb") as file:
        rules = json.load(file)
    try:
        confine(rules)
    except OSError as error:
        # Without its limits it must not run.
        print(f"the process could not be confined: {error.strerror or error}", file=sys.stderr)
        sys.exit(126)
    try:
        become(command)
    except OSError as error:
        with suppress(OSError):
            print(f"{command[0]} cannot be run: {error.strerror or error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
